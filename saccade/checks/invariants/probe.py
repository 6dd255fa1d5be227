"""What the probe shows is what the network computed: its weights, applied to the values, give the layer's output."""

from __future__ import annotations

import torch

from saccade.checks.attention_calls import AttentionCall, Special, attention_calls
from saccade.checks.differences import describe_module, first_difference, tolerance_of
from saccade.checks.examples import NoExamples
from saccade.checks.foreign_models import eager_copy
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.nn.probe import watch

ORDER = 120
SUMMARY = "the attention weights that are shown are those the network used, and each row sums to 1"


@torch.no_grad()
def run(subject: Subject) -> Outcome:
    if subject.foreign is not None:
        return _foreign(subject)
    if not list(subject.attentions()):
        return skipped("the model has no attention layer")
    try:
        calls = attention_calls(subject, subject.predictions[0])
    except NoExamples as error:
        return skipped(str(error))
    checked = [call for call in calls if not isinstance(call.layer, Special)]
    if not checked:
        return skipped("no attention layer of this model can be called apart from its network")
    for call in checked:
        failure = _layer(call)
        if failure is not None:
            return failure
    apart = f"; {len(calls) - len(checked)} layers with a forward of their own are left out"
    return passed(f"{len(checked)} layers on a validation or generated example{apart * (len(calls) > len(checked))}")


def _layer(call: AttentionCall) -> Outcome | None:
    with watch(call.layer) as maps:
        fused = call.again()
    (recorded,) = maps.values()
    shown, (weights, heads) = recorded.rows(), call.eager()
    output = call.layer.out(heads.to(fused.dtype).transpose(1, 2).flatten(2))
    sums, seen = shown.sum(-1), weights.sum(-1).round()
    comparisons = (
        ("weight", weights, shown, tolerance_of(torch.ones(1), shown.dtype)),
        ("sum of the weights", seen, sums, tolerance_of(torch.ones(1), shown.dtype)),
        ("output", output, fused, tolerance_of(output)),
    )
    for what, expected, actual, tolerance in comparisons:
        difference = first_difference(expected, actual, tolerance)
        if difference is not None:
            at = "query" if what == "output" else "head and query"
            index = difference.index[1:2] if what == "output" else difference.index[1:3]
            return Outcome(
                "failed",
                f"the {what} of {at} {', '.join(map(str, index))} is {difference} of a plain softmax",
                f"the call of {call.name} with inputs of shape {tuple(call.x.shape)}",
                describe_module(call.name, call.layer),
            )
    return None


def _foreign(subject: Subject) -> Outcome:
    """Of transformers: the fused kernel against the eager one, which returns its weights."""
    assert subject.foreign is not None
    view = subject.foreign
    eager = eager_copy(view)
    if eager is None:
        return skipped("the model cannot switch to eager attention")
    ids = view.tensor([view.sample(8)])
    difference = first_difference(eager.logits(ids), view.logits(ids))
    if difference is not None:
        message = f"eager attention gives another output at position {difference.index[1]}: {difference}"
        return Outcome("failed", message, f"ids {ids.tolist()}", describe_module("", view.root()))
    maps = eager.attentions(ids)
    for number, weights in enumerate(maps):
        sums = weights.sum(-1)
        difference = first_difference(torch.ones_like(sums), sums, tolerance_of(torch.ones(1), sums.dtype))
        if difference is not None:
            message = f"the weights of head {difference.index[1]}, query {difference.index[2]} sum to {difference}"
            return Outcome("failed", message, f"ids {ids.tolist()}", f"attention layer {number}")
    rows = f"rows of {len(maps)} layers sum to 1" if maps else "which returns no weights"
    return passed(f"fused and eager attention agree, {rows}")
