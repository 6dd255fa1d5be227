"""Joint decoding: a decoder and a CTC head choose a target together (https://arxiv.org/abs/1609.06773).

A decoder that has lost its place skips or repeats a part, which the CTC head, monotone by construction, does not.
Shapes: B rows, C candidates of all rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from saccade.decode.search import Hypothesis
from saccade.models.seq2seq.interface import Memory, Seq2Seq
from saccade.tasks._seq2seq.tokenizers import TargetTokenizer

FLOOR = -1e4  # log probability of a target that has too many tokens for the frames of the CTC head


@torch.no_grad()
def rank_jointly(
    model: Seq2Seq,
    memory: Memory,
    target: TargetTokenizer,
    hypotheses: Sequence[Sequence[Hypothesis]],
    limits: Sequence[int],
    prefix: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """Add the best path of the CTC head to the hypotheses of each row; order them by the sum of both log probabilities.

    A path that is longer than the limit of its row, or that does not start with the prefix, is not added.
    """
    assert model.ctc is not None
    log_probs = model.ctc(memory.values)
    groups = [list(group) for group in hypotheses]
    paths = {
        row: path
        for row, path in enumerate(model.ctc.best_paths(log_probs, memory.keep))
        if len(path) <= limits[row] and path[: len(prefix)] == list(prefix)
    }
    new = {row: path for row, path in paths.items() if tuple(path) not in {h.ids for h in groups[row]}}
    for (row, path), value in zip(new.items(), _log_probabilities(model, memory, target, new), strict=True):
        groups[row].append(Hypothesis(tuple(path), value, value))
    rows = torch.tensor([row for row, group in enumerate(groups) for _ in group], device=log_probs.device)
    labels = _pad([h.ids for group in groups for h in group], log_probs.device)
    added = model.ctc.log_likelihood(log_probs[rows], memory.keep[rows], labels).clamp_min(FLOOR).tolist()
    values = iter(added)
    scored = [[replace(h, score=h.log_probability + next(values)) for h in group] for group in groups]
    return [sorted(group, key=lambda h: -h.score) for group in scored]


def _log_probabilities(
    model: Seq2Seq, memory: Memory, target: TargetTokenizer, targets: dict[int, list[int]]
) -> list[float]:
    """Return the log probability that the decoder gives to targets, which are named by their rows."""
    if not targets:
        return []
    device = memory.values.device
    ids = _pad([[target.start, *path] for path in targets.values()], device)
    labels = _pad([[*path, target.end] for path in targets.values()], device)
    features = model.decode(ids.clamp_min(0), memory.select(torch.tensor(list(targets), device=device)))
    log_probs: Tensor = model.head(features).float().log_softmax(-1)  # (C, T, V)
    values = log_probs.gather(2, labels.clamp_min(0)[..., None])[..., 0]
    totals: list[float] = values.masked_fill(labels < 0, 0).sum(1).tolist()
    return totals


def _pad(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Return rows of tokens as a matrix, padded with -1."""
    width = max(1, *map(len, rows))
    return torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows], device=device)
