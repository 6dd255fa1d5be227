"""Beam search over any incremental decoder, for many sentences at once.

Shapes: B sentences, N beams, R = B N rows, V vocabulary, T tokens so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from saccade.core.cancellation import check_cancelled


class IncrementalDecoder(Protocol):
    """Targets being generated; the rows are the beams of a sentence, one sentence after the other."""

    def step(self, ids: Tensor) -> Tensor:
        """Feed the next ids (R, T) of every row; returns the logits (R, V) after the last one."""

    def reorder(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Replace row i by row rows[i]; keep only these sentences (None: all)."""


@dataclass(frozen=True)
class Search:
    """Settings of a beam search."""

    beam: int = 5
    """beam size; 1 is greedy search"""
    length_penalty: float = 1.0
    """log probabilities are divided by length to this power: 0 favours short outputs, >1 long ones"""
    no_repeat_ngram_size: int = 0
    """no n-gram of this many tokens occurs twice; 0 allows repetition"""
    n_best: int = 1
    """hypotheses to return, at most the beam size"""

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
    """A generated target: its tokens without the end token, and its score."""

    ids: tuple[int, ...]
    log_probability: float
    score: float
    """log probability over length to the power of the length penalty"""
    ended: bool = True
    """false where it was cut off at the maximum length"""


