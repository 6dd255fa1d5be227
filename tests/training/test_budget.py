"""Budgets: a time becomes a number of steps once, evaluations are spread over it, and decisions hold."""

import json
from pathlib import Path

import pytest

from saccade.atomic_io import read_sealed, write_sealed
from saccade.errors import ModelFileError
from saccade.training.budget import Budget
from saccade.training.optim import OptimConfig, lr_scale

WSD = OptimConfig(schedule="wsd", cooldown=0.6)


def test_steps_are_known_from_the_start(tmp_path: Path) -> None:
    budget = Budget.of(tmp_path / "budget.json", 40, 0.0, [WSD])
    assert budget.total == 40
    assert not budget.decide(39, 1e9)
    assert budget.progress(10, 123.0) == 0.25
    assert not (tmp_path / "budget.json").exists()


def test_time_becomes_steps_when_the_schedule_must_decay(tmp_path: Path) -> None:
    budget = Budget.of(tmp_path / "budget.json", 0, 100.0, [WSD])
    assert budget.total is None
    assert not budget.decide(39, 39.0)  # 1 - cooldown = 0.4 of the time is not over
    assert budget.progress(39, 39.0) == pytest.approx(0.39)
    assert budget.decide(80, 40.0)
    assert budget.total == 200  # two steps a second
    assert budget.progress(100, 50.0) == 0.5
    assert not budget.decide(150, 99.0)  # only once
    decision = {"total": 200, "decided_at": 80, "seconds": 100.0, "evaluate_every": 20, "evaluations": []}
    assert read_sealed(tmp_path / "budget.json") == decision


def test_other_schedules_decide_early(tmp_path: Path) -> None:
    budget = Budget.of(tmp_path / "budget.json", 0, 100.0, [OptimConfig(schedule="cosine")])
    assert budget.decide(10, 5.0)
    assert budget.total == 200


def test_a_few_steps_are_waited_for(tmp_path: Path) -> None:
    budget = Budget.of(tmp_path / "budget.json", 0, 1.0, [WSD])
    assert not budget.decide(2, 100.0)
    assert budget.decide(3, 100.0)
    assert budget.total == 4  # the time is over; one more step, at the lowest learning rate


def test_a_decision_on_disk_holds(tmp_path: Path) -> None:
    first = Budget.of(tmp_path / "budget.json", 0, 10.0, [WSD])
    first.decide(50, 5.0)
    again = Budget.of(tmp_path / "budget.json", 0, 10.0, [WSD])
    assert again.total == first.total == 100
    assert not again.decide(60, 9.0)


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        '{"total": 5}',
        '{"total": null}',
        '{"total": "many", "decided_at": 1, "evaluate_every": 1, "evaluations": []}',
        '{"total": 5, "decided_at": 1, "evaluate_every": 1, "evaluations": 3}',
        '{"total": 5, "decided_at": 1, "evaluate_every": 1, "evaluations": ["x"]}',
    ],
)
def test_a_damaged_decision_is_named(tmp_path: Path, content: str) -> None:
    write_sealed(tmp_path / "budget.json", json.loads(content))
    with pytest.raises(
        ModelFileError, match=r"budget\.json must hold whole numbers `total`, `decided_at` and `evaluate_every`"
    ):
        Budget.of(tmp_path / "budget.json", 0, 10.0, [WSD])


def test_steps_before_the_decision_keep_the_learning_rate_they_had(tmp_path: Path) -> None:
    """A kill between the decision and the next checkpoint runs those steps again."""
    for optim in (WSD, OptimConfig(schedule="cosine", warmup=2)):
        file = tmp_path / f"{optim.schedule}.json"
        first = Budget.of(file, 0, 10.0, [optim])
        before = [lr_scale(optim, step, first.total_at(step)) for step in range(50)]
        first.decide(50, 8.0)
        again = Budget.of(file, 0, 10.0, [optim])
        assert again.total is not None and again.decided_at == 50
        assert [lr_scale(optim, step, again.total_at(step)) for step in range(50)] == before
        assert lr_scale(optim, 50, again.total_at(50)) == lr_scale(optim, 50, first.total_at(50)) < 1


