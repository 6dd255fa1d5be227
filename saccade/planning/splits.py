"""Splits of a training step over devices on paper: memory of a device, bytes it sends, and which split is needed.

All splits compute the same step: m micro-batches of b rows. Symbols: n devices, P parameters, L layers, d width,
T tokens of a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from saccade.planning.hardware import Device
from saccade.planning.memory import Recipe

NODE = 8
"""devices of one machine: tensor parallelism across machines is too slow, as it communicates in every layer"""
USABLE = 0.9  # of the memory of a device: the rest is the context, buffers of communication and fragmentation
ACTIVATION_BYTES = 2  # bfloat16
SPLIT_PART, WHOLE_PART = 24 / 34, 10 / 34
"""of the activations of a layer with fused attention what tensor parallelism splits and what each device keeps:
s b h (10 + 24 / t), https://arxiv.org/abs/2205.05198, equation 2"""


@dataclass(frozen=True)
class Load:
    """What a training step puts on a device before it is split."""

    parameters: int
    layers: int
    dim: int
    tokens: int
    """of a row"""
    rows: int
    """of a micro-batch"""
    activations: int
    """bytes of a micro-batch"""
    recipe: Recipe
    micro_batches: int
    """of a step, which the groups of devices that hold all layers share, one after the other"""

    @property
    def boundary(self) -> int:
        """Bytes of the output of a layer: b T d."""
        return self.rows * self.tokens * self.dim * ACTIVATION_BYTES


@dataclass(frozen=True)
class Split:
    """One way to split a step over some devices."""

    name: str
    devices: int
    states: float
    """bytes of weights, gradients and optimizer state of a device"""
    activations: float
    """bytes of activations of a device"""
    sent: float
    """bytes that a device sends in a step"""
    what: str
    """what is communicated"""
    idle: float = 0.0
    """fraction of the time that a device waits: the bubble of a pipeline"""

    @property
    def memory(self) -> float:
        return self.states + self.activations

    def fits(self, device: Device) -> bool:
        return self.memory <= USABLE * device.memory

    def seconds(self, device: Device) -> float | None:
        """Return the time of the communication over the links of one machine; None: their speed is not stated."""
        return self.sent / (device.link / 2) if device.link else None


def data_parallel(load: Load, count: int) -> Split:
    """All state on each device; the gradients are summed: a ring all-reduce sends 2 (n - 1) / n of their bytes.

    Once per step, whatever the number of micro-batches.

    Patarasuk and Yuan 2009, https://doi.org/10.1016/j.jpdc.2008.09.002.
    """
    sent = 2 * (count - 1) / count * load.parameters * load.recipe.gradients
    states = load.parameters * load.recipe.total
    return Split("data parallel (DDP)", count, states, load.activations, sent, "all-reduce of the gradients")


def fully_sharded(load: Load, count: int) -> Split:
    """State sharded; weights are gathered in the forward and again in the backward pass, gradients are scattered.

    ZeRO stage 3, https://arxiv.org/abs/1910.02054, section 7.2.2: 3 (n - 1) / n of the bytes of the parameters, for
    each of the m / n micro-batches of a device. One layer is whole on each device while it is computed.
    """
    layer = load.parameters / load.layers * (load.recipe.weights + load.recipe.gradients)
    passes = math.ceil(load.micro_batches / count)
    moved = passes * (2 * load.recipe.weights + load.recipe.gradients) * load.parameters
    states = load.parameters * load.recipe.total / count + (layer if count > 1 else 0.0)
    what = "all-gather of the weights twice, reduce-scatter of the gradients"
    return Split("FSDP (ZeRO-3)", count, states, load.activations, (count - 1) / count * moved, what)


def tensor_parallel(load: Load, count: int) -> Split:
    """Each matrix split; two all-reduces of the activations of each layer forward and two backward, m times.

    Megatron-LM, https://arxiv.org/abs/1909.08053, section 3.
    """
    sent = load.micro_batches * 4 * load.layers * 2 * (count - 1) / count * load.boundary
    states = load.parameters * load.recipe.total / count
    activations = load.activations * (WHOLE_PART + SPLIT_PART / count)
    what = "four all-reduces of the activations of each layer"
    return Split("tensor parallel", count, states, activations, sent, what)


def pipeline_parallel(load: Load, count: int) -> Split:
    """Consecutive layers on each device; activations go forward, their gradients backward, once per micro-batch.

    Schedule 1F1B, https://arxiv.org/abs/2104.04473, section 2.2: the first stage keeps up to n micro-batches of its
    L / n layers, and each device waits for (n - 1) / m of the time it computes.
    """
    stages = min(count, load.layers)
    states = load.parameters * load.recipe.total / stages
    activations = load.activations / stages * min(stages, load.micro_batches)
    sent = 2 * load.micro_batches * load.boundary if stages > 1 else 0
    idle = (stages - 1) / (load.micro_batches + stages - 1)
    return Split("pipeline parallel", stages, states, activations, sent, "activations between stages", idle)


def combined(load: Load, count: int) -> Split:
    """Tensor parallelism within a machine, FSDP of each part across machines: the bytes of both.

    Each machine computes its share of the micro-batches.
    """
    inner = min(NODE, count)
    outer = count // inner
    tensor = tensor_parallel(replace(load, micro_batches=math.ceil(load.micro_batches / outer)), inner)
    shard = fully_sharded(replace(load, parameters=load.parameters // inner), outer)
    name = f"tensor {inner} x FSDP {outer}"
    return Split(name, inner * outer, shard.states, tensor.activations, tensor.sent + shard.sent, "both of the above")


def splits(load: Load, count: int) -> list[Split]:
    """Return every split over so many devices."""
    ways = [data_parallel(load, count), fully_sharded(load, count), tensor_parallel(load, min(count, NODE))]
    ways.append(pipeline_parallel(load, count))
    return [*ways, combined(load, count)] if count > NODE else ways


def largest(device: Device, recipe: Recipe) -> float:
    """Return the number of parameters whose state alone fills one device: from there on the state must be split."""
    return USABLE * device.memory / recipe.total


def advice(load: Load, device: Device, count: int) -> str:
    """Return which split is needed for these devices, the simplest that fits."""
    for split in _simplest_first(load, count):
        if split.fits(device):
            return f"{split.name} on {split.devices:,} x {device.name}: {_reason(split, load, device)}"
    needed = load.parameters * load.recipe.total / (USABLE * device.memory)
    return (
        f"no split fits {count:,} x {device.name}: weights, gradients and optimizer state alone fill {needed:,.0f} of "
        f"them, and the activations of a micro-batch are {load.activations / 1e9:,.1f} GB; use more devices, smaller "
        "micro-batches or checkpointing"
    )


def _simplest_first(load: Load, count: int) -> Iterator[Split]:
    yield data_parallel(load, count)
    yield fully_sharded(load, count)
    yield tensor_parallel(load, min(count, NODE))
    if count > NODE:
        yield combined(load, count)


def _reason(split: Split, load: Load, device: Device) -> str:
    state = f"weights, gradients and optimizer state ({load.parameters * load.recipe.total / 1e9:,.1f} GB)"
    if split.name.startswith("data"):
        return f"{state} and activations fit one device"
    activations = f"the activations of a micro-batch ({load.activations / 1e9:,.1f} GB)"
    return f"{state} and {activations} do not fit one device of {device.memory / 1e9:,.0f} GB"
