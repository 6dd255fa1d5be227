"""Plan: which of the plans a reference asks for, and its result as JSON and as text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.core import Callback
from saccade.errors import UsageError, suggest
from saccade.loading import open_run
from saccade.planning import estimate, published, report
from saccade.planning.cost import UTILISATION, Cluster
from saccade.planning.counting import parameters
from saccade.planning.hardware import THIS, find_device
from saccade.planning.measured import allocated_peak, measure
from saccade.planning.memory import kv_cache_of, tensor_bytes
from saccade.planning.shapes import ARCHITECTURES
from saccade.planning.task import Finished, TaskRequest, plan_task
from saccade.pretrained.opening import open_pretrained
from saccade.pretrained.references import is_pretrained
from saccade.runs import folder as runs

DEFAULT_DEVICE = "a100"


@dataclass(frozen=True)
class Options:
    """What a plan is made for."""

    device: str = ""
    """p100, v100, a100, h100, ...; this: this machine; empty: this machine, or the published hardware"""
    devices: int = 0
    """number of devices; 0: one, or as many as published"""
    price: float = 0.0
    """dollars per device and hour"""
    utilisation: float = 0.0
    """fraction of the peak FLOP/s that training reaches; 0: 0.3"""
    tokens: float = 0.0
    """of the training of a published model; 0: as published"""
    batch: int = 1
    """rows of a micro-batch of a published model"""
    split: bool = False
    """data-parallel, FSDP, tensor and pipeline splits of a published model"""
    measure: bool = False
    """run a step of a run here, and measure what torch allocates for it"""

    def __post_init__(self) -> None:
        if self.devices < 0:
            raise UsageError(f"devices must be at least 1, but is {self.devices}")


class Plan:
    """A plan: `values` as JSON, and the same as text."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __str__(self) -> str:
        return "\n".join(report.lines(self.values))

    def __repr__(self) -> str:
        return f"<saccade.planning.Plan: {self.values.get('name', self.values['kind'])}>"

    def _repr_markdown_(self) -> str:
        return str(self)


def make_plan(
    ref: str,
    *,
    options: Options,
    task: str = "",
    preset: str = "",
    overrides: Sequence[str] = (),
    root: Path,
    callback: Callback,
) -> Plan:
    """Return the plan of a run, a data file, a published or a pretrained model; of nothing: the published table."""
    if not ref:
        _refuse_settings("the table of published models", task, preset, overrides)
        utilisation = options.utilisation or UTILISATION
        return Plan({"kind": "table", "utilisation": utilisation, "rows": published.table(utilisation)})
    try:
        run = runs.find(root, ref)
    except UsageError:
        run = None
    if run is not None:
        _refuse_settings(f"run '{run.name}'", "", preset, overrides)
        job = estimate.open_trained(run, task, callback)
        return Plan(plan_task(job, _request(options), callback, _finished(run, task, options)))
    if options.measure:
        raise UsageError(f"measure is for runs, but '{ref}' is none; train it first, or leave it out")
    if Path(ref).exists() and not is_pretrained(ref):
        job = estimate.open_data(Path(ref), task, preset, overrides, root, callback)
        return Plan(plan_task(job, _request(options), callback))
    if ref in ARCHITECTURES:
        _refuse_settings(f"the published model '{ref}'", task, preset, ())
        return Plan(published.plan_published(ref, list(overrides), _published_request(ref, options)))
    if is_pretrained(ref):
        _refuse_settings(f"the pretrained model '{ref}'", task, preset, overrides)
        return Plan(_pretrained(ref))
    raise UsageError(f"no data file, run or model '{ref}'{suggest(ref, list(ARCHITECTURES))}")


def _finished(run: runs.Run, task: str, options: Options) -> Finished | None:
    """Return what a run took; None if it has no steps yet, or is planned for another device."""
    measurement = None if options.device else measure(run)
    if measurement is None:
        if options.measure:
            raise UsageError(f"run '{run.name}' has no steps on this machine to measure; leave --measure out")
        return None

    def allocated(step: int) -> int:
        opened, training = open_run(run, task)
        opened.load_data(Path(run.describe()["data"]))
        return allocated_peak(opened, training, measurement.precision or "float32", step)

    return Finished(measurement, allocated if options.measure else None)


def _refuse_settings(what: str, task: str, preset: str, overrides: Sequence[str]) -> None:
    given = [*([f"task {task}"] if task else []), *([f"preset {preset}"] if preset else []), *overrides]
    if given:
        raise UsageError(f"{what} has its own settings, but {', '.join(given)} was given; leave it out")


def _request(options: Options) -> TaskRequest:
    """Return the request of a plan of data or a run: this machine, or other devices."""
    for name in ("tokens", "split"):
        if getattr(options, name):
            raise UsageError(f"{name} is for published models only: {', '.join(ARCHITECTURES)}; leave it out")
    if options.device in ("", THIS):
        given = [name for name in ("devices", "price", "utilisation") if getattr(options, name)]
        if given:
            raise UsageError(f"{', '.join(given)} must be given together with a device, such as --device h100")
        return TaskRequest()
    utilisation = options.utilisation or UTILISATION
    return TaskRequest(Cluster(find_device(options.device), options.devices or 1, utilisation, options.price))


def _published_request(name: str, options: Options) -> published.Request:
    """Return the request of a plan of a published model: on its own hardware unless another is given."""
    training = ARCHITECTURES[name].training
    own = training is not None and not options.device
    device = training.device if training is not None and own else options.device or DEFAULT_DEVICE
    count = options.devices or (training.count if training is not None and own else 1)
    price = options.price or (training.price if training is not None and own else 0.0)
    cluster = Cluster(find_device(device), count, options.utilisation or UTILISATION, price)
    return published.Request(cluster, options.batch, options.tokens, options.split)


def _pretrained(ref: str) -> dict[str, Any]:
    """Return the memory that a pretrained model needs to run."""
    network = open_pretrained(ref).network
    count, size = parameters(network), tensor_bytes([*network.parameters(), *network.buffers()])
    return {
        "kind": "pretrained",
        "name": os.fspath(ref),
        "parameters": count,
        "memory": {"weights": size, "float32": 4 * count, "bfloat16": 2 * count, "int8": count, "int4": count // 2},
        "kv_cache_per_row": kv_cache_of([network]),
    }