def evaluated(budget: Budget, steps: range, seconds_per_step: float) -> list[int]:
    """Run a budget through some steps; the ones that are evaluated."""
    result = []
    for step in steps:
        budget.decide(step, step * seconds_per_step)
        if budget.evaluate_after(step, step * seconds_per_step):
            result.append(step)
    return result


@pytest.mark.parametrize("schedule", ["wsd", "cosine", "constant"])
def test_a_time_budget_is_evaluated_about_ten_times(tmp_path: Path, schedule: str) -> None:
    budget = Budget.of(tmp_path / "budget.json", 0, 100.0, [OptimConfig(schedule=schedule)])
    steps = evaluated(budget, range(1, 1001), 0.1)
    assert 9 <= len(steps) <= 11
    gaps = [after - before for before, after in zip([0, *steps], steps, strict=False)]
    assert max(gaps) <= 200


def test_slow_evaluations_take_at_most_a_fifth_of_the_time(tmp_path: Path) -> None:
    budget = Budget.of(tmp_path / "budget.json", 0, 100.0, [WSD])
    budget.evaluation_seconds = 5.0
    steps = evaluated(budget, range(1, 1001), 0.1)
    assert len(steps) * 5.0 <= 20.0 + 5.0


def test_a_slow_step_is_not_followed_by_one_evaluation_after_another(tmp_path: Path) -> None:
    budget = Budget.of(tmp_path / "budget.json", 0, 100.0, [WSD])
    assert budget.evaluate_after(1, 35.0)
    assert not budget.evaluate_after(2, 36.0)


def test_decided_evaluations_hold_whatever_the_clock_says_later(tmp_path: Path) -> None:
    first = Budget.of(tmp_path / "budget.json", 0, 100.0, [WSD])
    before = evaluated(first, range(1, 36), 1.0)
    assert before == json.loads((tmp_path / "budget.json").read_bytes())["evaluations"] == [10, 20, 30]
    for seconds_per_step in (0.1, 5.0):  # resumed after step 5, on a faster and on a slower machine
        again = Budget.of(tmp_path / "budget.json", 0, 1000.0, [WSD], elapsed=5.0)
        assert evaluated(again, range(6, 31), seconds_per_step) == before


def test_the_earliest_decay_of_several_networks_decides(tmp_path: Path) -> None:
    budget = Budget.of(tmp_path / "budget.json", 0, 100.0, [WSD, OptimConfig(schedule="cosine")])
    assert budget.decide(10, 5.0)


def test_a_changed_decision_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "budget.json"
    budget = Budget.of(file, 0, 100.0, [WSD])
    evaluated(budget, range(1, 36), 1.0)
    before = budget.decisions()
    evaluated(budget, range(36, 50), 1.0)
    Budget.of(file, 0, 100.0, [WSD]).check_saved(before)  # what was decided since then is no change
    saved = budget.decisions()
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"total": 100', b'"total": 900'))
    with pytest.raises(ModelFileError, match=r"budget\.json does not match the hash that it contains"):
        Budget.of(file, 0, 100.0, [WSD])
    write_sealed(file, {**read_sealed_bytes(whole), "total": 900})
    with pytest.raises(ModelFileError, match=r"budget\.json must hold the decisions .* a total of 900, expected 100"):
        Budget.of(file, 0, 100.0, [WSD]).check_saved(saved)
    file.unlink()
    for decisions in (before, saved):
        with pytest.raises(ModelFileError, match=r"budget\.json must hold the decisions .* a total of None"):
            Budget.of(file, 0, 100.0, [WSD]).check_saved(decisions)


def read_sealed_bytes(data: bytes) -> dict[str, object]:
    return {name: value for name, value in json.loads(data).items() if name != "seal"}
