"""Bad pairs: every error names the file, the line and the next step."""

import gzip
from pathlib import Path

import pytest

from saccade.data.formats.pair_files import find_pairs
from saccade.data.formats.pairs import read_pairs
from saccade.data.tables.problems import BadRows
from saccade.errors import DataError, SaccadeError, UsageError


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


BAD_TABLES = [
    (
        "t.tsv",
        "source\ttarget\na\tb\tc\nd\te\n",
        "t.tsv:2: 3 columns, expected 2 (source, target); quote fields that hold the delimiter, "
        "or correct the rows of t.tsv",
    ),
    (
        "t.csv",
        "a thing,the other,third\n1,2,3\n4,5,6\n",
        "t.csv:1: 3 columns without a usual pair of names, expected a source and a target among: a thing, the other, "
        "third; name them with data.source=NAME data.target=NAME",
    ),
    (
        "t.csv",
        "text\nhello\n",
        "t.csv:1: 1 column, expected a source and a target among: text; "
        "separate the two texts of each row of t.csv by a tab",
    ),
    (
        "t.tsv",
        "hello, you\nhello, me\n",
        "t.tsv:1: 1 column, expected a source and a target among: 1; "
        "separate the two texts of each row of t.tsv by a tab",
    ),
    (
        "t.csv",
        "source,target,source\n1,2,3\n",
        "t.csv:1: two columns are called 'source', expected different column names; rename one of them",
    ),
    (
        "t.jsonl",
        '{"source": "a", "target": "b"}\n{"source": "a"}\n',
        "t.jsonl:2: no key 'target' (keys: source), expected 'target' in every row; add the key",
    ),
    (
        "t.jsonl",
        '{"source": "a", "target": "b"}\n{"source": null, "target": "b"}\n',
        "t.jsonl:2:2: 'source' is null (null), expected a string; put it in quotes",
    ),
    (
        "t.jsonl",
        '{"source": "a", "target": "b"}\n{"source": ["a", 1], "target": "b"}\n',
        "t.jsonl:2:2: 'source' is a list ([\"a\", 1]), expected a string; write it as one string",
    ),
    (
        "t.jsonl",
        '{"source": "a", "target": "b"\n',
        "t.jsonl:1:30: invalid JSON (Expecting ',' delimiter), expected a JSON object; write one JSON object per line",
    ),
    (
        "t.jsonl",
        '{"source": "\\u0018", "target": "b"}\n',
        "t.jsonl:1:13: control character U+0018, expected printable text; "
        "remove it, for example: sed 's/\\\\u0018//g' 't.jsonl' > clean-t.jsonl",
    ),
    (
        "t.csv",
        'source,target\n"open,b\n',
        "t.csv:2:1: the quote that opens here is never closed, expected a closing quote; "
        'write a quote inside a quoted field as two quotes ("")',
    ),
    (
        "t.tsv",
        b"source\ttarget\na\tcaf\xe9\n",
        "t.tsv:2:6: byte 0xE9 is not utf-8, expected utf-8 text; set data.encoding=cp1252 or convert with iconv",
    ),
    (
        "t.tsv",
        "source\ttarget\n",
        "t.tsv:1: a header and no rows, expected at least one row; name a file with data in it",
    ),
    (
        "t.tsv",
        "source\ttarget\n\tb\na\t\n",
        "t.tsv:1: an empty side in every pair, expected at least one complete pair; "
        "fill in the sides, or name another file",
    ),
    (
        "t.tsv",
        "",
        "t.tsv:1: an empty file, expected text, csv, tsv or jsonl; name a file with data in it",
    ),
    (
        "t.txt",
        "a\tb\nc\td\ne\n",
        "t.txt:3: 1 columns, expected 2 as in line 1; correct the row; or if this is not a table, plain text needs a "
        "target: data.target=FILE, or the part of the name that differs, such as data.target=de",
    ),
    (
        "t.txt",
        "a\tb\nc\td\n",
        "t.txt: plain text needs a target: data.target=FILE, or the part of the name that differs, such as "
        "data.target=de; if it is a table, rename it to .tsv",
    ),
    (
        "t.txt",
        "hello\n",
        "t.txt: plain text needs a target: data.target=FILE, or the part of the name that differs, such as "
        "data.target=de",
    ),
    (
        "t.json",
        '[{"source": "a"}]',
        "t.json:1:1: one JSON document, expected one JSON object per line (jsonl); "
        "convert a list with: jq -c '.[]' 't.json' > rows.jsonl",
    ),
    (
        "t.tsv",
        b"PK\x03\x04xxxxxxxx",
        "t.tsv:1:1: looks like a zip archive, expected text, csv, tsv or jsonl; "
        "unpack it with unzip and name the file or folder",
    ),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_TABLES)
def test_bad_tables_are_reported_with_line_and_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str | bytes, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, name, content)
    with pytest.raises(SaccadeError) as caught:
        list(read_pairs(find_pairs(Path(name))))
    assert str(caught.value) == message


