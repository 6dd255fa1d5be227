"""The probe: watch(model) keeps q and k beside the fused kernel; weights are computed on demand, row by row.

Shapes: B rows, H heads, G key/value heads, Q queries, K keys, E head width.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from threading import Lock
from typing import Protocol

import torch
from torch import Tensor, nn

from saccade.nn.cache import LayerCache
from saccade.nn.masks import Lowered


class Weighing(Protocol):
    """What the probe needs of an attention: its weights for given q and k."""

    @property
    def share(self) -> int:
        """Query heads to a key head."""

    def weights(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor: ...


@dataclass(frozen=True)
class Chunk:
    """The queries of one call, how many keys they could look at, and the rule of their mask."""

    q: Tensor  # (B, H, Q, E)
    start: int  # queries of the calls before
    keys: int
    mask: Lowered | None
    order: Tensor | None = None  # (B,): which row of the mask is the mask of each row now

    def reorder(self, rows: Tensor) -> Chunk:
        return replace(self, q=self.q[rows], order=rows if self.order is None else self.order[rows])

    def allowed(self, first: int, last: int, step: int, keys: int) -> Tensor | None:
        """The mask of every `step`-th of the queries first..last over the first `keys` keys: (B, 1, queries, keys)."""
        if self.mask is None:
            return None
        found = self.mask.allowed(first, last, step)[..., :keys]
        return found if self.order is None or len(found) == 1 else found[self.order]


class Track:
    """The queries of the calls with one cache (or of one call without any), and the keys they look at."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.k: Tensor | None = None  # (B, G, K, E), all keys met so far

    @property
    def queries(self) -> int:
        return self.chunks[-1].start + self.chunks[-1].q.shape[2] if self.chunks else 0

    def reorder(self, rows: Tensor) -> None:
        """Follow a cache whose row i becomes what row rows[i] was."""
        self.chunks = [chunk.reorder(rows) for chunk in self.chunks]
        self.k = None if self.k is None else self.k[rows]


class RecordedAttention:
    """The weights of one attention: nothing is computed until rows are asked for.

    Rows stand in the order of the calls. With a cache the keys are read from it, so they take no memory of their own.
    An attention that a stack applies again and again shows its last turn.
    """

    def __init__(self, attention: Weighing, heads: Sequence[int] | None) -> None:
        self._attention, self._heads = attention, None if heads is None else list(heads)
        self._track = Track()  # the one that is shown
        self._tracks: dict[LayerCache, Track] = {}  # all of them in one decoding: one for each turn of a repeated layer

    def record(self, q: Tensor, k: Tensor, mask: Lowered | None, cache: LayerCache | None) -> None:
        """Keep q (B, H, Q, E) and k; with a cache that was used before, this call goes on where that one stopped."""
        track = self._tracks.get(cache) if cache is not None else None
        goes_on = track is not None
        if track is None:
            track = Track()
            if cache is None or any(known.owner is not cache.owner for known in self._tracks):
                self._tracks = {}
            if cache is not None:
                self._tracks[cache] = track
                cache.followers.append(track.reorder)
        self._track = track
        q, k, order = q.detach(), k.detach(), None
        if len(k) != len(q):  # beams share a memory, and its mask
            order = torch.arange(len(k), device=k.device).repeat_interleave(len(q) // len(k))
            k = k[order]
        if self._heads is not None:
            q = q[:, self._heads]
        cached = cache is not None and cache.keys is not None
        if not _fills(q, k):
            q, k = _own(q), k if cached or goes_on else _own(k)
        if mask is not None:  # the rule of the mask, without the Q x K tensor made for the kernel; none: all is seen
            hides = mask.causal or mask.block or mask.tensor is not None
            mask = Lowered(mask.mask, mask.query, mask.key, kernel="none") if hides else None
        track.chunks.append(Chunk(q, track.queries, k.shape[2], mask, order))
        if cached or not goes_on:
            track.k = k

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, Q, K) of the whole map; all 0 as long as the model has not run."""
        if self._track.k is None:
            return 0, 0, 0, 0
        first = self._track.chunks[0].q
        return first.shape[0], first.shape[1], self._track.queries, self._track.k.shape[2]

    def rows(self, first: int = 0, last: int | None = None, *, step: int = 1, head: int | None = None) -> Tensor:
        """Exactly the weights of every `step`-th of the queries first..last, of all heads or one: (B, H, queries, K).

        Unseen keys weigh 0.
        """
        rows, heads, queries, keys = self.shape
        k = self._track.k
        if k is None:
            raise ValueError("no attention to read: run the model inside the watch(...) block")
        first, last = max(0, first), queries if last is None else min(last, queries)
        chosen = slice(None) if head is None else slice(head, head + 1)
        if self._heads is not None:
            k = k[:, [one // self._attention.share for one in self._heads][chosen]]
        elif head is not None:
            k = k[:, head // self._attention.share :][:, :1]
        whole = (rows, heads if head is None else 1, max(0, -(-(last - first) // step)), keys)
        out = None
        known = self._track.chunks
        for chunk in known[bisect_right(known, first, key=lambda chunk: chunk.start) - 1 :]:
            done = chunk.start
            begin, end = max(first - done, (first - done) % step), min(last - done, chunk.q.shape[2])
            if begin < end:
                seen = min(chunk.keys, keys)
                with torch.no_grad():
                    allowed = chunk.allowed(begin, end, step, seen)
                    if allowed is not None and allowed.shape[-2] > 1:  # what none may see needs no computing
                        met = allowed.flatten(0, -2).any(0).nonzero()
                        seen = int(met[-1]) + 1 if len(met) else 0
                        allowed = allowed[..., :seen]
                    weights = self._attention.weights(chunk.q[:, chosen, begin:end:step], k[:, :, :seen], allowed)
                if weights.shape == whole:
                    return weights
                out = k.new_zeros(whole) if out is None else out
                place = (done + begin - first) // step
                out[:, :, place : place + weights.shape[2], :seen] = weights
            if done >= last:
                break
        return k.new_zeros(whole) if out is None else out


@dataclass(frozen=True)
class RecordedRow:
    """The map of one row of a batch, computed when it is asked for."""

    map: RecordedAttention
    row: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, Q, K)"""
        return self.map.shape[1:]

    def rows(self, first: int, last: int, *, step: int = 1, head: int | None = None) -> Tensor:
        """Every `step`-th of the rows first..last, of all heads or one: (H, queries, K), on the CPU."""
        return self.map.rows(first, last, step=step, head=head)[self.row].cpu()


