"""Tables and lists of pictures: columns by name or content, paths as they are written, problems with their lines."""

import json
import tarfile
import zipfile

import pytest

from saccade.data.formats.image_rows import ImageSettings, read_image_rows
from saccade.data.images.decoded import decode_pictures
from saccade.data.images.resizing import Resize
from saccade.errors import DataError, UsageError


def read(path, *roles, **settings):
    return read_image_rows(path, roles or ("label",), ImageSettings(**settings))


def pairs(rows, role="label"):
    names = [rows.pictures.name(int(number)).rpartition("/")[2] for number in rows.picture]
    return list(zip(names, rows.texts[role], strict=True))


def refused(path, *roles, **settings):
    with pytest.raises((DataError, UsageError)) as error:
        read(path, *roles, **settings)
    return str(error.value)


def test_a_csv_of_paths_and_labels(write, tmp_path):
    write("photos/1.png", "photos/2.png")
    (tmp_path / "labels.csv").write_text("file,label\nphotos/1.png,cat\nphotos/2.png,dog\n")
    for path in (tmp_path / "labels.csv", tmp_path):
        rows = read(path)
        assert pairs(rows) == [("1.png", "cat"), ("2.png", "dog")]
        assert [rows.origins.describe(row) for row in range(2)] == ["labels.csv:2", "labels.csv:3"]
        assert "picture: column file, label: column label" in rows.notes()


def test_columns_by_content_and_without_a_header(write, tmp_path):
    write("1.png", "2.png", "3.png")
    (tmp_path / "a.csv").write_text("cat,1.png\ndog,2.png\ncat,3.png\n")
    assert pairs(read(tmp_path / "a.csv")) == [("1.png", "cat"), ("2.png", "dog"), ("3.png", "cat")]
    (tmp_path / "b.tsv").write_text("Bild\tTier\n1.png\tcat\n2.png\tdog\n")
    assert pairs(read(tmp_path / "b.tsv")) == [("1.png", "cat"), ("2.png", "dog")]


def test_given_columns(write, tmp_path):
    write("1.png", "2.png")
    (tmp_path / "a.csv").write_text("id,species,colour\n1,cat,black\n2,dog,white\n")
    rows = read(tmp_path / "a.csv", image_column="id", label_column="colour")
    assert pairs(rows) == [("1.png", "black"), ("2.png", "white")]
    message = refused(tmp_path / "a.csv", image_column="id", label_column="color")
    assert (
        message
        == f"{tmp_path}/a.csv:1: no column called 'color', expected one of: id, species, colour; did you mean 'colour'?"
    )
    assert "must be different columns, but two are 'id'" in refused(
        tmp_path / "a.csv", image_column="id", label_column="id"
    )
    assert "2 columns look like a label (species, colour)" in refused(tmp_path / "a.csv", image_column="id")


def test_numbers_are_names_where_the_pictures_are_beside_the_table(write, tmp_path):
    write("train/17.png", "train/18.png")
    (tmp_path / "labels.csv").write_text("id,breed\n17,boxer\n18,pug\n")
    assert pairs(read(tmp_path)) == [("17.png", "boxer"), ("18.png", "pug")]


def test_questions_and_answers(write, tmp_path):
    write("1.png")
    lines = [{"image": "1.png", "question": "what?", "answer": ["a cat", "cat"]}]
    lines += [{"image": "1.png", "question": "how many?", "answer": 2}]
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = read(tmp_path / "qa.jsonl", "question", "answer")
    assert list(rows.texts["question"]) == ["what?", "how many?"]
    assert list(rows.texts["answer"]) == ["a cat\ncat", "2"]
    assert rows.picture.tolist() == [0, 0] and len(rows.pictures) == 1


