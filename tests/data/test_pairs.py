"""Pairs: both sides come back as they were written, from tables and from files of lines, small and real."""

import csv
import gzip
import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.formats.pair_files import PairFiles, find_pairs
from saccade.data.formats.pairs import Pair, Skipped, empty_note, read_pairs
from saccade.data.tables import encodings
from saccade.data.tables.counterparts import counterpart, swap_rule
from saccade.data.tables.problems import BadRows
from saccade.errors import DataError


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def texts(files: PairFiles) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in read_pairs(files)]


# tables


@pytest.mark.parametrize(
    ("header", "columns", "ignored"),
    [
        ("source,target", ("source", "target"), ()),
        ("id,Tgt,SRC", ("SRC", "Tgt"), ("id",)),
        ("summary,text,title", ("text", "summary"), ("title",)),
        ("email_body,subject_line,id", ("email_body", "subject_line"), ("id",)),
        ("question,context,answer", ("question", "answer"), ("context",)),
        ("english,german", ("english", "german"), ()),
        (",name,german", ("name", "german"), ("(no name)",)),
        ("output, input", (" input", "output"), ()),
    ],
)
def test_columns_are_found_by_usual_names_or_because_there_are_two(
    tmp_path: Path, header: str, columns: tuple[str, str], ignored: tuple[str, ...]
) -> None:
    width = header.count(",") + 1
    body = "".join(",".join(f"row {row} cell {cell}" for cell in range(width)) + "\n" for row in range(4))
    files = find_pairs(write(tmp_path, "t.csv", f"{header}\n{body}"))
    assert (files.columns, files.ignored) == (columns, ignored)
    at = [header.split(",").index(name) for name in columns]
    assert list(read_pairs(files)) == [
        Pair(f"row {row} cell {at[0]}", f"row {row} cell {at[1]}", row + 2, tmp_path / "t.csv") for row in range(4)
    ]


def test_given_columns_are_used(tmp_path: Path) -> None:
    path = write(tmp_path, "t.tsv", "source\ttarget\tde\nthe one\tthe two\tdie drei\na\tb\tc\n")
    assert texts(find_pairs(path, source="de", target="source")) == [("die drei", "the one"), ("c", "a")]
    two = write(tmp_path, "two.tsv", "name\tlabel x\nthe one\tthe two\n")
    assert texts(find_pairs(two, source="label x")) == [("the two", "the one")]
    assert texts(find_pairs(two, target="name")) == [("the two", "the one")]


def test_a_given_column_is_paired_by_usual_names(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "article,highlights,title,summary\na 1,b 1,c 1,d 1\na 2,b 2,c 2,d 2\n")
    assert find_pairs(path).columns == ("article", "highlights")
    assert find_pairs(path, target="summary").columns == ("article", "summary")


def test_a_table_without_header_reads_its_first_two_columns_with_a_note(tmp_path: Path) -> None:
    path = write(tmp_path, "t.txt", "\ufeffHi.\tHallo!\tCC-BY\nRun!\tLauf!\tCC-BY\nGo on.\tWeiter.\tCC-BY\n")
    files = find_pairs(path)
    assert texts(files) == [("Hi.", "Hallo!"), ("Run!", "Lauf!"), ("Go on.", "Weiter.")]
    assert files.notes() == [
        "t.txt: tsv, utf-8, 58 bytes; tab-separated although the name ends in '.txt'; no header",
        "source: column 1, target: column 2",
        "ignored: column 3",
    ]
    assert texts(find_pairs(path, source="2", target="1"))[0] == ("Hallo!", "Hi.")
    assert texts(find_pairs(path, target="1"))[0] == ("Hallo!", "Hi.")
    assert texts(find_pairs(path, source="3"))[0] == ("CC-BY", "Hi.")


def test_a_first_row_of_numbers_is_a_row(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "1,2\n2,1\n")
    assert texts(find_pairs(path)) == [("1", "2"), ("2", "1")]


def test_named_columns_are_a_header_even_if_they_do_not_look_like_one(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "one,two,three\nun,deux,trois\neins,zwei,drei\n")
    assert find_pairs(path).columns == ("1", "2")
    files = find_pairs(path, source="three", target="one")
    assert (texts(files), files.ignored) == ([("trois", "un"), ("drei", "eins")], ("two",))


