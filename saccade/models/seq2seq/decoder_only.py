"""Decoder-only: source and target as one row through one causal stack whose memory grows little with the length.

T-DMCA (https://arxiv.org/abs/1801.10198). Shapes: B rows, S source tokens, T target tokens, D width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.models.seq2seq.interface import Memory, Vocabularies
from saccade.models.seq2seq.transformer import Embedded, EmbeddedConfig
from saccade.nn.cache import KVCache
from saccade.nn.compressed import Compressed
from saccade.nn.masks import Near, positions
from saccade.nn.transformer import Layer, Transformer


@dataclass(frozen=True)
class DecoderConfig(EmbeddedConfig):
    """The shape of the one stack: its layers see only near tokens and all of the past, shortened, in turn."""

    depth: int = 4
    """layers; the first sees near tokens, the second all of the past, shortened, and so on"""
    near: int = 128
    """tokens that a layer for near tokens sees"""
    stride: int = 3
    """tokens that become one in the other layers"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("near", 1), ("stride", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")


class DecoderOnly(Embedded):
    """The target follows directly on the real tokens of its source, so that padding is never in between."""

    def __init__(self, config: DecoderConfig, sizes: Vocabularies) -> None:
        super().__init__(config, sizes)
        self.near = Near(config.near)
        self.decoder = Transformer(config)
        for layer in [layer for layer in self.decoder.children() if isinstance(layer, Layer)][1::2]:
            near = layer.self
            layer.self = Compressed(
                config.dim,
                config.heads,
                stride=config.stride,
                kv_heads=near.kv_heads,
                score=near.score,
                bias=config.bias,
                dropout=config.attention_dropout,
            )
        self.begin(sizes)

    def encode(self, source: Tensor, keep: Tensor) -> Memory:
        return Memory(self.embed(self.source, source), keep)  # the stack reads it together with the target

    def decode(self, ids: Tensor, memory: Memory, *, cache: KVCache | None = None) -> Tensor:
        x = self.embed(self.target, ids)
        if cache is not None and cache.longest:
            going: Tensor = self.decoder(x, mask=self.near, cache=cache)
            return going
        beams = len(ids) // len(memory.keep)  # rows that share a source
        values, keep = (part.repeat_interleave(beams, dim=0) for part in (memory.values, memory.keep))
        if cache is not None:
            cache.capacity += keep.shape[1]
        real = torch.cat((keep, keep.new_ones(ids.shape)), dim=1)  # (B, S + T)
        order = real.int().argsort(dim=1, descending=True, stable=True)[..., None]
        row = torch.cat((values, x), dim=1).gather(1, order.expand(-1, -1, x.shape[2]))  # padding last
        out = self.decoder(row, mask=self.near, cache=cache, count=real.sum(1))
        place = positions(keep.sum(1), ids.shape[1], ids.device)  # (B, T)
        found: Tensor = out.gather(1, place[..., None].expand_as(x))
        return found

    def on_source(self, name: str, weights: Tensor, tokens: int) -> Tensor:
        """Weights (H, T, keys) of an attention on the source tokens (H, T, S); a window shares its weight out."""
        attention = self.get_submodule(name)
        if isinstance(attention, Compressed):
            weights = weights[..., 1:].repeat_interleave(attention.stride, dim=-1) / attention.stride
        return weights[..., :tokens]
