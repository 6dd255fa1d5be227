"""Finding, sniffing and reading files: the text is read exactly, and errors name the line."""

import csv
import gzip
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.formats import documents as documents_module
from saccade.data.formats.documents import documents
from saccade.data.tables import rows as rows_module
from saccade.data.tables.encodings import explain
from saccade.data.tables.files import find
from saccade.data.tables.problems import BadRows, Problems
from saccade.data.tables.rows import rows
from saccade.data.tables.sniffing import sniff
from saccade.errors import DataError, UsageError


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# finding


def test_a_file_is_found_as_itself_and_a_folder_as_its_sorted_files(tmp_path: Path) -> None:
    second = write(tmp_path, "b.txt", "b")
    (tmp_path / "inner").mkdir()
    third = write(tmp_path / "inner", "c.md.gz", gzip.compress(b"c"))
    first = write(tmp_path, "a.md", "a")
    write(tmp_path, ".hidden.txt", "h")
    write(tmp_path, "picture.png", b"\x89PNG")
    assert find(second) == [second]
    assert find(str(tmp_path)) == [first, second, third]


def test_a_missing_file_suggests_the_near_name(tmp_path: Path) -> None:
    write(tmp_path, "tinyshakespeare.txt", "x")
    with pytest.raises(
        DataError, match=r"tinyshakspeare.txt: no such file or folder; did you mean 'tinyshakespeare.txt'\?"
    ):
        find(tmp_path / "tinyshakspeare.txt")
    with pytest.raises(DataError, match="zzz: no such file or folder; name a file or folder that exists"):
        find(tmp_path / "zzz")
    with pytest.raises(DataError, match=r"there is no folder '.*nowhere' either"):
        find(tmp_path / "nowhere" / "a.txt")


def test_folders_without_data_or_with_two_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds nothing, expected \.txt"):
        find(tmp_path)
    write(tmp_path, "a.png", b"x")
    with pytest.raises(DataError, match=r"holds 1 other file \(\.png\), expected"):
        find(tmp_path)
    write(tmp_path, "a.txt", b"x")
    write(tmp_path, "b.csv", b"x")
    write(tmp_path, "c.csv", b"x")
    with pytest.raises(DataError, match="holds 2 csv and 1 text files, expected one format"):
        find(tmp_path)


def test_links_pipes_and_strange_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to(tmp_path / "gone.txt")
    with pytest.raises(DataError, match=r"a link to '.*gone.txt', which does not exist"):
        find(tmp_path / "link.txt")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="neither a file nor a folder"):
        find(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"no such file|not a file name"):
        find(tmp_path / "a\0b")
    with pytest.raises(DataError, match="too long"):
        find(tmp_path / ("x" * 5000))


def test_what_the_system_refuses_is_explained(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a folder, expected a file"):
        sniff(tmp_path)
    with pytest.raises(DataError, match="no such file; it was moved"):
        sniff(tmp_path / "gone.txt")
    assert "permission denied; allow it with: chmod u+r 'x.txt'" in str(explain(Path("x.txt"), PermissionError()))
    assert "cannot be read: bad disk" in str(explain(Path("x.txt"), OSError(5, "bad disk")))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "secret.txt", "x")
    path.chmod(0)
    with pytest.raises(DataError, match="permission denied"):
        sniff(path)


# sniffing


def test_a_text_is_described_in_one_line(tmp_path: Path) -> None:
    data_file = sniff(write(tmp_path, "plain.txt", "hello\n" * 200_000))
    assert data_file.describe() == "plain.txt: text, utf-8, 1.2 MB"
    assert (data_file.gzip, data_file.bom, data_file.newline, data_file.size) == (False, False, "\n", 1_200_000)


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks_choose_the_encoding(tmp_path: Path, codec: str) -> None:
    data_file = sniff(write(tmp_path, "marked.txt", "héllo\nwörld\n".encode(codec)))
    assert (data_file.bom, data_file.encoding) == (True, codec.removesuffix("-sig"))
    assert [document.text for document in documents(data_file)] == ["héllo\nwörld\n"]


