"""`--resume`: a killed copy of a run ends with the same bytes; training that depends on the clock does not."""

import json
import os
import re
import shutil
import textwrap
from pathlib import Path

import pytest

import saccade
from saccade.checks import resuming
from saccade.checks.resuming import check_resume, extend
from saccade.errors import UsageError
from saccade.runs import checkpoint
from saccade.runs.folder import Run


def test_a_copy_is_extended_and_can_be_resumed(tiny_run, tmp_path):
    run = Run(tmp_path / "run")
    shutil.copytree(tiny_run("language_model"), run.folder)
    assert extend(run, 4)
    assert checkpoint.steps(run.checkpoints) == [8]
    saccade.resume(run.folder, progress=False)
    assert max(checkpoint.steps(run.checkpoints)) == 12
    assert json.loads((run.folder / "run.json").read_text())["train"]["steps"] == 12


def test_only_a_run_can_be_resumed(tiny_run):
    with pytest.raises(UsageError, match="resume must be asked of a run, but run is none; give the name or folder"):
        saccade.check(saccade.load(tiny_run("language_model")), resume=True, only=["batch"])


@pytest.mark.parametrize("counts", [(3,), (0, 0, 1), (0, 0, 0, 0)])
def test_a_copy_that_ends_before_a_kill_is_replaced_by_one_that_is_killed_earlier(tiny_run, monkeypatch, counts):
    """And nothing is said about resuming if no copy was killed."""
    given = iter(counts)
    limits = []

    def kill(run, kills, reach, task, pause):
        assert checkpoint.steps(run.checkpoints) == [8]  # of a new copy
        limits.append((reach, pause))
        return next(given)

    monkeypatch.setattr(resuming, "_kill", kill)
    monkeypatch.setattr(resuming, "_finish", lambda run, task: None)
    outcome = check_resume(Run(tiny_run("language_model")), kills=3, steps=24)
    assert limits == [(18, resuming.PAUSE), (4, 0.0), (1, 0.0), (0, 0.0)][: len(counts)]
    if counts[-1]:
        times = "1 kill" if counts[-1] == 1 else "3 kills"
        assert outcome.status == "passed" and f"24 more steps with {times}: every file" in outcome.message
    else:
        assert outcome.status == "skipped"
        assert outcome.message == "4 copies of the run trained 24 steps before they could be killed"


@pytest.mark.slow
def test_a_killed_copy_ends_with_the_same_bytes(tiny_run):
    folder = tiny_run("language_model")
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    outcome = check_resume(Run(folder), kills=2)
    assert outcome.status == "passed", outcome
    assert re.search(r"with (1 kill|2 kills): every file of the run folder is identical", outcome.message)
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()} == before


UNSEEDED = '''
    """The toy task of the tests, whose loss depends on the clock."""
    import time

    from tests.examples.toy_images import *
    from tests.examples import toy_images


    class Task(toy_images.Task):
        def losses(self, batch, networks):
            time.sleep(0.05)  # long enough to be killed
            for name, loss in super().losses(batch, networks):
                yield name, loss * (1 + 1e-3 * (time.time_ns() % 97))
'''


@pytest.mark.slow
def test_training_that_depends_on_the_clock_is_caught(tmp_path, monkeypatch):
    from tests.examples import toy_images

    (tmp_path / "planted_tasks").mkdir()
    (tmp_path / "planted_tasks" / "unseeded.py").write_text(textwrap.dedent(UNSEEDED))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (tmp_path, Path(__file__).parents[2]))))
    task = "planted_tasks.unseeded"
    overrides = [*toy_images.SETTINGS, "train.device=cpu", "train.precision=float32", "train.steps=10"]
    data = toy_images.write_data(tmp_path)
    run = saccade.train(data, task=task, name="run", root=tmp_path, overrides=overrides, progress=False)
    outcome = check_resume(Run(run.path), task, kills=1)
    assert outcome.status == "failed", outcome
    assert "model.safetensors" in outcome.message and "metrics.jsonl" in outcome.message
