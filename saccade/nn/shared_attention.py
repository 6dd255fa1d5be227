"""Attention whose queries, keys and values are one projection, as in graph attention networks.

GAT, https://arxiv.org/abs/1710.10903. Shapes: B rows, T tokens, H heads, D width, E head width.
"""

import torch
from torch import Tensor, nn

from saccade.nn.attention import Attention, Heads, LeakyAdditive, Score
from saccade.nn.linear import Linear


class Offset(nn.Module):
    """Add a learned vector."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class SharedAttention(Attention):
    """Multi-head attention with one projection as q, k and v; the output is the concatenation of the heads."""

    def __init__(self, dim: int, heads: Heads, *, score: Score | None = None, dropout: float = 0.0) -> None:
        nn.Module.__init__(self)
        if not heads.width or heads.kv:
            raise ValueError(f"heads must have a width and no key/value heads of their own, but are {heads}")
        self.heads = self.kv_heads = heads.count
        self.head_dim, self.dropout = heads.width, dropout
        self.rotate, self.cross = None, False
        self.score = score or LeakyAdditive(heads.count, heads.width)
        self.qkv = Linear(dim, heads.count * heads.width, bias=False)
        self.out = Offset(heads.count * heads.width)
        nn.init.xavier_uniform_(self.qkv.weight)

    def _project_self(self, x: Tensor, start: int | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        heads = self.qkv(x).unflatten(-1, (self.heads, self.head_dim))  # (B, T, H, E)
        prepared = self.score.prepare(torch.cat((heads, heads), dim=2), self.heads)
        q, k = prepared.transpose(1, 2).split(self.heads, dim=1)  # (B, H, T, E) each
        return q, k, heads.transpose(1, 2)
