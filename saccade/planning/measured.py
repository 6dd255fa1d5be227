"""Measured: what a run took, from its folder; and what torch allocates for a step of it, from running it again."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from saccade.atomic_io import read_json, read_sealed
from saccade.config import override
from saccade.core import Batch, Split, Task
from saccade.errors import ModelFileError
from saccade.runs import checkpoint
from saccade.runs.folder import Run
from saccade.runs.journal import read_journal
from saccade.training.compiling import training_mode
from saccade.training.memory import FILE, WARM_UP
from saccade.training.optim import build_optimizers
from saccade.training.precision import autocast
from saccade.training.settings import TrainConfig


@dataclass(frozen=True)
class Measurement:
    """What a run took."""

    steps: int
    """whose seconds were counted"""
    seconds: float | None
    """mean of a step, without evaluations; None: too few steps"""
    processor_seconds: float | None
    """mean processor time of a step of one thread, which other programs do not prolong; None: not recorded"""
    memory_steps: int
    before: int | None
    """bytes of the process before the first step; None: not recorded"""
    peak: int | None
    """most bytes of the process before the first evaluation"""
    threads: int | None
    precision: str | None


def measure(run: Run) -> Measurement | None:
    """Return what a run took; None if it has no steps yet."""
    records = read_journal(run.folder / "metrics.jsonl")
    if not any("lr_scale" in record for record in records):
        return None
    seconds = step_seconds(records)
    path = run.folder / FILE
    memory: Mapping[str, Any] = read_sealed(path) if path.exists() else {}
    if memory and not all(isinstance(memory.get(name), int) for name in ("before", "peak", "steps")):
        raise ModelFileError(f"{path} must hold whole numbers `before`, `peak` and `steps`, but does not; delete it")
    mean = statistics.fmean(seconds) if seconds else None
    environment = _environment(run)
    return Measurement(
        steps=len(seconds),
        seconds=mean,
        processor_seconds=memory.get("processor_seconds") or None,
        memory_steps=memory.get("steps", 0),
        before=memory.get("before"),
        peak=memory.get("peak"),
        threads=environment.get("threads"),
        precision=environment.get("precision"),
    )


def step_seconds(records: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the seconds of the steps of a journal, without the first ones and those after an evaluation.

    The clock of the journal runs on during an evaluation, and starts anew after a resume.
    """
    seconds: list[float] = []
    for before, record in pairwise(records):
        consecutive = "lr_scale" in before and "lr_scale" in record
        if consecutive and record["step"] > WARM_UP and record["seconds"] > before["seconds"]:
            seconds.append(record["seconds"] - before["seconds"])
    return seconds


def _environment(run: Run) -> Mapping[str, Any]:
    """Return threads and precision that the run computed with; empty: it has no checkpoint."""
    steps = checkpoint.steps(run.checkpoints)
    if not steps:
        return {}
    environment = read_json(checkpoint.at(run.checkpoints, steps[-1]) / "state.json").get("environment", {})
    return environment if isinstance(environment, dict) else {}


def allocated_peak(task: Task, training: TrainConfig, precision: str, step: int) -> int:
    """Run a step of a task for real and return the most bytes that torch allocated at once, as its profiler counts.

    The step before it creates the state of the optimizers, which does not count, as the weights do not.
    """
    networks = task.networks()
    optimizers = {
        name: build_optimizers(override(training.optim, task.optimizer_overrides(name)), network)
        for name, network in networks.items()
    }
    batches = task.source(Split.TRAIN, training.seed).at(step)
    with training_mode(networks):
        _run_step(task, networks, optimizers, batches, precision)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            _run_step(task, networks, optimizers, batches, precision)
    kineto = profiler.profiler
    assert kineto is not None and kineto.kineto_results is not None
    events = [event for event in kineto.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def _run_step(
    task: Task,
    networks: Mapping[str, nn.Module],
    optimizers: Mapping[str, Sequence[torch.optim.Optimizer]],
    batches: Sequence[Batch],
    precision: str,
) -> None:
    """Compute gradients of all micro-batches and update each network, as the training loop does."""
    rounds = [task.losses(batch, networks) for batch in batches]
    while True:
        name = ""
        for losses in rounds:
            with autocast(precision, torch.device("cpu")):
                pair = next(losses, None)
            if pair is None:
                return
            name, loss = pair
            trained = [each for each in networks[name].parameters() if each.requires_grad]
            loss.backward(inputs=trained if len(networks) > 1 else None)
            del loss, pair
        for optimizer in optimizers[name]:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
