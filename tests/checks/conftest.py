"""Fixtures of the checks: tiny trained runs of any task, trained once per session; the count of planted bugs."""

import pytest

import saccade
from tests.checks.planted import CAUGHT, Workshop
from tests.checks.planted_texts import BUGS
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


@pytest.hookimpl(hookwrapper=True)
def pytest_terminal_summary(terminalreporter):
    """Print how many planted bugs were caught, also by tests in several processes."""
    yield
    reports = [report for group in terminalreporter.stats.values() for report in group]
    caught = {
        value
        for report in reports
        if getattr(report, "when", "") == "call" and report.passed
        for name, value in report.user_properties
        if name == CAUGHT
    }
    if caught or any("test_planted.py" in getattr(report, "nodeid", "") for report in reports):
        terminalreporter.write_line(f"{len(caught)}/{len(BUGS)} planted bugs caught, none besides their consequences")
