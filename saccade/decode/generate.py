"""Generation: token by token, any number of requests at once, with any model that reads ids through a cache.

Shapes: B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from saccade.decode.sampling import Sampling, choose
from saccade.nn.cache import KVCache


class CausalModel(Protocol):
    """A language model: ids (B, T) that follow those in the cache -> logits (B, T, V) of the next tokens."""

    def __call__(self, ids: Tensor, *, cache: KVCache | None = None) -> Tensor: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...


class NotFiniteError(ArithmeticError):
    """The model computes logits that are not numbers, so that no token can be chosen."""


@dataclass(frozen=True)
class Request:
    """A prompt to continue, with its settings."""

    ids: Sequence[int]
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 1
    max_new_tokens: int = 200
    stop_ids: tuple[int, ...] = ()
    """tokens after which the row ends"""

    def __post_init__(self) -> None:
        if not self.ids:
            raise ValueError("ids must have at least one token, but are empty")


class _Row:
    """A request in progress."""

    def __init__(self, number: int, request: Request, device: torch.device) -> None:
        self.number, self.request = number, request
        self.generator = torch.Generator().manual_seed(request.seed)
        self.ids = torch.tensor([list(request.ids)], device=device)  # (1, T): prompt and generated tokens
        self.generated = 0
        self.length = 0  # tokens in the cache

    @property
    def finished(self) -> bool:
        last = int(self.ids[0, -1]) if self.generated else None
        return self.generated >= self.request.max_new_tokens or last in self.request.stop_ids

    def choose(self, logits: Tensor) -> int:
        """Append the next token, from logits (1, V)."""
        chosen = choose(logits, self.ids, self.request.sampling, self.generator)  # (1,)
        self.ids = torch.cat((self.ids, chosen[:, None]), dim=1)
        self.generated += 1
        return int(chosen)


class Generation:
    """Requests that are generated together; they join and leave between steps.

    Every row has its own sampling settings, random generator, limit and stop ids, so its tokens do not depend on the
    other rows. When a row has filled the context its older half is dropped and the remainder is read again.
    """

    def __init__(self, model: CausalModel, context: int) -> None:
        self.model, self.context = model, context
        self._device = next(model.parameters()).device
        self._rows: list[_Row] = []  # in the order of the cache's rows
        self._unread: list[_Row] = []  # rows without a cache: new, or with a full context
        self._cache: KVCache | None = None
        self._added = 0

    def __len__(self) -> int:
        """Number of live rows."""
        return len(self._rows) + len(self._unread)

    def add(self, request: Request) -> int:
        """Add a request, whose prompt is read in the next step; returns its row id."""
        row = _Row(self._added, request, self._device)
        self._added += 1
        if not row.finished:
            self._unread.append(row)
        return row.number

    def remove(self, row_id: int) -> None:
        """Drop a row; a row that has already ended is ignored."""
        self._unread = [row for row in self._unread if row.number != row_id]
        self._keep([row for row in self._rows if row.number != row_id])

    @torch.no_grad()
    def step(self) -> list[tuple[Request, int]]:
        """Generate one token for every live row, in the order in which they were added.

        A row leaves after one of its stop ids, which is returned too, or its last new token.
        """
        self._unread += [row for row in self._rows if row.length + 1 > self.context]
        self._keep([row for row in self._rows if row.length + 1 <= self.context])
        tokens = {row.number: token for row, token in (*self._continue(), *self._read())}
        rows = sorted(self._rows, key=lambda row: row.number)
        result = [(row.request, tokens[row.number]) for row in rows]
        self._keep([row for row in self._rows if not row.finished])
        return result

    def _continue(self) -> list[tuple[_Row, int]]:
        """Read the newest token of every row in the cache, all at once."""
        if not self._rows:
            return []
        logits = self.model(torch.cat([row.ids[:, -1:] for row in self._rows]), cache=self._cache)[:, -1]  # (B, V)
        _check_finite(logits)
        for row in self._rows:
            row.length += 1
        return [(row, row.choose(logits[at : at + 1])) for at, row in enumerate(self._rows)]

    def _read(self) -> list[tuple[_Row, int]]:
        """Read the prompt of every row without a cache, one by one, and add its cache to that of the others."""
        tokens = []
        for row in self._unread:
            limit = self.context if not row.generated else max(1, self.context // 2)
            ids, remaining = row.ids[:, -limit:], row.request.max_new_tokens - row.generated
            cache = KVCache(min(self.context, ids.shape[1] + remaining))
            logits = self.model(ids, cache=cache)[:, -1]
            _check_finite(logits)
            row.length = ids.shape[1]
            tokens.append((row, row.choose(logits)))
            if self._cache is None:
                self._cache = cache
            else:
                self._cache.join(cache)
            self._rows.append(row)
        self._unread = []
        return tokens

    def _keep(self, rows: list[_Row]) -> None:
        """Drop all rows but these from the cache."""
        if self._cache is not None and len(rows) < len(self._rows):
            indices = torch.tensor([self._rows.index(row) for row in rows], dtype=torch.long, device=self._device)
            if rows:
                self._cache.reorder(indices)
            else:
                self._cache = None
        self._rows = rows


def _check_finite(logits: Tensor) -> None:
    if not logits.isfinite().all():
        raise NotFiniteError("logits must be finite, but are not")


def generate(model: CausalModel, request: Request, context: int) -> Iterator[int]:
    """Yield the tokens of one request as they are generated, without the stop id that ends them."""
    generation = Generation(model, context)
    generation.add(request)
    while len(generation):
        ((_, token),) = generation.step()
        if token not in request.stop_ids:
            yield token
