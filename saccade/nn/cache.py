"""KVCache: the keys and values of earlier calls, owned by the caller, in memory taken once.

Shapes: B rows, G key/value heads, T new tokens, K all tokens, E head width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class LayerCache:
    """One attention's part of a `KVCache`."""

    def __init__(self, owner: KVCache) -> None:
        self.owner = owner
        self.keys: Tensor | None = None  # (B, G, capacity, E)
        self.values: Tensor | None = None
        self.fixed: tuple[Tensor, Tensor] | None = None
        self.state: tuple[Tensor, ...] = ()  # what else a layer carries from token to token, rows first: h, c, a window
        self.followers: list[Callable[[Tensor], None]] = []  # told when rows move: the probe's maps

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append k and v (B, G, T, E) at each row's own length; returns all of them (B, G, K, E)."""
        owner = self.owner
        if self.keys is None or self.values is None:
            shape = (k.shape[0], k.shape[1], owner.capacity, k.shape[3])
            self.keys, self.values = k.new_empty(shape), v.new_empty(shape)
        start, count = owner.start, k.shape[2]
        longest = owner.longest + count
        if longest > owner.capacity:
            raise ValueError(f"a cache of capacity {owner.capacity} cannot hold {longest} tokens")
        if isinstance(start, int):
            self.keys[:, :, start:longest] = k
            self.values[:, :, start:longest] = v
        else:
            place = start[:, None] + torch.arange(count, device=k.device)  # (B, T)
            index = place[:, None, :, None].expand_as(k)
            for held in (self.keys, self.values):  # a shorter row leaves places open, whose weight is 0: 0 x nan is nan
                held[:, :, owner.longest : longest] = 0.0
            self.keys.scatter_(2, index, k)
            self.values.scatter_(2, index, v)
        return self.keys[:, :, :longest], self.values[:, :, :longest]

    def remember(self, project: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory that does not change: projected once, then re-used."""
        if self.fixed is None:
            self.fixed = project()
        return self.fixed

    def reorder(self, rows: Tensor, memories: Tensor | None) -> None:
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self._moved(self.keys, rows), self._moved(self.values, rows)
        if self.fixed is not None and memories is not None:
            self.fixed = (self.fixed[0][memories], self.fixed[1][memories])
        self.state = tuple(part[rows] for part in self.state)
        for follow in self.followers:
            follow(rows)

    def _moved(self, held: Tensor, rows: Tensor) -> Tensor:
        """The rows in their new order; the memory they leave is what the next tensor of this shape moves into."""
        shape = torch.Size((len(rows), *held.shape[1:]))
        target = self.owner.spare.pop(shape, None)
        if target is None or target.dtype != held.dtype:
            target = held.new_empty(shape)
        used = self.owner.longest
        torch.index_select(held[:, :, :used], 0, rows, out=target[:, :, :used])
        self.owner.spare = {held.shape: held}
        return target


class KVCache:
    """What a stack remembers between calls; rows may have lengths of their own."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.start: int | Tensor = 0  # tokens held: one number, or one a row (B,)
        self.longest = 0
        self.spare: dict[torch.Size, Tensor] = {}  # memory that a reordering left
        self._layers: dict[str, LayerCache] = {}

    def layer(self, name: str) -> LayerCache:
        """The part that belongs to the attention called `name`."""
        if name not in self._layers:
            self._layers[name] = LayerCache(self)
        return self._layers[name]

    def advance(self, count: int | Tensor) -> None:
        """Say that this many tokens were added: one number for all rows, or (B,) real tokens a row."""
        if isinstance(count, Tensor):
            self.start = self.start + count
            self.longest = int(self.start.max())
        else:
            self.start = self.start + count
            self.longest += count

    def reorder(self, rows: Tensor, memories: Tensor | None = None, *, shared: bool = False) -> None:
        """Row i becomes what row rows[i] was: beams branch, die and finish.

        Memories follow the rows, unless several rows share one: then `memories` says which of them stay (None: all).
        """
        memories = memories if shared else rows
        if isinstance(self.start, Tensor):
            self.start = self.start[rows]
            self.longest = int(self.start.max())
        for layer in self._layers.values():
            layer.reorder(rows, memories)
