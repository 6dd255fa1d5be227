"""Decoder-only: source and target as one sequence through a causal stack with local and compressed attention.

T-DMCA (https://arxiv.org/abs/1801.10198). Shapes: B rows, S source tokens, T target tokens, D width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.models.seq2seq.interface import Memory, Vocabularies
from saccade.models.seq2seq.transformer import Embedded, EmbeddedConfig
from saccade.nn.attention import Heads
from saccade.nn.cache import KVCache
from saccade.nn.compressed import CompressedAttention
from saccade.nn.masks import CausalWindow, positions
from saccade.nn.transformer import Layer, Transformer


@dataclass(frozen=True)
class DecoderConfig(EmbeddedConfig):
    """Shape of the stack: layers with local attention and with memory-compressed attention alternate."""

    depth: int = 4
    """layers, alternating between local attention and compressed attention over all previous tokens"""
    window_size: int = 128
    """tokens visible to a query in a layer with local attention, itself included"""
    stride: int = 3
    """tokens that are compressed into one in the other layers"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("window_size", 1), ("stride", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")


class DecoderOnly(Embedded):
    """Target tokens follow the real source tokens directly: padding is moved to the end of the sequence."""

    def __init__(self, config: DecoderConfig, sizes: Vocabularies) -> None:
        super().__init__(config, sizes)
        self.local = CausalWindow(config.window_size)
        self.decoder = Transformer(config)
        for layer in [layer for layer in self.decoder.children() if isinstance(layer, Layer)][1::2]:
            local = layer.self
            layer.self = CompressedAttention(
                config.dim,
                Heads(config.heads, config.kv_heads, config.head_width),
                stride=config.stride,
                score=local.score,
                bias=config.bias,
                dropout=config.attention_dropout,
            )
        self.init_weights(sizes)

    def encode(self, source: Tensor, keep: Tensor) -> Memory:
        return Memory(self.embed(self.source, source), keep)  # the stack processes it together with the target

    def decode(self, ids: Tensor, memory: Memory, *, cache: KVCache | None = None) -> Tensor:
        x = self.embed(self.target, ids)
        if cache is not None and cache.longest:
            features: Tensor = self.decoder(x, mask=self.local, cache=cache)
            return features
        beams = len(ids) // len(memory.keep)  # rows that share a source
        values, keep = (part.repeat_interleave(beams, dim=0) for part in (memory.values, memory.keep))
        if cache is not None:
            cache.capacity += keep.shape[1]
        real = torch.cat((keep, keep.new_ones(ids.shape)), dim=1)  # (B, S + T)
        order = real.int().argsort(dim=1, descending=True, stable=True)[..., None]
        row = torch.cat((values, x), dim=1).gather(1, order.expand(-1, -1, x.shape[2]))  # padding last
        out = self.decoder(row, mask=self.local, cache=cache, count=real.sum(1))
        index = positions(keep.sum(1), ids.shape[1], ids.device)  # (B, T)
        at_target: Tensor = out.gather(1, index[..., None].expand_as(x))
        return at_target

    def source_weights(self, name: str, weights: Tensor, tokens: int) -> Tensor:
        """Return the weights (H, T, S) on the source tokens, from all weights (H, T, keys) of an attention layer.

        The weight of a compressed key is divided evenly among the tokens it covers.
        """
        attention = self.get_submodule(name)
        if isinstance(attention, CompressedAttention):
            weights = weights[..., 1:].repeat_interleave(attention.stride, dim=-1) / attention.stride
        return weights[..., :tokens]
