"""Estimate: a training step of the user's own data or run, traced on a few of its real batches without values."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from saccade.api import choose_task
from saccade.config import override
from saccade.core import Batch, Callback, Split, Task
from saccade.errors import UsageError
from saccade.loading import open_base, open_run
from saccade.planning.counting import parameters
from saccade.planning.steps import StepTrace, TracedNetworks
from saccade.runs.folder import Run
from saccade.training.memory import memory_in_use
from saccade.training.optim import build_optimizers
from saccade.training.precision import autocast
from saccade.training.settings import TrainConfig

T = TypeVar("T")
SAMPLES = 5  # batches that are traced, spread over an epoch


@dataclass(frozen=True)
class Job:
    """A task that is to be trained, or was, with its data; its networks are on the meta device."""

    name: str
    task_name: str
    task: Task
    training: TrainConfig
    resident: int | None
    """bytes of the process with the data loaded and without networks; None: not known"""


def open_data(data: Path, task: str, preset: str, overrides: Sequence[str], root: Path, callback: Callback) -> Job:
    """Return the job that `saccade train` would do with this data and these settings."""
    name, task_class, config, training = choose_task(data, task, preset, overrides, root, callback)
    ref = getattr(config, "base", "")
    with tempfile.TemporaryDirectory(prefix="saccade-plan-") as folder:
        assets = Path(folder)
        base = open_base(ref, root) if ref else None
        reading = partial(callback.on_progress, "reading")
        for note in task_class.prepare(config, data, assets, base=base, progress=reading):
            callback.log(note)
        opened = _open(lambda: task_class.open(config, assets), pretrained=bool(ref))
    return _with_data(data.name, name, opened, data, training, callback)


def open_trained(run: Run, task: str, callback: Callback) -> Job:
    """Return the job of a run."""
    described = run.describe()
    opened, training = _open(lambda: open_run(run, task), pretrained=bool(described["config"].get("base")))
    return _with_data(run.name, described["task"], opened, Path(described["data"]), training, callback)


def _open(opening: Callable[[], T], *, pretrained: bool) -> T:
    """Open a task with networks that take no memory, unless they are built from values, as pretrained ones are."""
    if pretrained:
        return opening()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="for .*copying from a non-meta parameter", category=UserWarning)
        try:
            with torch.device("meta"):
                return opening()
        except NotImplementedError:  # a network that reads a value of another one, such as the mean of the images
            return opening()


def _with_data(name: str, task: str, opened: Task, data: Path, training: TrainConfig, callback: Callback) -> Job:
    for note in opened.load_data(data, progress=partial(callback.on_progress, "loading data")):
        callback.log(note)
    return Job(name, task, opened, training, memory_in_use(torch.device("cpu")))


@dataclass(frozen=True)
class StepEstimate:
    """What training steps need: means over the traced batches, memory of the largest."""

    parameters: int
    trainable: int
    unit: str
    units: float
    """of a step, such as tokens"""
    per_epoch: int
    flops: float
    weights: int
    gradients: int
    optimizer: int
    largest: int
    """step of the traced batch that needs the most memory"""
    memory: StepTrace
    """trace of that step"""
    loading: float
    """seconds to load a batch, measured"""
    traces: Sequence[StepTrace]

    @property
    def step_memory(self) -> int:
        """Bytes that training adds to a process with the networks in it."""
        return self.optimizer + self.memory.peak


class Estimator:
    """Traces steps of a job: as this machine computes them, or an accelerator."""

    def __init__(self, job: Job, precision: str, *, accelerator: bool) -> None:
        self.job, self.precision = job, precision
        task, training = job.task, job.training
        self.source = task.source(Split.TRAIN, training.seed)
        if self.source.state() is not None:
            raise UsageError(
                f"task '{job.task_name}' cannot be planned: its batches come from an environment, in which the trained "
                "network acts; train it for a few steps instead (--steps 20)"
            )

        def optimizers(name: str, network: nn.Module) -> list[torch.optim.Optimizer]:
            return build_optimizers(override(training.optim, task.optimizer_overrides(name)), network)

        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self.networks = TracedNetworks(task.networks(), optimizers, "cpu", dtype if accelerator else None)

    def sample(self, steps: int = 0) -> list[int]:
        """Return a few steps of the first `steps`, evenly spaced; default: of an epoch."""
        total = min(steps or self.source.per_epoch, self.source.per_epoch)
        count = min(SAMPLES, total)
        return [number * total // count for number in range(count)]

    def trace(self, batches: Sequence[Batch], *, fused: bool = True, checkpointing: bool = False) -> StepTrace:
        """Trace one step."""

        def losses(networks: Mapping[str, nn.Module]) -> list[Iterator[tuple[str, Tensor]]]:
            return [self._losses(batch, networks) for batch in batches]

        try:
            return self.networks.trace(losses, fused=fused, checkpointing=checkpointing)
        except UsageError as error:
            raise UsageError(f"task '{self.job.task_name}' cannot be planned from shapes: {error}") from error

    def _losses(self, batch: Batch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        losses = self.job.task.losses(batch, networks)
        while True:
            with autocast(self.precision, torch.device("cpu")):
                pair = next(losses, None)
            if pair is None:
                return
            yield pair

    def estimate(self, steps: int = 0) -> StepEstimate:
        """Trace a few of the first `steps` steps of the job; default: of an epoch."""
        sampled, began = self.sample(steps), time.perf_counter()
        batches = [self.source.at(step) for step in sampled]
        loading = (time.perf_counter() - began) / len(sampled)
        self.trace(batches[0])  # creates the state of the optimizers
        traces = [self.trace(each) for each in batches]
        networks = self.networks
        largest = max(range(len(traces)), key=lambda number: traces[number].peak)
        return StepEstimate(
            parameters=sum(parameters(network) for network in networks.networks.values()),
            trainable=sum(each.numel() for each in networks.parameters if each.requires_grad),
            unit=self.job.task.unit,
            units=sum(batch.units for each in batches for batch in each) / len(batches),
            per_epoch=self.source.per_epoch,
            flops=sum(trace.flops for trace in traces) / len(traces),
            weights=networks.weights,
            gradients=networks.gradients,
            optimizer=networks.optimizer_state,
            largest=sampled[largest],
            memory=traces[largest],
            loading=loading,
            traces=traces,
        )

    def variants(self, step: int) -> list[dict[str, Any]]:
        """Return the memory of a step with and without fused attention and activation checkpointing."""
        batches, result = self.source.at(step), []
        for fused in (True, False):
            for checkpointing in (False, True):
                trace = self.trace(batches, fused=fused, checkpointing=checkpointing)
                sizes = {"activations": trace.activations, "working": trace.working, "flops": trace.flops}
                result.append({"fused_attention": fused, "checkpointing": checkpointing, **sizes})
        return result
