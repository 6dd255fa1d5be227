"""Fingerprints: another text, another label or another validation file gives another fingerprint, a copy the same."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from saccade.data.fingerprints import Fingerprinted, fingerprint
from saccade.data.formats.labelled import read_labelled
from saccade.data.formats.labelled_files import find_labelled
from saccade.data.formats.squad import read_squad
from saccade.data.formats.tagged import read_tagged
from saccade.data.token_rows import TokenRows


def table(path: Path, words: list[str]) -> Fingerprinted:
    path = path.with_suffix(".csv")
    path.write_text(
        "text,label\n" + "".join(f"{word},{'x' if number % 2 else 'y'}\n" for number, word in enumerate(words))
    )
    return read_labelled(find_labelled(path))


def tags(path: Path, words: list[str]) -> Fingerprinted:
    path.write_text("".join(f"{word}\tO\n" for word in words))
    return read_tagged(path)


def questions(path: Path, words: list[str]) -> Fingerprinted:
    asked = [{"id": str(number), "question": word, "answers": []} for number, word in enumerate(words)]
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [{"context": "c", "qas": asked}]}]}))
    return read_squad(path)


def tokens(path: Path, words: list[str]) -> Fingerprinted:
    return TokenRows.of([list(word.encode()) for word in words])


@pytest.mark.parametrize("read", [table, tags, questions, tokens])
def test_every_part_counts_the_validation_data_too(
    read: Callable[[Path, list[str]], Fingerprinted], tmp_path: Path
) -> None:
    train, valid = ["a", "b", "c", "d"], ["e", "f"]
    changed = [
        (train, valid),
        (["a", "b", "c", "g"], valid),
        (train, ["e", "g"]),
        (train, ["f", "e"]),
        (["a", "b", "c"], ["d", "e", "f"]),
        (valid, train),
    ]
    prints = [
        fingerprint((read(tmp_path / f"train-{number}", one), read(tmp_path / f"valid-{number}", two)))
        for number, (one, two) in enumerate(changed)
    ]
    assert len(set(prints)) == len(prints)
    again = fingerprint((read(tmp_path / "again-1", train), read(tmp_path / "again-2", valid)))
    assert again == prints[0] and len(again) == 16
