"""Masked language modelling: rows of sentences with masked tokens, and whether one text follows another.

Every choice is a pure function of (seed, step) or of the seed and the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from saccade.data.batching import key, shuffle
from saccade.data.sentence_rows import Sentences
from saccade.data.text.templates import InputTemplate

Masking = Literal["80_10_10", "mask_only"]


@dataclass(frozen=True)
class Example:
    """A row of one text or two: where the second starts, whether it follows, and the first sentence of the row."""

    ids: list[int]
    second: int
    follows: bool
    start: int


class Examples:
    """Rows of consecutive sentences; a sentence starts at most one row per epoch, in a different order each time.

    A sentence that is longer than a row, such as a paragraph without punctuation, is several sentences here.
    """

    def __init__(self, sentences: Sentences, template: InputTemplate, seed: int, *, pairs: bool) -> None:
        self.template, self.seed, self.pairs = template, seed, pairs
        self.room = template.max_length - 2 - (len(template.separators) if pairs else 0)
        self.sentences, self._numbers = sentences.cut(self.room)
        # As many rows per epoch as the tokens fill: no more than there are sentences, since none is longer than a row.
        self.per_epoch = max(1, sentences.tokens // self.room)

    def at(self, position: int) -> Example:
        """Return the example at a position of the endless stream."""
        epoch, within = divmod(position, self.per_epoch)
        start = int(shuffle(np.array([within], dtype=np.uint64), len(self.sentences), key(self.seed, epoch))[0])
        generator = np.random.default_rng(key(self.seed, epoch, within))
        if not self.pairs:
            ids, second = self.template.build(self._take(start, self.room)[0])
            return Example(ids, second, True, int(self._numbers[start]))
        first, after = self._take(start, int(generator.integers(self.room // 4, 3 * self.room // 4 + 1)))
        room = self.room - len(first)
        follows = bool(generator.random() < 0.5) and self._same_document(start, after)
        if not follows:
            after = self._random_start(start, generator)
        ids, second = self.template.build(first, self._take(after, room)[0])
        return Example(ids, second, follows, int(self._numbers[start]))

    def _take(self, start: int, room: int) -> tuple[list[int], int]:
        """Return complete sentences of one document from `start`, as many as fit but at least one, and the next row."""
        ids: list[int] = []
        row = start
        while row < len(self.sentences) and self._same_document(start, row):
            sentence = self.sentences.rows[row]
            if ids and len(ids) + len(sentence) > room:
                break
            ids += sentence.tolist()
            row += 1
        return ids[:room], row

    def _same_document(self, first: int, second: int) -> bool:
        document = self.sentences.document
        return second < len(document) and bool(document[first] == document[second])

    def _random_start(self, start: int, generator: np.random.Generator) -> int:
        """Return a sentence of another document, or a distant sentence if there is only one document."""
        count = len(self.sentences)
        for _ in range(20):
            row = int(generator.integers(count))
            if not self._same_document(start, row):
                return row
        return (start + count // 4 + int(generator.integers(max(1, count // 2)))) % count


@dataclass(frozen=True)
class Masker:
    """Chooses the tokens of a row to predict, and what the model reads at their positions."""

    mask_id: int
    vocabulary_size: int
    mask_probability: float
    masking: Masking
    """80_10_10: of the chosen tokens 80% become [MASK], 10% a random token, 10% stay; mask_only: all become [MASK]"""
    inside_word: NDArray[np.bool_] | None
    """by token, whether it continues a word: whole-word masking; None: tokens are masked one by one"""
    special_ids: frozenset[int]

    def mask(self, ids: Sequence[int], seed: int) -> tuple[list[int], list[int]]:
        """Return the row with some tokens masked, and the labels: the original token there, -1 elsewhere."""
        generator = np.random.default_rng(seed)
        words = self._words(ids)
        target_count = max(1, round(self.mask_probability * sum(map(len, words))))
        inputs, labels, count = list(ids), [-1] * len(ids), 0
        for number in generator.permutation(len(words)).tolist():
            if count >= target_count:
                break
            for position in words[number]:
                labels[position] = ids[position]
                inputs[position] = self._replacement(ids[position], generator)
                count += 1
        return inputs, labels

    def _words(self, ids: Sequence[int]) -> list[list[int]]:
        """Return the positions of tokens that are masked together."""
        words: list[list[int]] = []
        for position, token in enumerate(ids):
            if token in self.special_ids:
                continue
            if self.inside_word is not None and self.inside_word[token] and words and words[-1][-1] == position - 1:
                words[-1].append(position)
            else:
                words.append([position])
        return words

    def _replacement(self, token: int, generator: np.random.Generator) -> int:
        draw = generator.random() if self.masking == "80_10_10" else 0.0
        if draw < 0.8:
            return self.mask_id
        return int(generator.integers(self.vocabulary_size)) if draw < 0.9 else token
