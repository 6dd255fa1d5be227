"""Networks as modules that ONNX can express: rotary positions in real numbers, cached keys and values as inputs.

Shapes: B rows, T new tokens, P cached tokens, G key/value heads, H heads, E head width.
"""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from torch import Tensor, nn

from saccade.errors import UsageError
from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.attention import Attention
from saccade.nn.cache import KVCache
from saccade.nn.positions import Learned, Rotary


class RealRotary(nn.Module):
    """Rotary positions without complex numbers, which ONNX does not have."""

    frequencies: Tensor

    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        if rotary.scaling.kind == "dynamic":
            raise UsageError(
                "rotary_scaling.kind must not be dynamic for ONNX, since its frequencies depend on the length of the "
                "text; export this model with --to hf"
            )
        frequencies = rotary.scaling.frequencies(rotary.head_dim, rotary.base, 0, torch.device("cpu"))
        self.register_buffer("frequencies", frequencies.repeat_interleave(2))  # (E,)
        self.factor = rotary.scaling.attention_factor

    def forward(self, x: Tensor, start: int | Tensor) -> Tensor:
        """Rotate x (B, T, H, E) by the positions of its tokens."""
        position = torch.arange(x.shape[1]) + start  # (T,)
        angle = position[:, None, None] * self.frequencies  # (T, 1, E)
        turned = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)  # by a right angle
        return (x * angle.cos() + turned * angle.sin()) * self.factor


class LearnedLookup(nn.Module):
    """Learned positions whose start is known only when the graph runs."""

    def __init__(self, learned: Learned) -> None:
        super().__init__()
        self.table = learned.table

    def forward(self, start: int | Tensor, count: int, device: torch.device) -> Tensor:
        vectors: Tensor = self.table(torch.arange(count) + start)
        return vectors[None]  # (1, T, D)


class GraphLayerCache:
    """The cached keys and values of a layer: inputs of the graph, to which those of new tokens are appended."""

    def __init__(self, owner: GraphCache, keys: Tensor, values: Tensor) -> None:
        self.owner, self.keys, self.values = owner, keys, values
        self.followers: list[Any] = []

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append k and v (B, G, T, E); returns all of them (B, G, P + T, E)."""
        self.keys, self.values = torch.cat((self.keys, k), 2), torch.cat((self.values, v), 2)
        return self.keys, self.values


class GraphCache:
    """A `KVCache` without buffers: every row has as many cached tokens."""

    def __init__(self, past: list[Tensor]) -> None:
        self.longest = past[0].shape[2]
        self.start = torch.full((1,), self.longest)
        pairs = zip(past[0::2], past[1::2], strict=True)
        self.layers = {f"{number}.self": GraphLayerCache(self, k, v) for number, (k, v) in enumerate(pairs)}

    def layer(self, name: str) -> GraphLayerCache:
        """Return the part that belongs to the layer called `name`."""
        return self.layers[name]

    def advance(self, count: int | Tensor) -> None:
        """Do nothing: the next call gets the cache as its input."""


class CachedLanguageModel(nn.Module):
    """A language model with the keys and values of earlier tokens as inputs and outputs."""

    def __init__(self, network: GPT) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: Tensor, past: list[Tensor]) -> tuple[Tensor, ...]:
        """Return logits (B, T, V), and keys and values of all layers (B, G, P + T, E)."""
        cache = GraphCache(past)
        logits = self.network(input_ids, cache=cast(KVCache, cache))
        return logits, *(part for layer in cache.layers.values() for part in (layer.keys, layer.values))


def expressible(network: nn.Module) -> nn.Module:
    """Return a copy of a network with the same outputs, of which every operation exists in ONNX."""
    network = copy.deepcopy(network).eval().requires_grad_(False)
    for module in network.modules():
        if isinstance(module, Attention) and isinstance(module.rotate, Rotary):
            module.rotate = RealRotary(module.rotate)
    if isinstance(network, GPT) and isinstance(network.decoder.position, Learned):
        network.decoder.position = LearnedLookup(network.decoder.position)  # type: ignore[assignment]
    return network


def cache_names(config: GPTConfig, prefix: str) -> list[str]:
    """Return the names of cached keys and values, as optimum and transformers.js write them."""
    return [f"{prefix}.{layer}.{part}" for layer in range(config.depth) for part in ("key", "value")]


def cache_shape(config: GPTConfig, rows: int, tokens: int) -> tuple[int, int, int, int]:
    """Return the shape of the cached keys, and values, of a layer."""
    return rows, config.kv_heads or config.heads, tokens, config.head_width