def test_a_byte_order_mark_overrides_a_wrong_encoding_with_a_note(tmp_path: Path) -> None:
    data_file = sniff(write(tmp_path, "marked.txt", b"\xef\xbb\xbfh\xc3\xa9"), encoding="latin-1")
    assert data_file.encoding == "utf-8"
    assert data_file.notes == ("the byte order mark is that of utf-8, so iso8859-1 is not used",)


def test_a_given_encoding_is_used(tmp_path: Path) -> None:
    path = write(tmp_path, "old.txt", b"one\ncaf\xe9\n")
    with pytest.raises(
        BadRows, match=r"old.txt:2:4: byte 0xE9 is not utf-8, expected utf-8 text; set data.encoding=cp1252"
    ):
        sniff(path)
    assert next(documents(sniff(path, encoding="latin-1"))).text == "one\ncafé\n"
    with pytest.raises(UsageError, match="encoding must be a text encoding of Python, but is 'nope'"):
        sniff(path, encoding="nope")
    with pytest.raises(UsageError, match="but is 'base64'"):
        sniff(path, encoding="base64")


@pytest.mark.parametrize(("ending", "name"), [("\r\n", "CRLF"), ("\r", "CR")])
def test_line_ends_become_newlines_with_a_note(tmp_path: Path, ending: str, name: str) -> None:
    data_file = sniff(write(tmp_path, "a.txt", f"one{ending}two{ending}"))
    assert data_file.newline == ending
    assert data_file.notes == (f"{name} line ends are read as \\n",)
    assert next(documents(data_file)).text == "one\ntwo\n"


@pytest.mark.parametrize(
    ("name", "content", "format", "note"),
    [
        ("a.csv", "text\tlabel\none, two\t1\nthree\t2\n", "tsv", "tab-separated although the name ends in '.csv'"),
        ("a.txt", '{"text": "a"}\n{"text": "b"}\n', "jsonl", "JSON lines although the name ends in '.txt'"),
        ("a.txt", "a b\tc\nd e\tf\ng\th\n", "tsv", "tab-separated although the name ends in '.txt'"),
        ("a.csv", "text;label\nso, so;1\nno;2\n", "csv", "columns are separated by semicolons"),
    ],
)
def test_content_corrects_the_name(tmp_path: Path, name: str, content: str, format: str, note: str) -> None:
    data_file = sniff(write(tmp_path, name, content))
    assert data_file.format == format
    assert note in data_file.notes


def test_gzip_is_seen_whatever_the_name(tmp_path: Path) -> None:
    data_file = sniff(write(tmp_path, "a.txt", gzip.compress(b"hello\n")))
    assert data_file.gzip
    assert data_file.describe().startswith("a.txt: text in gzip, utf-8, ")
    assert next(documents(data_file)).text == "hello\n"


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("text,label\ngood,1\n", ("text", "label")),
        ("Label,SMS\nham,Go until jurong point\nspam,Free entry in 2\n", ("Label", "SMS")),
        (",count,tweet\n0,3,hello there\n1,3,so it is\n", ("", "count", "tweet")),
        ("a plane takes off,5.0\na man plays,3.8\n", ()),
        ("cat,chat\ndog,chien\nbird,oiseau\n", ()),
        ("1,2\n3,4\n", ()),
    ],
)
def test_headers_are_told_from_rows(tmp_path: Path, content: str, columns: tuple[str, ...]) -> None:
    data_file = sniff(write(tmp_path, "t.csv", content))
    assert data_file.columns == columns
    assert ("the first row is the header" if columns else "no header") in data_file.notes


def test_a_header_can_be_given(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "cat,chat\ndog,chien\n")
    assert sniff(path, header=True).columns == ("cat", "chat")
    assert [row.values for row in rows(sniff(path), ["cat"])] == [("dog",)]
    assert [row.values for row in rows(sniff(path), ["2"])] == [("chat",), ("chien",)]


# reading


