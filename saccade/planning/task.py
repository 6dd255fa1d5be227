"""Plan of the user's own data or run: will it fit, how long does it take; of a finished run also what was measured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from saccade.core import Callback
from saccade.nn.transformer import Layer
from saccade.planning import splits
from saccade.planning.calibration import Stopwatch
from saccade.planning.cost import Cluster
from saccade.planning.estimate import Estimator, Job, StepEstimate
from saccade.planning.hardware import machine_memory
from saccade.planning.measured import Measurement
from saccade.planning.memory import Recipe, kv_cache_of
from saccade.training.device import keep_freed_memory

FULL = 0.9  # of the memory that a job may fill


@dataclass(frozen=True)
class TaskRequest:
    """What a plan of a job is asked for."""

    cluster: Cluster | None = None
    """None: this machine, whose operators are timed"""
    variants: bool = True
    """with and without fused attention and activation checkpointing"""


@dataclass(frozen=True)
class Finished:
    """A run beside its plan."""

    measurement: Measurement
    allocated: Callable[[int], int] | None = None
    """runs a step here and returns the peak of what torch allocates; None: it is not asked for"""


def plan_task(job: Job, request: TaskRequest, callback: Callback, finished: Finished | None = None) -> dict[str, Any]:
    """Return the plan of a job; of a `finished` one with what was measured."""
    measured = finished.measurement if finished else None
    cluster = request.cluster
    precision = (measured and measured.precision) or _precision(job, cluster)
    estimator = Estimator(job, precision, accelerator=cluster is not None)
    callback.on_progress("tracing", 0.0)
    estimate = estimator.estimate(measured.memory_steps if measured else 0)
    variants = estimator.variants(estimate.largest) if request.variants else []
    callback.on_progress("tracing", 1.0)
    result: dict[str, Any] = {
        "kind": "task",
        "name": job.name,
        "task": job.task_name,
        "precision": precision,
        "parameters": estimate.parameters,
        "trainable": estimate.trainable,
        "unit": estimate.unit,
        "units_per_step": estimate.units,
        "steps_per_epoch": estimate.per_epoch,
        "batches_traced": len(estimate.traces),
        "flops_per_step": estimate.flops,
        "memory": _memory(estimate, variants),
        "kv_cache_per_row": kv_cache_of(job.task.networks().values()),
    }
    if cluster is None:
        result |= _on_this_machine(job, estimate, callback, measured)
    else:
        result |= _on_cluster(job, estimate, cluster)
    result |= _length(job, estimate, result["seconds_per_step"], cluster)
    if finished is not None:
        allocated = finished.allocated(estimate.largest) if finished.allocated else None
        result["measured"] = compare(result, estimate, finished.measurement, allocated)
    return result


def _precision(job: Job, cluster: Cluster | None) -> str:
    """Return the type that the job computes with, as `train.precision` says."""
    chosen = job.training.precision
    if chosen in ("float32", "bfloat16"):
        return chosen
    return "float32" if cluster is None or cluster.device.precision == "float32" else "bfloat16"


def _memory(estimate: StepEstimate, variants: list[dict[str, Any]]) -> dict[str, Any]:
    states = {name: getattr(estimate, name) for name in ("weights", "gradients", "optimizer", "step_memory")}
    traced = {name: getattr(estimate.memory, name) for name in ("activations", "working", "peak")}
    return {**states, **traced, "variants": variants}


def _on_this_machine(
    job: Job, estimate: StepEstimate, callback: Callback, measured: Measurement | None
) -> dict[str, Any]:
    """Time the operators of the step here; the memory is that of a process."""
    keep_freed_memory()  # as in training
    stopwatch, total = Stopwatch(), len(estimate.traces)
    with _threads(measured.threads if measured else None):
        threads = torch.get_num_threads()
        stopwatch.measure_overhead()
        seconds = 0.0
        for number, trace in enumerate(estimate.traces):
            seconds += stopwatch.step_seconds(trace.operations) / total
            callback.on_progress("timing operators", (number + 1) / total)
    needed = (job.resident or 0) + estimate.weights + estimate.step_memory
    return {
        "device": {"name": f"this machine ({threads} thread{'s' if threads > 1 else ''})", "memory": machine_memory()},
        "devices": 1,
        "seconds_per_step": seconds + estimate.loading,
        "seconds_from": "operators timed one by one on this machine, and the loading of a batch",
        "resident": job.resident,
        "needed": needed,
        "fits": needed <= FULL * machine_memory(),
    }


def _on_cluster(job: Job, estimate: StepEstimate, cluster: Cluster) -> dict[str, Any]:
    """Divide the FLOPs by what the devices reach; the batch of a step is shared by all of them."""
    needed = estimate.weights + estimate.optimizer + estimate.gradients + estimate.memory.working / cluster.count
    return {
        "device": asdict(cluster.device),
        "devices": cluster.count,
        "utilisation": cluster.utilisation,
        "seconds_per_step": cluster.seconds(estimate.flops),
        "seconds_from": f"FLOPs at {cluster.utilisation:.0%} of the peak of {cluster.device.name}",
        "needed": needed,
        "fits": needed <= FULL * cluster.device.memory,
        "advice": splits.advice(_load(job, estimate, cluster), cluster.device, cluster.count),
    }


def _load(job: Job, estimate: StepEstimate, cluster: Cluster) -> splits.Load:
    """Return what a device has to hold; how much is sent is not asked for."""
    modules = [module for network in job.task.networks().values() for module in network.modules()]
    layers = max(1, sum(isinstance(module, Layer) for module in modules))
    parts = (estimate.weights, estimate.gradients, estimate.optimizer)
    recipe = Recipe(*(round(part / max(1, estimate.parameters)) for part in parts))
    activations = estimate.memory.working // cluster.count
    return splits.Load(estimate.parameters, layers, 0, 0, 1, activations, recipe, cluster.count)


def _length(job: Job, estimate: StepEstimate, seconds: float, cluster: Cluster | None) -> dict[str, Any]:
    """Return steps, hours and price of the whole job."""
    training = job.training
    steps = training.steps or (max(1, round(training.epochs * estimate.per_epoch)) if training.epochs else 0)
    hours = steps * seconds / 3600 if steps else (training.minutes or 5.0) / 60
    result: dict[str, Any] = {"steps": steps or max(1, round(hours * 3600 / seconds)), "hours": hours}
    result["given"] = "steps" if steps else "minutes"
    result["epochs"] = result["steps"] / max(1, estimate.per_epoch)
    if cluster is not None and cluster.price:
        result |= {"price": cluster.price, "dollars": cluster.dollars(hours)}
    return result


def compare(
    plan: dict[str, Any], estimate: StepEstimate, measured: Measurement, allocated: int | None
) -> dict[str, Any]:
    """Return predicted against measured: seconds of a step, memory that torch allocates for it, and of the process.

    The process is larger than what is allocated in it: a heap has gaps, and kernels keep buffers of their own.
    """
    resident = plan.get("resident")
    process = None if resident is None else resident + estimate.weights + estimate.step_memory
    pairs = {
        "seconds_per_step": (plan["seconds_per_step"], measured.seconds),
        "processor_seconds": (plan["seconds_per_step"], measured.processor_seconds if measured.threads == 1 else None),
        "step_memory": (estimate.memory.peak, allocated),
        "process_memory": (process, measured.peak),
    }
    return {
        "steps": measured.steps,
        "threads": measured.threads,
        **{
            name: {"predicted": predicted, "measured": value, "difference": predicted / value - 1}
            for name, (predicted, value) in pairs.items()
            if predicted is not None and value
        },
    }


@contextlib.contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Compute with as many threads as a run did."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
