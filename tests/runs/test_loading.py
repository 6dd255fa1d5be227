"""Loading: the checkpoint that was asked for, built once, refused before memory is taken or code is run."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade import loading
from saccade.atomic_io import write_sealed
from saccade.config import to_json
from saccade.core import Callback
from saccade.errors import ModelFileError, UsageError
from saccade.loading import load_run, open_base, open_ref
from saccade.runs import checkpoint, provenance
from saccade.runs import folder as runs
from saccade.runs.folder import Run
from saccade.runs.selection import Which
from saccade.runs.weights import weights
from saccade.training.loop import Trainer
from saccade.training.settings import TrainConfig
from tests.runs.tiny_task import Config, Task

NAME = "tests.runs.tiny_task"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of six steps, the fourth of which is the best."""
    training = TrainConfig(steps=6, device="cpu", evaluate_every=2, keep=3)
    settings = {"config": to_json(Config()), "train": to_json(training)}
    run = runs.create(tmp_path, "tiny-1", NAME, settings, tmp_path / "numbers.txt")
    run.assets.mkdir()
    Task.prepare(Config(), tmp_path / "numbers.txt", run.assets)
    provenance.record(run, "")
    task, config = loading.open_run(run, NAME)
    Trainer(task, config, run.folder, Callback()).fit()
    return run


def saved(run: Run, step: int, part: str = "model") -> dict[str, torch.Tensor]:
    return checkpoint.read(checkpoint.at(run.checkpoints, step)).parts[part]


def edit(run: Run, **fields: object) -> None:
    path = run.folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def damage(run: Run, step: int, file: str = "model.safetensors") -> None:
    path = checkpoint.at(run.checkpoints, step) / file
    path.write_bytes(path.read_bytes() + b"x")


@pytest.mark.parametrize(("which", "step"), [("best", 4), ("last", 6), (2, 2), (6, 6)])
def test_the_weights_are_those_of_the_checkpoint(run: Run, which: Which, step: int) -> None:
    task = load_run(run, checkpoint=which, task=NAME, log=pytest.fail)
    for name, value in weights(task.networks()).items():
        assert torch.equal(value, saved(run, step)[name])
    assert not task.networks()["model"].training


def test_a_step_without_a_checkpoint_is_refused(run: Run) -> None:
    message = r"checkpoint must be best, last, mean or a step that was kept \(2, 4, 6\), but is 3"
    with pytest.raises(UsageError, match=message):
        load_run(run, checkpoint=3, task=NAME)
    damage(run, 2)
    with pytest.raises(ModelFileError, match=r"step-000002.model\.safetensors must have \d+ bytes"):
        load_run(run, checkpoint=2, task=NAME)


def test_a_run_and_its_task_are_opened_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Task.opened.clear()
    hashed: list[str] = []
    digest, read_bytes = hashlib.file_digest, Path.read_bytes

    def note(file: Any, name: str) -> Any:
        hashed.append(Path(file.name).name)
        return digest(file, name)

    def read_whole(path: Path) -> bytes:
        assert path.parent != run.assets, "an asset is read into memory to hash it"
        return read_bytes(path)

    monkeypatch.setattr(hashlib, "file_digest", note)
    monkeypatch.setattr(Path, "read_bytes", read_whole)
    load_run(run, task=NAME, log=pytest.fail)
    assert Task.opened == [run.assets]
    assert hashed.count("vocabulary.txt") == 1
    assert "optimizer.safetensors" not in hashed


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(run: Run, value: float) -> None:
    stored = checkpoint.read(checkpoint.at(run.checkpoints, 4))
    name = min(name for name, tensor in stored.parts["model"].items() if tensor.is_floating_point())
    stored.parts["model"][name].view(-1)[0] = value
    checkpoint.save(run.checkpoints, stored)
    message = rf"^tiny-1: {name} must hold finite numbers, but does not; choose another checkpoint"
    with pytest.raises(ModelFileError, match=message):
        load_run(run, task=NAME, log=pytest.fail)
    assert load_run(run, checkpoint="last", task=NAME, log=pytest.fail)


