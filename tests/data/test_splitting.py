"""Splitting: the same rows always fall on the same side, and repeats between the sides are counted."""

from pathlib import Path

import pytest

from saccade.data.formats.corpus import read_corpus
from saccade.data.splitting import SplitSettings, is_held_out, overlap
from saccade.data.tables.sniffing import sniff
from saccade.errors import DataError


def parts_of(path: Path, settings: SplitSettings) -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {"train": [], "valid": []}
    for piece in read_corpus([sniff(path)], None, settings):
        parts[piece.part].append(piece.document.text)
    return parts


def test_rows_are_split_by_content_so_copies_stay_together(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [f"row number {number % 500}" for number in range(2000)]
    path.write_text("text\n" + "\n".join(lines) + "\n")
    parts = parts_of(path, SplitSettings(fraction=0.2))
    assert not set(parts["train"]) & set(parts["valid"])
    assert 0.15 < len(set(parts["valid"])) / 500 < 0.25
    assert len(parts["train"]) + len(parts["valid"]) == 2000
    path.write_text("text\n" + "\n".join(reversed(lines)) + "\n")
    assert set(parts_of(path, SplitSettings(fraction=0.2))["valid"]) == set(parts["valid"])
    assert set(parts_of(path, SplitSettings(fraction=0.2, seed=1))["valid"]) != set(parts["valid"])


def test_the_side_of_a_row_never_changes() -> None:
    # A change here would move rows that people have trained on into their validation data.
    chosen = [number for number in range(60) if is_held_out(f"row {number}", SplitSettings())]
    assert chosen == [47, 54]


@pytest.mark.parametrize("fraction", [0.1, 0.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_share_of_rows_is_the_fraction(fraction: float, seed: int) -> None:
    settings = SplitSettings(fraction=fraction, seed=seed)
    share = sum(is_held_out(f"row {number}", settings) for number in range(20_000)) / 20_000
    assert abs(share - fraction) < 5 * (fraction * (1 - fraction) / 20_000) ** 0.5


def test_running_text_is_cut_at_the_exact_character_across_files(tmp_path: Path) -> None:
    texts = ["é" * 9 + "\n" + "word\n" * 10, "more\n" * 8]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
    result = [sniff(tmp_path / f"{number}.txt") for number in range(2)]
    corpus = read_corpus(result, None, SplitSettings(fraction=0.25))
    train, valid = "".join(corpus.texts("train")), "".join(corpus.texts("valid"))
    assert "".join(corpus.texts()) == train + valid
    assert train + valid == "".join(texts)
    assert len(train) == int(100 * 0.75)
    first_valid = next(piece.document for piece in corpus if piece.part == "valid")
    assert (first_valid.line, first_valid.file) == (4, tmp_path / "1.txt")


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
def test_the_fraction_must_leave_both_sides(fraction: float) -> None:
    with pytest.raises(DataError, match=f"fraction must be between 0 and 1, but is {fraction}"):
        SplitSettings(fraction=fraction)


def test_repeats_are_counted_by_document() -> None:
    result = overlap(["a", "b", "a", "c", " a "], ["a", "d", "a"])
    assert (result.train_total, result.valid_total) == (5, 3)
    assert (result.duplicates_in_train, result.valid_also_in_train) == (2, 2)
    assert result.notes() == (
        "2 of 5 training documents are duplicates",
        "2 of 3 validation documents are also in the training part",
    )


def test_repeats_are_counted_by_long_lines_of_running_text() -> None:
    long = "a line of more than twenty characters"
    result = overlap([f"{long}\nshort\nshort\n{long}\n"], [f"short\n{long}\nother {long}"], by_line=True)
    assert (result.train_total, result.duplicates_in_train) == (2, 1)
    assert (result.valid_total, result.valid_also_in_train) == (2, 1)
    assert overlap(["x"], ["y"]).notes() == ()