BAD_LINES: list[tuple[str | bytes, str | bytes, str]] = [
    (
        "1\n2\n3\n",
        "1\n2\n",
        "a.en:3: no line 3 in a.de: a.en has 3 lines and a.de 2, expected as many in both; "
        "look for a line that is missing, or split in two",
    ),
    (
        "1\n",
        "1\n2\n3\n4",
        "a.de:2: no line 2 in a.en: a.en has 1 lines and a.de 4, expected as many in both; "
        "look for a line that is missing, or split in two",
    ),
    (
        "1\n2\n",
        "1\nx\x00y\n",
        "a.de:2:2: NUL character U+0000, expected printable text; remove such characters, for example: "
        r"LC_ALL=C tr -d '\000-\010\016-\037\177' < 'a.de' > clean-a.de",
    ),
    (
        "1\n",
        b"caf\xe9\n",
        "a.de:1:4: byte 0xE9 is not utf-8, expected utf-8 text; set data.encoding=cp1252 or convert with iconv",
    ),
    (
        "1\n2\n3\n",
        "1\t1\n2\t2\n3\t3\n",
        "a.de:1: a table (tsv), expected plain text like a.en; name a file of lines",
    ),
    (
        " \n\n",
        "1\n2\n",
        "a.en:1: an empty side in every pair, expected at least one complete pair; "
        "fill in the sides, or name another file",
    ),
    ("1\n", "", "a.de:1: an empty file, expected text, csv, tsv or jsonl; name a file with data in it"),
]


@pytest.mark.parametrize(("source", "target", "message"), BAD_LINES)
def test_bad_lines_are_reported_with_line_and_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | bytes, target: str | bytes, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a.en", source)
    write(tmp_path, "a.de", target)
    with pytest.raises(SaccadeError) as caught:
        list(read_pairs(find_pairs(Path("a.en"), target="de")))
    assert str(caught.value) == message


BAD_WORDS = [
    (
        "train.en",
        {"target": "dee"},
        "train.en: no file 'dee', and none beside it with 'dee' in place of a part of its name, expected one of: "
        "t.csv, train.de, train.fr, val.en; did you mean 'de'?",
    ),
    (
        "train.en",
        {"target": "enn"},
        "train.en: no file 'enn', and none beside it with 'enn' in place of a part of its name, expected one of: "
        "t.csv, train.de, train.fr, val.en; name the file: data.target=FILE",
    ),
    (
        "train.en",
        {"target": "./train.dd"},
        "train.dd: no such file or folder; did you mean 'train.de'?",
    ),
    ("train.en", {"target": "./"}, "./: a folder, expected a file; name the one that goes with train.en"),
    (
        "train.en",
        {"target": "train.en"},
        "train.en: the source and the target are one file, expected two; name the other one",
    ),
    (
        "train.en",
        {"source": "left", "target": "de"},
        "train.en: plain text has no columns, and 'left' is no part of its name; leave out data.source, or "
        "name a table",
    ),
    (
        "t.csv",
        {"source": "lef", "target": "right"},
        "t.csv:1: no column called 'lef', expected one of: left, right; did you mean 'left'?",
    ),
    (
        "t.csv",
        {"source": "1"},
        "t.csv:1: no column called '1', expected one of: left, right",
    ),
    (
        "t.csv",
        {"source": "left", "target": "left"},
        "source and target must be different columns, but both are 'left'; the columns of t.csv are: left, right",
    ),
    ("nope.tsv", {}, "nope.tsv: no such file or folder; name a file or folder that exists (see: ls '.')"),
    (
        "t.csv",
        {"encoding": "nope"},
        "encoding must be a text encoding of Python, but is 'nope'; try utf-8, utf-16, latin-1 or cp1252",
    ),
]


@pytest.mark.parametrize(("name", "words", "message"), BAD_WORDS)
def test_wrong_words_are_answered_with_the_right_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: dict[str, str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("train.en", "train.de", "train.fr", "val.en"):
        write(tmp_path, file, "x\n")
    write(tmp_path, "t.csv", "left,right\nthe one,the other\n1 a,2 b\n")
    with pytest.raises(SaccadeError) as caught:
        find_pairs(Path(name), **words)
    assert str(caught.value) == message
    assert isinstance(caught.value, DataError | UsageError)


def test_unlike_files_in_a_folder_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.tsv", "source\ttarget\na\tb\n")
    write(tmp_path, "b.tsv", "text\tsummary\na\tb\n")
    with pytest.raises(
        BadRows,
        match=r"b\.tsv:1: source and target are the columns text and summary, expected source and target as in a\.tsv; "
        "name one file, or rename the columns",
    ):
        find_pairs(tmp_path)
    (tmp_path / "mixed").mkdir()
    write(tmp_path / "mixed", "a.txt", "a\tb\n" * 3)
    write(tmp_path / "mixed", "b.txt", "a\n" * 3)
    with pytest.raises(
        DataError, match=r"mixed: b\.txt is text, a\.txt is tsv, expected files of one format; name the file"
    ):
        find_pairs(tmp_path / "mixed")


@pytest.mark.parametrize("target", ["\0", "a\0/b"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, target: str) -> None:
    write(tmp_path, "a.txt", "x\n")
    for path in (tmp_path, tmp_path / "a.txt"):
        with pytest.raises(DataError, match=r"no file '\\x00'|not a file name|no such file"):
            find_pairs(path, target=target)


def test_all_bad_rows_are_reported_together(tmp_path: Path) -> None:
    source = write(tmp_path, "a.en", "1\n\x01\n3\n4\n")
    write(tmp_path, "a.de", "\x02\n2\n3\n")
    with pytest.raises(BadRows) as caught:
        list(read_pairs(find_pairs(source, target="de")))
    assert [(p.file.name, p.line, p.column) for p in caught.value.problems] == [
        ("a.de", 1, 1),
        ("a.en", 2, 1),
        ("a.en", 4, None),
    ]


def test_what_was_noted_before_a_fatal_problem_is_reported_too(tmp_path: Path) -> None:
    source = write(tmp_path, "a.en.gz", gzip.compress(("\x01\n" + "\n".join(map(str, range(99)))).encode())[:-9])
    write(tmp_path, "a.de.gz", gzip.compress(b"x\n" * 100))
    with pytest.raises(BadRows, match=r"a\.en\.gz:1:1: control character(.|\n)*the gzip data ends too early"):
        list(read_pairs(find_pairs(source, target="de")))