def test_a_damaged_optimizer_does_not_matter_to_predict(run: Run) -> None:
    for step in (2, 4, 6):
        damage(run, step, "optimizer.safetensors")
    load_run(run, task=NAME, log=pytest.fail)


def test_a_damaged_best_checkpoint_is_logged(run: Run) -> None:
    damage(run, 4)
    messages: list[str] = []
    task = load_run(run, task=NAME, log=messages.append)
    assert torch.equal(task.networks()["model"].head.weight, saved(run, 6)["head.weight"])
    assert len(messages) == 1
    assert messages[0].startswith("the best checkpoint is damaged: ") and messages[0].endswith(
        "; using the one of step 6"
    )


def test_the_mean_of_the_kept_checkpoints(run: Run) -> None:
    messages: list[str] = []
    task = load_run(run, checkpoint="mean", task=NAME, log=messages.append)
    assert messages == ["mean of the checkpoints of steps 2, 4, 6"]
    expected = sum(saved(run, step)["head.weight"].double() for step in (2, 4, 6)) / 3
    torch.testing.assert_close(task.networks()["model"].head.weight.double(), expected)
    assert int(task.networks()["model"].calls) == 6  # a count is not averaged
    damage(run, 2)
    load_run(run, checkpoint="mean", task=NAME, log=messages.append)
    assert "checkpoint of step 2 is damaged" in messages[1] and messages[1].endswith("the mean is without it")
    assert messages[2] == "mean of the checkpoints of steps 4, 6"


@pytest.mark.parametrize("width", [1 << 34, 1 << 26])
def test_a_model_far_larger_than_its_weights_is_refused(run: Run, width: int) -> None:
    edit(run, config={"width": width, "gain": 1.0})
    provenance.record(run, "")  # as one who made the run like this would have
    with pytest.raises(
        ModelFileError, match=r"the model of run\.json must fit the saved weights, which have \d+ bytes"
    ):
        load_run(run, task=NAME)


def test_other_shapes_and_settings_are_refused(run: Run) -> None:
    for config in ({"width": 9, "gain": 1.0}, {"width": 8, "gain": 2.0}):
        edit(run, config=config)
        with pytest.raises(ModelFileError, match=r"run\.json holds other settings than the run was started with; undo"):
            load_run(run, task=NAME)
    provenance.record(run, "")
    with pytest.raises(ModelFileError, match=r"data\.json is missing or is not that of the run's checkpoints"):
        load_run(run, task=NAME)


@pytest.mark.parametrize(
    ("name", "value"), [("seed", 2), ("steps", 9), ("average", 0.5), ("keep", 1), ("optim", {"lr": 0.5})]
)
def test_a_changed_training_setting_is_refused(run: Run, name: str, value: object) -> None:
    train = json.loads((run.folder / "run.json").read_text())["train"]
    edit(run, train={**train, name: {**train[name], **value} if isinstance(value, dict) else value})
    with pytest.raises(ModelFileError, match=r"run\.json holds other settings than the run was started with; undo"):
        loading.open_run(run, NAME)
    edit(run, train={**train, "device": "auto"}, data="/elsewhere/numbers.txt")  # where it runs, where the data are
    loading.open_run(run, NAME)


def test_a_damaged_or_missing_record_of_the_data_is_named(run: Run) -> None:
    path = run.folder / "data.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"fingerprint": ""', b'"fingerprint": "1"'))
    for act in (lambda: load_run(run, task=NAME), lambda: loading.open_run(run, NAME)):
        with pytest.raises(ModelFileError, match=r"data\.json does not match the hash that it contains; restore it"):
            act()
    path.unlink()
    for act in (lambda: load_run(run, task=NAME), lambda: loading.open_run(run, NAME)):
        with pytest.raises(ModelFileError, match=r"data\.json cannot be read: No such file.*; restore it from a copy"):
            act()


