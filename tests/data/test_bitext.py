"""Bitext: how each side is tokenized, what is held out, what is skipped, and files laid out like the first."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.formats import bitext
from saccade.data.formats.bitext import Bitext, PairReader, PairSettings, train_tokenizers
from saccade.data.text.tokenizer_choice import train_text_tokenizer
from saccade.data.text.tokenizers import BEGIN, END
from saccade.errors import DataError, UsageError

Rows = list[tuple[str, str]]
SOUNDS = ["AA1", "B", "CH", "D", "EH0", "F", "G", "HH", "IY2", "K", "L", "M"]


def quiet(share: float) -> None:
    """Ignore progress."""


def spellings(count: int = 400) -> Rows:
    """Like a pronouncing dictionary: one word, and a sound for each of its letters."""
    chance = random.Random(1)
    letters = ["".join(chance.choices("abcdefghijkl", k=chance.randint(3, 9))) for _ in range(count)]
    return [(word, " ".join(SOUNDS[ord(letter) - 97] for letter in word)) for word in letters]


def sentences(count: int = 400) -> Rows:
    """Sentences of made-up words, the target with another ending to each word."""
    chance = random.Random(2)
    words = ["".join(chance.choices("aeioubdklmnprst", k=chance.randint(2, 8))) for _ in range(900)]
    rows = [chance.choices(words, k=chance.randint(3, 9)) for _ in range(count)]
    return [(" ".join(row), " ".join(f"{word}en" for word in row)) for row in rows]


def chinese(count: int = 900) -> Rows:
    """Sentences without a space of 700 different signs, and English words."""
    chance = random.Random(3)
    signs = [chr(0x4E00 + number) for number in range(700)]
    rows = ["".join(chance.choices(signs, k=chance.randint(4, 12))) for _ in range(count)]
    return [(row, " ".join(f"w{ord(sign) % 500}" for sign in row)) for row in rows]


def write(path: Path, rows: Rows) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    return path


def prepared(folder: Path, data: Path, **settings: Any) -> tuple[PairReader, list[str]]:
    assets, chosen = folder / "assets", PairSettings(**settings)
    assets.mkdir(exist_ok=True)
    notes = train_tokenizers(chosen, data, assets, quiet)
    return PairReader(chosen, assets), notes


def split(folder: Path, rows: Rows, **settings: Any) -> tuple[PairReader, Bitext, Bitext]:
    data = write(folder / "pairs.tsv", rows)
    reader, _ = prepared(folder, data, **settings)
    return reader, *reader.split(data, quiet)


# how a side is tokenized


@pytest.mark.parametrize(
    ("rows", "kinds", "joint"),
    [
        (spellings(), ("characters", "words"), False),
        (sentences(), ("bpe", "bpe"), True),
        (chinese(), ("bpe", "bpe"), True),
        ([(target, source) for source, target in spellings()], ("words", "characters"), False),
        ([(source, source[::-1]) for source, _ in spellings()], ("characters", "characters"), True),
    ],
    ids=["spellings", "sentences", "Chinese", "sounds", "words"],
)
def test_the_kind_follows_the_data(tmp_path: Path, rows: Rows, kinds: tuple[str, str], joint: bool) -> None:
    reader, notes = prepared(tmp_path, write(tmp_path / "pairs.tsv", rows))
    assert (reader.source.kind, reader.target.kind) == kinds
    assert reader.joint == joint
    told = [note for note in notes if note.startswith("vocabulary")]
    if joint:
        named = "bpe tokens" if kinds[0] == "bpe" else kinds[0]
        assert told == [f"vocabulary of both sides: {reader.source.size:,} {named}"]
    else:
        assert told == [
            f"vocabulary of the source: {reader.source.size:,} {kinds[0]}",
            f"vocabulary of the target: {reader.target.size:,} {kinds[1]}",
        ]
    assert {BEGIN, END} <= set(reader.source.specials) & set(reader.target.specials)


def test_wishes_count_more_than_the_data(tmp_path: Path) -> None:
    data = write(tmp_path / "pairs.tsv", sentences())
    reader, _ = prepared(tmp_path, data, tokenizer="characters")
    assert reader.source.kind == reader.target.kind == "characters" and reader.joint
    (tmp_path / "apart").mkdir()
    reader, notes = prepared(tmp_path / "apart", data, joint=False, vocabulary_size=300)
    assert not reader.joint
    assert (reader.source.size, reader.target.size) == (300, 300)
    assert "vocabulary of the target: 300 bpe tokens" in notes
    with pytest.raises(
        UsageError, match=r"data.vocabulary_size must be at least 258 for bpe \(all bytes\), but is 100"
    ):
        prepared(tmp_path, data, vocabulary_size=100)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_comes_back_through_spaced_byte_pairs(text: str) -> None:
    tokenizer = train_text_tokenizer("bpe", (source for row in sentences(50) for source in row), 300, "size")
    assert tokenizer.decode(tokenizer.encode(text)).strip() == text.strip()


def test_the_vocabulary_does_not_know_what_is_held_out(tmp_path: Path) -> None:
    rows = [(f"{source} {chr(0x400 + number % 300)}", target) for number, (source, target) in enumerate(sentences(600))]
    reader, train, valid = split(tmp_path, rows, tokenizer="characters")
    seen = {sign for line in train.lines for sign in "".join(rows[line - 1])}
    known = {reader.source.token(number) for number in range(reader.source.size)} - set(reader.source.specials)
    assert known == seen
    assert any(set(source) - seen for source, _ in valid.texts)


# what is held out


def test_a_tenth_is_held_out_and_no_source_is_in_both_parts(tmp_path: Path) -> None:
    rows = spellings(600)
    doubled = [*rows, *((source, f"{target} K") for source, target in rows)]
    _, train, valid = split(tmp_path, doubled)
    assert len(train) + len(valid) == len(doubled)
    assert 0.06 * len(doubled) < len(valid) < 0.14 * len(doubled)
    held = {source for source, _ in valid.texts}
    learnt = {doubled[line - 1][0] for line in train.lines}
    assert not held & learnt
    assert sorted([*train.lines, *valid.lines]) == list(range(1, len(doubled) + 1))
    assert [doubled[line - 1] for line in valid.lines] == list(valid.texts)


def test_at_most_two_thousand_are_held_out_and_the_others_are_trained_on(tmp_path: Path, monkeypatch: Any) -> None:
    assert bitext.MAX_HELD_OUT == 2000
    rows = spellings(1500)
    for most in (7, 30, 90):
        monkeypatch.setattr(bitext, "MAX_HELD_OUT", most)
        _, train, valid = split(tmp_path, rows)
        assert most * 0.8 <= len(valid) <= most
        assert len(train) + len(valid) == len(rows)
        assert not {source for source, _ in valid.texts} & {rows[line - 1][0] for line in train.lines}
    monkeypatch.setattr(bitext, "MAX_HELD_OUT", 2000)
    _, _, every = split(tmp_path, rows)
    assert {source for source, _ in valid.texts} < {source for source, _ in every.texts}


def test_a_fraction_is_kept_whatever_its_size(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(bitext, "MAX_HELD_OUT", 10)
    rows = spellings(1000)
    _, train, valid = split(tmp_path, rows, valid_fraction=0.5)
    assert 430 < len(valid) < 570 and len(train) + len(valid) == 1000


def test_a_validation_file_leaves_all_pairs_to_train_on(tmp_path: Path) -> None:
    rows = spellings(500)
    valid = write(tmp_path / "valid.tsv", rows[400:])
    _, train, held = split(tmp_path, rows[:400], valid=str(valid))
    assert train.lines.tolist() == list(range(1, 401))
    assert list(held.texts) == rows[400:]
    assert list(train.texts) == rows[:400]


def test_the_split_is_the_same_each_time_and_follows_the_content(tmp_path: Path) -> None:
    rows = spellings(300)
    _, train, valid = split(tmp_path, rows)
    _, again, held = split(tmp_path, rows)
    assert (train.fingerprint(), [*valid.texts]) == (again.fingerprint(), [*held.texts])
    _, other, turned = split(tmp_path, rows[::-1])
    assert other.fingerprint() != train.fingerprint()
    assert set(turned.texts) == set(valid.texts)


def test_tokens_are_those_of_the_texts(tmp_path: Path) -> None:
    rows = sentences(200)
    reader, train, valid = split(tmp_path, rows)
    for part in (train, valid):
        for at, line in enumerate(part.lines.tolist()):
            source, target = rows[line - 1]
            assert part.source[at].tolist() == reader.source.encode(source)
            assert reader.target.decode(part.target[at]).strip() == target


# what is skipped


def test_long_and_empty_pairs_are_left_out_and_told(tmp_path: Path) -> None:
    rows = spellings(200)
    rows[5], rows[9] = ("", "K"), ("abc", " ")
    rows[20], rows[30], rows[31] = ("a" * 12, "K"), ("b", "K " * 12), ("c" * 12, "K " * 12)
    reader, train, valid = split(tmp_path, rows, max_length=11)
    assert len(train) + len(valid) == 195
    assert max(*train.source.lengths, *train.target.lengths, *valid.source.lengths, *valid.target.lengths) <= 11
    assert reader.notes() == [
        "2 pairs with an empty side skipped (first: pairs.tsv:6)",
        "3 pairs of more than 11 tokens skipped (first: pairs.tsv:21)",
    ]


def test_long_sources_are_cut_where_asked(tmp_path: Path) -> None:
    rows = spellings(200)
    rows[20], rows[30] = ("a" * 12, "K"), ("b", "K " * 12)
    reader, train, valid = split(tmp_path, rows, max_length=11, truncate=True)
    assert len(train) + len(valid) == 199
    place = [*train.lines].index(21) if 21 in train.lines else None
    found = train.source[place] if place is not None else valid.source[[*valid.lines].index(21)]
    assert reader.source.decode(found) == "a" * 11
    assert "1 source of more than 11 tokens truncated (first: pairs.tsv:21)" in reader.notes()
    assert reader.encode(["l" * 20, "k"]) == [reader.source.encode("l" * 11), reader.source.encode("k")]


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "pairs.tsv", [("", "x"), ("", "y")])
    with pytest.raises(DataError, match=r"pairs\.tsv:1: an empty side in every pair"):
        prepared(tmp_path, data)


# two files


def test_two_files_by_a_path_then_others_by_the_rule(tmp_path: Path) -> None:
    rows = sentences(120)
    for name, part in (("train", rows[:80]), ("test", rows[80:])):
        for side, ending in enumerate(("en", "de")):
            (tmp_path / f"{name}.{ending}").write_text("".join(f"{row[side]}\n" for row in part))
    reader, notes = prepared(tmp_path, tmp_path / "train.en", target=str(tmp_path / "train.de"))
    assert "each line of train.en goes with the same line of train.de" in notes
    train, valid = reader.split(tmp_path / "train.en", quiet)
    assert len(train) + len(valid) == 80
    assert list(reader.read_all(tmp_path / "test.en", quiet).texts) == rows[80:]


def test_paths_are_made_absolute_so_that_a_run_can_be_resumed_from_anywhere(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "b.de").write_text("x\n")
    monkeypatch.chdir(tmp_path)
    settings = PairSettings(target="b.de", valid="v.tsv")
    assert (settings.target, settings.valid) == (str(tmp_path / "b.de"), str(tmp_path / "v.tsv"))
    assert PairSettings(target="de").target == "de"  # a part of a name, or a column


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"valid_fraction": 1.0}, "valid_fraction must be at least 0 and below 1, but is 1.0"),
        ({"vocabulary_size": -1}, "vocabulary_size must be at least 0, but is -1"),
        ({"max_length": 0}, "max_length must be at least 1, but is 0"),
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        PairSettings(**wrong)
