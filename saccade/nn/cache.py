"""KVCache: keys and values of earlier calls, owned by the caller; rows can be reordered, added and removed.

Shapes: B rows, G key/value heads, T new tokens, K all tokens, E head width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

LONG_MEMORY = 256  # keys from which it pays to store each head in one piece: every step reads all of them


class Follower(Protocol):
    """An object with data for each row of a cache, such as the recordings of the probe."""

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was."""

    def restart(self) -> None:
        """Discard the data: other rows joined the cache, which forgets this follower."""


class LayerCache:
    """The part of a `KVCache` that belongs to one layer."""

    def __init__(self, owner: KVCache, name: str = "") -> None:
        self.owner, self.name = owner, name
        self.keys: Tensor | None = None  # (B, G, capacity, E)
        self.values: Tensor | None = None
        self.fixed: tuple[Tensor, Tensor] | None = None  # keys and values of a memory (B, G, S, E)
        self.state: tuple[Tensor, ...] = ()  # other state of a layer, rows first: h, c, a window of tokens
        self.followers: list[Follower] = []

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append k and v (B, G, T, E) at each row's own length; returns all of them (B, G, K, E)."""
        owner = self.owner
        if self.keys is None or self.values is None:
            self.keys, self.values = owner.allocate(self.name, k), owner.allocate(self.name, v)
        start, count = owner.start, k.shape[2]
        longest = owner.longest + count
        if longest > owner.capacity:
            raise ValueError(f"a cache of capacity {owner.capacity} cannot hold {longest} tokens")
        if isinstance(start, int):
            self.keys[:, :, start:longest] = k
            self.values[:, :, start:longest] = v
        else:
            position = start[:, None] + torch.arange(count, device=k.device)  # (B, T)
            index = position[:, None, :, None].expand_as(k)
            for buffer in (self.keys, self.values):  # after a shorter row: masked keys must be finite, as 0 x nan = nan
                buffer[:, :, owner.longest : longest] = 0.0
            self.keys.scatter_(2, index, k)
            self.values.scatter_(2, index, v)
        return self.keys[:, :, :longest], self.values[:, :, :longest]

    def remember(self, project: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return the keys and values of a memory that does not change: projected once, then reused."""
        if self.fixed is None:
            k, v = project()
            long = k.shape[2] >= LONG_MEMORY
            self.fixed = (k.contiguous(), v.contiguous()) if long else (k, v)
        return self.fixed

    def reorder(self, rows: Tensor, memories: Tensor | None) -> None:
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self._select(self.keys, rows), self._select(self.values, rows)
        if self.fixed is not None and memories is not None:
            self.fixed = (self.fixed[0][memories], self.fixed[1][memories])
        self.state = tuple(part[rows] for part in self.state)
        for follower in self.followers:
            follower.reorder(rows)

    def join(self, other: LayerCache) -> None:
        """Append the rows of the same layer of another cache."""
        if self.keys is not None and self.values is not None and other.keys is not None and other.values is not None:
            lengths = (self.owner.longest, other.owner.longest)
            self.keys = _stack_rows(self.keys, other.keys, lengths)
            self.values = _stack_rows(self.values, other.values, lengths)
        if self.fixed is not None and other.fixed is not None:
            keys, values = (_stack_rows(*pair) for pair in zip(self.fixed, other.fixed, strict=True))
            self.fixed = (keys, values)
        self.state = tuple(_stack_rows(*pair) for pair in zip(self.state, other.state, strict=True))
        for follower in self.followers:
            follower.restart()
        self.followers = []

    def _select(self, buffer: Tensor, rows: Tensor) -> Tensor:
        """Return rows of a buffer, in the spare buffer of their shape if there is one; the old one becomes spare."""
        shape = torch.Size((len(rows), *buffer.shape[1:]))
        target = self.owner.spare.pop(shape, None)
        if target is None or target.dtype != buffer.dtype:
            target = buffer.new_empty(shape)
        used = self.owner.longest
        torch.index_select(buffer[:, :, :used], 0, rows, out=target[:, :, :used])
        self.owner.spare = {buffer.shape: buffer}
        return target


class KVCache:
    """The state of a stack between calls; rows may differ in length."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.start: int | Tensor = 0  # cached tokens: one number, or one per row (B,)
        self.longest = 0
        self.spare: dict[torch.Size, Tensor] = {}  # buffer to reuse at the next reordering
        self._layers: dict[str, LayerCache] = {}

    def layer(self, name: str) -> LayerCache:
        """Return the part that belongs to the layer called `name`."""
        if name not in self._layers:
            self._layers[name] = LayerCache(self, name)
        return self._layers[name]

    def allocate(self, name: str, x: Tensor) -> Tensor:
        """Return a buffer for the keys or the values of a layer, of which x (B, G, T, E) are the first."""
        return x.new_empty(x.shape[0], x.shape[1], self.capacity, x.shape[3])

    def advance(self, count: int | Tensor) -> None:
        """Count the tokens that were added: one number for all rows, or (B,) real tokens per row."""
        if isinstance(count, Tensor):
            self.start = self.start + count
            self.longest = int(self.start.max())
        else:
            self.start = self.start + count
            self.longest += count

    def reorder(self, rows: Tensor, memories: Tensor | None = None, *, shared: bool = False) -> None:
        """Row i becomes what row rows[i] was: beams branch, requests finish.

        Memories follow the rows, unless several rows share one: then `memories` are those that stay (None: all).
        """
        memories = memories if shared else rows
        if isinstance(self.start, Tensor):
            self.start = self.start[rows]
            self.longest = int(self.start.max())
        for layer in self._layers.values():
            layer.reorder(rows, memories)

    def join(self, other: KVCache) -> None:
        """Append the rows of another cache of the same model; each row continues from its own length.

        The other cache is only read. Memories of different lengths are padded with zeros at the end, which the mask of
        the memory must hide.
        """
        if self._layers.keys() != other._layers.keys():
            raise ValueError(
                f"caches that join must have the same layers, but one has {sorted(self._layers)} "
                f"and the other {sorted(other._layers)}"
            )
        differ = isinstance(self.start, Tensor) or isinstance(other.start, Tensor) or self.start != other.start
        start = torch.cat((self.starts(), other.starts())) if differ else self.start
        for name, layer in self._layers.items():
            layer.join(other._layers[name])
        self.start = start
        self.longest = max(self.longest, other.longest)
        self.capacity, self.spare = max(self.capacity, other.capacity), {}

    def starts(self) -> Tensor:
        """Return the number of cached tokens of each row: (B,)."""
        if isinstance(self.start, Tensor):
            return self.start
        tensors = (tensor for layer in self._layers.values() for tensor in (layer.keys, *layer.state))
        first = next(tensor for tensor in tensors if tensor is not None)
        return torch.full((len(first),), self.start, device=first.device)


def _stack_rows(a: Tensor, b: Tensor, lengths: tuple[int, int] | None = None) -> Tensor:
    """Concatenate the rows of two tensors (B, ...), padded with zeros; `lengths` are the used lengths of axis 2."""
    shape = [max(sizes) for sizes in zip(a.shape[1:], b.shape[1:], strict=True)]
    stacked = a.new_zeros(len(a) + len(b), *shape)
    for part, target, length in zip((a, b), stacked.split((len(a), len(b))), lengths or (None, None), strict=True):
        used = part if length is None else part[:, :, :length]
        target[tuple(slice(size) for size in used.shape)] = used
    return stacked


class RowCache:
    """Keys and values of a fixed number of rows in buffers that are allocated once; rows are used in any order."""

    def __init__(self, rows: int, capacity: int, device: torch.device | None = None) -> None:
        self.rows, self.capacity, self.device = rows, capacity, device
        self._buffers: dict[str, list[Tensor]] = {}  # by layer: keys and values (rows, G, capacity, E)
        self._selected: dict[tuple[int, int], SelectedRows] = {}

    def select(self, first: int, starts: Sequence[int]) -> SelectedRows:
        """Return adjacent rows as a cache to extend, each after its first `starts` tokens; later ones are overwritten.

        The cache of the same rows is the same object as long as they are extended.
        """
        key = (first, len(starts))
        selected = self._selected.get(key)
        if selected is None or list(starts) != selected.lengths():
            selected = self._selected[key] = SelectedRows(self, first, starts)
        return selected

    def buffers(self, name: str) -> list[Tensor]:
        """Return the buffers of a layer, keys first; those that are not allocated yet are added by the caller."""
        return self._buffers.setdefault(name, [])

    def copy(self, source: int, target: int, count: int) -> None:
        """Copy the first `count` tokens of a row to another."""
        for buffers in self._buffers.values():
            for buffer in buffers:
                buffer[target, :, :count] = buffer[source, :, :count]

    def clear(self, row: int, count: int) -> None:
        """Overwrite the first `count` tokens of a row with zeros."""
        for buffers in self._buffers.values():
            for buffer in buffers:
                buffer[row, :, :count] = 0.0


class SelectedRows(KVCache):
    """Adjacent rows of a `RowCache` as the cache of a forward call."""

    def __init__(self, rows: RowCache, first: int, starts: Sequence[int]) -> None:
        super().__init__(rows.capacity)
        self._rows, self._first, self._count = rows, first, len(starts)
        self.longest = max(starts)
        self.start = starts[0] if len(set(starts)) == 1 else torch.tensor(starts, device=rows.device)

    def lengths(self) -> list[int]:
        """Return the number of cached tokens of each row."""
        return self.start.tolist() if isinstance(self.start, Tensor) else [self.start] * self._count

    def layer(self, name: str) -> LayerCache:
        layer = super().layer(name)
        buffers = self._rows.buffers(name)
        if layer.keys is None and len(buffers) == 2:
            layer.keys, layer.values = (buffer[self._first : self._first + self._count] for buffer in buffers)
        return layer

    def allocate(self, name: str, x: Tensor) -> Tensor:
        """Allocate a buffer for all rows; what is masked must be finite, so it is filled with zeros."""
        buffer = x.new_zeros(self._rows.rows, x.shape[1], self.capacity, x.shape[3])
        self._rows.buffers(name).append(buffer)
        return buffer[self._first : self._first + self._count]