def test_several_captions_of_a_picture(write, tmp_path):
    write("1.png", "2.png")
    (tmp_path / "a.jsonl").write_text(
        '{"image": "1.png", "captions": ["a cat", "a black cat"]}\n{"image": "2.png", "captions": ["a dog"]}\n'
    )
    expected = [("1.png", "a cat"), ("1.png", "a black cat"), ("2.png", "a dog")]
    assert pairs(read(tmp_path, "caption"), "caption") == expected
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "captions.txt").write_text('image,caption\n1.png,a cat\n1.png,"a black, old cat"\n2.png,a dog\n')
    expected[1] = ("1.png", "a black, old cat")
    assert pairs(read(tmp_path / "captions.txt", "caption"), "caption") == expected


def test_metadata_as_on_the_hub(write, tmp_path):
    write("train/0001.png", "train/0002.png", "val/0001.png")
    (tmp_path / "train" / "metadata.csv").write_text("file_name,text\n0001.png,a cat\n0002.png,a dog\n")
    (tmp_path / "val" / "metadata.csv").write_text("file_name,text\n0001.png,a cow\n")
    rows = read(tmp_path, "caption")
    assert list(rows.texts["caption"]) == ["a cat", "a dog", "a cow"]
    assert rows.parts.tolist() == [0, 0, 1]
    assert rows.pictures.name(int(rows.picture[2])) == str(tmp_path / "val" / "0001.png")
    assert list(read(tmp_path / "train", "text").texts["text"]) == ["a cat", "a dog"]


def test_a_split_column_and_tables_by_part(write, tmp_path):
    write("1.png", "2.png", "3.png")
    (tmp_path / "a.csv").write_text("path,label,split\n1.png,a,train\n2.png,b,val\n3.png,a,test\n")
    assert read(tmp_path / "a.csv").parts.tolist() == [0, 1, 2]
    (tmp_path / "a.csv").unlink()
    (tmp_path / "train.csv").write_text("path,label\n1.png,a\n2.png,b\n")
    (tmp_path / "test.csv").write_text("path,label\n3.png,a\n")
    rows = read(tmp_path)
    assert dict(zip([name for name, _ in pairs(rows)], rows.parts.tolist(), strict=True)) == {
        "1.png": 0,
        "2.png": 0,
        "3.png": 2,
    }
    (tmp_path / "more.csv").write_text("path,label\n3.png,a\n")
    assert "3 tables of pictures (more.csv, test.csv, train.csv), expected one; name the one you mean" in refused(
        tmp_path
    )


def test_paths_of_other_machines_and_absolute_paths(write, tmp_path):
    write("images/cats/1.png", "images/dogs/1.png")
    for start in ("C:\\data\\images\\", "/home/someone/images/", f"{tmp_path}/images/", "images/", ""):
        cells = [f"{start}dogs/1.png,a", f"{start}cats/1.png,b"]
        (tmp_path / "a.csv").write_text("\n".join(["path,label", *cells, ""]))
        rows = read(tmp_path / "a.csv")
        folders = [rows.pictures.name(int(number)).split("/")[-2] for number in rows.picture]
        assert folders == ["dogs", "cats"]
    (tmp_path / "b.csv").write_text("path,label\n1.png,a\n1.png,b\n")
    lines = refused(tmp_path / "b.csv").splitlines()
    assert lines[0] == f"{tmp_path}/b.csv:2: several pictures are called '1.png', expected one"
    assert lines[2] == "next: write the path from the folder of the table"


def test_a_missing_picture_is_not_replaced_by_another_one_of_the_same_name(write, tmp_path):
    write("cats/1.png", "cats/2.png", "dogs/2.png")
    for start in ("", "/home/someone/"):
        lines = [f"{start}{name}.png,a" for name in ("cats/1", "cats/2", "dogs/1", "dogs/2")]
        (tmp_path / "a.csv").write_text("\n".join(["path,label", *lines, ""]))
        message = refused(tmp_path / "a.csv")
        assert message.startswith(f"{tmp_path}/a.csv:4: no picture '{start}dogs/1.png', expected a picture in")
    write("train/1.png", "val/1.png", "val/3.png")
    (tmp_path / "train" / "metadata.csv").write_text("file_name,text\n1.png,a cat\n3.png,a dog\n")
    (tmp_path / "val" / "metadata.csv").write_text("file_name,text\n1.png,a cow\n3.png,a pig\n")
    assert refused(tmp_path, "caption").startswith(f"{tmp_path}/train/metadata.csv:3: no picture '3.png'")