def test_the_analysis_of_a_finished_run_must_be_there(run: Run) -> None:
    path = run.folder / "analysis.json"
    assert load_run(run, task=NAME).analysis == {}
    (run.folder / "card.md").write_text("# finished\n")
    with pytest.raises(
        ModelFileError, match=r"analysis\.json cannot be read: No such file.*`saccade resume .*` writes it"
    ):
        load_run(run, task=NAME)
    write_sealed(path, {"alignment": {"name": "decoder.0.cross", "head": 1}})
    assert load_run(run, task=NAME).analysis == {"alignment": {"name": "decoder.0.cross", "head": 1}}
    path.write_bytes(path.read_bytes().replace(b"1", b"0"))
    with pytest.raises(ModelFileError, match=r"analysis\.json does not match the hash that it contains"):
        load_run(run, task=NAME)
    path.write_bytes(b"{" * 2000)
    with pytest.raises(ModelFileError, match=r"analysis\.json is damaged"):
        load_run(run, task=NAME)


def test_a_changed_asset_is_refused(run: Run) -> None:
    (run.assets / "vocabulary.txt").write_text("three\n")
    with pytest.raises(ModelFileError, match=r"assets: vocabulary\.txt has changed since the run was trained"):
        load_run(run, task=NAME)


@pytest.mark.parametrize("act", ["unlink", "mkdir", "mkfifo"])
def test_an_asset_that_cannot_be_read_is_named(run: Run, act: str) -> None:
    path = run.assets / "vocabulary.txt"
    path.unlink()
    if act != "unlink":
        getattr(os, act)(path)
    with pytest.raises(ModelFileError, match=r"vocabulary\.txt (has changed|must be a regular file|cannot be read)"):
        load_run(run, task=NAME)


def test_the_mean_is_of_what_the_run_keeps_whatever_a_kill_left(run: Run) -> None:
    whole = load_run(run, checkpoint="mean", task=NAME, log=lambda _: None)
    shutil.copytree(checkpoint.at(run.checkpoints, 2), checkpoint.at(run.checkpoints, 1))  # older, half deleted
    (checkpoint.at(run.checkpoints, 1) / "manifest.json").unlink()
    messages: list[str] = []
    again = load_run(run, checkpoint="mean", task=NAME, log=messages.append)
    assert messages == ["mean of the checkpoints of steps 2, 4, 6"]
    assert torch.equal(again.networks()["model"].head.weight, whole.networks()["model"].head.weight)


def test_a_task_that_is_not_built_in_must_be_named(run: Run) -> None:
    with pytest.raises(ModelFileError, match=f"not built in and would run code; if you trust it, add --task {NAME}"):
        open_ref("tiny-1", root=run.folder.parent)


def test_an_unknown_task_is_named(run: Run) -> None:
    edit(run, task="tagginng")
    with pytest.raises(ModelFileError, match=r"run\.json: no task 'tagginng'; did you mean 'tagging'\?"):
        open_ref("tiny-1", root=run.folder.parent)


def test_a_run_without_a_checkpoint_is_named(run: Run) -> None:
    run.checkpoints.rename(run.folder / "elsewhere")
    with pytest.raises(ModelFileError, match="run 'tiny-1' has no checkpoint yet; train it with `saccade resume"):
        load_run(run, task=NAME)


def test_a_ref_is_a_run_by_name_or_folder(run: Run) -> None:
    for ref, root in (("tiny-1", run.folder.parent), (str(run.folder), Path("elsewhere"))):
        task = open_ref(ref, root=root, device="cpu", task=NAME)
        assert isinstance(task, Task)
        assert not task.networks()["model"].training
    with pytest.raises(UsageError, match="no run 'tiny-2'"):
        open_ref("tiny-2", root=run.folder.parent)


def test_a_base_is_a_run_or_a_pretrained_model(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    find = loading.find_task_class
    monkeypatch.setattr(loading, "find_task_class", lambda run, task: find(run, NAME))  # as a built-in task
    base = open_base("tiny-1", run.folder.parent)
    assert base.config == Config()
    assert torch.equal(base.network.head.weight, saved(run, 4)["head.weight"])
    monkeypatch.setattr(loading, "open_pretrained", lambda ref: f"opened {ref}")
    assert open_base("owner/name", run.folder.parent) == "opened owner/name"


def test_a_base_that_does_not_exist_is_named(run: Run) -> None:
    with pytest.raises(UsageError, match=r"no model 'minilmm'; did you mean 'minilm'\?; name an existing folder"):
        open_base("minilmm", run.folder.parent)
