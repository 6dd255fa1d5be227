"""Padding is not the end token, and a generated text can end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.core import Split

ORDER = 100
STEPS = 64  # of training, in whose batches the end token is looked for
SUMMARY = "padding is not the end token, and the model can generate and has learned from the end token"


@torch.no_grad()
def run(subject: Subject) -> Outcome:
    generating = [vocabulary for vocabulary in subject.vocabularies if vocabulary.generates]
    if not generating:
        return skipped("the model generates no text, or its tokenizer is not given")
    (vocabulary,) = generating
    if not vocabulary.ends:
        return skipped("the vocabulary has no end token: texts end at max_new_tokens or a stop string")
    if vocabulary.pad is not None and vocabulary.pad in vocabulary.ends:
        return Outcome(
            "failed",
            f"padding and end are one token, {vocabulary.pad}: where padding is left out of the loss, the model never "
            "learns to stop",
            "",
            "pad_token_id and eos_token_id of the config; add a token for padding, or use one that no text has",
        )
    for view in subject.tokens:
        if view.causal and view.vocabulary > max(vocabulary.ends):
            logits = view.logits(view.tensor([view.sample(4)]))[0, :, list(vocabulary.ends)]
            if not bool((logits > -1e4).any()):
                message = (
                    f"the logit of the end token {vocabulary.ends[0]} is {float(logits.max()):.4g}: it can never be"
                )
                return Outcome("failed", f"{message} generated", f"ids {view.sample(4)}", "bias of the output layer")
    if subject.no_data:
        return passed(f"end {', '.join(map(str, vocabulary.ends))}, padding {vocabulary.pad}")
    return _learned(subject, vocabulary.ends)


def _learned(subject: Subject, ends: tuple[int, ...]) -> Outcome:
    """Whether the labels of the training data have the end token, or leave out one that the data have."""
    source, name = subject.source(Split.TRAIN), f"end {', '.join(map(str, ends))}"
    examples, labels, left_out = 0, 0, 0
    batch: Any = None
    for step in range(min(STEPS, source.per_epoch or STEPS)):
        for batch in source.at(step):
            if getattr(batch, "labels", None) is None:
                return passed(f"{name}; the batches have no labels in which it could be looked for")
            if _count(batch.labels, ends):
                return passed(f"{name}, which is among the labels of step {step}")
            examples, labels = examples + len(batch.rows), labels + batch.count
            left_out += _count(batch.ids[:, 1:], ends) if hasattr(batch, "ids") else 0
    if not left_out and hasattr(batch, "ids"):  # windows of a text that ends nowhere in them
        return passed(f"{name}, which is neither in the data of {step + 1} steps nor among their labels")
    problem = f"though it stands {left_out} times in the data" if left_out else "with which every target ends"
    return Outcome(
        "failed",
        f"no label of {step + 1} steps is the end token {ends[0]}, {problem}: the model does not learn to stop",
        f"{examples} training examples, {labels} labels",
        f"{type(batch).__name__}.labels ({type(batch).__module__.replace('.', '/')}.py)",
    )


def _count(ids: Tensor, ends: Sequence[int]) -> int:
    return int(torch.isin(ids, torch.tensor(ends, device=ids.device)).sum())
