"""Beam search over any step function: many sentences at once, each with its best few beginnings.

Shapes: B sentences, N beams, R = B N rows, V vocabulary, T tokens so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Steps(Protocol):
    """Targets being written; the rows are the beams of a sentence, one sentence after the other."""

    def step(self, ids: Tensor) -> Tensor:
        """The next ids (R, T) of every row -> logits (R, V) of what follows the last one."""

    def reorder(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Row i goes on as row rows[i] did; only these sentences stay (None: all)."""


@dataclass(frozen=True)
class Search:
    """How a target is searched for."""

    beam: int = 5
    """beginnings that are followed at once; 1: greedy"""
    length_penalty: float = 1.0
    """scores are divided by length to this power: 0 favours short outputs, above 1 long ones"""
    no_repeat_ngram_size: int = 0
    """never write the same this many tokens twice; 0: allow it"""
    n_best: int = 1
    """answers to give, at most as many as beams"""

    def __post_init__(self) -> None:
        for name, least in (("beam", 1), ("no_repeat_ngram_size", 0), ("n_best", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        if self.beam > 1000:
            raise ValueError(f"beam must be at most 1000, but is {self.beam}")
        if self.n_best > self.beam:
            raise ValueError(f"n_best must be at most beam ({self.beam}), but is {self.n_best}")
        if not 0 <= self.length_penalty <= 10:
            raise ValueError(f"length_penalty must be from 0 to 10, but is {self.length_penalty}")


@dataclass(frozen=True)
class Hypothesis:
    """A target that was found: its tokens without the end, and how likely it is."""

    ids: tuple[int, ...]
    log_probability: float
    score: float
    """log probability over length to the power of the length penalty"""
    ended: bool = True
    """false where the longest length cut it off"""


@torch.no_grad()
def search(
    steps: Steps,
    max_length: Sequence[int],
    *,
    begin: int,
    end: int,
    settings: Search,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """The best targets of each sentence, best first; `max_length` and `prefixes` are per sentence."""
    beams = Beams(max_length, end, settings, prefixes or [()] * len(max_length))
    ids = torch.full((len(max_length), 1), begin)
    while beams.open:
        rows, sentences, ids = beams.choose(steps.step(ids))
        if beams.open:
            steps.reorder(rows, sentences)
    return beams.results()


GROUP = 128  # tokens of which only the best counts at first
BLOCK = 8  # rows that fit into a processor's cache


def best_tokens(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The highest logits (R, C) and their tokens, best first; only groups with the highest maxima are read."""
    groups = logits.shape[-1] // GROUP
    if logits.device.type != "cpu" or groups < 4 * count:
        best, token = logits.topk(count, dim=-1)
        return best, token
    even = groups * GROUP
    place = logits[:, :even].unflatten(1, (groups, GROUP)).amax(2).topk(count, dim=1).indices  # (R, C)
    token = (place[..., None] * GROUP + torch.arange(GROUP)).flatten(1)  # (R, C GROUP)
    rest = torch.arange(even, logits.shape[-1]).expand(len(logits), -1)
    token = torch.cat((token, rest), dim=1)
    best, at = logits.gather(1, token).topk(count, dim=1)
    return best, token.gather(1, at)


def log_total(logits: Tensor) -> Tensor:
    """log sum exp (R, 1) of each row; on a CPU a few rows at a time."""
    if logits.device.type != "cpu":
        return logits.logsumexp(-1, keepdim=True)
    return torch.cat([part.logsumexp(-1, keepdim=True) for part in logits.split(BLOCK)])


class Beams:
    """The state of a search: for every sentence its live beginnings and what is finished."""

    def __init__(
        self, max_length: Sequence[int], end: int, settings: Search, prefixes: Sequence[Sequence[int]]
    ) -> None:
        self.max_length, self.end, self.settings, self.prefixes = list(max_length), end, settings, prefixes
        self.finished: list[list[Hypothesis]] = [[] for _ in max_length]
        self.open = list(range(len(max_length)))  # sentences still being written
        self.width = 1  # beams of a sentence: one at the beginning
        self.scores = torch.zeros(len(max_length), 1)  # (B, N)
        self.tokens = torch.zeros(len(max_length), 0, dtype=torch.long)  # (R, T)

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """Go on by one token: which rows live on (R,), which sentences (None: all), and their next ids (R, 1)."""
        values, tokens = self._candidates(logits)  # (B, C) best first, tokens as row-in-sentence x V + id
        vocabulary, length = logits.shape[-1], self.tokens.shape[1] + 1
        origin, token = tokens.div(vocabulary, rounding_mode="floor"), tokens % vocabulary  # (B, C)
        ends = (token == self.end) & values.isfinite()
        for place, at in ends[:, : self.settings.beam].nonzero().tolist():  # only what is among the best counts
            row = place * self.width + int(origin[place, at])
            self._finish(place, self.tokens[row].tolist(), float(values[place, at]), length, ended=True)
        order = ends.int().argsort(dim=1, stable=True)[:, : self.settings.beam]  # those that go on, best first
        width = order.shape[1]
        values = values.masked_fill(ends, -math.inf)  # where all candidates are needed to fill the beams
        values, origin, token = (part.gather(1, order) for part in (values, origin, token))
        rows = origin + torch.arange(len(self.open))[:, None] * self.width  # (B, N)
        self.tokens = torch.cat((self.tokens[rows.flatten()], token.reshape(-1, 1)), dim=1)
        self.scores, self.width = values, width
        alive = [place for place in range(len(self.open)) if not self._done(place, length)]
        if len(alive) == len(self.open):
            return rows.flatten().to(logits.device), None, token.reshape(-1, 1).to(logits.device)
        kept = torch.tensor(alive, dtype=torch.long)
        self.open = [self.open[place] for place in alive]
        self.scores = self.scores[kept]
        self.tokens = self.tokens.unflatten(0, (-1, width))[kept].flatten(0, 1)
        return (
            rows[kept].flatten().to(logits.device),
            kept.to(logits.device),
            token[kept].reshape(-1, 1).to(logits.device),
        )

    def results(self) -> list[list[Hypothesis]]:
        """What was found, best first."""
        if not all(self.finished):
            raise FloatingPointError(f"scores must be finite, but sentence {self.finished.index([]) + 1} has none left")
        ranked = [sorted(found, key=lambda one: -one.score) for found in self.finished]
        return [found[: self.settings.n_best] for found in ranked]

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The best next tokens of each sentence over all its beams, twice as many as beams: some may end."""
        logits = logits.float()
        total = log_total(logits)
        if self.settings.no_repeat_ngram_size or any(
            len(self.prefixes[number]) > self.tokens.shape[1] for number in self.open
        ):
            logits = self._restrict(logits)
        count = 2 * self.settings.beam
        best, token = best_tokens(logits, min(count, logits.shape[-1]))  # (R, C)
        best = (best - total).cpu().unflatten(0, (-1, self.width)) + self.scores[..., None]  # (B, N, C)
        best = best.masked_fill(best.isnan(), -math.inf)  # what is no number cannot be chosen
        shift = torch.arange(self.width)[:, None] * logits.shape[-1]
        token = token.cpu().unflatten(0, (-1, self.width)) + shift
        values, at = best.flatten(1).topk(min(count, best[0].numel()), dim=1)
        return values, token.flatten(1).gather(1, at)

    def _restrict(self, logits: Tensor) -> Tensor:
        """Leave only the tokens that the prefix demands and no repetition forbids."""
        logits = logits.clone()
        size, length = self.settings.no_repeat_ngram_size, self.tokens.shape[1]
        for row, written in enumerate(self.tokens.tolist()):
            prefix = self.prefixes[self.open[row // self.width]]
            if length < len(prefix):
                only = logits[row, prefix[length]].clone()
                logits[row] = -math.inf
                logits[row, prefix[length]] = only
            elif size and length >= size:
                tail = written[length - size + 1 :]
                grams = range(length - size + 1)
                banned = [written[at + size - 1] for at in grams if written[at : at + size - 1] == tail]
                logits[row, [token for token in banned if token != self.end]] = -math.inf
        return logits

    def _done(self, place: int, length: int) -> bool:
        """Whether a sentence has its answers; one that has reached its longest length is cut there."""
        number = self.open[place]
        found = self.finished[number]
        live = float(self.scores[place].max())
        if not math.isfinite(live):
            return True
        if len(found) >= self.settings.beam:
            answers = sorted((one.score for one in found), reverse=True)[: self.settings.n_best]
            if live / length**self.settings.length_penalty <= answers[-1]:  # else the best may still be unfinished
                return True
        if length < self.max_length[number]:
            return False
        for beam in range(self.width):
            value = float(self.scores[place, beam])
            if math.isfinite(value):
                self._finish(place, self.tokens[place * self.width + beam].tolist(), value, length, ended=False)
        return True

    def _finish(self, place: int, ids: list[int], value: float, length: int, *, ended: bool) -> None:
        found = Hypothesis(tuple(ids), value, value / length**self.settings.length_penalty, ended)
        self.finished[self.open[place]].append(found)
