"""Masking: rows of sentences for an encoder that learns to guess hidden words, and whether one text follows another.

Every choice is a pure function of (seed, step) or of the seed and the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saccade.data.batching import key, shuffle
from saccade.data.text.sentences import Sentences
from saccade.data.text.templates import InputTemplate


@dataclass(frozen=True)
class Example:
    """A row of one text or two: where the second begins, whether it follows, and the sentence the row starts at."""

    ids: list[int]
    second: int
    follows: bool
    start: int


class Examples:
    """Runs of sentences as long as a row; every sentence begins one run an epoch, in another order each time."""

    def __init__(self, sentences: Sentences, frame: InputTemplate, seed: int, *, pairs: bool) -> None:
        self.sentences, self.frame, self.seed, self.pairs = sentences, frame, seed, pairs
        room = frame.max_length - 2 - (len(frame.middle) if pairs else 0)
        self.room = room
        # As many rows an epoch as there are tokens for.
        self.per_epoch = max(1, sentences.tokens // max(1, room))

    def at(self, position: int) -> Example:
        """The example at a position of the endless stream."""
        epoch, place = divmod(position, self.per_epoch)
        stir = key(self.seed, epoch)
        count = len(self.sentences)
        start = int(shuffle(np.array([place], dtype=np.uint64), count, stir)[0])
        draw = np.random.default_rng(key(self.seed, epoch, place))
        if not self.pairs:
            ids, second = self.frame.row(self._run(start, self.room)[0])
            return Example(ids, second, True, start)
        first, after = self._run(start, int(draw.integers(self.room // 4, 3 * self.room // 4 + 1)))
        room = self.room - len(first)
        follows = bool(draw.random() < 0.5) and self._same(start, after)
        if not follows:
            after = self._elsewhere(start, draw)
        ids, second = self.frame.row(first, self._run(after, room)[0])
        return Example(ids, second, follows, start)

    def _run(self, start: int, room: int) -> tuple[list[int], int]:
        """Whole sentences of one document from `start` on, as many as fit but at least one; and what comes next."""
        ids: list[int] = []
        place, rows = start, self.sentences.rows
        while place < len(self.sentences) and self._same(start, place):
            sentence = rows[place]
            if ids and len(ids) + len(sentence) > room:
                break
            ids += sentence.tolist()
            place += 1
        return ids[:room], place

    def _same(self, one: int, other: int) -> bool:
        document = self.sentences.document
        return other < len(document) and bool(document[one] == document[other])

    def _elsewhere(self, start: int, draw: np.random.Generator) -> int:
        """A sentence of another document; of another place, where there is only one document."""
        count = len(self.sentences)
        for _ in range(20):
            other = int(draw.integers(count))
            if not self._same(start, other):
                return other
        return (start + count // 4 + int(draw.integers(max(1, count // 2)))) % count


@dataclass(frozen=True)
class Masker:
    """Hides tokens of a row: which ones, and what is put in their place."""

    mask: int
    vocabulary: int
    share: float
    mixed: bool
    """8 of 10 become [MASK], one another token, one stays; false: all become [MASK]"""
    inside: NDArray[np.bool_] | None
    """by token, whether it goes on with a word: words are then hidden whole"""
    specials: frozenset[int]

    def hide(self, ids: Sequence[int], seed: int) -> tuple[list[int], list[int]]:
        """The row with some tokens hidden, and at every place the true token or -1."""
        draw = np.random.default_rng(seed)
        words = self._words(ids)
        wanted = max(1, round(self.share * sum(map(len, words))))
        shown, labels, hidden = list(ids), [-1] * len(ids), 0
        for number in draw.permutation(len(words)).tolist():
            if hidden >= wanted:
                break
            for place in words[number]:
                labels[place] = ids[place]
                shown[place] = self._instead(ids[place], draw)
                hidden += 1
        return shown, labels

    def _words(self, ids: Sequence[int]) -> list[list[int]]:
        """The places of tokens that are hidden together."""
        found: list[list[int]] = []
        for place, token in enumerate(ids):
            if token in self.specials:
                continue
            if self.inside is not None and self.inside[token] and found and found[-1][-1] == place - 1:
                found[-1].append(place)
            else:
                found.append([place])
        return found

    def _instead(self, token: int, draw: np.random.Generator) -> int:
        chance = draw.random() if self.mixed else 0.0
        if chance < 0.8:
            return self.mask
        return int(draw.integers(self.vocabulary)) if chance < 0.9 else token
