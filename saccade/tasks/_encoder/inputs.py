"""Encoder inputs: encoded texts, and padded batches of them.

Shapes: B rows, T tokens, N examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.text.templates import InputTemplate, pad_rows
from saccade.data.token_rows import TokenRows
from saccade.errors import ModelFileError
from saccade.models.text.bert import EncoderInputs
from saccade.tasks._texts import require_tokens

Value = TypeVar("Value")

NAMED_CHARACTERS = 40  # of a text that is named in a note


class EncodedText(NamedTuple):
    """The token ids of one text or a pair, special tokens included."""

    ids: list[int]
    second: int
    """position at which the second text starts; the length if there is none"""
    note: str = ""
    """what was truncated; empty: nothing"""

    @property
    def notes(self) -> tuple[str, ...]:
        """The note, if there is one."""
        return (self.note,) if self.note else ()


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
        return np.minimum(self._complete_lengths, self._template.max_length)

    @property
    def truncated(self) -> int:
        """Number of rows that are truncated."""
        return int((self._complete_lengths > self._template.max_length).sum())

    @property
    def _complete_lengths(self) -> NDArray[np.int64]:
        if self._second is None:
            return self._first.lengths + self._template.special_count(1)
        return self._first.lengths + self._second.lengths + self._template.special_count(2)


def encode_texts(template: InputTemplate, texts: Mapping[str, str], ids: Sequence[Sequence[int]]) -> EncodedText:
    """Encode one text or two, by the names of their inputs, from their token ids; a note says what is truncated."""
    for (name, text), row in zip(texts.items(), ids, strict=True):
        require_tokens(name, text, row)
    counts = [len(row) for row in ids]
    return EncodedText(*template.build(*ids), truncation_note(template, texts, counts, template.truncate(*counts)))


def truncation_note(
    template: InputTemplate, texts: Mapping[str, str], counts: Sequence[int], kept: Sequence[int]
) -> str:
    """Return a note on the texts of which fewer tokens are kept than they have; empty: all of them are complete."""
    named = zip(texts.items(), counts, kept, strict=True)
    cut = [f"{name} {shorten(text)!r}" for (name, text), count, length in named if length < count]
    special = template.special_count(len(counts))
    return f"cut to {sum(kept) + special} of {sum(counts) + special} tokens: {', '.join(cut)}" if cut else ""


def shorten(text: str) -> str:
    """Return the beginning of a text on one line, to name it."""
    start = " ".join(text[: 4 * NAMED_CHARACTERS].split())
    return start if len(start) <= NAMED_CHARACTERS else start[:NAMED_CHARACTERS] + "…"


def check_outputs(outputs: Tensor) -> Tensor:
    """Return outputs of a network; those that are not finite are refused, since any answer from them would be wrong."""
    if not bool(outputs.isfinite().all()):
        raise ModelFileError(
            "the outputs of the network must be finite, but are not; its weights are too large or damaged: "
            "train it again with a lower train.optim.lr, or choose another model"
        )
    return outputs


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


def join_texts(texts: Sequence[EncodedText]) -> EncoderInputs:
    """Return texts as one row without padding, one after the other."""
    ids = torch.tensor([[token for text in texts for token in text.ids]])
    segments = torch.tensor([[at >= text.second for text in texts for at in range(len(text.ids))]]).long()
    return EncoderInputs(ids, None, segments, torch.tensor([len(text.ids) for text in texts]))


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