def test_pieces_join_to_exactly_the_text_and_know_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "PIECE", 1000)
    monkeypatch.setattr("saccade.data.tables.encodings.BLOCK", 700)
    text = "".join(f"line {number} é日本\n" + "\n" * (number % 3) for number in range(2000)) + "no end"
    pieces = list(documents(sniff(write(tmp_path, "a.txt", text))))
    assert "".join(piece.text for piece in pieces) == text
    assert len(pieces) > 20
    for piece in pieces:
        before = text[: text.index(piece.text)]
        assert piece.line == before.count("\n") + 1
        assert piece is pieces[-1] or piece.text.endswith("\n")


def test_a_text_without_line_ends_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "PIECE", 1000)
    monkeypatch.setattr("saccade.data.tables.encodings.BLOCK", 1000)
    for text in ("x" * 20_500, "one line of words and no end " * 700, "x " * 700 + "y" * 5000):
        pieces = [piece.text for piece in documents(sniff(write(tmp_path, "a.txt", text)))]
        assert "".join(pieces) == text
        assert max(map(len, pieces)) <= 2000
    # Between words a piece ends before a space, so that its tokens are those of the whole text.
    pieces = [piece.text for piece in documents(sniff(write(tmp_path, "b.txt", "some words " * 700)))]
    assert all(piece.startswith(" ") for piece in pieces[1:])


CELL = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff") | st.just("\n"), max_size=12)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=8))
def test_csv_reads_as_the_csv_module_does(
    tmp_path_factory: pytest.TempPathFactory, table: list[tuple[str, str]]
) -> None:
    stream = io.StringIO(newline="")
    csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([("text", "label"), *table])
    path = write(tmp_path_factory.mktemp("csv"), "t.csv", stream.getvalue())
    data_file = sniff(path)
    assert [row.values for row in rows(data_file, ["text", "label"])] == table
    lines = [row.line for row in rows(data_file)]
    assert lines == [2 + sum("".join(cells).count("\n") + 1 for cells in table[:at]) for at in range(len(table))]


def test_quotes_in_tsv_are_only_quotes_unless_all_are_enclosed(tmp_path: Path) -> None:
    plain = sniff(write(tmp_path, "p.tsv", 'text\tlabel\n"Hi, he said\t1\nno "x" y\t0\n'))
    assert [row.values[0] for row in rows(plain)] == ['"Hi, he said', 'no "x" y']
    enclosed = sniff(write(tmp_path, "e.tsv", '"text"\t"label"\n"a\tb"\t"1"\n'))
    assert [row.values for row in rows(enclosed)] == [("a\tb", "1")]


def test_the_text_column_is_chosen_or_asked_for(tmp_path: Path) -> None:
    data_file = sniff(write(tmp_path, "t.csv", "id,Sentence,label\n1,hello,x\n2,there,y\n"))
    assert [(document.text, document.line) for document in documents(data_file)] == [("hello", 2), ("there", 3)]
    assert [document.text for document in documents(data_file, column="label")] == ["x", "y"]
    with pytest.raises(BadRows, match=r"t.csv:1: no column called 'lable', expected one of: .*did you mean 'label'\?"):
        list(documents(data_file, column="lable"))
    other = sniff(write(tmp_path, "u.csv", "price,colour\n1,red\n"))
    with pytest.raises(BadRows, match=r"expected one of: price, colour; choose one with data.text_column=NAME"):
        list(documents(other))
    nameless = sniff(write(tmp_path, "v.csv", "so it goes,1.0\nand on,2.0\n"))
    with pytest.raises(BadRows, match=r"v.csv:1: 2 columns without names, .*data.text_column=1, 2"):
        list(documents(nameless))
    assert [document.text for document in documents(nameless, column="1")] == ["so it goes", "and on"]


def test_numbers_in_json_are_text_for_rows_and_errors_for_documents(tmp_path: Path) -> None:
    data_file = sniff(write(tmp_path, "t.jsonl", '{"text": "a", "label": 1}\n\n{"text": "b", "label": true}\n'))
    assert [(row.values, row.line) for row in rows(data_file)] == [(("a", "1"), 1), (("b", "true"), 3)]
    with pytest.raises(BadRows, match=r"t.jsonl:1:15: 'label' is a number \(1\), expected a string"):
        list(documents(data_file, column="label"))


def test_plain_text_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a.txt:1: plain text, expected a table"):
        list(rows(sniff(write(tmp_path, "a.txt", "hello"))))


