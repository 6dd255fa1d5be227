"""Tagged words: all CoNLL variants give the same sentences, and every bad line is reported."""

import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.formats.tagged import read_tagged
from saccade.data.splitting import SplitSettings
from saccade.errors import DataError

STEP = "write each word on a line of its own, with its tag behind a tab"


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def sentences(path: Path, **options):
    return [list(zip(each.words, each.tags, strict=True)) for each in read_tagged(path, **options).sentences]


def failure(path: Path, **options) -> str:
    with pytest.raises(DataError) as caught:
        read_tagged(path, **options)
    return str(caught.value).replace(str(path), path.name)


PLAIN = "Ann\tB-PER\nLee\tI-PER\n\n#fun\tO\n"
WANTED = [[("Ann", "B-PER"), ("Lee", "I-PER")], [("#fun", "O")]]


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        PLAIN.rstrip("\n"),
        PLAIN.replace("\t", " "),
        PLAIN.replace("\n", "\r\n"),
        "\ufeff" + PLAIN,
        PLAIN.replace("\n\n", "\n \t \n\n\t\n"),
        "-DOCSTART- -X- O\n\n" + PLAIN,
        "# sent_id = 1\n# text = Ann Lee\n" + PLAIN,
        PLAIN.replace("#fun", "# a remark\n#fun"),
        PLAIN.replace("\t", "\tNN\tx\t"),
        "-DOCSTART- -X- -X- O\n\n" + PLAIN.replace("\t", " NN x "),
        PLAIN.replace("Lee", "Lee  "),
        PLAIN.replace("#fun\tO", "\tO\n#fun\tO"),
    ],
)
def test_every_way_of_writing_gives_the_same_sentences(tmp_path, content):
    assert sentences(write(tmp_path, "t.conll", content)) == WANTED
    assert sentences(write(tmp_path, "t.conll.gz", gzip.compress(content.encode()))) == WANTED


def test_lines_are_counted_and_tags_sorted(tmp_path):
    found = read_tagged(write(tmp_path, "t.conll", "# x\nz\tO\nb\tI-b\n\n \nc\tB-a\n"))
    assert [each.lines for each in found.sentences] == [(2, 3), (6,)]
    assert found.sentences[0].file == tmp_path / "t.conll"
    assert found.names == ("O", "B-a", "I-b")
    assert found.notes() == ["2 sentences, 3 words, tags: O, B-a, I-b"]


def test_a_number_sign_may_be_a_word(tmp_path):
    content = "# O\n1 O\n# remark\nAnn B-PER\n"
    assert sentences(write(tmp_path, "t.conll", content)) == [[("#", "O"), ("1", "O"), ("Ann", "B-PER")]]
    assert sentences(write(tmp_path, "t.conll", "a O\n#b B-NEW\n")) == [[("a", "O"), ("#b", "B-NEW")]]
    assert sentences(write(tmp_path, "t.conll", "a\tO\n#\tB-NEW\n")) == [[("a", "O"), ("#", "B-NEW")]]
    assert sentences(write(tmp_path, "t.conll", "#a\tO\n#b\tO\n")) == [[("#a", "O"), ("#b", "O")]]


def test_words_may_hold_spaces_where_tabs_part_the_columns(tmp_path):
    assert sentences(write(tmp_path, "t.conll", "New York\tB-LOC\nis\tO\n")) == [[("New York", "B-LOC"), ("is", "O")]]
    unusual = "a\u00a0b O\nc\u2028d O\n"
    assert sentences(write(tmp_path, "t.conll", unusual)) == [[("a\u00a0b", "O"), ("c\u2028d", "O")]]


def test_skipped_lines_are_reported(tmp_path):
    found = read_tagged(write(tmp_path, "t.conll", "a\x12\tO\n \tO\nb\tO\n"))
    assert found.sentences[0].words == ("a", "b")
    assert found.notes()[1:] == [
        "1 line with the tag O and no word skipped",
        "1 control character read as a space (first: t.conll:1)",
    ]


def test_the_files_of_a_folder_are_read_together(tmp_path):
    write(tmp_path, "a.conll", "a\tO\n")
    write(tmp_path, "b.conll", "b\tO\n")
    write(tmp_path, "README.md", "no words\n")
    assert sentences(tmp_path) == [[("a", "O")], [("b", "O")]]


