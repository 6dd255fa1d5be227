"""Dead and duplicate heads: not wrong, but wasted. A warning, never a failure."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from saccade.checks.attention_calls import AttentionCall, Special, attention_calls
from saccade.checks.differences import describe_module
from saccade.checks.examples import NoExamples
from saccade.checks.foreign_models import ForeignModel, eager_copy
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject

ORDER = 170
SUMMARY = "no attention head is dead (adds nothing) or the copy of another one; a warning"
DEAD = 1e-5  # of what the strongest head of the layer adds
EQUAL = 1e-4  # relative difference of the outputs of two heads


@torch.no_grad()
def run(subject: Subject) -> Outcome:
    if subject.foreign is not None:
        return _foreign(subject.foreign)
    if not list(subject.attentions()):
        return skipped("the model has no attention layer")
    try:
        every = [attention_calls(subject, prediction) for prediction in subject.predictions[:2]]
    except NoExamples as error:
        return skipped(str(error))
    names = [call.name for call in every[0] if not isinstance(call.layer, Special)]
    for name in names:
        calls = [call for calls in every for call in calls if call.name == name]
        problem = _dead(calls) or _duplicate(calls)
        if problem:
            where = describe_module(name, calls[0].layer)
            return Outcome("warning", f"{name}: {problem} on {len(every)} examples", "", where)
    return passed(f"{sum(call.layer.heads for call in every[0])} heads of {len(names)} layers")


def _dead(calls: list[AttentionCall]) -> str:
    """Return which head adds next to nothing to the residual stream."""
    norms = sum(_added(call) for call in calls)
    assert isinstance(norms, Tensor)
    if float(norms.max()) == 0.0:
        return f"none of its {len(norms)} heads adds anything"
    dead = (norms < DEAD * norms.max()).nonzero().flatten().tolist()
    return f"head {', '.join(map(str, dead))} adds nothing" if dead else ""


def _added(call: AttentionCall) -> Tensor:
    """Return the norm of what each head adds: (H,)."""
    heads = call.eager()[1].to(call.x.dtype)  # (B, H, Q, E)
    out = call.layer.out
    if isinstance(out, nn.Linear):
        weight = out.weight.unflatten(1, (call.layer.heads, -1))  # (D, H, E)
        heads = torch.einsum("bhqe,dhe->bhqd", heads, weight)
    return heads.double().pow(2).sum((0, 2, 3)).sqrt()


def _duplicate(calls: list[AttentionCall]) -> str:
    """Return which two heads have the same output for every query."""
    outputs = torch.cat([call.eager()[1].transpose(0, 1).flatten(1) for call in calls], dim=1)  # (H, B Q E)
    norms = outputs.norm(dim=1)
    for one, two in itertools.combinations(range(len(outputs)), 2):
        if float(norms[one]) and float((outputs[one] - outputs[two]).norm()) <= EQUAL * float(norms[one]):
            return f"heads {one} and {two} have the same outputs"
    return ""


def _foreign(view: ForeignModel) -> Outcome:
    """Of transformers, whose heads return only their weights: two heads with the same weights for every query."""
    eager = eager_copy(view)
    if eager is None:
        return skipped("the model cannot switch to eager attention, which returns its weights")
    maps = eager.attentions(view.tensor([view.sample(8)]))
    if not maps:
        return skipped("the model does not return its attention weights")
    for number, weights in enumerate(maps):
        for one, two in itertools.combinations(range(weights.shape[1]), 2):
            if float((weights[:, one] - weights[:, two]).abs().max()) <= EQUAL:
                message = f"attention layer {number}: heads {one} and {two} have the same weights"
                return Outcome("warning", message, f"ids {view.sample(8)}", f"attention layer {number}")
    return passed(f"{sum(weights.shape[1] for weights in maps)} heads of {len(maps)} layers have different weights")
