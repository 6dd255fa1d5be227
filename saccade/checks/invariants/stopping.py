"""Padding is not the end token, and a generated text can end."""

from __future__ import annotations

import torch

from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.core import Split

ORDER = 100
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
    """Whether the labels of the data have the end token."""
    batch = subject.on_device(subject.source(Split.TRAIN).at(0))[0]
    labels = getattr(batch, "labels", None)
    if labels is None:
        return passed(f"end {', '.join(map(str, ends))}")
    if hasattr(batch, "inputs") and not bool(torch.isin(labels, torch.tensor(ends, device=labels.device)).any()):
        return Outcome(
            "failed",
            f"no label of the first batch is the end token {ends[0]}: the model does not learn to stop",
            f"{len(batch.rows)} training examples, {batch.count} labels",
            f"{type(batch).__name__}.labels ({type(batch).__module__.replace('.', '/')}.py)",
        )
    return passed(f"end {', '.join(map(str, ends))}, which is among the labels")