@torch.no_grad()
def search(
    decoder: IncrementalDecoder,
    max_length: Sequence[int],
    *,
    start_id: int,
    end_id: int,
    settings: Search,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each sentence, best first; `max_length` and `prefixes` are per sentence."""
    beams = Beams(max_length, end_id, settings, prefixes or [()] * len(max_length))
    ids = torch.full((len(max_length), 1), start_id)
    while beams.open:
        check_cancelled()
        rows, sentences, ids = beams.choose(decoder.step(ids))
        if beams.open:
            decoder.reorder(rows, sentences)
    return beams.results()


GROUP = 128  # tokens that are first reduced to their maximum
BLOCK = 8  # rows that fit into a processor's cache


def top_tokens(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the highest logits (R, C) and their tokens, best first; only groups with the highest maxima are read."""
    groups = logits.shape[-1] // GROUP
    if logits.device.type != "cpu" or groups < 4 * count:
        best, token = logits.topk(count, dim=-1)
        return best, token
    even = groups * GROUP
    group = logits[:, :even].unflatten(1, (groups, GROUP)).amax(2).topk(count, dim=1).indices  # (R, C)
    token = (group[..., None] * GROUP + torch.arange(GROUP)).flatten(1)  # (R, C GROUP)
    remainder = torch.arange(even, logits.shape[-1]).expand(len(logits), -1)
    token = torch.cat((token, remainder), dim=1)
    best, at = logits.gather(1, token).topk(count, dim=1)
    return best, token.gather(1, at)


def log_sum_exp(logits: Tensor) -> Tensor:
    """Return log sum exp (R, 1) of each row; on a CPU a few rows at a time."""
    if logits.device.type != "cpu":
        return logits.logsumexp(-1, keepdim=True)
    return torch.cat([part.logsumexp(-1, keepdim=True) for part in logits.split(BLOCK)])


class Beams:
    """State of a search: for every sentence its live and its finished hypotheses."""

    def __init__(
        self, max_length: Sequence[int], end_id: int, settings: Search, prefixes: Sequence[Sequence[int]]
    ) -> None:
        self.max_length, self.end_id, self.settings, self.prefixes = list(max_length), end_id, settings, prefixes
        self.finished: list[list[Hypothesis]] = [[] for _ in max_length]
        self.open = list(range(len(max_length)))  # sentences that are not finished
        self.width = 1  # beams of a sentence: one at the start
        self.scores = torch.zeros(len(max_length), 1)  # (B, N)
        self.tokens = torch.zeros(len(max_length), 0, dtype=torch.long)  # (R, T)

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """Extend by one token; returns the surviving rows (R,), the sentences (None: all) and the next ids (R, 1)."""
        values, tokens = self._candidates(logits)  # (B, C) best first, tokens as row-in-sentence x V + id
        vocabulary, length = logits.shape[-1], self.tokens.shape[1] + 1
        origin, token = tokens.div(vocabulary, rounding_mode="floor"), tokens % vocabulary  # (B, C)
        ends = (token == self.end_id) & values.isfinite()
        for index, at in ends[:, : self.settings.beam].nonzero().tolist():  # an end below the beam does not count
            row = index * self.width + int(origin[index, at])
            self._finish(index, self.tokens[row].tolist(), float(values[index, at]), length, ended=True)
        order = ends.int().argsort(dim=1, stable=True)[:, : self.settings.beam]  # unfinished ones, best first
        width = order.shape[1]
        values = values.masked_fill(ends, -math.inf)  # where all candidates are needed to fill the beams
        values, origin, token = (part.gather(1, order) for part in (values, origin, token))
        rows = origin + torch.arange(len(self.open))[:, None] * self.width  # (B, N)
        self.tokens = torch.cat((self.tokens[rows.flatten()], token.reshape(-1, 1)), dim=1)
        self.scores, self.width = values, width
        alive = [index for index in range(len(self.open)) if not self._done(index, length)]
        if len(alive) == len(self.open):
            return rows.flatten().to(logits.device), None, token.reshape(-1, 1).to(logits.device)
        kept = torch.tensor(alive, dtype=torch.long)
        self.open = [self.open[index] for index in alive]
        self.scores = self.scores[kept]
        self.tokens = self.tokens.unflatten(0, (-1, width))[kept].flatten(0, 1)
        return (
            rows[kept].flatten().to(logits.device),
            kept.to(logits.device),
            token[kept].reshape(-1, 1).to(logits.device),
        )

    def results(self) -> list[list[Hypothesis]]:
        """Return the finished hypotheses of each sentence, best first."""
        if not all(self.finished):
            raise FloatingPointError(f"scores must be finite, but sentence {self.finished.index([]) + 1} has none left")
        ranked = [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score) for hypotheses in self.finished]
        return [hypotheses[: self.settings.n_best] for hypotheses in ranked]

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best next tokens of each sentence over all its beams, twice as many as beams: some may end."""
        logits = logits.float()
        total = log_sum_exp(logits)
        if self.settings.no_repeat_ngram_size or any(
            len(self.prefixes[number]) > self.tokens.shape[1] for number in self.open
        ):
            logits = self._restrict(logits)
        count = 2 * self.settings.beam
        best, token = top_tokens(logits, min(count, logits.shape[-1]))  # (R, C)
        best = (best - total).cpu().unflatten(0, (-1, self.width)) + self.scores[..., None]  # (B, N, C)
        best = best.masked_fill(best.isnan(), -math.inf)  # nan cannot be chosen
        shift = torch.arange(self.width)[:, None] * logits.shape[-1]
        token = token.cpu().unflatten(0, (-1, self.width)) + shift
        values, at = best.flatten(1).topk(min(count, best[0].numel()), dim=1)
        return values, token.flatten(1).gather(1, at)

    def _restrict(self, logits: Tensor) -> Tensor:
        """Set all logits to -inf but those that the prefix and `no_repeat_ngram_size` allow."""
        logits = logits.clone()
        size, length = self.settings.no_repeat_ngram_size, self.tokens.shape[1]
        for row, tokens in enumerate(self.tokens.tolist()):
            prefix = self.prefixes[self.open[row // self.width]]
            if length < len(prefix):
                forced = logits[row, prefix[length]].clone()
                logits[row] = -math.inf
                logits[row, prefix[length]] = forced
            elif size and length >= size:
                tail = tokens[length - size + 1 :]
                grams = range(length - size + 1)
                banned = [tokens[at + size - 1] for at in grams if tokens[at : at + size - 1] == tail]
                logits[row, [token for token in banned if token != self.end_id]] = -math.inf
        return logits

    def _done(self, index: int, length: int) -> bool:
        """Whether a sentence is finished; at the maximum length its live hypotheses are cut off."""
        number = self.open[index]
        finished = self.finished[number]
        live = float(self.scores[index].max())
        if not math.isfinite(live):
            return True
        if len(finished) >= self.settings.beam:
            scores = sorted((hypothesis.score for hypothesis in finished), reverse=True)[: self.settings.n_best]
            if live / length**self.settings.length_penalty <= scores[-1]:  # else the best may still be unfinished
                return True
        if length < self.max_length[number]:
            return False
        for beam in range(self.width):
            value = float(self.scores[index, beam])
            if math.isfinite(value):
                self._finish(index, self.tokens[index * self.width + beam].tolist(), value, length, ended=False)
        return True

    def _finish(self, index: int, ids: list[int], value: float, length: int, *, ended: bool) -> None:
        hypothesis = Hypothesis(tuple(ids), value, value / length**self.settings.length_penalty, ended)
        self.finished[self.open[index]].append(hypothesis)
