"""A query that may see no key gets zeros, not the mean of what is hidden and not NaN."""

from __future__ import annotations

import torch

from saccade.checks.attention_calls import Special
from saccade.checks.differences import describe_module, first_difference
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.checks.token_models import SEED
from saccade.nn.attention import Attention
from saccade.nn.masks import Padding

ORDER = 60
SUMMARY = "a query whose keys are all masked gets zeros and no NaN, and so does its gradient"
TOKENS = 5


def run(subject: Subject) -> Outcome:
    if subject.foreign is not None:
        return _foreign(subject)
    layers = [(name, layer) for name, layer in subject.attentions() if not isinstance(layer, Special)]
    if not layers:
        return skipped("the model has no attention layer that takes a mask")
    for name, layer in layers:
        failure = _layer(name, layer)
        if failure is not None:
            return failure
    return passed(f"{len(layers)} attention layers with all keys masked")


def random_inputs(layer: Attention, tokens: int = TOKENS) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return x (1, T, D) and, for a layer with a memory, memory (1, T, its width), always the same ones."""
    generator = torch.Generator().manual_seed(SEED)
    weight = layer.q.weight if layer.cross else layer.qkv.weight
    widths = (weight.shape[1], layer.kv.weight.shape[1]) if layer.cross else (weight.shape[1],)
    inputs = [torch.randn(1, tokens, width, generator=generator).to(weight.device, weight.dtype) for width in widths]
    return inputs[0], inputs[1] if layer.cross else None


def _layer(name: str, layer: Attention) -> Outcome | None:
    x, memory = random_inputs(layer)
    x = x.requires_grad_()
    keep = torch.zeros(1, TOKENS, dtype=torch.bool, device=x.device)
    out = layer(x, memory, mask=Padding(keep))
    expected = layer.out(x.new_zeros(1, TOKENS, layer.heads * layer.head_dim))
    (grad,) = torch.autograd.grad(out.sum(), x, allow_unused=True, materialize_grads=True)
    problems = (("output", expected, out), ("gradient", torch.zeros_like(grad), grad))
    for what, right, actual in problems:
        difference = first_difference(right, actual)
        if difference is not None:
            return Outcome(
                "failed",
                f"the {what} of query {difference.index[1]}, whose keys are all masked, is {difference}",
                f"{TOKENS} random vectors and Padding(keep = all False)",
                describe_module(name, layer),
            )
    return None


@torch.no_grad()
def _foreign(subject: Subject) -> Outcome:
    """Of transformers: a row of padding alone has some output, but it must be finite and leave the others alone."""
    assert subject.foreign is not None
    view = subject.foreign
    rows = [view.sample(TOKENS, row) for row in range(2)]
    before, after = view.row_without_keys(rows)
    if not bool(after.isfinite().all()):
        position = (~after.isfinite()).nonzero()[0].tolist()
        where, example = describe_module("", view.root()), f"ids {rows[:1]} with attention_mask = all 0"
        return Outcome("failed", f"a row whose keys are all masked gives {after[tuple(position)]}", example, where)
    difference = first_difference(before, after[:-1])
    if difference is not None:
        message = f"a row of padding alone changes row {difference.index[0]} of its batch: {difference}"
        return Outcome("failed", message, f"ids {rows} and a row of padding", describe_module("", view.root()))
    return passed("a row of padding alone is finite and changes no other row")
