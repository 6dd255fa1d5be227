"""Parallel training: processes share the micro-batches of a step, and torch's DDP or FSDP2 adds up their gradients."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from saccade.core import Batch, Source, Task
from saccade.errors import UsageError
from saccade.runs.weights import Networks, assign, is_sharded, weights
from saccade.training.averaging import WeightAverage
from saccade.training.compiling import training_mode, unchanged
from saccade.training.distributed import Processes
from saccade.training.settings import TrainConfig


@dataclass(frozen=True)
class Part:
    """A micro-batch of a step."""

    number: int
    """among those of the step, of all processes"""
    batch: Batch
    weight: float
    """of its mean loss in that of the step; 0: another process computes it"""


class OneProcess:
    """Training in one process: all micro-batches of a step are computed here."""

    sharded = False
    note = ""
    """for the user"""

    def __init__(self, networks: Networks) -> None:
        self.trained: dict[str, nn.Module] = dict(networks)
        """networks whose parameters are updated"""
        self.networks: dict[str, nn.Module] = dict(networks)
        """the same networks in the form that computes a loss"""
        self.scale = 1.0
        """factor of a loss: gradients are averaged over the processes, while the parts of a step are to be added up"""

    def parts(self, batches: Sequence[Batch]) -> list[Part]:
        """Return the parts of a step that this process computes."""
        total = sum(batch.count for batch in batches)
        return [Part(number, batch, batch.count / total) for number, batch in enumerate(batches)]

    def compute_with(self, compiled: Networks) -> None:
        """Compute losses with a compiled form of the networks."""
        self.networks = dict(compiled)

    def total(self, losses: Sequence[float]) -> float:
        """Return the loss of a step from that of its parts, 0 for those of other processes."""
        return sum(losses)

    def accumulating(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Return the context of the losses and gradients of a part; after the last one processes communicate."""
        return contextlib.nullcontext()

    def evaluated(self, average: WeightAverage | None) -> contextlib.AbstractContextManager[None]:
        """Return the context in which the networks of the task have the trained weights, or their average."""
        return average.applied() if average else contextlib.nullcontext()


