"""The engine: generates tokens for many requests at once, which join and leave between steps (continuous batching).

Shapes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from saccade.core.cancellation import check_cancelled
from saccade.core.generation import Finish
from saccade.decode.lookup import guess
from saccade.decode.prefixes import Prefixes
from saccade.decode.runner import CHUNK, Piece, Runner
from saccade.decode.sampling import Sampling, choose

PROMPT_TOKENS = 256  # of all prompts together that are read in one step, while others generate


@dataclass(frozen=True)
class Request:
    """A prompt to continue, with its settings."""

    ids: Sequence[int]
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 1
    max_new_tokens: int = 200
    stop_ids: tuple[int, ...] = ()
    """tokens after which the row ends"""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """added to the logits of these tokens"""
    logprobs: int | None = None
    """log probabilities of the chosen tokens (0), and of this many most probable ones; None: none"""
    lookup: int = 0
    """speculative decoding: tokens to guess at each step, where that cannot change the chosen ones"""
    slide: bool = True
    """drop the older half of a full context and go on; false: the row ends there"""
    memory: Any = None
    """what the tokens of an encoder-decoder model attend to"""
    given: int = 0
    """tokens at the end of `ids` that count as generated: each has used one random choice"""
    current: Callable[[], Sampling] | None = None
    """returns the settings for the next token, where they may change; None: `sampling`"""

    def __post_init__(self) -> None:
        if not self.ids:
            raise ValueError("ids must have at least one token, but are empty")


@dataclass(frozen=True)
class Event:
    """A generated token of a request; none (-1) where the request has ended with an error."""

    number: int
    token: int
    finish: Finish = ""
    logprob: float = 0.0
    top: tuple[tuple[int, float], ...] = ()
    """the most probable tokens with their log probabilities, where they were requested"""
    logits: Tensor | None = field(default=None, compare=False)
    """(V,) those the token was chosen from, before penalties and temperature"""
    sampling: Sampling | None = None
    """the settings it was chosen with"""


class _Row:
    """A request in progress: its tokens, of which those before `cached` are in the cache."""

    def __init__(self, number: int, request: Request) -> None:
        self.number, self.request = number, request
        self.generator = torch.Generator().manual_seed(request.seed)
        self.ids = list(request.ids)
        self.generated = 0
        self.unused = request.given  # random choices that are skipped
        self.start = 0  # tokens that were dropped when the context was full
        self.cached = 0  # tokens of `ids[start:]` in the cache
        self.biased = torch.tensor(list(request.logit_bias), dtype=torch.long)
        self.bias = torch.tensor(list(request.logit_bias.values()), dtype=torch.float32)

    @property
    def unread(self) -> list[int]:
        return self.ids[self.start + self.cached :]


class Engine:
    """Requests that are generated together.

    Every request has its own sampling settings, random generator, limit and stop ids, so its tokens do not depend on
    the others. A prompt is read in chunks, between which the other requests go on; the beginning of a prompt that a
    row has in its cache is not computed again.
    """

    def __init__(self, runner: Runner, context: int) -> None:
        self.runner, self.context = runner, min(context, runner.capacity)
        self.waiting: list[_Row] = []
        self._live: dict[int, _Row] = {}  # by row of the cache
        self._prefixes = Prefixes(runner.rows, runner.reuse)
        self._added = 0
        self.reused = 0  # prompt tokens that were not computed again
        self.read = 0  # prompt tokens that were computed

    def __len__(self) -> int:
        """Number of requests that have not ended."""
        return len(self._live) + len(self.waiting)

    def add(self, request: Request) -> int:
        """Add a request, which gets the next free row; returns its number."""
        row = _Row(self._added, request)
        self._added += 1
        if request.max_new_tokens > 0:
            self.waiting.append(row)
        return row.number

    def remove(self, number: int) -> None:
        """Drop a request; one that has already ended is ignored."""
        self.waiting = [row for row in self.waiting if row.number != number]
        for at, row in [(at, row) for at, row in self._live.items() if row.number == number]:
            if row.generated:
                self._release(at)
            else:  # no logits have shown that what its prompt left in the cache is finite
                self._discard(at)

    def step(self) -> list[Event]:
        """Generate one token for every request whose prompt is read, several where guesses were right."""
        check_cancelled()
        self._admit()
        pieces = self._pieces()
        if not pieces:
            return []
        results = self.runner.forward(pieces)
        events: list[Event] = []
        for piece, logits in zip(pieces, results, strict=True):
            row = self._live[piece.row]
            row.cached = piece.start + len(piece.ids)
            if row.start + row.cached < len(row.ids):  # more of the prompt follows
                self._prefixes.extend(piece.row, piece.ids)
                continue
            events += self._advance(piece, logits)
        return sorted(events, key=lambda event: event.number)

    def _admit(self) -> None:
        """Give free rows to waiting requests, each the row that has most of its prompt.

        A request waits for another one that is reading the same beginning.
        """
        for row in list(self.waiting):
            free = [at for at in range(self.runner.rows) if at not in self._live]
            if not free:
                return
            reading = [other.ids[other.start :] for other in self._live.values() if not other.generated]
            ids = row.ids[-self.context :]
            if not reading or self._prefixes.match(ids, free)[2] >= max(
                map(partial(self._prefixes.common, ids), reading)
            ):
                self.waiting.remove(row)
                self._place(row, free)

    def _place(self, row: _Row, free: Sequence[int]) -> None:
        """Start reading a row in one of the free rows of the cache."""
        kept = self.context if not row.generated else max(1, self.context // 2)
        row.start = max(row.start, len(row.ids) - kept)
        ids = row.ids[row.start :]
        at, source, count = self._prefixes.match(ids, free)
        if source != at and count:
            self.runner.copy(source, at, count)
        self._prefixes.start(at, ids[:count])
        if row.request.memory is not None:
            self.runner.start(at, row.request.memory)
        self._live[at], row.cached = row, count
        self.reused += count

    def _pieces(self) -> list[Piece]:
        """Return the tokens that each row reads in this step."""
        pieces, budget = [], PROMPT_TOKENS
        for at, row in sorted(self._live.items(), key=lambda item: item[1].number):
            if row.cached + 1 > self.context:  # full: the newer half is read again
                self._place(row, [at])
            unread = row.unread
            if len(unread) == 1 and row.generated:
                guesses = self._guess(row)
                pieces.append(Piece(at, row.cached, [*unread, *guesses], every=bool(guesses)))
                continue
            size = min(len(unread), CHUNK - row.cached % CHUNK)  # chunks start at the same places for every request
            if size <= budget or budget == PROMPT_TOKENS:
                pieces.append(Piece(at, row.cached, unread[:size]))
                budget -= size
                self.read += size
        return pieces

    def _guess(self, row: _Row) -> list[int]:
        """Return what may follow; only where tokens read together have the same bits as one by one."""
        if self.runner.reuse != 1:
            return []
        count = min(row.request.lookup, self.context - row.cached - 1, row.request.max_new_tokens - row.generated - 1)
        return guess(row.ids, count) if count > 0 else []

    def _advance(self, piece: Piece, logits: Tensor) -> list[Event]:
        """Choose the next token of a row, and further ones as long as they were guessed."""
        row = self._live[piece.row]
        events: list[Event] = []
        read = 1 if piece.every else len(piece.ids)
        for position in range(len(logits)):
            try:
                event = self._choose(row, logits[position : position + 1])
            except FloatingPointError:  # the other rows go on
                self._discard(piece.row)
                return [*events, Event(row.number, -1, "error")]
            events.append(event)
            guessed = position + 1 < len(logits) and piece.ids[position + 1] == event.token
            if event.finish or not guessed:
                break
            read += 1
        row.cached = piece.start + read
        self._prefixes.extend(piece.row, piece.ids[:read], generated=row.generated > len(events))
        if events[-1].finish:
            self._release(piece.row)
        return events

    def _choose(self, row: _Row, logits: Tensor) -> Event:
        """Append the next token of a row, from logits (1, V)."""
        request = row.request
        raw = logits
        if request.logit_bias:
            logits = logits.clone()
            logits[0, row.biased] += row.bias.to(logits)
        sampling = request.sampling if request.current is None else request.current()
        used = torch.tensor([row.ids], device=logits.device) if sampling.penalizes else None
        while row.unused:
            torch.multinomial(torch.ones(1, logits.shape[-1]), 1, generator=row.generator)
            row.unused -= 1
        token = int(choose(logits, used, sampling, row.generator, prompt=len(request.ids) - request.given))
        row.ids.append(token)
        row.generated += 1
        finish: Finish = "stop" if token in request.stop_ids else ""
        full = not request.slide and len(row.ids) - row.start >= self.context
        if not finish and (row.generated >= request.max_new_tokens or full):
            finish = "length"
        if request.logprobs is None:
            return Event(row.number, token, finish, logits=raw[0], sampling=sampling)
        log_probs = raw[0].float().log_softmax(-1)
        values, ids = log_probs.topk(min(request.logprobs, len(log_probs)))
        top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
        return Event(row.number, token, finish, float(log_probs[token]), top, raw[0], sampling)

    def _release(self, at: int) -> None:
        """Free a row; its cache stays for prompts that begin in the same way."""
        del self._live[at]

    def _discard(self, at: int) -> None:
        """Free a row whose cache may hold numbers that are not finite: masked for a later request, 0 x nan is nan."""
        self.runner.clear(at, self._live[at].cached)
        self._prefixes.start(at, [])
        self._release(at)
