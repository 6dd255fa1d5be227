"""Loading: the task of a run with the weights of one of its checkpoints, or a pretrained model; checked first."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from saccade.atomic_io import read_sealed
from saccade.config import from_json
from saccade.core import Pretrained, Task
from saccade.core.callback import Log
from saccade.errors import ModelFileError, UsageError
from saccade.pretrained.adapters import merge_lora
from saccade.pretrained.opening import open_pretrained
from saccade.pretrained.references import is_pretrained
from saccade.runs import folder as runs
from saccade.runs import provenance
from saccade.runs.folder import Run
from saccade.runs.selection import Which, select_weights
from saccade.runs.weights import restore
from saccade.tasks import load_task
from saccade.training.device import choose_device
from saccade.training.settings import TrainConfig

DTYPES = ("auto", "float32", "float16", "int8", "int4")
"""types of the weights of a language model; auto: as they are"""


def open_ref(
    ref: str,
    *,
    root: Path,
    device: str = "auto",
    checkpoint: Which = "best",
    task: str = "",
    dtype: str = "auto",
    base: str = "",
    log: Log = warnings.warn,
) -> Task:
    """Return the task of a run or a pretrained model, with its networks on a device and in eval mode.

    `base`: the model of an adapter of peft, if not the one that the adapter names. A run may name a task that is not
    built in, which is code: it is imported only if `task` names it too.
    """
    try:
        run = runs.find(root, ref)
    except UsageError:
        if not is_pretrained(ref):
            raise
        pretrained = open_pretrained(ref, open_base(base, root) if base else None)
        opened = load_task(task or pretrained.task).from_pretrained(pretrained)
    else:
        if base:
            raise UsageError(f"base must be given for an adapter of peft only, but {ref} is a run; leave it out")
        opened = load_run(run, checkpoint=checkpoint, task=task, log=log)
    for network in opened.networks().values():
        network.to(choose_device(device)).eval()
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be {', '.join(DTYPES)}, but is '{dtype}'")
    opened.set_precision(dtype, log)
    return opened


def open_base(ref: str, root: Path) -> Pretrained:
    """Return the pretrained model to start from: a run of ours, or any other ref."""
    try:
        run = runs.find(root, ref)
    except UsageError:
        return open_pretrained(ref)
    pretrained = load_run(run).to_pretrained()
    return replace(pretrained, network=merge_lora(pretrained.network))


def load_run(run: Run, *, checkpoint: Which = "best", task: str = "", log: Log = warnings.warn) -> Task:
    """Return the trained task of a run on the CPU, in eval mode."""
    find_task_class(run, task)
    weights = select_weights(run.checkpoints, checkpoint, log)
    if weights is None:
        raise ModelFileError(f"run '{run.name}' has no checkpoint yet; train it with `saccade resume {run.folder}`")
    with _AllocationLimit(weights.tensors, run):
        opened, _ = open_run(run, task)
    provenance.check_identity(run.folder, weights.state.data)
    restore(opened.networks(), weights.tensors, run.name)
    for network in opened.networks().values():
        network.eval()
    opened.analysis = _read_analysis(run)
    return opened


def _read_analysis(run: Run) -> Mapping[str, Any]:
    """Return the analysis of a finished run: what it shows by default must not depend on a file that is gone."""
    path = run.folder / "analysis.json"
    if not run.finished() and not path.exists():
        return {}
    try:
        return read_sealed(path)
    except ModelFileError as error:
        raise ModelFileError(f"{error}; `saccade resume {run.folder}` writes it again") from error


def find_task_class(run: Run, task: str) -> type[Task]:
    """Return the task class that a run names; one that is not built in only if `task` names it too."""
    name = run.describe()["task"]
    if "." in name and name != task:
        raise ModelFileError(
            f"run '{run.name}' names the task '{name}', which is not built in and would run code; "
            f"if you trust it, add --task {name}"
        )
    try:
        return load_task(name)
    except UsageError as error:
        raise ModelFileError(f"{run.folder / 'run.json'}: {error}") from error


def open_run(run: Run, task: str) -> tuple[Task, TrainConfig]:
    """Return the task of a run with initial weights, which depend on the seed alone, and its training config."""
    described, task_class = run.describe(), find_task_class(run, task)
    try:
        training = from_json(TrainConfig, described["train"], "train.")
        config = from_json(task_class.Config, described["config"])
    except UsageError as error:
        raise ModelFileError(f"{run.folder / 'run.json'}: {error}") from error
    provenance.check(run)
    with torch.random.fork_rng(devices=[]):  # networks are built on the CPU
        torch.manual_seed(training.seed)
        return task_class.open(config, run.assets), training


class _AllocationLimit(TorchDispatchMode):
    """Refuse to build networks far larger than the saved weights, before memory is taken for what run.json claims."""

    FACTOR, MARGIN = 4, 1 << 28  # of the weights; bytes for tables and temporary tensors

    def __init__(self, weights: Mapping[str, Tensor], run: Run) -> None:
        TorchDispatchMode.__init__(self)
        self._saved = sum(value.nbytes for value in weights.values())
        self._allocated, self._run = 0, run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(argument.name == "device" for argument in func._schema.arguments) and not _has_tensor(args):
            self._allocated += func(*args, **{**kwargs, "device": torch.device("meta")}).nbytes
            limit = self.FACTOR * self._saved + self.MARGIN
            if self._allocated > limit:
                raise ModelFileError(
                    f"run '{self._run.name}': the model of run.json must fit the saved weights, which have "
                    f"{self._saved:,} bytes, but needs more than {limit:,}; undo the change of run.json"
                )
        return func(*args, **kwargs)


def _has_tensor(args: Any) -> bool:
    return any(isinstance(argument, Tensor) for argument in args)
