"""More planted bugs: where texts end, how long they may be, and the memory of sentences that end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from saccade.errors import DataError
from saccade.models.seq2seq.interface import DecoderState
from tests.checks.planted import BUGS as BUGS
from tests.checks.planted import LEARNED, Workshop, become, change_batches, planted

PIECES = ("data.tokenizer=bpe", "data.vocabulary_size=300")  # with an end token, which characters have not


@planted("the end of a text is left out of the loss of a language model", "stopping")
def no_end_learned(shop: Workshop) -> Any:
    model = shop.model("language_model", *PIECES)
    (end,) = model.task.eos_ids

    def change(batch: Any) -> Any:
        ids = batch.ids.clone()
        ids[:, ::9] = end
        return replace(batch, ids=ids, learned=ids[:, 1:] != end)

    change_batches(model.task, change)
    return model


@planted("a text of exactly the longest length is refused", "limits")
def refused_at_the_limit(shop: Workshop) -> Any:
    return refusing(shop, lambda tokens, limit: tokens >= limit, DataError)


@planted("a longer text than the longest raises an error of Python", "limits")
def crash_above_the_limit(shop: Workshop) -> Any:
    return refusing(shop, lambda tokens, limit: tokens > limit, IndexError)


def refusing(shop: Workshop, refuse: Any, kind: type[Exception]) -> Any:
    """Return a classifier that raises for texts of some numbers of tokens."""
    model = shop.model("text_classification", *LEARNED)
    parent = type(model.task)

    def predict(self: Any, inputs: Any, options: Any) -> Any:
        for example in inputs:
            for length in self.input_lengths(example, options):
                if length.limit is not None and refuse(length.tokens, length.limit):
                    raise kind(f"{length.name} has {length.tokens} tokens")
        return parent.predict(self, inputs, options)

    become(model.task, predict=predict)
    return model


@planted("the memory of a sentence that has ended is kept, and that of the last one dropped", "beams", "batch")
def memory_of_ended(shop: Workshop) -> Any:
    reorder = DecoderState.reorder

    def first_ones(self: DecoderState, rows: Tensor, sentences: Tensor | None) -> None:
        reorder(self, rows, None if sentences is None else torch.arange(len(sentences), device=sentences.device))

    shop.patch.setattr(DecoderState, "reorder", first_ones)
    return shop.model("translation")