def test_two_paths_are_never_the_same_picture_by_leaving_out_folders(write, tmp_path):
    write("1.png", "2.png", "3.png", "4.png")
    lines = ["/a/1.png,a", "/a/2.png,b", "/a/3.png,c", "/a/4.png,d", "/b/4.png,e"]
    (tmp_path / "a.csv").write_text("\n".join(["path,label", *lines, ""]))
    message = refused(tmp_path / "a.csv")
    assert message.startswith(f"{tmp_path}/a.csv:6: '/b/4.png' and '/a/4.png' would both be the picture '4.png'")


def test_an_unknown_part_is_named_with_its_line(write, tmp_path):
    write("1.png", "2.png", "3.png")
    (tmp_path / "a.csv").write_text("path,label,split\n1.png,a,train\n2.png,b,tset\n3.png,a,\n")
    lines = refused(tmp_path / "a.csv").splitlines()
    known = "a part of the data: train, training, restval, valid, val, validation, dev, eval, test, testing"
    assert lines[0] == f"{tmp_path}/a.csv:3: 'tset' in column 'split', expected {known}; did you mean 'test'?"
    assert lines[1] == f"{tmp_path}/a.csv:4: column 'split' is empty, expected {known}"
    assert lines[2] == "next: correct it, or rename the column 'split' to ignore it"
    (tmp_path / "a.csv").write_text("path,label,set\n1.png,a,red\n2.png,b,blue\n3.png,a,red\n")
    assert read(tmp_path / "a.csv").parts is None and list(read(tmp_path / "a.csv").texts["label"]) == ["a", "b", "a"]


def test_missing_pictures_are_named_with_their_lines(write, tmp_path):
    write("photos/cat-1.png")
    (tmp_path / "a.csv").write_text("path,label\nphotos/cat-1.png,a\nphotos/cat-2.png,b\nother.png,b\n")
    lines = refused(tmp_path / "a.csv").splitlines()
    assert lines[0].startswith(f"{tmp_path}/a.csv:3: no picture 'photos/cat-2.png', expected a picture in '{tmp_path}'")
    assert "did you mean 'cat-1.png'?" in lines[0]
    assert lines[1].startswith(f"{tmp_path}/a.csv:4: no picture 'other.png'")
    assert lines[2] == "next: correct the path, or delete the row"


def test_empty_texts_and_bad_rows_are_named_with_their_lines(write, tmp_path):
    write("1.png", "2.png", "3.png")
    (tmp_path / "a.csv").write_text("path,label\n1.png,a\n2.png,\n3.png,b,c\n")
    message = refused(tmp_path / "a.csv")
    assert f"{tmp_path}/a.csv:3: the label of '2.png' is empty, expected some text in every row" in message
    assert f"{tmp_path}/a.csv:4: 3 columns, expected 2 (path, label)" in message


def test_lists_of_flickr_with_pictures_in_an_archive(write, tmp_path):
    write("images/1.png", "images/2.png")
    with tarfile.open(tmp_path / "pictures.tar", "w") as archive:
        archive.add(tmp_path / "images" / "1.png", "1.png")
        archive.add(tmp_path / "images" / "2.png", "2.png")
    for path in (tmp_path / "images").iterdir():
        path.unlink()
    (tmp_path / "a.token.txt").write_text("1.png#0\tA cat .\n1.png#1\tA black cat .\n2.png#0\tA dog .\n")
    rows = read(tmp_path, "caption")
    assert pairs(rows, "caption") == [("1.png", "A cat ."), ("1.png", "A black cat ."), ("2.png", "A dog .")]
    assert rows.origins.describe(1) == "a.token.txt:2"
    decoded = decode_pictures(rows.pictures, Resize("none", 0))
    assert int(decoded[1][0, 0, 0]) == 1
    (tmp_path / "Flickr_8k.trainImages.txt").write_text("1.png\n")
    (tmp_path / "Flickr_8k.testImages.txt").write_text("2.png\n")
    assert read(tmp_path, "caption").parts.tolist() == [0, 0, 2]


