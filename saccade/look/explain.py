"""Explain: what an answer depends on, since the weights of attention alone do not say so.

Heads and looks are switched off and the answer is computed again; gradients tell which inputs matter; the output layer
reads the residual stream after each layer. Shapes: N places of an answer, V outputs, T tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from saccade.core.task import ForwardTrace, Prediction, Progress, Task, TokenScores, quiet
from saccade.errors import UsageError
from saccade.nn.ablation import Ablation, ablated, patched_embeddings
from saccade.nn.attention import Attention
from saccade.nn.calculation import Calculation, calculate

__all__ = ["Ablation", "Calculation", "Effect", "Layer", "Said", "attribute", "calculation", "effect", "importance"]
__all__ += ["layer_by_layer"]

STEPS = 32  # of the way along which gradients are added up
SHOWN = 5  # alternatives at a place


@dataclass(frozen=True)
class Said:
    """How well the answer fits at one place, and the most likely outputs there, the best first."""

    place: str
    answer: str
    fit: float
    """its log-probability; of a number the number itself"""
    best: tuple[tuple[str, float], ...]
    """outputs and their probabilities"""


@dataclass(frozen=True)
class Effect:
    """An answer before and after something was switched off."""

    before: tuple[Said, ...]
    after: tuple[Said, ...]

    @property
    def lost(self) -> float:
        """By how much the answer fits worse: the mean fall of its log-probability over its places."""
        return sum(one.fit - other.fit for one, other in zip(self.before, self.after, strict=True)) / len(self.before)


@dataclass(frozen=True)
class Layer:
    """What the output layer would say after a layer."""

    name: str
    said: tuple[Said, ...]


@torch.no_grad()
def effect(task: Task, found: Prediction, offs: Sequence[Ablation]) -> Effect:
    """What becomes of an answer, token for token as it was, if some heads or looks are switched off."""
    before = task.rerun(found)
    with _off(task, offs):
        after = task.rerun(found)
    return Effect(_said(before, before.logits), _said(before, after.logits))


@torch.no_grad()
def importance(task: Task, found: Prediction, advance: Progress = quiet) -> dict[str, list[float]]:
    """How much less likely the answer is without each head, by the name of its attention: `Effect.lost` of each."""
    whole = task.rerun(found)
    fits = _fits(whole.logits, whole.chosen)
    heads = {name: int(one.heads) for name, one in task.model.named_modules() if hasattr(one, "heads")}
    total, done = sum(heads.values()), 0
    lost: dict[str, list[float]] = {}
    for name, count in heads.items():
        lost[name] = []
        for head in range(count):
            with _off(task, [Ablation(name, head)]):
                without = task.rerun(found)
            lost[name].append(float((fits - _fits(without.logits, whole.chosen)).mean()))
            done += 1
            advance(done / total)
    return lost


def attribute(
    task: Task, found: Prediction, place: int | None = None, by: Literal["gradient", "integrated"] = "gradient"
) -> list[TokenScores]:
    """How much each token that was read speaks for the answer at a place (None: for all of it), text by text.

    gradient: gradient x input. integrated: the gradients on the straight way from the mean of a text's tokens to each
    of them, added up (https://arxiv.org/abs/1703.01365); all numbers together are what the answer gains by the tokens
    being what they are. (The usual way from 0 has a jump at its start: a norm gives the same for 0.01 x as for x.)
    """
    shares = [1.0] if by == "gradient" else [(step + 0.5) / STEPS for step in range(STEPS)]
    with torch.no_grad():
        outcome = task.rerun(found)
    if place is not None and not 0 <= place < len(outcome.chosen):
        raise UsageError(f"place must be 0 to {len(outcome.chosen) - 1}, but is {place}")
    totals: list[Tensor] = []
    for share in shares:
        inputs, slopes = _slopes(task, found, share, outcome.chosen, place)
        ways = inputs if by == "gradient" else [x - mean_token(x) for x in inputs]
        parts = [(way * slope).sum(-1)[0] / len(shares) for way, slope in zip(ways, slopes, strict=True)]
        totals = [one + other for one, other in zip(totals, parts, strict=True)] if totals else parts
    name = {"gradient": "gradient x input", "integrated": "integrated gradients"}[by]
    return [TokenScores(name, axis, tuple(values.tolist())) for axis, values in zip(outcome.reads, totals, strict=True)]


def mean_token(x: Tensor) -> Tensor:
    """Every token of a text (B, T, D) as the mean of them all."""
    return x.mean(1, keepdim=True).expand_as(x)


def _slopes(
    task: Task, found: Prediction, share: float, chosen: Sequence[int], place: int | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs (1, T, D), and the slopes of the fit of the answer at a share of the way from their mean to them."""
    inputs: list[Tensor] = []
    leaves: list[Tensor] = []

    def change(x: Tensor) -> Tensor:
        inputs.append(x.detach())
        leaves.append(torch.lerp(mean_token(inputs[-1]), inputs[-1], share).requires_grad_(True))
        return leaves[-1]

    with torch.enable_grad(), patched_embeddings(change):
        fits = _fits(task.rerun(found).logits, chosen)
        slopes = torch.autograd.grad(fits.sum() if place is None else fits[place], leaves, allow_unused=True)
    known = [torch.zeros_like(leaf) if slope is None else slope for leaf, slope in zip(leaves, slopes, strict=True)]
    return inputs, known


@torch.no_grad()
def layer_by_layer(task: Task, found: Prediction) -> list[Layer]:
    """What the output layer says of the residual stream after each layer, the last of which is the answer."""
    outcome = task.rerun(found, layers=True)
    if not outcome.layers:
        raise UsageError("this model has no residual stream to read; take one with Transformer layers")
    return [Layer(name, _said(outcome, logits)) for name, logits in outcome.layers]


def calculation(task: Task, found: Prediction, name: str, head: int, query: int) -> Calculation:
    """One head for one query in the course of an answer, number by number."""
    attention = dict(task.model.named_modules()).get(name)
    if type(attention) is not Attention:
        raise UsageError(f"no attention '{name}' whose steps can be shown")
    if not 0 <= head < attention.heads:
        raise UsageError(f"head must be 0 to {attention.heads - 1} in '{name}', but is {head}")
    calls: list[tuple[Any, ...]] = []

    def keep(_: Any, words: tuple[Any, ...], named: dict[str, Any], __: Any) -> None:
        calls.append((words[0], words[1] if len(words) > 1 else named.get("memory"), named.get("mask")))

    hook = attention.register_forward_hook(keep, with_kwargs=True)
    try:
        with torch.no_grad():
            task.rerun(found)
    finally:
        hook.remove()
    total = sum(x.shape[1] for x, _, _ in calls)
    if not 0 <= query < total:
        raise UsageError(f"query must be 0 to {total - 1} in '{name}', but is {query}")
    place = query
    for x, memory, mask in calls:  # a recurrent decoder looks once for each token
        if place < x.shape[1]:
            return calculate(attention, x, memory, mask, head, place)
        place -= x.shape[1]
    raise AssertionError("the query is in one of the calls")


def _off(task: Task, offs: Sequence[Ablation]) -> AbstractContextManager[None]:
    try:
        return ablated(task.model, offs)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _fits(logits: Tensor, chosen: Sequence[int]) -> Tensor:
    """How well the answer fits at each place (N,): its log-probability, or the number itself."""
    if logits.shape[-1] == 1:
        return logits[:, 0]
    return logits.log_softmax(-1)[torch.arange(len(logits)), list(chosen)]


def _said(outcome: ForwardTrace, logits: Tensor) -> tuple[Said, ...]:
    """What logits (N, V) say at the places of an answer."""
    fits = _fits(logits.float(), outcome.chosen).tolist()
    if logits.shape[-1] == 1:
        return tuple(Said(place, f"{fit:.4g}", fit, ()) for place, fit in zip(outcome.places.labels, fits, strict=True))
    top, at = logits.float().log_softmax(-1).topk(min(SHOWN, logits.shape[-1]), dim=-1)
    best = [
        tuple((outcome.name(one), math.exp(value)) for one, value in zip(names, values, strict=True))
        for names, values in zip(at.tolist(), top.tolist(), strict=True)
    ]
    rows = zip(outcome.places.labels, outcome.chosen, fits, best, strict=True)
    return tuple(Said(place, outcome.name(chosen), fit, others) for place, chosen, fit, others in rows)
