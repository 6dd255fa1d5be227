"""Which task suits image data, and the question where several do."""

import json
import zipfile

import pytest

from saccade.errors import DataError
from saccade.tasks import guess_task


def refused(path, *overrides):
    with pytest.raises(DataError) as error:
        guess_task(path, overrides)
    return str(error.value)


@pytest.fixture
def pictures(write):
    return write(*(f"photos/{number}.png" for number in range(12)))


def table(path, rows):
    path.write_text("\n".join(rows) + "\n")
    return path


def test_class_folders_and_archives(write, tmp_path):
    write("data/cats/1.png", "data/dogs/2.png")
    assert guess_task(tmp_path / "data") == "image_classification"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("cats/1.png", "dogs/2.png"):
            archive.write(tmp_path / "data" / name, name)
    assert guess_task(tmp_path / "a.zip") == "image_classification"


@pytest.mark.parametrize(
    ("columns", "values", "task"),
    [
        ("image,label", ["cat", "dog"], "image_classification"),
        ("image,caption", ["a black cat on a mat", "two dogs"], "captioning"),
        ("image,question,answer", ["what is it?,cat", "what colour is it?,black"], "visual_question_answering"),
        ("file_name,words", ["hello", "you"], "reading"),
        ("file_name,transcription", ["hello", "you"], "reading"),
        ("image,breed", ["cat", "dog"], "--task image_classification or --task reading"),
        ("file_name,text", [f"some text {number}" for number in range(12)], "--task captioning or --task reading"),
        ("image,label,caption", ["cat,a cat", "dog,a dog"], "--task image_classification or --task captioning"),
    ],
)
def test_tables(pictures, columns, values, task):
    rows = [f"photos/{number}.png,{values[number % len(values)]}" for number in range(12)]
    path = table(pictures / "data.csv", [columns, *rows])
    if task.startswith("--task"):
        message = refused(path)
        assert message.startswith(f"{path}: the texts of the pictures may be several things, expected one that their")
        assert message.endswith(f"; choose with {task}")
    else:
        assert guess_task(path) == guess_task(pictures) == task


def test_given_columns_decide(pictures):
    rows = [f"photos/{number}.png,cat {number % 2},a cat" for number in range(12)]
    path = table(pictures / "data.csv", ["image,label,caption", *rows])
    assert guess_task(path, ["data.label_column=label"]) == "image_classification"
    assert guess_task(path, ["data.caption_column=caption"]) == "captioning"
    assert guess_task(path, ["data.text_column=caption"]) == "reading"


def test_lists(pictures):
    flickr = [f"{number}.png#{index}\tcaption {index}" for number in range(12) for index in range(2)]
    assert guess_task(table(pictures / "a.token.txt", flickr)) == "captioning"
    (pictures / "a.token.txt").unlink()
    words = [f"photos/{number}.png\tword {number}" for number in range(12)]
    assert guess_task(table(pictures / "gt.txt", words)) == "reading"
    (pictures / "gt.txt").unlink()
    assert "choose with --task captioning or --task reading" in refused(table(pictures / "list.txt", words))
    labels = [f"photos/{number}.png {'cat' if number % 2 else 'dog'}" for number in range(12)]
    assert "--task image_classification or --task reading" in refused(table(pictures / "list.txt", labels))


def test_json(pictures):
    captions = {"images": [{"id": 1, "file_name": "1.png"}], "annotations": [{"image_id": 1, "caption": "a cat"}]}
    (pictures / "captions.json").write_text(json.dumps(captions))
    assert guess_task(pictures / "captions.json") == guess_task(pictures) == "captioning"
    (pictures / "captions.json").unlink()
    (pictures / "questions.json").write_text(json.dumps([["what is it?", "a cat", 1]]))
    assert guess_task(pictures) == "visual_question_answering"


def test_pictures_alone_say_what_is_missing(pictures):
    assert refused(pictures / "photos") == (
        f"{pictures / 'photos'}: pictures without labels or texts, expected a folder for each class, or a table with a "
        "path and a label, a caption, or a question and answer; where the file names are the texts that the pictures "
        "show, add --task reading; to generate such pictures, --task image_generation"
    )
    message = refused(pictures / "photos" / "1.png")
    assert message == (
        f"{pictures / 'photos' / '1.png'}:1:1: looks like a PNG image, expected text, csv, tsv or jsonl; "
        "name another file, or for pictures a folder with a folder for each class"
    )


def test_text_stays_text(pictures, tmp_path):
    assert (
        guess_task(table(tmp_path / "a.txt", ["It is a text about photos/1.png and others."] * 9)) == "language_model"
    )
    rows = [f"a text number {number},{number % 2},missing-{number}.png" for number in range(30)]
    assert guess_task(table(tmp_path / "b.csv", ["text,label,image", *rows])) == "text_classification"
    urls = [f"a text number {number},{number % 2},https://example.org/{number}.png" for number in range(30)]
    assert guess_task(table(tmp_path / "c.csv", ["text,label,image", *urls])) == "text_classification"
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.md").write_text("# A page\n\nwith text.\n")
    (folder / "logo.png").write_bytes((pictures / "photos" / "1.png").read_bytes())
    assert guess_task(folder) == "language_model"


def test_a_table_whose_pictures_are_missing_is_one_of_pictures(tmp_path):
    path = table(tmp_path / "a.csv", ["image,label", *(f"photos/{number}.png,{number % 2}" for number in range(30))])
    assert guess_task(path) == "image_classification"
