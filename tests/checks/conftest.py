"""Fixtures of the checks: tiny trained runs of any task, trained once per session."""

import pytest

import saccade
from tests.checks.planted import Workshop
from tests.tasks.battery import Trial

LOOP = ["train.device=cpu", "train.precision=float32", "train.steps=8", "train.evaluate_every=8"]


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """Return the folder of a tiny run of a task, with further settings."""
    folders = {}

    def train(name, *overrides):
        key = (name, *overrides)
        if key not in folders:
            trial, folder = Trial.of(name), tmp_path_factory.mktemp(name)
            settings = [*trial.settings, *LOOP, *overrides]
            run = saccade.train(
                trial.write_data(folder), task=name, name="run", root=folder, overrides=settings, progress=False
            )
            folders[key] = run.path
        return folders[key]

    return train


@pytest.fixture
def workshop(tiny_run, tmp_path, monkeypatch):
    return Workshop(tiny_run, tmp_path, monkeypatch)
