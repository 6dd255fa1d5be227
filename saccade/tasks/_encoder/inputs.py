"""Encoder inputs: encoded texts, and padded batches of them.

Shapes: B rows, T tokens, N examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.text.templates import InputTemplate, pad_rows
from saccade.data.token_rows import TokenRows
from saccade.models.text.bert import EncoderInputs

Value = TypeVar("Value")


class EncodedText(NamedTuple):
    """The token ids of one text or a pair, special tokens included."""

    ids: list[int]
    second: int
    """position at which the second text starts; the length if there is none"""


class EncodedTexts(Sequence[EncodedText]):
    """Tokenized texts or pairs of texts; special tokens are added on access."""

    def __init__(self, template: InputTemplate, first: TokenRows, second: TokenRows | None = None) -> None:
        self._template, self._first, self._second = template, first, second

    def __len__(self) -> int:
        return len(self._first)

    @overload
    def __getitem__(self, row: int) -> EncodedText: ...
    @overload
    def __getitem__(self, row: slice) -> list[EncodedText]: ...
    def __getitem__(self, row: int | slice) -> EncodedText | list[EncodedText]:
        if isinstance(row, slice):
            return [self[index] for index in range(*row.indices(len(self)))]
        second = None if self._second is None else self._second[row].tolist()
        return EncodedText(*self._template.build(self._first[row].tolist(), second))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each text, special tokens included: (N,)."""
        special, tokens = 2, self._first.lengths
        if self._second is not None:
            special, tokens = 2 + len(self._template.separators), tokens + self._second.lengths
        return np.minimum(tokens + special, self._template.max_length)


@dataclass(frozen=True)
class Lengths:
    """Lengths of the examples for batching: (N,), or (N, 2) for two sequences each."""

    lengths: NDArray[np.int64]


def pad_texts(texts: Sequence[EncodedText]) -> EncoderInputs:
    """Return texts as one batch, padded to the longest one."""
    ids = torch.from_numpy(pad_rows([text.ids for text in texts], -1))
    keep, position = ids >= 0, torch.arange(ids.shape[1])
    second = position >= torch.tensor([text.second for text in texts])[:, None]
    return EncoderInputs(ids.clamp_min(0), None if bool(keep.all()) else keep, (second & keep).long())


def to_device(value: Value, device: Any) -> Value:
    """Return a tensor, or a tuple with all its tensors, on another device; other values are returned unchanged."""
    moved: Any = value
    if isinstance(value, Tensor):
        moved = value.to(device)
    elif isinstance(value, tuple):
        parts = (to_device(part, device) for part in value)
        moved = EncoderInputs._make(parts) if isinstance(value, EncoderInputs) else tuple(parts)
    result: Value = moved
    return result


@dataclass(frozen=True)
class EncoderBatch:
    """Base class of batches: the origin of each row, and what the loss and the throughput count."""

    rows: Sequence[str]
    count: int
    units: int

    def to(self, device: Any) -> Self:
        """Return the batch with all its tensors on another device."""
        return replace(self, **{field.name: to_device(getattr(self, field.name), device) for field in fields(self)})


def count_tokens(inputs: EncoderInputs) -> int:
    """Return the number of real tokens of a batch."""
    return inputs.ids.numel() if inputs.keep is None else int(inputs.keep.sum())