@pytest.mark.parametrize(
    "content",
    [
        "w/1.png\thello\nw/2.png\ttwo words\nw/3.png\t7\n",
        "w/1.png hello\nw/2.png two words\nw/3.png 7\n",
        'w/1.png, "hello"\nw/2.png, "two words"\nw/3.png, "7"\n',
    ],
)
def test_lists_of_text_recognition(write, tmp_path, content):
    write("w/1.png", "w/2.png", "w/3.png")
    (tmp_path / "gt.txt").write_text(content)
    for path in (tmp_path, tmp_path / "gt.txt"):
        assert pairs(read(path, "text"), "text") == [("1.png", "hello"), ("2.png", "two words"), ("3.png", "7")]


def test_labels_csv_of_words(write, tmp_path):
    write("1.png", "2.png")
    (tmp_path / "labels.csv").write_text("filename,words\n1.png,hello\n2.png,you\n")
    assert pairs(read(tmp_path, "text"), "text") == [("1.png", "hello"), ("2.png", "you")]


def test_bad_lines_of_a_list(write, tmp_path):
    write(*(f"{number}.png" for number in range(12)))
    lines = [f"{number}.png\tword" for number in range(12)]
    (tmp_path / "gt.txt").write_text("\n".join([*lines, "no picture here", "99.png\tword"]) + "\n")
    message = refused(tmp_path, "text")
    assert f"{tmp_path}/gt.txt:13: 'no picture here', expected the path of a picture and a text" in message
    assert f"{tmp_path}/gt.txt:14: no picture '99.png'" in message


def test_a_table_that_cannot_be_read_says_why(write, tmp_path):
    write("1.png", "2.png")
    (tmp_path / "gt.txt").write_bytes("1.png\tcafé au lait\n2.png\tword\n".encode("latin-1"))
    for path in (tmp_path, tmp_path / "gt.txt"):
        assert f"{tmp_path}/gt.txt:1:10: byte 0xE9 is not utf-8" in refused(path, "text")
    assert list(read(tmp_path, "text", encoding="latin-1").texts["text"]) == ["café au lait", "word"]
    write("a/1.png", "b/2.png")
    for name in ("1.png", "2.png"):
        (tmp_path / name).unlink()
    assert list(read(tmp_path).texts["label"]) == ["a", "b"]


def test_pictures_in_a_zip_beside_a_table(write, tmp_path):
    write("x/1.png", "x/2.png")
    with zipfile.ZipFile(tmp_path / "pictures.zip", "w") as archive:
        for name in ("1.png", "2.png"):
            archive.write(tmp_path / "x" / name, f"pictures/{name}")
            (tmp_path / "x" / name).unlink()
    (tmp_path / "labels.csv").write_text("image,label\n1.png,a\npictures/2.png,b\n")
    assert pairs(read(tmp_path / "labels.csv")) == [("1.png", "a"), ("2.png", "b")]


def test_a_fingerprint_changes_with_texts_and_not_with_the_folder(write, tmp_path):
    write("1.png", "2.png")
    (tmp_path / "a.csv").write_text("path,label\n1.png,a\n2.png,b\n")
    (tmp_path / "b.csv").write_text("path,label\n1.png,a\n2.png,c\n")
    (tmp_path / "c.csv").write_text("file,label\n1.png,a\n2.png,b\n")
    first, second, third = (read(tmp_path / name).fingerprint() for name in ("a.csv", "b.csv", "c.csv"))
    assert first == third != second
