"""A run as the base of another one: two commands from raw text to a classifier."""

import json
from pathlib import Path

import pytest
import torch

import saccade
from saccade.config import override
from saccade.core import Pretrained
from saccade.errors import UsageError
from saccade.loading import open_base
from saccade.tasks import load_task

TINY = [
    "model.dim=16",
    "model.depth=1",
    "model.heads=2",
    "model.hidden=16",
    "max_length=16",
    "batch_tokens=64",
    "vocabulary_size=80",
]
ENCODER = ["max_length=16", "batch_tokens=64"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with a BERT trained on a book, the book itself and some labelled rows."""
    folder = tmp_path_factory.mktemp("base")
    book = folder / "book.txt"
    book.write_text("\n\n".join(f"The cat {n} sat. The dog {n} ran. A bird {n} sang." for n in range(60)))
    rows = [f"the {animal} {n},{animal}" for n in range(30) for animal in ("cat", "dog")]
    (folder / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    train(folder, "book.txt", "masked_language_model", "book", *TINY, "train.steps=2")
    return folder


def train(root: Path, data: str, task: str, name: str, *overrides: str) -> saccade.Run:
    return saccade.train(root / data, task=task, root=root, name=name, overrides=overrides, progress=False)


def load(root: Path, name: str):
    return saccade.load(root / name, device="cpu").task


def test_the_encoder_of_a_run_is_the_base(root: Path) -> None:
    overrides = [*ENCODER, "base=book", "tune=head", "train.steps=2"]
    run = train(root, "rows.csv", "text_classification", "classes", *overrides)
    mine, base = load(root, "classes"), load(root, "book")
    parameters = dict(mine.model.bert.named_parameters())
    assert parameters
    for name, value in base.model.bert.named_parameters():
        assert torch.equal(parameters[name], value), name
    run_info = json.loads((run.path / "run.json").read_text())
    assert run_info["config"]["base"] == str((root / "book").resolve())


def test_lora_weights_are_part_of_the_base(root: Path) -> None:
    train(root, "rows.csv", "text_classification", "changed", *ENCODER, "base=book", "tune=lora", "train.steps=2")
    train(root, "rows.csv", "text_classification", "again", *ENCODER, "base=changed", "tune=head", "train.steps=1")
    tasks = [load(root, name) for name in ("changed", "again")]
    first, second = (task.encode("the cat 3") for task in tasks)
    assert first == second
    ((_, vectors),), ((_, expected),) = (list(task.features([first])) for task in tasks)
    torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=0)


def test_exporting_a_lora_model_does_not_change_it(root: Path) -> None:
    overrides = [*ENCODER, "base=book", "tune=lora", "train.steps=2"]
    train(root, "rows.csv", "text_classification", "adapted", *overrides)
    task = load(root, "adapted")
    names = list(task.model.state_dict())
    assert any("lora" in name for name in names)
    pretrained = task.to_pretrained()
    assert isinstance(pretrained, Pretrained) and pretrained.task == "text_classification"
    assert pretrained.network is task.model and pretrained.base  # with its adapters, which some formats hold alone
    assert not any("lora" in name for name in open_base("adapted", root).network.state_dict())
    assert list(task.model.state_dict()) == names


def test_a_task_receives_its_base_and_opens_no_run(root: Path, tmp_path: Path) -> None:
    kind, base = load_task("tagging"), load(root, "book").to_pretrained()
    data = tmp_path / "words.conll"
    data.write_text("".join(f"cat B-PET\nsat{n} O\n\n" for n in range(20)))
    config = override(kind.Config(), ["base=/nowhere", "tune=head"])
    notes = kind.prepare(config, data, tmp_path, base=base)
    assert notes[-1].startswith("base: /nowhere, masked_language_model, 0.0 M parameters")
    task = kind.open(config, tmp_path)
    assert task.tokenizer.sha256 == base.processor.tokenizer.sha256
    for name, value in base.network.bert.named_parameters():
        assert torch.equal(task.model.bert.get_parameter(name), value), name
    assert {name for name, value in task.model.named_parameters() if value.requires_grad} == {
        "head.weight",
        "head.bias",
    }


def test_the_fingerprint_covers_the_validation_data(root: Path, tmp_path: Path) -> None:
    valid = tmp_path / "valid.csv"
    kind = load_task("text_classification")
    config = override(kind.Config(), [*TINY, f"data.valid={valid}"])
    fingerprints = set()
    for label in ("cat", "dog", "cat"):
        valid.write_text(f"text,label\na cat,{label}\na dog,dog\n")
        assets = tmp_path / f"assets-{len(list(tmp_path.iterdir()))}"
        assets.mkdir()
        kind.prepare(config, root / "rows.csv", assets)
        task = kind.open(config, assets)
        task.load_data(root / "rows.csv")
        fingerprints.add(task.fingerprint)
    assert len(fingerprints) == 2


def test_a_run_without_an_encoder_is_no_base(root: Path) -> None:
    small = [
        "model.dim=8",
        "model.depth=1",
        "model.heads=1",
        "model.hidden=8",
        "model.max_positions=8",
        "train.steps=1",
    ]
    train(root, "book.txt", "language_model", "prose", *small)
    with pytest.raises(UsageError, match=r"base must be an encoder such as BERT, but .*prose is a language_model"):
        train(root, "rows.csv", "text_classification", "none", "base=prose")
    assert not (root / "none").exists()