def test_all_bad_rows_are_told_at_once_up_to_a_limit(tmp_path: Path) -> None:
    lines = ["text,label"] + [f"good {number},1" if number % 2 else f"bad {number},1,2" for number in range(60)]
    data_file = sniff(write(tmp_path, "t.csv", "\n".join(lines)))
    read = []
    with pytest.raises(BadRows) as caught:
        read.extend(documents(data_file))
    assert len(read) == 30
    assert len(caught.value.problems) == 20
    assert [problem.line for problem in caught.value.problems[:3]] == [2, 4, 6]
    assert "... and 10 more" in str(caught.value)
    assert str(caught.value).count("next: quote fields") == 1
    assert caught.value.exit_code == 3


def test_a_fatal_problem_comes_with_those_before_it(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "text,label\na,b,c\nfine,1\n" + "x,1\n" * 100_000 + "bad \xe9,1\n")
    path.write_bytes(path.read_bytes().replace("\xe9".encode(), b"\xe9"))
    with pytest.raises(BadRows) as caught:
        list(documents(sniff(path)))
    assert [(problem.line, problem.column) for problem in caught.value.problems] == [(2, None), (100_004, 5)]


def test_a_caller_adds_problems_of_its_own(tmp_path: Path) -> None:
    collected = Problems()
    data_file = sniff(write(tmp_path, "t.csv", "text,label\na,b,c\nfine,1\n"))
    assert [row.line for row in rows(data_file, problems=collected)] == [3]
    assert collected.count == 1
    with pytest.raises(BadRows, match=r"t.csv:2: 3 columns, expected 2 \(text, label\)"):
        collected.check()


def test_over_long_fields_are_refused_where_they_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_FIELD", 1000)
    data_file = sniff(write(tmp_path, "t.csv", 'text,label\nfine,1\nx,"' + "y\n" * 2000))
    with pytest.raises(BadRows, match=r"t.csv:3:3: the quote that opens here is not closed within 1,000 characters"):
        list(documents(data_file))


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    for name, content in (
        ("a.txt", b"hello\n" * 300_000),
        ("b.txt.gz", gzip.compress(os.urandom(200_000).hex().encode())),
    ):
        data_file, seen = sniff(write(tmp_path, name, content)), []
        list(documents(data_file, on_bytes=seen.append))
        assert seen == sorted(seen)
        assert seen[-1] == data_file.size


@settings(deadline=None, max_examples=80)
@given(st.binary(max_size=300), st.sampled_from(["a.txt", "a.csv", "a.tsv", "a.jsonl", "a.txt.gz"]))
def test_any_bytes_are_read_or_refused_with_a_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    path = write(tmp_path_factory.mktemp("any"), name, content)
    try:
        list(documents(sniff(path)))
    except DataError as error:
        assert re.search(rf"{name}:\d+", str(error))


# real files


def test_real_tables_are_read_completely(dataset: Callable[[str], Path]) -> None:
    spam = sniff(dataset("classification/sms_spam/SMSSpamCollection"))
    assert (spam.format, spam.columns, sum(1 for _ in rows(spam))) == ("tsv", ("Label", "SMS"), 5574)
    tweets = sniff(dataset("classification/hate_offensive/labeled_data.csv"))
    assert sum(1 for _ in rows(tweets, ["tweet"])) == 24_783
    pairs = sniff(dataset("translation/cmn_2024.txt"))
    assert (pairs.format, pairs.bom, sum(1 for _ in rows(pairs))) == ("tsv", True, 29_155)


def test_a_real_control_character_is_named(dataset: Callable[[str], Path]) -> None:
    with pytest.raises(BadRows, match=r"stsb-en-train.csv:2919:9: control character U\+0012"):
        list(rows(sniff(dataset("pairs/stsb/stsb-en-train.csv"))))


def test_json_rows_equal_the_json_module(dataset: Callable[[str], Path]) -> None:
    file = sniff(dataset("summarisation/scitldr/dev.jsonl"))
    expected = [json.loads(line)["paper_id"] for line in file.path.read_text(encoding="utf-8").splitlines()]
    assert [document.text for document in documents(file, column="paper_id")] == expected
