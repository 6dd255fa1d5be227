"""Recording: the queries of one row of a compiled runner, from which attention weights are computed on demand.

Shapes: L layers, N new tokens, T tokens so far, H heads, G key/value heads, E head width, padded to a multiple of 16.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from saccade.decode.compiled.forward import Floats, Integers, Shape


class Recording:
    """Queries of a row beside its cached keys, both as they enter the dot product."""

    def __init__(self, shape: Shape, windows: Integers, keys: Floats, capacity: int) -> None:
        """Watch a row whose keys are (L, G, blocks, E, 16)."""
        self.shape, self.windows, self.keys = shape, windows, keys
        self.q = np.empty((shape.depth, capacity, shape.heads, keys.shape[3]), np.float32)  # used as far as `count`
        self.count = 0

    def add(self, q: Floats, start: int) -> None:
        """Keep the queries (L, N, H, E) of tokens that begin at position `start`; later ones are forgotten."""
        self.count = start + q.shape[1]
        self.q[:, start : self.count] = q

    @property
    def nbytes(self) -> int:
        """Bytes of the queries and keys of one layer."""
        _, heads, width = self.q.shape[1:]
        return self.count * (heads + self.shape.kv_heads) * width * 4


class RecordedLayer:
    """The weights of one layer of a recording."""

    def __init__(self, recording: Recording, layer: int) -> None:
        self._recording, self._layer = recording, layer

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, T, T)"""
        return self._recording.shape.heads, self._recording.count, self._recording.count

    @property
    def nbytes(self) -> int:
        """Bytes of q and k."""
        return self._recording.nbytes

    def rows(self, first: int, last: int, *, step: int = 1, head: int | None = None) -> Tensor:
        """Return the weights of every `step`-th query from first to last, of all heads or one: (H, queries, T)."""
        last = min(last, self._recording.count)
        return self.select(torch.arange(min(max(0, first), last), last, step), head=head)

    def select(self, queries: Tensor, *, head: int | None = None) -> Tensor:
        """Return the weights of some queries, in ascending order, of all heads or one: (H, queries, T)."""
        recording, count = self._recording, self._recording.count
        chosen = range(recording.shape.heads) if head is None else (head,)
        group = recording.shape.heads // recording.shape.kv_heads
        q = torch.from_numpy(recording.q[self._layer, queries.numpy()])  # (queries, H, E)
        first, last = chosen[0] // group, chosen[-1] // group + 1
        k = self._keys(first, last).repeat_interleave(group if head is None else 1, dim=0)  # (H, T, E)
        scores = recording.shape.scale * (q[:, list(chosen)].transpose(0, 1) @ k.mT)
        distance = queries[:, None] - torch.arange(count)
        window = int(recording.windows[self._layer])
        hidden = (distance < 0) | (distance >= window) if window else distance < 0
        return scores.masked_fill(hidden, -torch.inf).softmax(-1)

    def _keys(self, first: int, last: int) -> Tensor:
        """Return the keys of some key/value heads: (heads, T, E)."""
        count = self._recording.count
        blocks = self._recording.keys[self._layer, first:last, : -(-count // 16)]  # 16 positions beside each other
        heads, _, width, _ = blocks.shape
        return torch.from_numpy(blocks.transpose(0, 1, 3, 2).reshape(heads, -1, width)[:, :count])
