"""Beams carry the right cache: a hypothesis that branches takes its own past with it."""

from __future__ import annotations

import torch

from saccade.checks.differences import first_difference
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.checks.token_models import DecoderModel, TokenModel
from saccade.models.seq2seq.interface import DecoderState

ORDER = 50
SUMMARY = "beams that branch or end take their own cache and memory with them"
BEAMS, BRANCHED = 3, [2, 0, 2]  # row i continues what row BRANCHED[i] was
TOKENS = 3  # before the beams branch


@torch.no_grad()
def run(subject: Subject) -> Outcome:
    views = [view for view in subject.tokens if view.cached]
    if not views:
        return skipped("no network of this model has a cache")
    for view in views:
        failure = _branch(view) or (_sentences(view) if isinstance(view, DecoderModel) else None)
        if failure is not None:
            return failure
    return passed(f"{BEAMS} beams that become those of rows {BRANCHED}")


def _branch(view: TokenModel) -> Outcome | None:
    rows = [view.sample(TOKENS + 1, row) for row in range(BEAMS)]
    state = view.begin(BEAMS)
    for position in range(TOKENS):
        view.step(state, view.tensor([row[position : position + 1] for row in rows]))
    order = torch.tensor(BRANCHED, device=view.device)
    view.reorder(state, order)
    following = [row[-1:] for row in rows]
    logits = view.step(state, view.tensor(following))[:, -1]
    for number, origin in enumerate(BRANCHED):
        whole = [*rows[origin][:-1], *following[number]]
        difference = first_difference(view.logits(view.tensor([whole]))[0, -1], logits[number])
        if difference is not None:
            return Outcome(
                "failed",
                f"after reordering, beam {number} does not continue the tokens of beam {origin}: {difference}",
                f"ids {[row[:-1] for row in rows]}, reordered to {BRANCHED}, then {following}",
                "the function that reorders the cache: KVCache.reorder, or _reorder_cache of transformers",
            )
    return None


def _sentences(view: DecoderModel) -> Outcome | None:
    """Two sentences with two beams each, of which the first ends: the second must keep its memory."""
    if view.source is not None:
        return None
    memory = view.memory((0, 1))
    state = DecoderState(view.network, memory, 64)
    rows = [view.sample(3, row) for row in range(4)]
    view.step(state, view.tensor([row[:1] for row in rows]))
    view.step(state, view.tensor([row[1:2] for row in rows]))
    device = view.device
    state.reorder(torch.tensor([3, 2], device=device), torch.tensor([1], device=device))
    logits = view.step(state, view.tensor([rows[0][2:], rows[1][2:]]))[:, -1]
    expected_memory = memory.select(torch.tensor([1, 1], device=device))
    ids = view.tensor([[*rows[3][:2], rows[0][2]], [*rows[2][:2], rows[1][2]]])
    expected = view.network.head(view.network.decode(ids, expected_memory))[:, -1]
    difference = first_difference(expected, logits)
    if difference is None:
        return None
    return Outcome(
        "failed",
        f"when the first of two sentences ends, beam {difference.index[0]} of the second attends to something else: "
        f"{difference}",
        f"targets {rows}: sentence 0 ends after two tokens",
        "DecoderState.reorder (saccade/models/seq2seq/interface.py)",
    )
