"""Memory of training by its parts: weights, gradients, optimizer state, activations; and of the KV cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from saccade.errors import UsageError
from saccade.models.text.gpt import GPT
from saccade.planning.shapes import Architecture

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}


@dataclass(frozen=True)
class Recipe:
    """Bytes of each parameter in training."""

    weights: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer


RECIPES = {
    # ZeRO, https://arxiv.org/abs/1910.02054, section 3.1: 2 + 2, and 12 for a float32 copy and the two moments of Adam
    "mixed": Recipe(2, 2, 12),
    "float32": Recipe(4, 4, 8),
}


def element_size(dtype: str) -> int:
    """Return the bytes of a number of a type."""
    if dtype not in BYTES:
        raise UsageError(f"dtype must be {', '.join(BYTES)}, but is '{dtype}'")
    return BYTES[dtype]


def kv_cache(architecture: Architecture, *, rows: int = 1, tokens: int = 0, dtype: str = "bfloat16") -> int:
    """Return the bytes of the keys and values that generation keeps for some rows of so many tokens.

    A decoder with a source also keeps the keys and values of as many source tokens.
    """
    if architecture.kind == "encoder":
        return 0
    memories = 2 if architecture.kind == "seq2seq" else 1
    numbers = 2 * memories * architecture.depth * architecture.dim * (tokens or architecture.context) * rows
    return numbers * element_size(dtype)


def kv_cache_of(networks: Iterable[nn.Module]) -> int | None:
    """Return the bytes of the keys and values of one full row of a language model in float32; None: there is none."""
    for network in networks:
        if isinstance(network, GPT):
            config = network.config
            heads = config.kv_heads or config.heads
            return 2 * config.depth * heads * config.head_width * config.max_positions * BYTES["float32"]
    return None


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors; a storage that several of them share counts once."""
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def optimizer_tensors(optimizers: Iterable[torch.optim.Optimizer]) -> list[Tensor]:
    """Return all tensors of the state of some optimizers."""
    states: list[dict[str, Any]] = [state for optimizer in optimizers for state in optimizer.state.values()]
    return [value for state in states for value in state.values() if isinstance(value, Tensor)]