class Maps(Mapping[str, RecordedAttention]):
    """The watched attentions by name, in the order of the model."""

    def __init__(self, maps: dict[int, tuple[str, RecordedAttention]]) -> None:
        self._by_module = maps
        self._by_name = dict(maps.values())

    def __getitem__(self, name: str) -> RecordedAttention:
        if name not in self._by_name:
            raise KeyError(f"no watched attention '{name}'; watched: {', '.join(self._by_name)}")
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def record(
        self, attention: nn.Module, q: Tensor, k: Tensor, mask: Lowered | None, cache: LayerCache | None
    ) -> None:
        """Hand q and k to the map of this attention, if it is watched."""
        if id(attention) in self._by_module:
            self._by_module[id(attention)][1].record(q, k, mask, cache)


# A ContextVar, so that two requests served by one model never see each other's maps.
_watching: ContextVar[tuple[Maps, ...]] = ContextVar("watching", default=())
_open = 0  # watches open in any context
_counting = Lock()


@contextmanager
def watch(model: nn.Module, layers: str | Sequence[str] = "*", heads: Sequence[int] | None = None) -> Iterator[Maps]:
    """Keep q and k of the attentions whose names match `layers` (shell patterns) while the block runs."""
    patterns = [layers] if isinstance(layers, str) else list(layers)
    known = {name: module for name, module in model.named_modules() if hasattr(module, "weights")}
    chosen = {name: module for name, module in known.items() if any(fnmatchcase(name, p) for p in patterns)}
    if not chosen:
        raise ValueError(f"no attention matches {patterns}; the model has: {', '.join(known) or 'none'}")
    maps = Maps({id(module): (name, RecordedAttention(module, heads)) for name, module in chosen.items()})
    global _open
    token = _watching.set((*_watching.get(), maps))
    with _counting:
        _open += 1
    try:
        yield maps
    finally:
        _watching.reset(token)
        with _counting:
            _open -= 1


def notify(attention: nn.Module, q: Tensor, k: Tensor, mask: Lowered | None, cache: LayerCache | None) -> None:
    """Tell whoever watches in this context; called by every attention once a call."""
    if not _open:  # a plain number: torch.compile can see through it
        return
    for maps in _watching.get():
        maps.record(attention, q, k, mask, cache)


def _fills(q: Tensor, k: Tensor) -> bool:
    """Whether q and k together are all that their one storage holds, so that keeping both costs nothing more."""
    storage = q.untyped_storage()
    size = (q.numel() + k.numel()) * q.element_size()
    return storage.data_ptr() == k.untyped_storage().data_ptr() and storage.nbytes() == size


def _own(x: Tensor) -> Tensor:
    """The tensor itself, or a copy where it is a view that would keep a larger one alive."""
    return x.clone() if x.untyped_storage().nbytes() > x.numel() * x.element_size() else x
