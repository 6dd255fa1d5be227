"""Resuming: a checkpoint with a valid seal and odd content is refused with one message, whatever is odd about it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from saccade import atomic_io
from saccade.errors import ModelFileError
from saccade.runs import checkpoint
from tests.training.fakes import Lines, Recorder, trainer

Tensors = dict[str, torch.Tensor]
STEP = 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of four steps with one checkpoint."""
    trainer(Lines(), tmp_path, steps=STEP, average=0.9, keep=1, evaluate_every=STEP).fit()
    return tmp_path


def reseal(folder: Path) -> None:
    """Give a changed checkpoint a valid manifest."""
    path = checkpoint.at(folder / "checkpoints", STEP)
    files = {file.name: checkpoint._fingerprint(file) for file in path.iterdir() if file.name != "manifest.json"}
    manifest = {"format": checkpoint.FORMAT, "step": STEP, "files": files}
    (path / "manifest.json").write_bytes(atomic_io.seal(manifest))


def change_tensors(folder: Path, part: str, change: Callable[[Tensors], Tensors]) -> None:
    file = checkpoint.at(folder / "checkpoints", STEP) / f"{part}.safetensors"
    save_file(change(load_file(file)), file)
    reseal(folder)


def change_state(folder: Path, **changes: Any) -> None:
    file = checkpoint.at(folder / "checkpoints", STEP) / "state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    reseal(folder)


def resume(folder: Path) -> None:
    trainer(Lines(), folder, Recorder(), steps=STEP, average=0.9, keep=1, evaluate_every=STEP).fit()


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


WEIGHT, STATE = "1.weight", "model/1.weight/exp_avg"


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("model", without(WEIGHT), "does not fit the model: missing"),
        ("model", lambda t: {**t, "more": torch.zeros(1)}, "does not fit the model: .* unexpected"),
        ("model", lambda t: {**t, WEIGHT: t[WEIGHT].T.contiguous()}, "must have shape"),
        ("model", lambda t: {**t, WEIGHT: t[WEIGHT].double()}, r"must be torch\.float32, but is torch\.float64"),
        ("model", lambda t: {**t, WEIGHT: t[WEIGHT] * torch.nan}, "must hold finite numbers"),
        ("average", without(WEIGHT), "does not fit the model: missing"),
        ("average", lambda t: {**t, WEIGHT: t[WEIGHT].half()}, r"must be torch\.float32, but is torch\.float16"),
        ("optimizer", without(STATE), "the optimizer must have 6 tensors, but has 5"),
        ("optimizer", lambda t: {}, "the optimizer must have 6 tensors, but has 0"),
        ("optimizer", lambda t: {**without(STATE)(t), f"{STATE}g": t[STATE]}, "must have exp_avg, exp_avg_sq, step of"),
        ("optimizer", lambda t: {**without(STATE)(t), "a": t[STATE]}, "but the model has no such parameter"),
        ("optimizer", lambda t: {**t, STATE: t[STATE].long()}, r"must be torch\.float32, but is torch\.int64"),
        ("optimizer", lambda t: {**t, STATE: t[STATE][:, :2].contiguous()}, "must have shape"),
    ],
)
def test_resealed_tensors_that_do_not_fit_are_refused(
    folder: Path, part: str, change: Callable[[Tensors], Tensors], message: str
) -> None:
    change_tensors(folder, part, change)
    with pytest.raises(ModelFileError, match=f"step-000004.*{message}"):
        resume(folder)


@pytest.mark.parametrize("part", ["average", "optimizer"])
def test_a_resealed_checkpoint_without_a_part_is_refused(folder: Path, part: str) -> None:
    (checkpoint.at(folder / "checkpoints", STEP) / f"{part}.safetensors").unlink()
    reseal(folder)
    with pytest.raises(ModelFileError, match="step-000004 must hold average, model, optimizer, but holds"):
        resume(folder)


def test_a_resealed_checkpoint_with_another_part_is_refused(folder: Path) -> None:
    save_file({"source/position": torch.zeros(1)}, checkpoint.at(folder / "checkpoints", STEP) / "state.safetensors")
    reseal(folder)
    with pytest.raises(ModelFileError, match="but holds average, model, optimizer, state"):
        resume(folder)
    save_file({"a": torch.zeros(1)}, checkpoint.at(folder / "checkpoints", STEP) / "other.safetensors")
    reseal(folder)
    with pytest.raises(ModelFileError, match=r"must list no other files than .*, but lists other\.safetensors"):
        resume(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"journals": {}}, "must hold how much of metrics.jsonl was written"),
        ({"budget": {"total": 9}}, r"budget\.json must hold the decisions that the run was trained with"),
        ({"budget": {"total": "x", "evaluations": 3}}, r"budget\.json must hold the decisions"),
        ({"data": "0" * 64}, r"data\.json is missing or is not that of the run's checkpoints"),
        ({"best": {}, "kept": [], "stopped": "perhaps"}, "stopped must be true or false"),
    ],
)
def test_a_resealed_state_of_another_run_is_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    change_state(folder, **changes)
    with pytest.raises(ModelFileError, match=message):
        resume(folder)


def test_the_settings_of_a_run_without_average_refuse_one(tmp_path: Path) -> None:
    trainer(Lines(), tmp_path, steps=2, average=0.5).fit()
    with pytest.raises(ModelFileError, match="must hold model, optimizer, but holds average, model, optimizer"):
        trainer(Lines(), tmp_path, steps=2)


def test_a_stop_by_a_signal_changes_nothing_of_what_is_kept(tmp_path: Path) -> None:
    settings = {"steps": 12, "evaluate_every": 4, "save_every": 2, "keep": 3}
    trainer(Lines(), tmp_path / "whole", **settings).fit()
    first = trainer(Lines(), tmp_path / "stopped", **settings)
    step = first._train_step

    def stop() -> dict[str, Any]:
        if first.step == 9:
            first.save(scheduled=False)  # as after a signal
            raise KeyboardInterrupt
        return step()

    first._train_step = stop  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        first.fit()
    stopped, whole = (tmp_path / name / "checkpoints" for name in ("stopped", "whole"))
    assert 9 in checkpoint.steps(stopped)
    trainer(Lines(), tmp_path / "stopped", **settings).fit()
    assert checkpoint.steps(stopped) == checkpoint.steps(whole)
    states = [checkpoint.read(checkpoint.at(path, 12)).state for path in (stopped, whole)]
    assert (states[0].kept, states[0].scheduled) == (states[1].kept, states[1].scheduled)
