"""A run of one's own as the base of another: two commands from raw text to a classifier."""

import json
from pathlib import Path

import pytest
import torch

from saccade import api
from saccade.errors import UsageError

TINY = [
    "model.dim=16",
    "model.depth=1",
    "model.heads=2",
    "model.hidden=16",
    "max_length=16",
    "tokens=64",
    "vocabulary=80",
]
ENCODER = ["max_length=16", "tokens=64"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with a book read by BERT, the book itself and some labelled rows."""
    folder = tmp_path_factory.mktemp("base")
    book = folder / "book.txt"
    book.write_text("\n\n".join(f"The cat {n} sat. The dog {n} ran. A bird {n} sang." for n in range(60)))
    rows = [f"the {animal} {n},{animal}" for n in range(30) for animal in ("cat", "dog")]
    (folder / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    api.train(book, [*TINY, "train.steps=2"], task="masked_language_model", root=folder, name="book")
    return folder


def test_the_encoder_of_a_run_is_taken_over(place: Path) -> None:
    words = [*ENCODER, "base=book", "tune=head", "train.steps=2"]
    trained = api.train(place / "rows.csv", words, task="text_classification", root=place, name="classes")
    mine, base = (api.load(place / name) for name in ("classes", "book"))
    found = dict(mine.model.bert.named_parameters())
    assert found
    for name, value in base.model.bert.named_parameters():
        assert torch.equal(found[name], value), name
    described = json.loads((trained.run.folder / "run.json").read_text())
    assert described["config"]["base"] == str((place / "book").resolve())


def test_what_lora_learned_goes_on(place: Path) -> None:
    words = [*ENCODER, "base=book", "tune=lora", "train.steps=2"]
    api.train(place / "rows.csv", words, task="text_classification", root=place, name="changed")
    words = [*ENCODER, "base=changed", "tune=head", "train.steps=1"]
    api.train(place / "rows.csv", words, task="text_classification", root=place, name="again")
    first, second = (api.load(place / name).framed("the cat 3") for name in ("changed", "again"))
    assert first == second
    ((_, one),), ((_, other),) = (list(api.load(place / name).features([first])) for name in ("changed", "again"))
    torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_a_run_without_an_encoder_is_no_base(place: Path) -> None:
    small = [
        "model.dim=8",
        "model.depth=1",
        "model.heads=1",
        "model.hidden=8",
        "model.max_positions=8",
        "train.steps=1",
    ]
    api.train(place / "book.txt", small, task="language_model", root=place, name="prose")
    with pytest.raises(UsageError, match=r"base must be an encoder such as BERT, but .*prose is a language_model"):
        api.train(place / "rows.csv", ["base=prose"], task="text_classification", root=place, name="none")
    assert not (place / "none").exists()
