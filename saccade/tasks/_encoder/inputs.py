"""Encoder inputs: encoded texts, and batches of them padded to one length.

Shapes: B rows, T tokens, N examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray

from saccade.data.text.templates import InputTemplate, pad_rows
from saccade.data.token_rows import TokenRows
from saccade.models.text.bert import EncoderInputs


class EncodedText(NamedTuple):
    """The token ids of one text or a pair, special tokens included."""

    ids: list[int]
    second: int
    """position at which the second text starts; the length where there is none"""


class EncodedTexts(Sequence[EncodedText]):
    """Tokenized texts, or pairs of them, which get their special tokens when they are read."""

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
        """Tokens of each text, special tokens included: (N,)."""
        special, tokens = 2, self._first.lengths
        if self._second is not None:
            special, tokens = 2 + len(self._template.separators), tokens + self._second.lengths
        return np.minimum(tokens + special, self._template.max_length)


@dataclass(frozen=True)
class Lengths:
    """Lengths of examples by which they are batched: (N,), or (N, 2) for two sequences each."""

    lengths: NDArray[np.int64]


def pad_texts(texts: Sequence[EncodedText]) -> EncoderInputs:
    """Return texts as one batch, padded to the longest."""
    ids = torch.from_numpy(pad_rows([text.ids for text in texts], -1))
    keep, position = ids >= 0, torch.arange(ids.shape[1])
    second = position >= torch.tensor([text.second for text in texts])[:, None]
    return EncoderInputs(ids.clamp_min(0), None if bool(keep.all()) else keep, (second & keep).long())


def to_device(inputs: EncoderInputs, device: Any) -> EncoderInputs:
    """Return a batch on another device."""
    keep, segments = (None if value is None else value.to(device) for value in inputs[1:])
    return EncoderInputs(inputs.ids.to(device), keep, segments)


def count_tokens(inputs: EncoderInputs) -> int:
    """Return the number of real tokens of a batch."""
    return inputs.ids.numel() if inputs.keep is None else int(inputs.keep.sum())
