"""Headers: names of any kind are told from data, and what may be either is asked."""

from pathlib import Path

import pytest

from saccade.data.formats.documents import documents
from saccade.data.formats.labelled import read_labelled
from saccade.data.formats.labelled_files import find_labelled
from saccade.data.formats.pair_files import find_pairs
from saccade.data.formats.pairs import read_pairs
from saccade.data.tables.headers import is_header
from saccade.data.tables.rows import UnclearHeader, rows
from saccade.data.tables.sniffing import sniff
from saccade.tasks import guess_task

TEXTS = [f"so it goes on and on, number {number} of many." for number in range(30)]
CLASSES = ["up" if number % 3 else "down" for number in range(30)]
NUMBERS = [str(number % 2) for number in range(30)]
WORDS = [f"word{chr(97 + number % 26)}{number // 26}" for number in range(30)]


def table(*columns: list[str]) -> list[list[str]]:
    return [list(row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize(
    "name", ["Quality", "#1 ID", "is it so?", "score (0-5)", "no.", "en→de", "a->b", "p(yes)", "50% quantile"]
)
def test_any_name_above_numbers_is_a_header(name: str) -> None:
    assert is_header([[name, "some words"], *table(NUMBERS, TEXTS)]) is True


@pytest.mark.parametrize(
    "names",
    [
        ["text (English)", "class?"],
        ["review_text", "review label"],
        ["#1 String", "#2 String"],
        ["v1", "v2"],
        ["source→target", "mood"],
        ["Is it going up?", "What did you say?"],
        ["Satz", "Klasse"],
        ["文本", "标签"],
    ],
)
def test_names_with_signs_above_texts_and_classes_are_a_header(names: list[str]) -> None:
    above_texts_last = [names, *table(CLASSES, TEXTS)]
    above_texts_first = [names, *table(TEXTS, CLASSES)]
    assert is_header(above_texts_last) is True
    assert is_header(above_texts_first) is True


@pytest.mark.parametrize(
    "first, columns",
    [
        (["0", "and so it went on, number 31 of many."], (NUMBERS, TEXTS)),
        (["down", "and so it went on, number 31 of many."], (CLASSES, TEXTS)),
        (["Hello", "and so it went on, number 31 of many."], (TEXTS, TEXTS)),
        (["Go.", "Geh."], (TEXTS, TEXTS)),
        (["cat", "chat"], (WORDS, WORDS)),
        (["text 0", "label 0"], ([f"text {number}" for number in range(1, 31)], [f"label {n}" for n in range(1, 31)])),
        (["question", "and so it went on, number 31 of many."], (["question", "answer"] * 15, TEXTS)),
        (["?", "some words"], (NUMBERS, TEXTS)),
        (["n/a", "some words"], (NUMBERS, TEXTS)),
        (["2023-01-05", "some words"], (["2023-01-06"] * 30, TEXTS)),
        (["nil", "number 31 of many, and so it went on."], (CLASSES, TEXTS)),
    ],
)
def test_a_row_like_the_others_is_data(first: list[str], columns: tuple[list[str], list[str]]) -> None:
    assert is_header([first, *table(*columns)]) is False


def test_a_header_that_occurs_again_is_still_one() -> None:
    body = table(TEXTS, NUMBERS)
    assert is_header([["text", "label"], *body, ["text", "label"], *body]) is True


def test_columns_without_names_do_not_hide_a_header() -> None:
    assert is_header([["v1", "v2", "", ""], *table(CLASSES, TEXTS, [""] * 30, [""] * 30)]) is True


def test_one_row_is_a_header_only_with_a_usual_name() -> None:
    assert is_header([["text", "mood"]]) is True
    assert is_header([["mood", "sort"]]) is False
    assert is_header([]) is False


@pytest.fixture
def unclear(tmp_path: Path) -> Path:
    """A table whose first row has a usual name, and beside it a sentence like those below it."""
    path = tmp_path / "unclear.tsv"
    rows = [["title", "so it goes on and on, and never ends."], *table(WORDS, TEXTS)]
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def test_a_first_row_that_may_be_either_is_asked_about(unclear: Path) -> None:
    question = (
        f"{unclear}:1: the first row ('title', 'so it goes on and on, and never ends.') may name the columns or be "
        "data, expected one of the two; say which it is: --header yes or --header no (data.header)"
    )
    for read in (
        lambda: list(rows(sniff(unclear))),
        lambda: list(documents(sniff(unclear))),
        lambda: find_labelled(unclear),
        lambda: find_pairs(unclear),
        lambda: guess_task(unclear),
    ):
        with pytest.raises(UnclearHeader) as caught:
            read()
        assert str(caught.value) == question


def test_the_answer_settles_it(unclear: Path) -> None:
    assert sniff(unclear, header=True).columns == ("title", "so it goes on and on, and never ends.")
    assert sum(1 for _ in rows(sniff(unclear, header=True))) == 30
    assert sum(1 for _ in rows(sniff(unclear, header=False))) == 31
    assert len(read_pairs(find_pairs(unclear, header=False))) == 31
    assert len(read_pairs(find_pairs(unclear, header=True))) == 30
    assert guess_task(unclear, ["data.header=no"]) == "translation"


def test_names_that_are_given_settle_it_too(unclear: Path) -> None:
    files = find_pairs(unclear, source="title", target="so it goes on and on, and never ends.")
    assert len(read_pairs(files)) == 30


def test_a_given_answer_beats_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("text\tlabel\n" + "".join("\t".join(row) + "\n" for row in table(TEXTS, CLASSES)))
    assert len(read_labelled(find_labelled(path))) == 30
    rows_and_names = read_labelled(find_labelled(path, text_column="1", label_column="2", header=False))
    assert rows_and_names.label_set.names == ("down", "label", "up")
