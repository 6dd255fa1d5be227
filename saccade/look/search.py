"""Head search: the weight of one query for one key in every head of every layer, and what each head attends to most.

Only the rows of the query are computed. Shapes: H heads, K keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.core import AttentionMap, Axis
from saccade.errors import UsageError
from saccade.look.maps import same_axis
from saccade.metrics.alignment import word_axis

# Tokens that stand for no part of the text: [CLS], [SEP], <s>, </s>, <|im_start|>.
SPECIAL = re.compile(r"\[[A-Z_0-9]+\]|<[^<>\s]+>")


@dataclass(frozen=True)
class LayerWeights:
    """The weights of one query in the heads of one map: (H, K)."""

    name: str
    weights: Tensor

    def top(self, keys: Sequence[int]) -> list[tuple[int, float]]:
        """Return for each head the strongest of some keys and its weight; none where there are no keys."""
        if not keys:
            return []
        values, at = self.weights[:, keys].max(-1)
        return [(keys[index], value) for index, value in zip(at.tolist(), values.tolist(), strict=True)]


@dataclass(frozen=True)
class HeadSearch:
    """One query in all maps over the axes of the one shown, over words or tokens."""

    query: int
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    layers: tuple[LayerWeights, ...]
    words: tuple[int, ...]
    """the keys that are words of the text: no special tokens, no punctuation and not the query itself"""

    def ranked(self, key: int | None, count: int) -> list[tuple[str, int, int, float]]:
        """Return (map, head, key, weight) of the strongest heads for a key, or without one for any other word."""
        if key is not None and not 0 <= key < len(self.keys):
            raise UsageError(f"key must be 0 to {len(self.keys) - 1}, but is {key}")
        keys = self.words or range(len(self.keys)) if key is None else (key,)
        heads = [
            (layer.name, head, at, weight)
            for layer in self.layers
            for head, (at, weight) in enumerate(layer.top(list(keys)))
        ]
        return sorted(heads, key=lambda entry: -entry[3])[:count]


def search_heads(maps: Iterable[AttentionMap], shown: AttentionMap, query: int, *, words: bool) -> HeadSearch:
    """Return the weights of a query, counted over the words or the tokens of `shown`, in all maps over its axes."""
    axes = _Axes(words)
    (queries, _), (keys, _) = axes.of(shown.queries), axes.of(shown.keys)
    if not 0 <= query < len(queries):
        raise UsageError(f"query must be 0 to {len(queries) - 1} in '{shown.name}', but is {query}")
    layers = []
    for attention in maps:
        (rows, row_words), (columns, column_words) = axes.of(attention.queries), axes.of(attention.keys)
        if _continues(rows, queries) and _continues(columns, keys):
            weights = _query_weights(attention, query, row_words, column_words, len(columns))
            layers.append(LayerWeights(attention.name, weights[:, : len(keys)]))
    own = query if same_axis(queries, keys) else -1
    content = tuple(at for at, label in enumerate(keys.labels) if at != own and is_word(label))
    return HeadSearch(query, queries.labels, keys.labels, tuple(layers), content)


def is_word(label: str) -> bool:
    """Whether a token is a word or a part of one: neither special nor punctuation alone."""
    return not SPECIAL.fullmatch(label.strip()) and any(character.isalnum() for character in label)


class _Axes:
    """Axes over words or tokens, each computed once: the layers of a model share theirs."""

    def __init__(self, words: bool) -> None:
        self._words = words
        self._kept: dict[int, tuple[Axis, tuple[Axis, Tensor | None]]] = {}

    def of(self, axis: Axis) -> tuple[Axis, Tensor | None]:
        """Return an axis over words or tokens, and the word of each token; None where every position is shown."""
        if id(axis) not in self._kept:
            self._kept[id(axis)] = (axis, word_axis(axis) if self._words else (axis, None))
        return self._kept[id(axis)][1]


def _continues(axis: Axis, shown: Axis) -> bool:
    """Whether an axis counts the positions of the one shown, with at most one more, such as a token for the end."""
    more = len(axis) - len(shown)
    same = type(axis) is type(shown) and axis.role == shown.role and 0 <= more <= 1
    return axis is shown or (same and axis.labels[: len(shown)] == shown.labels)


def _query_weights(
    attention: AttentionMap, query: int, rows: Tensor | None, columns: Tensor | None, keys: int
) -> Tensor:
    """Return the weights (H, K) of a query: of a word the mean over its tokens, for a word their sum."""
    first, last = query, query + 1
    if rows is not None:
        first, last = torch.searchsorted(rows, torch.tensor([query, query + 1])).tolist()
    weights = attention.rows(first, last).float().cpu().mean(1)
    if columns is None:
        return weights
    return weights.new_zeros(len(weights), keys).index_add_(1, columns, weights)