def test_lists_of_strings_are_joined_or_cut_with_a_note(tmp_path: Path) -> None:
    rows = [{"source": ["a b", "c"], "target": ["x", "y"], "n": 1}, {"source": "d", "target": [], "n": 2}]
    rows.append({"source": "e", "target": 5, "n": 3})
    files = find_pairs(write(tmp_path, "t.jsonl", "\n".join(map(json.dumps, rows))))
    pairs = read_pairs(files)
    assert [(pair.source, pair.target) for pair in pairs] == [("a b c", "x"), ("e", "5")]
    assert empty_note(pairs.empty) == ["1 pair with an empty side skipped (first: t.jsonl:2)"]
    assert files.notes()[1:] == [
        "source: column source, target: column target",
        "ignored: column n",
        "the strings in the lists under source are joined with spaces",
        "only the first string of each list under target is read",
    ]


def test_a_folder_of_tables_is_read_in_order(tmp_path: Path) -> None:
    for name in "badc":
        write(tmp_path, f"{name}.tsv", f"source\ttarget\n{name} s\t{name} t\n")
    files = find_pairs(tmp_path)
    assert [(pair.source, pair.file.name) for pair in read_pairs(files)] == [(f"{n} s", f"{n}.tsv") for n in "abcd"]
    assert [note.partition(":")[0] for note in files.notes()] == [
        "a.tsv",
        "b.tsv",
        "c.tsv",
        "... 4 files in total",
        "source",
    ]


# two files of lines


def test_lines_of_two_files_go_together_and_are_stripped(tmp_path: Path) -> None:
    source = write(tmp_path, "train.en", "one \n\ttwo\nthree")
    write(tmp_path, "train.de", "\ufeffeins\r\n zwei\r\ndrei\r\n")
    files = find_pairs(source, target="de")
    assert list(read_pairs(files)) == [
        Pair("one", "eins", 1, source),
        Pair("two", "zwei", 2, source),
        Pair("three", "drei", 3, source),
    ]
    assert files.notes() == [
        "train.en: text, utf-8, 15 bytes",
        "train.de: text, utf-8, 22 bytes; CRLF line ends are read as \\n",
        "each line of train.en goes with the same line of train.de",
    ]


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    source = write(tmp_path, "a.en", "one\u2028more\ntwo\rhalves\nthree\x0bx\x85y\n")
    write(tmp_path, "a.de", "eins\nzwei\ndrei\n")
    assert texts(find_pairs(source, target="de")) == [
        ("one\u2028more", "eins"),
        ("two\rhalves", "zwei"),
        ("three\x0bx\x85y", "drei"),
    ]


def test_returns_end_lines_where_nothing_else_does(tmp_path: Path) -> None:
    source = write(tmp_path, "a.en", "one\rtwo\r")
    write(tmp_path, "a.de", "eins\nzwei\n")
    assert texts(find_pairs(source, target="de")) == [("one", "eins"), ("two", "zwei")]


def test_pairs_with_an_empty_side_are_counted_and_left_out(tmp_path: Path) -> None:
    source = write(tmp_path, "a.en", "one\n\n \nfour\nfive\n")
    write(tmp_path, "a.de", "eins\nzwei\n\n\nf\n")
    pairs = read_pairs(find_pairs(source, target="de"))
    assert [pair.line for pair in pairs] == [1, 5]
    assert pairs.empty == Skipped(3, source, 2)
    assert empty_note(pairs.empty) == ["3 pairs with an empty side skipped (first: a.en:2)"]
    assert empty_note(Skipped()) == []


def test_a_folder_of_lines_is_paired_by_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for side in ("en", "zh-CN", "fr"):
            write(tmp_path, f"{name}.{side}.txt", f"{name} {side}\n")
    assert texts(find_pairs(tmp_path, source="en", target="zh-CN")) == [("a en", "a zh-CN"), ("b en", "b zh-CN")]
    assert texts(find_pairs(tmp_path, source="zh-CN", target="fr")) == [("a zh-CN", "a fr"), ("b zh-CN", "b fr")]
    with pytest.raises(
        DataError, match=r"a\.fr\.txt: goes with a\.en\.txt and with a\.zh-CN\.txt, expected one .*data.source"
    ):
        find_pairs(tmp_path, target="fr")
    (tmp_path / "two").mkdir()
    write(tmp_path / "two", "left.txt", "l\n")
    right = write(tmp_path / "two", "right.txt", "r\n")
    assert texts(find_pairs(tmp_path / "two", target=str(right))) == [("l", "r")]


def test_long_files_are_read_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "BLOCK", 1 << 12)
    source = write(tmp_path, "a.en", "".join(f"line {number}\n" for number in range(50_000)))
    write(tmp_path, "a.de", source.read_bytes())
    table = write(tmp_path, "t.tsv", "".join(f"line {number}\tZeile {number}.\n" for number in range(50_000)))
    for files in (find_pairs(source, target="de"), find_pairs(table)):
        tracemalloc.start()
        assert sum(1 for _ in read_pairs(files)) == 50_000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 19


