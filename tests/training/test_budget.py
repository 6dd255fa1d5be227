"""Budgets: a time becomes a number of steps once, and that decision holds."""

import json
from pathlib import Path

import pytest

from saccade.errors import ModelFileError
from saccade.training.budget import Budget
from saccade.training.optim import OptimConfig, rate

WSD = OptimConfig(schedule="wsd", cooldown=0.6)


def test_steps_are_known_from_the_start(tmp_path: Path) -> None:
    budget = Budget.of(tmp_path / "budget.json", 40, 0.0, WSD)
    assert budget.total == 40
    assert not budget.decide(39, 1e9)
    assert budget.progress(10, 123.0) == 0.25
    assert not (tmp_path / "budget.json").exists()


def test_time_becomes_steps_when_the_schedule_must_go_down(tmp_path: Path) -> None:
    budget = Budget.of(tmp_path / "budget.json", 0, 100.0, WSD)
    assert budget.total is None
    assert not budget.decide(39, 39.0)  # 1 - cooldown = 0.4 of the time is not over
    assert budget.progress(39, 39.0) == pytest.approx(0.39)
    assert budget.decide(80, 40.0)
    assert budget.total == 200  # two steps a second
    assert budget.progress(100, 50.0) == 0.5
    assert not budget.decide(150, 99.0)  # only once
    assert json.loads((tmp_path / "budget.json").read_bytes()) == {"total": 200, "decided_at": 80, "seconds": 100.0}


def test_other_schedules_decide_early(tmp_path: Path) -> None:
    budget = Budget.of(tmp_path / "budget.json", 0, 100.0, OptimConfig(schedule="cosine"))
    assert budget.decide(10, 5.0)
    assert budget.total == 200


def test_a_few_steps_are_waited_for(tmp_path: Path) -> None:
    budget = Budget.of(tmp_path / "budget.json", 0, 1.0, WSD)
    assert not budget.decide(2, 100.0)
    assert budget.decide(3, 100.0)
    assert budget.total == 4  # the time is over; one more step, at the lowest rate


def test_a_decision_on_disk_holds(tmp_path: Path) -> None:
    first = Budget.of(tmp_path / "budget.json", 0, 10.0, WSD)
    first.decide(50, 5.0)
    again = Budget.of(tmp_path / "budget.json", 0, 10.0, WSD)
    assert again.total == first.total == 100
    assert not again.decide(60, 9.0)


@pytest.mark.parametrize("content", ["{}", '{"total": 5}', '{"total": null}', '{"total": "many", "decided_at": 1}'])
def test_a_damaged_decision_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "budget.json").write_text(content)
    with pytest.raises(ModelFileError, match=r"budget\.json must hold whole numbers `total` and `decided_at`"):
        Budget.of(tmp_path / "budget.json", 0, 10.0, WSD)


def test_steps_before_the_decision_keep_the_rate_they_had(tmp_path: Path) -> None:
    """A kill between the decision and the next checkpoint runs those steps again."""
    for optim in (WSD, OptimConfig(schedule="cosine", warmup=2)):
        file = tmp_path / f"{optim.schedule}.json"
        first = Budget.of(file, 0, 10.0, optim)
        before = [rate(optim, step, first.total_at(step)) for step in range(50)]
        first.decide(50, 8.0)
        again = Budget.of(file, 0, 10.0, optim)
        assert again.total is not None and again.decided_at == 50
        assert [rate(optim, step, again.total_at(step)) for step in range(50)] == before
        assert rate(optim, 50, again.total_at(50)) == rate(optim, 50, first.total_at(50)) < 1