class DataParallel(OneProcess):
    """DDP: every process has all of the networks; `shared` processes share the parts of a step."""

    def __init__(self, networks: Networks, processes: Processes, *, shared: bool) -> None:
        super().__init__(networks)
        self._processes, self._shared = processes, shared
        self._dividing = False  # the parts of the current step
        self.networks = self._wrap(self.networks)

    def _wrap(self, networks: Networks) -> dict[str, nn.Module]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)  # of torch 2.13
            return {
                name: DistributedDataParallel(network, broadcast_buffers=False, find_unused_parameters=True)
                for name, network in networks.items()
            }

    def compute_with(self, compiled: Networks) -> None:
        self.networks = self._wrap(compiled)

    def parts(self, batches: Sequence[Batch]) -> list[Part]:
        """Return every n-th part; what is left over is computed by several processes and counts once."""
        parts, size = super().parts(batches), self._processes.size
        self._dividing = self._shared and len(parts) > 1
        self.scale = float(size) if self._dividing else 1.0
        if not self._dividing:
            return parts
        own = parts[self._processes.rank :: size]
        missing = -(-len(parts) // size) - len(own)
        return [*own, *[replace(parts[0], weight=0.0)] * missing]

    def total(self, losses: Sequence[float]) -> float:
        return sum(self._processes.total(losses) if self._dividing else losses)

    def accumulating(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        stack = contextlib.ExitStack()
        for network in self.networks.values():
            if not last and isinstance(network, DistributedDataParallel):
                stack.enter_context(network.no_sync())
        return stack


class ShardedParallel(DataParallel):
    """FSDP2: each process has a shard of every parameter, gradient and optimizer state.

    The networks of the task are evaluated by rank 0, with the gathered weights; copies of them are sharded and trained.
    """

    sharded = True

    def __init__(self, networks: Networks, processes: Processes, device: torch.device, *, shared: bool) -> None:
        self._device, self._plain = device, networks
        super().__init__(networks, processes, shared=shared)
        self.trained = self.networks

    def _wrap(self, networks: Networks) -> dict[str, nn.Module]:
        from torch.distributed.device_mesh import init_device_mesh  # slow to import, and needed here alone
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self._device.type, (self._processes.size,))
        sharded = {name: copy.deepcopy(network) for name, network in networks.items()}
        for network in sharded.values():
            for layer in _layers(network):
                fully_shard(layer, mesh=mesh)
            fully_shard(network, mesh=mesh)
        if not self._processes.main:
            for network in networks.values():  # nothing is evaluated here
                network.to("cpu")
        return sharded

    def accumulating(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        for network in self.networks.values():
            network.set_requires_gradient_sync(last)  # type: ignore[operator]
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def evaluated(self, average: WeightAverage | None) -> Iterator[None]:
        tensors = average.tensors if average else weights(self.trained)
        gathered = {name: _gather(value, keep=self._processes.main) for name, value in tensors.items()}
        if self._processes.main:
            assign(self._plain, gathered)
        yield


def parallelize(
    task: Task, networks: Networks, source: Source, config: TrainConfig, processes: Processes
) -> OneProcess:
    """Return how the processes of a run train its networks together."""
    if processes.size == 1:
        return OneProcess(networks)
    if config.parallel == "fsdp":
        check_sharding(networks)
        if config.compile:
            raise UsageError("train.compile must be false with train.parallel=fsdp, but is true; leave one of them out")
    device = next(next(iter(networks.values())).parameters()).device
    first = source.at(0) if source.state() is None else []
    with torch.set_grad_enabled(config.parallel == "ddp"):
        buffer = updates_buffers(task, first[0].to(device), networks) if first else ""
    kind = (
        ShardedParallel(networks, processes, device, shared=not buffer)
        if config.parallel == "fsdp"
        else DataParallel(networks, processes, shared=not buffer)
    )
    kind.note = f"{processes.size} processes ({'FSDP2' if kind.sharded else 'DDP'})"
    if buffer or len(first) <= 1:
        reason = f"its micro-batches change the buffer {buffer} in turn" if buffer else "it is not divided"
        kind.note += f"; each computes the whole batch of a step: {reason}"
    return kind


def clip_gradients(network: nn.Module, limit: float) -> float:
    """Clip the gradient of a network, of all its shards together; return the norm it had."""
    norm = nn.utils.clip_grad_norm_(network.parameters(), limit)
    return float(norm.full_tensor() if is_sharded(norm) else norm)


def check_sharding(networks: Networks) -> None:
    """Refuse networks that FSDP cannot shard exactly."""
    rule = "train.parallel=fsdp must be given for one network of matrices and vectors"
    if len(networks) > 1:
        raise UsageError(f"{rule}, but there are {', '.join(networks)}; leave train.parallel=ddp")
    for network in networks.values():
        for name, parameter in network.named_parameters():
            if parameter.dim() == 0:
                raise UsageError(f"{rule}, but {name} is a single number; leave train.parallel=ddp")


def updates_buffers(task: Task, batch: Any, networks: Mapping[str, nn.Module]) -> str:
    """Return the first buffer that computing a loss changes, as that of batch norm; empty: none is.

    It depends on all micro-batches in turn, so that several processes cannot share them.
    """
    names = {id(buffer): name for network in networks.values() for name, buffer in network.named_buffers()}
    before = {id(buffer): buffer.clone() for network in networks.values() for buffer in network.buffers()}
    with unchanged(task, networks), training_mode(networks):
        for _ in task.losses(batch, networks):
            pass
        buffers = [buffer for network in networks.values() for buffer in network.buffers()]
        return next((names[id(buffer)] for buffer in buffers if not torch.equal(buffer, before[id(buffer)])), "")


def shard_like(value: Tensor, parameter: Tensor) -> Tensor:
    """Return the shard of a whole tensor that belongs to the shard of a parameter; one of another shape as it is."""
    if not is_sharded(parameter) or value.shape != parameter.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)


def shard_optimizers(
    before: Sequence[torch.optim.Optimizer],
    after: Sequence[torch.optim.Optimizer],
    networks: tuple[nn.Module, nn.Module],
) -> None:
    """Give the optimizers of a sharded network the states of those of the whole network."""
    for plain, sharded in zip(*(network.parameters() for network in networks), strict=True):
        for old, new in zip(before, after, strict=True):
            if plain in old.state:
                new.state[sharded] = {key: shard_like(value, sharded) for key, value in old.state[plain].items()}


def shard_average(average: WeightAverage, networks: Networks) -> WeightAverage:
    """Return the average of the weights of sharded networks, from that of the whole networks."""
    sharded = WeightAverage(networks, average.decay)
    current = weights(networks)
    sharded.tensors = {name: shard_like(value, current[name]) for name, value in average.tensors.items()}
    return sharded


def _layers(network: nn.Module) -> list[nn.Module]:
    """Return the layers of a network that are sharded one by one: the elements of its outermost lists of modules.

    One that shares a parameter with another part of the network is sharded with the network.
    """
    owners: dict[int, set[int]] = {}
    for module in network.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), set()).add(id(module))
    layers, inside = list[nn.Module](), set[int]()
    for module in network.modules():
        if not isinstance(module, nn.ModuleList) or id(module) in inside:
            continue
        for layer in dict.fromkeys(module):
            own = {id(part) for part in layer.modules()}
            inside |= own
            parameters = list(layer.parameters())
            if parameters and all(owners[id(parameter)] <= own for parameter in parameters):
                layers.append(layer)
    return layers


def _gather(value: Tensor, *, keep: bool) -> Tensor:
    """Return a whole tensor, an empty one if it is not kept; all processes call this together."""
    whole = value.full_tensor() if is_sharded(value) else value
    return whole if keep else torch.empty(0)
