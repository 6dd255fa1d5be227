"""Saving and resuming: what a checkpoint holds of a training, written by one process or by all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from torch import nn

from saccade.core import Batch
from saccade.errors import ModelFileError
from saccade.runs import checkpoint as checkpoints
from saccade.runs.checkpoint import Checkpoint, Tensors, write_parts
from saccade.runs.weights import (
    Networks,
    Optimizers,
    Stateful,
    restore,
    restore_optimizers,
    restore_states,
    state_tensors,
    weights,
)
from saccade.training.averaging import WeightAverage
from saccade.training.distributed import Processes
from saccade.training.finite import is_finite, not_finite
from saccade.training.optim import state_shapes

WHOLE = ("state",)  # parts that no process shards


def check_finite(
    networks: Mapping[str, nn.Module], step: int, batches: Sequence[Batch], processes: Processes | None = None
) -> None:
    """Refuse networks with a weight that is not finite after a step with some batches, in all `processes` together."""
    for network in networks.values():
        bad = not is_finite(network)
        if processes.largest(bad) if processes else bad:
            raise not_finite("a weight is not finite", step, network, batches)


def checkpoint_bytes(networks: Networks, *, average: bool) -> int:
    """Return the size of a checkpoint: the weights, two moments and the average."""
    size = sum(value.numel() * value.element_size() for value in weights(networks).values())
    return size * (4 if average else 3)


def write_checkpoint(folder: Path, checkpoint: Checkpoint, processes: Processes, *, sharded: bool) -> None:
    """Write a checkpoint: rank 0 does, and of `sharded` tensors each process its shard."""
    if not sharded:
        if processes.main:
            checkpoints.save(folder, checkpoint)
        return
    shards = {name: tensors for name, tensors in checkpoint.parts.items() if name not in WHOLE}
    if processes.main:
        checkpoints.save(folder, checkpoint, partial(_write_main, processes=processes))
    else:
        _write_shards(processes.share(folder), shards)
        processes.wait()


def _write_shards(folder: Path, parts: Mapping[str, Tensors]) -> None:
    from saccade.runs.shards import write_shards  # torch's distributed checkpoint takes half a second to import

    write_shards(folder, parts)


def _write_main(folder: Path, parts: Mapping[str, Tensors], processes: Processes) -> None:
    """Write the shards of rank 0, while all others write theirs."""
    _write_shards(processes.share(folder), {name: part for name, part in parts.items() if name not in WHOLE})
    write_parts(folder, {name: part for name, part in parts.items() if name in WHOLE})
    processes.wait()


def restore_training(
    saved: Checkpoint,
    where: str,
    networks: Networks,
    optimizers: Optimizers,
    average: WeightAverage | None,
    owners: Mapping[str, Stateful],
) -> None:
    """Give networks, optimizers, average, source and task what a checkpoint holds."""
    present = {"average": bool(average), "state": bool(state_tensors(owners))}
    expected = {"model", "optimizer", *(part for part, needed in present.items() if needed)}
    if saved.parts.keys() != expected:
        raise ModelFileError(
            f"{where} must hold {', '.join(sorted(expected))}, but holds {', '.join(sorted(saved.parts))}"
        )
    optimizer = saved.parts["optimizer"]
    if len(optimizer) != saved.state.optimizer_tensors:
        count = f"{saved.state.optimizer_tensors:,} tensors, but has {len(optimizer):,}"
        raise ModelFileError(f"{where}: the optimizer must have {count}")
    restore(networks, saved.parts["model"], where)
    restore_optimizers(networks, optimizers, optimizer, state_shapes, where)
    if average:
        average.load(saved.parts["average"], where)
    restore_states(owners, saved.parts.get("state", {}), where)
