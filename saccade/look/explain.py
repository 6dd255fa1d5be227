"""Explanations: what an answer depends on, since attention weights alone do not show it.

Ablation of heads, gradient attribution, the logit lens, and one head computed number by number.
Shapes: N positions of an answer, V outputs, T tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from saccade.core import ForwardTrace, Prediction, Progress, Task, TokenScores, ignore_progress
from saccade.errors import UsageError, suggest
from saccade.nn.ablation import Ablation, ablated, patched_embeddings
from saccade.nn.attention import Attention
from saccade.nn.calculation import Calculation, calculate, record_inputs
from saccade.nn.layers import ResidualStep
from saccade.nn.listeners import listening
from saccade.nn.location import LocationAttention
from saccade.nn.shared_attention import SharedAttention

__all__ = ["Ablation", "Calculation", "Effect", "Explanation", "LayerPrediction", "PositionScores", "mean_token"]

Method = Literal["gradient", "integrated"]
METHODS: dict[Method, str] = {"gradient": "gradient x input", "integrated": "integrated gradients"}
STEPS = 32  # of the path along which gradients are integrated
SHOWN = 5  # most likely outputs at a position


@dataclass(frozen=True)
class PositionScores:
    """The score of the answer at one position, and the most likely outputs there."""

    position: str
    answer: str
    log_prob: float
    """log-probability of the answer; for a number the number itself"""
    top: tuple[tuple[str, float], ...]
    """the most likely outputs and their probabilities, highest first"""


@dataclass(frozen=True)
class Effect:
    """The scores of an answer before and after an ablation."""

    before: tuple[PositionScores, ...]
    after: tuple[PositionScores, ...]

    @property
    def lost(self) -> float:
        """Mean decrease of the answer's log-probability over its positions."""
        pairs = zip(self.before, self.after, strict=True)
        return sum(before.log_prob - after.log_prob for before, after in pairs) / len(self.before)


@dataclass(frozen=True)
class LayerPrediction:
    """The scores of an answer read off after one layer (logit lens)."""

    name: str
    positions: tuple[PositionScores, ...]


