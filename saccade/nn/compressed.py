"""Memory-compressed attention: a strided convolution merges the keys and values of neighbouring tokens.

Generating Wikipedia (https://arxiv.org/abs/1801.10198, section 4.2.3).
Shapes: B rows, G key/value heads, T tokens, W windows of `stride` tokens, D width, E head width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.nn.attention import Attention, Heads, Score
from saccade.nn.cache import LayerCache
from saccade.nn.masks import KernelMask, Mask, positions


@dataclass(frozen=True)
class CompressedCausal(Mask):
    """Key 0 is visible to all; key w + 1 is the window w of `stride` tokens, visible from its last token on."""

    stride: int

    def allow(self, query: Tensor, key: Tensor) -> Tensor:
        return key * self.stride - 1 <= query[..., None]  # (B, Q, K)


class CompressedAttention(Attention):
    """Causal self-attention with one key and value per window, from a convolution as wide as its stride.

    Such a convolution is a linear layer on the concatenated tokens of a window: a memory of width stride x D. A zero
    key and value come first, so that the first tokens see something. The `mask` argument is ignored.
    """

    def __init__(
        self,
        dim: int,
        heads: int | Heads,
        *,
        stride: int = 3,
        score: Score | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        if stride < 2:
            raise ValueError(f"stride must be at least 2, but is {stride}")
        super().__init__(dim, heads, memory_dim=stride * dim, score=score, bias=bias, dropout=dropout)
        self.stride = stride

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask | KernelMask | None = None,
        cache: LayerCache | None = None,
        queries: int | None = None,
    ) -> Tensor:
        start = cache.owner.start if cache else 0
        q = self._project_queries(x, start)  # (B, H, T, E)
        if cache is None:
            k, v = self._compress(F.pad(x, (0, 0, 0, -x.shape[1] % self.stride)))
            k, v = F.pad(k, (0, 0, 1, 0)), F.pad(v, (0, 0, 1, 0))  # (B, G, 1 + W, E)
        else:
            k, v = self._extend(x, cache)
        lowered = CompressedCausal(self.stride).lower(q.shape[2], k.shape[2], start, x.device)
        return self._output(q, k, v, lowered, cache)[:, :queries]  # (B, T, D)

    def _compress(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Project windows (B, W stride, D) to keys and values (B, G, W, E); those of an incomplete one are masked."""
        return self._project_memory(x.unflatten(1, (-1, self.stride)).flatten(2))

    def _extend(self, x: Tensor, cache: LayerCache) -> tuple[Tensor, Tensor]:
        """Append tokens to the current window of each row; returns all keys and values that can be visible."""
        size, (rows, tokens, width) = self.stride, x.shape
        start = torch.as_tensor(cache.owner.start, device=x.device).expand(rows)
        first = start // size  # (B,): the incomplete window
        recent = x.new_zeros(rows, -(-(size - 1 + tokens) // size) * size, width)  # the tokens from its start
        if cache.state:
            kept, kept_first = cache.state
            index = positions((first - kept_first) * size, size, x.device).clamp_max(kept.shape[1] - 1)
            recent[:, :size] = kept.gather(1, index[..., None].expand(-1, -1, width))
        recent.scatter_(1, positions(start % size, tokens, x.device)[..., None].expand_as(x), x)
        cache.state = (recent, first)
        k, v = self._compress(recent)
        if cache.keys is None or cache.values is None:
            shape = (rows, self.kv_heads, cache.owner.capacity // size + 4, self.head_dim)
            cache.keys, cache.values = k.new_zeros(shape), v.new_zeros(shape)
        index = positions(first + 1, k.shape[2], x.device)[:, None, :, None].expand_as(k)
        before, after = (1 + count // size for count in (cache.owner.longest, cache.owner.longest + tokens))
        for buffer in (cache.keys, cache.values):  # windows not filled by a shorter row: masked, but 0 x nan = nan
            buffer[:, :, before:after] = 0.0
        cache.keys.scatter_(2, index, k)
        cache.values.scatter_(2, index, v)
        return cache.keys[:, :, :after], cache.values[:, :, :after]