@pytest.mark.parametrize(
    "content, message",
    [
        ("a\tO\nb\n", f"t.conll:2: 1 column ('b'), expected a word and its tag; {STEP}"),
        ("a\tO\nb\tx\tO\n", f"t.conll:2: 3 columns, expected 2 as in line 1; {STEP}"),
        ("a x O\nb O\n", f"t.conll:2: 2 columns, expected 3 as in line 1; {STEP}"),
        ("a\tO\nb\t\n", f"t.conll:2: no tag behind 'b', expected a tag in the last column; {STEP}"),
        ("a\tO\n\tB-x\n", f"t.conll:2: no word before the tag 'B-x', expected a word in the first column; {STEP}"),
        ("just\nwords\n", None),
        ("\n \n", f"t.conll:1: no words, expected a word and its tag on each line; {STEP}"),
        ("# only remarks\n", f"t.conll:1: no words, expected a word and its tag on each line; {STEP}"),
        (
            '{"words": ["a"], "tags": ["O"]}\n',
            f"t.conll:1: a table (jsonl), expected a CoNLL file; {STEP}, and leave a line blank between sentences",
        ),
    ],
)
def test_bad_lines_are_named(tmp_path, content, message):
    said = failure(write(tmp_path, "t.conll", content))
    if message is None:
        assert said.split("\n") == [
            "t.conll:1: 1 column ('just'), expected a word and its tag",
            "t.conll:2: 1 column ('words'), expected a word and its tag",
            f"next: {STEP}",
        ]
    else:
        assert said == message


PIECES = st.lists(
    st.sampled_from(["a", "O", "B-x", "\t", " ", "\n", "\n\n", "# ", "-DOCSTART-", "\x00", "\r", "\u2028"])
)


@settings(max_examples=150)
@given(PIECES.map("".join).map(str.encode) | st.binary(max_size=60))
def test_whatever_a_file_holds_it_is_read_or_refused_in_words(tmp_path_factory, content):
    path = write(tmp_path_factory.mktemp("any"), "t.conll", content)
    try:
        found = read_tagged(path)
    except DataError as error:
        assert str(path) in str(error)
    else:
        assert len(found) > 0
        for each in found.sentences:
            assert len(each.words) == len(each.tags) == len(each.lines) > 0
            assert all(each.words) and all(each.tags)


def test_a_byte_of_another_encoding_is_named(tmp_path):
    path = write(tmp_path, "t.conll", "a\tO\nMünchen\tB-LOC\n".encode("latin-1"))
    assert failure(path).startswith(
        "t.conll:2:2: byte 0xFC is not utf-8, expected utf-8 text; set data.encoding=cp1252"
    )
    assert sentences(path, encoding="latin-1")[0][1] == ("München", "B-LOC")


def test_a_folder_without_tagged_words_is_refused(tmp_path):
    write(tmp_path, "a.png", b"x")
    assert failure(tmp_path) == (
        f"{tmp_path.name}: holds no file of tagged words, expected names that end in .conll, .conll03, .iob, .iob2, "
        ".bio, .tsv, .txt; name the file you mean"
    )


def test_tags_of_validation_sentences_are_those_of_the_training_sentences(tmp_path):
    train = read_tagged(write(tmp_path, "train.conll", PLAIN))
    assert read_tagged(write(tmp_path, "good.conll", "x\tO\n"), tags=train.names).names == ("O", "B-PER", "I-PER")
    said = failure(write(tmp_path, "t.conll", "x\tO\ny\tB-PRE\n"), tags=train.names)
    assert said == (
        "t.conll:2: tag 'B-PRE', expected one of the training sentences: O, B-PER, I-PER; did you mean 'B-PER'?; "
        "correct it, or add sentences with this tag to the training data"
    )


def test_a_share_of_sentences_with_each_entity_is_held_out(tmp_path):
    content = "".join(f"w{row}\t{'B-LOC' if row % 10 == 0 else 'O'}\n\n" for row in range(400))
    found = read_tagged(write(tmp_path, "t.conll", content + content))
    splits = [found.split(SplitSettings(0.1, seed)) for seed in (0, 0, 1)]
    words = [[each.words for each in valid.sentences] for _, valid in splits]
    assert words[0] == words[1] != words[2]
    for train, valid in splits:
        assert Counter(each.tags for each in valid.sentences) == {("O",): 72, ("B-LOC",): 8}
        assert not {each.words for each in train.sentences} & {each.words for each in valid.sentences}
        assert len(train) + len(valid) == 800
        assert valid.names == found.names


@pytest.mark.parametrize(
    "name, count, tags, wordless",
    [
        ("wnut17/wnut17train.conll", 3394, 13, 0),
        ("wnut17/emerging.dev.conll", 1009, 13, 0),
        ("wnut17/emerging.test.annotated", 1287, 13, 0),
        ("btc", 9338, 7, 6),
    ],
)
def test_real_data_are_read(dataset, name, count, tags, wordless):
    found = read_tagged(dataset(f"ner/{name}"))
    assert (len(found), len(found.names), found.wordless) == (count, tags, wordless)
