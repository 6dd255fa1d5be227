"""Attention snapshots during training: log-spaced from step 0, the same after a kill, and no number depends on them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from saccade.core import AttentionMap, AttentionMaps, Callback, Prediction, Role, StepAxis, TextOutput
from saccade.errors import SaccadeError
from saccade.runs.snapshots import read_snapshot, snapshot_steps
from tests.training.fakes import Lines, flat, records, trainer
from tests.training.test_loop import Clock

ONE, FOUR = (StepAxis(Role.TEXT, tuple(f"t{n}" for n in range(count))) for count in (1, 4))


class Watched(Lines):
    """A task whose attention shows its weights, and which draws random numbers to show it."""

    def __init__(self) -> None:
        super().__init__(dropout=0.5)

    def attention_snapshot(self) -> list[Prediction]:
        assert not self.model.training
        torch.rand(3)
        weights = self.model[1].weight.detach().abs().clamp(max=1)[None]  # (1, 1, 4)
        return [
            Prediction({"numbers": "1"}, TextOutput(""), {}, AttentionMaps([AttentionMap("a", weights, ONE, FOUR)]))
        ]


class Kill(Callback):
    """Ends the process after a step, as a kill does."""

    def __init__(self, step: int) -> None:
        self.last = step

    def on_step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        if record["step"] == self.last:
            raise KeyboardInterrupt


def snapshots(folder: Path) -> dict[int, bytes]:
    steps = snapshot_steps(folder)
    return {step: (folder / "attention" / f"step-{step:08d}.json").read_bytes() for step in steps}


def test_snapshots_are_log_spaced_from_step_0_and_at_evaluations(tmp_path: Path) -> None:
    task = Watched()
    trainer(task, tmp_path, steps=40, evaluate_every=10).fit()
    assert snapshot_steps(tmp_path) == [0, 1, 2, 4, 8, 10, 16, 20, 30, 32, 40]
    maps = [read_snapshot(tmp_path, step)["examples"][0]["maps"][0]["weights"] for step in (0, 1, 40)]
    assert len(set(maps)) == 3, "each shows the weights of its own step"


def test_a_long_run_keeps_few_more_than_its_evaluations(tmp_path: Path) -> None:
    trainer(Watched(), tmp_path, steps=1000).fit()
    assert len(snapshot_steps(tmp_path)) <= 10 + 11


def test_no_number_depends_on_snapshots(tmp_path: Path) -> None:
    watched, plain = Watched(), Lines(dropout=0.5)
    trainer(watched, tmp_path / "watched", steps=20).fit()
    trainer(plain, tmp_path / "plain", steps=20).fit()
    assert torch.equal(flat(watched), flat(plain))
    assert [one.get("loss") for one in records(tmp_path / "watched")] == [
        one.get("loss") for one in records(tmp_path / "plain")
    ]


@pytest.mark.parametrize("killed", [1, 5, 8, 17])
def test_a_killed_run_has_the_same_snapshots(tmp_path: Path, killed: int) -> None:
    settings = {"steps": 24, "save_every": 6, "average": 0.9}
    trainer(Watched(), tmp_path / "whole", **settings).fit()
    with pytest.raises(KeyboardInterrupt):
        trainer(Watched(), tmp_path / "killed", Kill(killed), **settings).fit()
    trainer(Watched(), tmp_path / "killed", **settings).fit()
    assert snapshots(tmp_path / "killed") == snapshots(tmp_path / "whole")


def test_weights_that_are_not_finite_are_told_not_shown(tmp_path: Path) -> None:
    task = Watched()
    with torch.no_grad():
        task.model[1].bias.fill_(torch.nan)
    with pytest.raises(SaccadeError, match="step 0: a weight is not finite"):
        trainer(task, tmp_path).fit()
    assert snapshot_steps(tmp_path) == []


def test_a_budget_of_time_does_not_count_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most are taken early, where the clock decides how many steps fit into the time."""
    totals = []
    for seconds in (0.0, 5.0):
        task = Watched()
        clock = Clock(monkeypatch, task, lambda step: 1.0)
        take = task.attention_snapshot

        def slow(clock: Clock = clock, take: Any = take, seconds: float = seconds) -> list[Prediction]:
            clock.now += seconds
            return take()

        task.attention_snapshot = slow  # type: ignore[method-assign]
        run = trainer(task, tmp_path / str(seconds), steps=0, minutes=5.0, evaluate_every=1000)
        run.fit()
        totals.append(run.budget.total)
    assert totals[0] == totals[1] == 300