class Explanation:
    """What can be asked about one prediction; the model is never changed."""

    def __init__(self, task: Task, prediction: Prediction) -> None:
        self.task, self.prediction = task, prediction

    def ablate(
        self, name: str | None = None, head: int | None = None, query: int | None = None, key: int | None = None
    ) -> Effect:
        """Return the effect of removing a head, or of masking one key for one query of it; nothing: no change."""
        if name is None:
            return self.ablate_all([])
        if head is None:
            raise UsageError(f"head must be given to ablate '{name}', but is not")
        return self.ablate_all([Ablation(name, head, query, key)])

    @torch.no_grad()
    def ablate_all(self, ablations: Sequence[Ablation]) -> Effect:
        """Return the effect of several ablations at once on the answer, token for token as it was."""
        before = self.task.rerun(self.prediction)
        with self._ablated(ablations):
            after = self.task.rerun(self.prediction)
        return Effect(_scores(before, before.logits), _scores(before, after.logits))

    @torch.no_grad()
    def importance(self, progress: Progress = ignore_progress) -> dict[str, list[float]]:
        """Return `Effect.lost` of every head, by the name of its attention."""
        intact = self.task.rerun(self.prediction)
        log_probs = _log_probs(intact.logits, intact.chosen)
        heads = {name: _heads(module) for name, module in self._modules().items() if _heads(module)}
        total, done = sum(heads.values()), 0
        lost: dict[str, list[float]] = {}
        for name, count in heads.items():
            lost[name] = []
            for head in range(count):
                with self._ablated([Ablation(name, head)]):
                    without = self.task.rerun(self.prediction)
                lost[name].append(float((log_probs - _log_probs(without.logits, intact.chosen)).mean()))
                done += 1
                progress(done / total)
        return lost

    def attribute(self, position: int | None = None, method: Method = "gradient") -> list[TokenScores]:
        """Return how much each input token contributes to the answer at a position (None: to all of it).

        gradient: gradient x input. integrated: integrated gradients (https://arxiv.org/abs/1703.01365) along the
        straight path from the mean of a sequence's embeddings to each of them; their sum is what the answer gains over
        that baseline. (A path from 0 has a discontinuity at its start: normalization maps 0.01 x to the same as x.)
        """
        if method not in METHODS:
            raise UsageError(f"method must be {' or '.join(METHODS)}, but is '{method}'")
        fractions = [1.0] if method == "gradient" else [(step + 0.5) / STEPS for step in range(STEPS)]
        with torch.no_grad():
            trace = self.task.rerun(self.prediction)
        if position is not None and not 0 <= position < len(trace.chosen):
            raise UsageError(f"position must be 0 to {len(trace.chosen) - 1}, but is {position}")
        totals: list[Tensor] = []
        for fraction in fractions:
            inputs, grads = self._input_grads(fraction, trace.chosen, position)
            factors = inputs if method == "gradient" else [x - mean_token(x) for x in inputs]
            parts = [(x * grad).sum(-1)[0] / len(fractions) for x, grad in zip(factors, grads, strict=True)]
            totals = [total + part for total, part in zip(totals, parts, strict=True)] if totals else parts
        pairs = zip(trace.inputs, totals, strict=True)
        return [TokenScores(METHODS[method], axis, tuple(values.tolist())) for axis, values in pairs]

    @torch.no_grad()
    def logit_lens(self) -> list[LayerPrediction]:
        """Return what the output layer predicts from the residual stream after each layer; the last is the answer."""
        trace = self.task.rerun(self.prediction, layers=True)
        if not trace.layers:
            raise UsageError("this model has no residual stream to read; take one with Transformer layers")
        return [LayerPrediction(name, _scores(trace, logits)) for name, logits in trace.layers]

    def calculation(self, name: str, head: int, query: int) -> Calculation:
        """Return every intermediate value of one head for one query of the answer."""
        attention = self._modules().get(name)
        if type(attention) not in (Attention, SharedAttention, LocationAttention) or not isinstance(
            attention, Attention
        ):
            raise UsageError(f"no attention '{name}' whose steps can be shown{suggest(name, self._names())}")
        if not 0 <= head < attention.heads:
            raise UsageError(f"head must be 0 to {attention.heads - 1} in '{name}', but is {head}")
        steps: list[ResidualStep] = []
        around = [m for end in ("_residual", "_norm") if (m := self._modules().get(f"{name}{end}")) is not None]
        with torch.no_grad(), record_inputs(attention) as calls, listening(around, steps.append):
            self.task.rerun(self.prediction)
        total = sum(x.shape[1] for x, _, _ in calls)
        if not 0 <= query < total:
            raise UsageError(f"query must be 0 to {total - 1} in '{name}', but is {query}")
        position = query
        for call, (x, memory, mask) in enumerate(calls):  # a recurrent decoder calls its attention once per token
            if position < x.shape[1]:
                values = calculate(attention, x, memory, mask, head, position)
                residual = ResidualStep(*(part[0, position] for part in steps[call])) if steps else None
                return replace(values, residual=residual)
            position -= x.shape[1]
        raise AssertionError("the query is in one of the calls")

    def _modules(self) -> dict[str, nn.Module]:
        return named_modules(self.task)

    def _names(self) -> list[str]:
        return [name for name, module in self._modules().items() if _heads(module)]

    def _ablated(self, ablations: Sequence[Ablation]) -> AbstractContextManager[object]:
        """Return a context in which the ablations hold, for the calls of this thread alone."""
        unknown = next((a.attention for a in ablations if a.attention not in self._names()), None)
        if unknown is not None:
            raise UsageError(f"no attention '{unknown}' to ablate{suggest(unknown, self._names())}")
        stack = ExitStack()
        for network in self.task.networks().values():
            names = dict(network.named_modules())
            own = [ablation for ablation in ablations if ablation.attention in names]
            try:
                stack.enter_context(ablated(network, own))
            except ValueError as error:
                stack.close()
                raise UsageError(str(error)) from error
        return stack

    def _input_grads(
        self, fraction: float, chosen: Sequence[int], position: int | None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the input embeddings (1, T, D) and the gradients of the answer's log-probability.

        The gradients are taken at a fraction of the path from the mean of the embeddings to each of them.
        """
        inputs: list[Tensor] = []
        leaves: list[Tensor] = []

        def replace(x: Tensor) -> Tensor:
            inputs.append(x.detach())
            leaves.append(torch.lerp(mean_token(inputs[-1]), inputs[-1], fraction).requires_grad_(True))
            return leaves[-1]

        with torch.enable_grad(), patched_embeddings(replace):
            log_probs = _log_probs(self.task.rerun(self.prediction).logits, chosen)
            target = log_probs.sum() if position is None else log_probs[position]
            grads = torch.autograd.grad(target, leaves, allow_unused=True)
        return inputs, [torch.zeros_like(x) if grad is None else grad for x, grad in zip(leaves, grads, strict=True)]


def named_modules(task: Task) -> dict[str, nn.Module]:
    """Return the modules of all networks by name; the names of several networks do not overlap."""
    return {name: module for network in task.networks().values() for name, module in network.named_modules()}


def mean_token(x: Tensor) -> Tensor:
    """Replace every embedding of a sequence (B, T, D) by their mean."""
    return x.mean(1, keepdim=True).expand_as(x)


def _heads(module: nn.Module) -> int:
    return int(getattr(module, "heads", 0))


def _log_probs(logits: Tensor, chosen: Sequence[int]) -> Tensor:
    """Return the log-probability of the answer at each position (N,), or the number itself."""
    if logits.shape[-1] == 1:
        return logits[:, 0]
    return logits.log_softmax(-1)[torch.arange(len(logits)), list(chosen)]


def _scores(trace: ForwardTrace, logits: Tensor) -> tuple[PositionScores, ...]:
    """Return the scores of logits (N, V) at the positions of an answer."""
    log_probs = _log_probs(logits.float(), trace.chosen).tolist()
    labels = trace.positions.labels
    if logits.shape[-1] == 1:
        values = zip(labels, log_probs, strict=True)
        return tuple(PositionScores(label, f"{value:.4g}", value, ()) for label, value in values)
    highest, indices = logits.float().log_softmax(-1).topk(min(SHOWN, logits.shape[-1]), dim=-1)
    top = [
        tuple((trace.output_name(index), math.exp(value)) for index, value in zip(row, row_log_probs, strict=True))
        for row, row_log_probs in zip(indices.tolist(), highest.tolist(), strict=True)
    ]
    rows = zip(labels, trace.chosen, log_probs, top, strict=True)
    return tuple(
        PositionScores(label, trace.output_name(chosen), log_prob, best) for label, chosen, log_prob, best in rows
    )
