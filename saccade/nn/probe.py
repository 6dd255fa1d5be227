"""The probe: watch(model) records q and k while the fused kernel runs; attention weights are computed on demand.

Shapes: B rows, H heads, G key/value heads, Q queries, K keys, E head width.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from saccade.nn.cache import LayerCache
from saccade.nn.context import ContextValue
from saccade.nn.masks import KernelMask, of_heads, visible
from saccade.nn.packed import original

Item = TypeVar("Item")


class SupportsWeights(Protocol):
    """The part of an attention layer that the probe uses: its weights for given q and k."""

    @property
    def queries_per_kv_head(self) -> int: ...

    def weights(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor: ...


@dataclass(frozen=True)
class RecordedCall:
    """The queries of one forward call, the number of keys at that time, and their mask."""

    q: Tensor  # (B, H, Q, E)
    start: int  # queries of the calls before
    keys: int
    mask: KernelMask | None
    order: Tensor | None = None  # (B,): the row of the mask that belongs to each row now

    def reorder(self, rows: Tensor) -> RecordedCall:
        return replace(self, q=self.q[rows], order=rows if self.order is None else self.order[rows])

    def allowed(self, queries: slice | Tensor, keys: int) -> Tensor | None:
        """Return the mask of some queries of the call over the first `keys` keys: (B, 1, queries, keys)."""
        if self.mask is None:
            return None
        allowed = self.mask.allowed_at(queries)[..., :keys]
        return allowed if self.order is None or len(allowed) == 1 else allowed[self.order]


class CallHistory:
    """The calls with one cache, or one call without a cache, and the keys they see."""

    def __init__(self) -> None:
        self.calls: list[RecordedCall] = []
        self.k: Tensor | None = None  # (B, G, K, E), all keys so far

    @property
    def queries(self) -> int:
        return self.calls[-1].start + self.calls[-1].q.shape[2] if self.calls else 0

    def reorder(self, rows: Tensor) -> None:
        """Follow a cache whose row i becomes what row rows[i] was."""
        self.calls = [call.reorder(rows) for call in self.calls]
        self.k = None if self.k is None else self.k[rows]

    def restart(self) -> None:
        """Forget the calls so far: other rows joined the cache, whose queries were not recorded here."""
        self.calls, self.k = [], None


class RecordedAttention:
    """The weights of one attention layer: nothing is computed until rows are asked for.

    Queries are in the order of the calls. With a cache the keys are read from it, so they take no memory of their own.
    A layer that a stack applies repeatedly shows its last application.
    """

    def __init__(self, attention: SupportsWeights, heads: Sequence[int] | None) -> None:
        self._attention, self._heads = attention, None if heads is None else list(heads)
        self._history = CallHistory()  # the one that `rows` reads
        self._histories: dict[LayerCache, CallHistory] = {}  # of one decoding: one for each use of a repeated layer

    def record(self, q: Tensor, k: Tensor, mask: KernelMask | None, cache: LayerCache | None) -> None:
        """Keep q (B, H, Q, E) and k; with a cache that was used before, this call continues its history."""
        history = self._histories.get(cache) if cache is not None else None
        if history is None or not history.calls:
            history = CallHistory()
            if cache is None or any(other.owner is not cache.owner for other in self._histories):
                self._histories = {}
            if cache is not None:
                self._histories[cache] = history
                cache.followers.append(history)
        self._history, continues = history, history.k is not None
        q, k, order = q.detach(), k.detach(), None
        if len(k) != len(q):  # beams share a memory, and its mask
            order = torch.arange(len(k), device=k.device).repeat_interleave(len(q) // len(k))
            k = k[order]
        if self._heads is not None:
            q = q[:, self._heads]
        cached = cache is not None and cache.keys is not None
        if not _fill_storage(q, k):
            q, k = _compact(q), k if cached or continues else _compact(k)
        if mask is not None:  # the mask itself, without the Q x K tensor of the kernel; None: no restriction
            mask = KernelMask(mask.mask, mask.query, mask.key, kernel="none") if mask.hides else None
        history.calls.append(RecordedCall(q, history.queries, k.shape[2], mask, order))
        if cached or not continues:
            history.k = k

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, Q, K) of all calls; all 0 until the model has run."""
        if self._history.k is None:
            return 0, 0, 0, 0
        first = self._history.calls[0].q
        return first.shape[0], first.shape[1], self._history.queries, self._history.k.shape[2]

    @property
    def nbytes(self) -> int:
        """Bytes of q and k, of all rows and calls."""
        recorded = [call.q for call in self._history.calls]
        return sum(x.nbytes for x in (*recorded, *([] if self._history.k is None else [self._history.k])))

    def rows(self, first: int = 0, last: int | None = None, *, step: int = 1, head: int | None = None) -> Tensor:
        """Return the weights of every `step`-th of the queries first..last, of all heads or one: (B, H, queries, K).

        They are exact; keys that a query may not see have weight 0.
        """
        queries = self.shape[2]
        first, last = max(0, first), queries if last is None else min(last, queries)
        return self._weights(range(first, max(first, last), step), head)

    def select(self, queries: Tensor, head: int | None = None) -> Tensor:
        """Return the weights of some queries, in ascending order, of all heads or one: (B, H, queries, K)."""
        return self._weights(queries, head)

    def _weights(self, queries: range | Tensor, head: int | None) -> Tensor:
        rows, heads, _, keys = self.shape
        k = self._history.k
        if k is None:
            raise ValueError("no attention to read: run the model inside the watch(...) block")
        chosen = slice(None) if head is None else slice(head, head + 1)
        group = self._attention.queries_per_kv_head
        if self._heads is not None:
            k = k[:, [number // group for number in self._heads][chosen]]
        elif head is not None:
            k = k[:, head // group :][:, :1]
        shape = (rows, heads if head is None else 1, len(queries), keys)
        out = None
        for call, part, at in _parts(self._history.calls, queries):
            weights = self._call_weights(call, part, k, chosen)
            if weights.shape == shape:
                return weights
            out = k.new_zeros(shape) if out is None else out
            out[:, :, at : at + weights.shape[2], : weights.shape[3]] = weights
        return k.new_zeros(shape) if out is None else out

    @torch.no_grad()
    def _call_weights(self, call: RecordedCall, queries: slice | Tensor, k: Tensor, heads: slice) -> Tensor:
        """Return the weights of some queries of one call: (B, heads, queries, keys seen)."""
        seen = min(call.keys, k.shape[2])
        allowed = call.allowed(queries, seen)
        if allowed is not None:
            allowed = of_heads(of_heads(allowed, self._heads or slice(None)), heads)
        if allowed is not None and allowed.shape[-2] > 1:  # keys that no query may see are skipped
            last_seen = visible(allowed).flatten(0, -2).any(0).nonzero()
            seen = int(last_seen[-1]) + 1 if len(last_seen) else 0
            allowed = allowed[..., :seen]
        return self._attention.weights(call.q[:, heads, queries], k[:, :, :seen], allowed)


def _parts(
    calls: Sequence[RecordedCall], queries: range | Tensor
) -> Iterator[tuple[RecordedCall, slice | Tensor, int]]:
    """Yield the calls that some ascending queries belong to, which queries of the call, and how many came before."""
    if not len(queries):
        return
    first, last = int(queries[0]), int(queries[-1])
    for call in calls[bisect_right(calls, first, key=lambda call: call.start) - 1 :]:
        before, count = call.start, call.q.shape[2]
        if before > last:
            return
        if isinstance(queries, Tensor):
            begin, end = (int(at) for at in torch.searchsorted(queries, queries.new_tensor([before, before + count])))
            if begin < end:
                yield call, queries[begin:end] - before, begin
        else:
            begin, step = max(first - before, (first - before) % queries.step), queries.step
            if begin < min(last + 1 - before, count):
                yield call, slice(begin, last + 1 - before, step), (before + begin - first) // step


@dataclass(frozen=True)
class RecordedRow:
    """The weights of one row of a batch, computed on demand."""

    map: RecordedAttention
    row: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, Q, K)"""
        return self.map.shape[1:]

    def rows(self, first: int, last: int, *, step: int = 1, head: int | None = None) -> Tensor:
        """Return the weights of every `step`-th of the queries first..last: (H, queries, K), on the CPU."""
        return self.map.rows(first, last, step=step, head=head)[self.row].cpu()

    def select(self, queries: Tensor, *, head: int | None = None) -> Tensor:
        """Return the weights of some queries, in ascending order: (H, queries, K), on the CPU."""
        return self.map.select(queries, head)[self.row].cpu()

    @property
    def nbytes(self) -> int:
        """Bytes of q and k of this row."""
        return self.map.nbytes // max(1, self.map.shape[0])


class Recorder(Mapping[str, RecordedAttention]):
    """Context manager that records attention layers; maps their names, in the order of the model, to the recordings.

    It can be entered any number of times. Inside a generator enter it around each forward call, never around a
    `yield` (`iterate` does this): calls made while the generator is suspended are then not recorded.
    """

    def __init__(self, layers: Mapping[str, Any], heads: Sequence[int] | None) -> None:
        self._by_name = {name: RecordedAttention(module, heads) for name, module in layers.items()}
        self._by_module = {id(original(module)): self._by_name[name] for name, module in layers.items()}

    def __getitem__(self, name: str) -> RecordedAttention:
        if name not in self._by_name:
            raise KeyError(f"no watched attention '{name}'; watched: {', '.join(self._by_name)}")
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __enter__(self) -> Recorder:
        _recorders.enter((*_recorders.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        active = _recorders.get()
        last = max(index for index, recorder in enumerate(active) if recorder is self)
        _recorders.leave((*active[:last], *active[last + 1 :]))

    def iterate(self, items: Iterator[Item]) -> Iterator[Item]:
        """Iterate and record while the next item is computed, but not between items."""
        while True:
            with self:
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item

    def record(
        self, attention: nn.Module, q: Tensor, k: Tensor, mask: KernelMask | None, cache: LayerCache | None
    ) -> None:
        """Keep q and k if this layer is recorded; a packed copy counts as its original."""
        recorded = self._by_module.get(id(original(attention)))
        if recorded is not None:
            recorded.record(q, k, mask, cache)


_recorders = ContextValue[tuple[Recorder, ...]]("recorders", ())


def record(model: nn.Module, layers: str | Sequence[str] = "*", heads: Sequence[int] | None = None) -> Recorder:
    """Return a recorder of the attention layers whose names match `layers` (shell patterns); it starts when entered."""
    patterns = [layers] if isinstance(layers, str) else list(layers)
    attentions = {name: module for name, module in model.named_modules() if hasattr(module, "weights")}
    chosen = {name: module for name, module in attentions.items() if any(fnmatchcase(name, p) for p in patterns)}
    if not chosen:
        raise ValueError(f"no attention matches {patterns}; the model has: {', '.join(attentions) or 'none'}")
    return Recorder(chosen, heads)


@contextmanager
def watch(
    model: nn.Module, layers: str | Sequence[str] = "*", heads: Sequence[int] | None = None
) -> Iterator[Recorder]:
    """Record the attention layers whose names match `layers` (shell patterns) while the block runs."""
    with record(model, layers, heads) as recorder:
        yield recorder


def is_recording() -> bool:
    """Whether this context records attention layers."""
    return bool(_recorders.get())


def notify(attention: nn.Module, q: Tensor, k: Tensor, mask: KernelMask | None, cache: LayerCache | None) -> None:
    """Pass q and k to the recorders of this context; called by every attention layer once per call."""
    recorders = _recorders.get()
    if recorders:
        for recorder in {id(recorder): recorder for recorder in recorders}.values():
            recorder.record(attention, q, k, mask, cache)


def _fill_storage(q: Tensor, k: Tensor) -> bool:
    """Whether q and k share one storage that holds nothing else, so that keeping both costs no extra memory."""
    storage = q.untyped_storage()
    size = (q.numel() + k.numel()) * q.element_size()
    return storage.data_ptr() == k.untyped_storage().data_ptr() and storage.nbytes() == size


def _compact(x: Tensor) -> Tensor:
    """Return the tensor, or a copy if it is a view that would keep a larger storage alive."""
    return x.clone() if x.untyped_storage().nbytes() > x.numel() * x.element_size() else x
