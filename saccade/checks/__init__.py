"""Checks: the invariants that silent bugs break, tested on a run, an imported model or a model of transformers.

report = saccade.check("pairs-1")          # a run by name or folder, or a pretrained model
report = saccade.check(model)              # what saccade.load returns, or a model of transformers
report.passed, report["cache"].message
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from saccade import api
from saccade.checks import resuming
from saccade.checks.foreign_models import is_foreign
from saccade.checks.invariant import Invariant, choose
from saccade.checks.report import CheckReport, Outcome, Result
from saccade.checks.subject import Subject, foreign_subject, task_subject
from saccade.errors import UsageError
from saccade.model import Model
from saccade.run import Run
from saccade.runs import folder as runs
from saccade.runs import provenance

__all__ = ["CheckReport", "Result", "check", "list_invariants"]

OnStart = Callable[[str, int, int], None]
"""called with the name of an invariant, its number and the number of all"""


def check(
    model: Any,
    *,
    tokenizer: Any = None,
    only: Sequence[str] = (),
    root: str | os.PathLike[str] = api.RUNS,
    task: str = "",
    resume: bool = False,
    on_start: OnStart = lambda name, number, total: None,
) -> CheckReport:
    """Check the invariants that silent bugs break and return what held and what failed, with the smallest example.

    `model` is a run, a ref (a run by name or folder, or a pretrained model), what `saccade.load` returns, or a text
    model of transformers, whose `tokenizer` may be given beside it. `only` names some of the invariants that
    `saccade check --list` lists. A task that is not built in is code, which is imported only if `task` names it too.
    `resume` also trains copies of a run some steps further, kills one of them and compares every byte. The model itself
    is never changed.
    """
    chosen = choose(tuple(only))
    subject = _in_eval_mode(_subject(model, tokenizer, Path(root), task))
    if resume:
        chosen.append(_resume_invariant(subject, task))
    results = []
    for number, invariant in enumerate(chosen):
        on_start(invariant.name, number, len(chosen))
        results.append(_run(invariant, subject))
    return CheckReport(subject.name, results)


def list_invariants() -> list[dict[str, str]]:
    """Return name and summary of every invariant."""
    rows = [{"name": invariant.name, "summary": invariant.summary} for invariant in choose(())]
    return [*rows, {"name": resuming.NAME, "summary": f"{resuming.SUMMARY}; only with --resume"}]


def _resume_invariant(subject: Subject, task: str) -> Invariant:
    run = subject.run
    if run is None:
        raise UsageError(f"resume must be asked of a run, but {subject.name} is none; give the name or folder of a run")
    return Invariant(resuming.NAME, resuming.SUMMARY, lambda subject: resuming.check_resume(run, task))


def _subject(model: Any, tokenizer: Any, root: Path, task: str) -> Subject:
    if is_foreign(model):
        return foreign_subject(model, tokenizer)
    if tokenizer is not None:
        raise UsageError("tokenizer must be given for a model of transformers only: other models have their own")
    if isinstance(model, Model):
        return task_subject(model.name or "model", model.task, data=model.data, fingerprint=model.fingerprint)
    if not isinstance(model, str | os.PathLike | Run):
        kinds = "a run, a ref, a saccade.Model or a text model of transformers"
        raise UsageError(f"model must be {kinds}, but is {type(model).__name__}")
    ref = os.fspath(model)
    loaded = api.load(ref, root=root, task=task, log=lambda message: None)
    try:
        run = runs.find(root, ref)
    except UsageError:  # a pretrained model
        return task_subject(ref, loaded.task)
    recorded = provenance.read(run) or {}
    return task_subject(run.name, loaded.task, run=run, data=loaded.data, fingerprint=recorded.get("fingerprint", ""))


def _in_eval_mode(subject: Subject) -> Subject:
    """Return the subject, with copies of networks that are in training mode: the model itself is never changed."""
    if not any(module.training for network in subject.networks.values() for module in network.modules()):
        return subject
    return subject.with_networks({name: network.eval() for name, network in subject.copies().items()})


def _run(invariant: Invariant, subject: Subject) -> Result:
    """Run an invariant; a model that raises an exception where it should give an output has failed."""
    began = time.perf_counter()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        try:
            outcome = invariant.run(subject)
        except Exception as error:  # noqa: BLE001 - whatever the model raises is what is wrong with it
            outcome = _raised(error)
    return Result(
        outcome.status,
        outcome.message,
        outcome.example,
        outcome.where,
        name=invariant.name,
        seconds=time.perf_counter() - began,
    )


def _raised(error: Exception) -> Outcome:
    """Return the failure of a model that raised an exception, with the last place outside of the checks."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if f"{os.sep}checks{os.sep}" not in frame.filename and f"{os.sep}torch{os.sep}" not in frame.filename
    ]
    where = f"{frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name}" if frames else ""
    return Outcome("failed", f"raises {type(error).__name__}: {error}"[:500], "", where)