def test_progress_is_the_share_of_all_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "BLOCK", 64)
    source = write(tmp_path, "a.en.gz", gzip.compress(b"word \n" * 300))
    write(tmp_path, "a.de.gz", gzip.compress(b"Wort\n" * 300))
    table = write(tmp_path, "t.tsv", "source\ttarget\n" + "a a\tb b\n" * 99)
    for files in (find_pairs(source, target="de"), find_pairs(table)):
        shares: list[float] = []
        assert len(list(read_pairs(files, progress=shares.append))) in (99, 300)
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
    assert len(set(shares)) > 5


# properties

SIDE = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\t\x0b\u2028\"'"), max_size=20)
SIDES = st.lists(st.tuples(SIDE, SIDE).filter(lambda pair: all(side.strip() for side in pair)), min_size=1, max_size=8)


def stripped(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(source.strip(), target.strip()) for source, target in pairs]


@settings(deadline=None)
@given(pairs=SIDES)
def test_pairs_written_as_lines_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    # A letter before each line: a file whose every line has a tab, or begins with {, is taken for a table.
    source = write(folder, "a.en", "".join(f"x{source}\n" for source, _ in [*pairs, ("", "")]))
    write(folder, "a.de", "".join(f"x{target}\n" for _, target in [*pairs, ("", "")]))
    expected = [(f"x{source}".strip(), f"x{target}".strip()) for source, target in [*pairs, ("", "")]]
    assert texts(find_pairs(source, target="de")) == expected


@settings(deadline=None)
@given(pairs=SIDES, packed=st.booleans())
def test_pairs_written_as_tables_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], packed: bool
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    sheet = io.StringIO()
    csv.writer(sheet, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([("source", "target"), *pairs])
    records = "".join(json.dumps({"target": target, "source": source}) + "\n" for source, target in pairs)
    for name, content in (("t.csv", sheet.getvalue()), ("t.jsonl", records)):
        data = gzip.compress(content.encode()) if packed else content
        assert texts(find_pairs(write(folder, name + ".gz" * packed, data))) == stripped(pairs)


# real files


def test_multi30k_is_read_from_two_packed_files(dataset: Callable[[str], Path]) -> None:
    folder = dataset("translation/multi30k")
    files = find_pairs(folder / "train.en.gz", target="de")
    pairs = list(read_pairs(files))
    assert len(pairs) == 29_000
    assert pairs[0].source == "Two young, White males are outside near many bushes."
    assert pairs[0].target == "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."
    assert pairs[-1].line == 29_000
    rule = swap_rule(folder / "train.en.gz", str(folder / "train.fr.gz"))
    assert counterpart(folder / "val.en.gz", rule) == folder / "val.fr.gz"
    with pytest.raises(
        BadRows, match=r"train\.en\.gz:1015: no line 1,015 in val\.de\.gz: train\.en\.gz has 29,000 lines"
    ):
        list(read_pairs(find_pairs(folder / "train.en.gz", target="val.de.gz")))


def test_tatoeba_is_read_from_text_files_that_are_tables(tmp_path: Path, dataset: Callable[[str], Path]) -> None:
    folder = dataset("translation")
    files = find_pairs(folder / "cmn_2024.txt")
    assert files.notes()[-1] == "ignored: column 3"
    chinese = texts(files)
    assert (len(chinese), chinese[0]) == (29_155, ("Hi.", "嗨。"))
    with zipfile.ZipFile(folder / "deu-eng_2018.zip") as archive:
        archive.extract("deu.txt", tmp_path)
    german = list(read_pairs(find_pairs(tmp_path / "deu.txt")))
    assert (german[0].source, german[0].target) == ("Hi.", "Hallo!")
    assert len(german) == german[-1].line == 169_813


def test_scitldr_is_read_from_lists_of_sentences(dataset: Callable[[str], Path]) -> None:
    folder = dataset("summarisation/scitldr")
    rows = [json.loads(line) for line in (folder / "dev.jsonl").read_text(encoding="utf-8").splitlines()]
    pairs = texts(find_pairs(folder / "dev.jsonl"))
    assert pairs == [(" ".join(row["source"]).strip(), row["target"][0].strip()) for row in rows]
    with pytest.raises(BadRows, match=r"train\.jsonl:1935:1105: control character U\+0018.*sed 's/\\\\u0018//g'"):
        list(read_pairs(find_pairs(folder / "train.jsonl")))


def test_a_real_csv_with_a_header_is_read_by_the_names_of_its_columns(dataset: Callable[[str], Path]) -> None:
    path = dataset("classification/hate_offensive/labeled_data.csv")
    pairs = list(read_pairs(find_pairs(path, source="tweet", target="class")))
    assert len(pairs) == 24_783
    assert {pair.target for pair in pairs} == {"0", "1", "2"}
