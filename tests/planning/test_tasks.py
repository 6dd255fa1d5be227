"""Plans of data and runs: what is predicted from shapes against a real step, in small."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import saccade
from saccade.atomic_io import write_sealed
from saccade.cli import main
from saccade.errors import ModelFileError, UsageError
from saccade.planning.measured import step_seconds
from tests.tasks.battery import Trial

TRACED = ["language_model", "translation", "masked_language_model", "image_classification", "behaviour_cloning"]


@pytest.mark.parametrize("name", TRACED)
def test_a_job_is_planned_before_it_is_trained(name: str, tmp_path: Path) -> None:
    trial = Trial.of(name)
    data = trial.write_data(tmp_path)
    plan = saccade.plan(data, task=name, overrides=trial.settings, steps=20, device="h100", progress=False)
    assert plan["parameters"] == plan["trainable"] > 1000 and plan["flops_per_step"] > 1e5 and plan["fits"]
    assert plan["steps"] == 20 and plan["hours"] == pytest.approx(20 * plan["seconds_per_step"] / 3600)
    assert plan["memory"]["gradients"] == 4 * plan["trainable"]
    assert not list(tmp_path.glob("runs*"))  # nothing is trained


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> saccade.Run:
    folder = tmp_path_factory.mktemp("planned")
    trial = Trial.of("language_model")
    settings = [*trial.settings, "train.device=cpu", "train.steps=12"]
    data = trial.write_data(folder)
    return saccade.train(data, task="language_model", overrides=settings, root=folder / "runs", progress=False)


def test_the_memory_of_a_run_is_predicted_and_measured(run: saccade.Run) -> None:
    plan = saccade.plan(run, measure=True, progress=False)
    memory = plan["measured"]["step_memory"]
    assert abs(memory["difference"]) < 0.15
    assert plan["parameters"] == sum(
        weight.numel() for weight in saccade.load(run).task.networks()["model"].parameters()
    )
    assert plan["measured"]["seconds_per_step"]["measured"] > 0
    assert "predicted" in str(plan) and "memory allocated for a step" in str(plan)


def test_the_command_prints_json(run: saccade.Run) -> None:
    result = CliRunner().invoke(main, ["plan", str(run.path), "--device", "v100", "--price", "2", "--quiet", "--json"])
    values = json.loads(result.stdout)
    assert values["dollars"] == pytest.approx(2 * values["hours"]) and "measured" not in values


def test_what_cannot_be_planned_is_refused_by_name(run: saccade.Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"run '.*' has its own settings, but model.dim=64 was given"):
        saccade.plan(run, overrides=["model.dim=64"], progress=False)
    with pytest.raises(UsageError, match="tokens is for published models only"):
        saccade.plan(run, tokens=5.0, progress=False)
    with pytest.raises(UsageError, match="devices must be given together with a device, such as --device h100"):
        saccade.plan(run, devices=2, progress=False)
    trial = Trial.of("adversarial_imitation")
    data = trial.write_data(tmp_path)
    with pytest.raises(UsageError, match="'adversarial_imitation' cannot be planned: its batches come from an environ"):
        saccade.plan(data, task="adversarial_imitation", overrides=trial.settings, progress=False)


def test_a_damaged_record_of_the_memory_is_named(run: saccade.Run) -> None:
    path = run.path / "memory.json"
    content = path.read_bytes()
    write_sealed(path, {"before": "much"})
    with pytest.raises(ModelFileError, match="must hold whole numbers `before`, `peak` and `steps`"):
        saccade.plan(run, progress=False)
    path.write_bytes(content)


def test_seconds_of_steps_leave_out_evaluations_and_the_first_steps() -> None:
    steps = [{"step": number, "lr_scale": 1.0, "seconds": float(number)} for number in range(1, 7)]
    records = [*steps[:4], {"step": 4, "elapsed": 4.0}, {**steps[4], "seconds": 20.0}, {**steps[5], "seconds": 21.0}]
    assert step_seconds(records) == [1.0, 1.0]
