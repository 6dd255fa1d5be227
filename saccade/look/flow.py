"""The flow of one token: what every sub-layer adds to its residual stream, from the embedding to the logits.

Everything is read while the model runs again, by listeners of this context alone, and checked: the parts must sum to
the residual stream. Shapes: T tokens, D width, H heads, K keys, E head width, V vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn

from saccade.core import Axis, NodeAxis, OutputLayer, Prediction, Task
from saccade.errors import UsageError, suggest
from saccade.look.explain import named_modules
from saccade.look.search import is_word
from saccade.models.graph.transformer import GraphLayer, GraphTransformer
from saccade.models.text.bert import Bert
from saccade.nn.attention import Attention, repeat_heads
from saccade.nn.calculation import project, visible_keys
from saccade.nn.layers import Residual, ResidualStep, RMSNorm
from saccade.nn.listeners import listening
from saccade.nn.masks import KernelMask, Mask
from saccade.nn.transformer import StackInput, StackOutput, Transformer

SOURCES = 8  # tokens of an attention sub-layer whose contributions are kept, the largest
TOP = 5  # most likely outputs after a layer
TOLERANCE = 1e-3  # of a sum, relative to its norm; float32 stays below 1e-5
LAYER = re.compile(r"(.+)\.\d+\.(?:self|cross)")


@dataclass(frozen=True)
class Attended:
    """What an attention sub-layer added, by the token it came from: values times weights times W_O.

    The vectors of the sources, of the others and the constant sum to what the sub-layer adds.
    """

    weights: Tensor  # (H, K)
    keys: tuple[int, ...]
    """the tokens with the largest contributions, the largest first"""
    sources: Tensor  # (keys, D)
    others: Tensor  # (D,): all other tokens together
    constant: Tensor  # (D,): biases
    heads: Tensor  # (H, D): the same sum, by head


@dataclass(frozen=True)
class SubLayer:
    """One residual connection of the token; every vector is (D,)."""

    name: str
    pre_norm: bool
    """x + f(norm(x)), or else norm(x + f(x))"""
    x: Tensor
    output: Tensor
    """of f"""
    update: Tensor
    """what is added: the output, normalized where the model does so"""
    result: Tensor
    attended: Attended | None = None
    """of attention whose values can be separated by token"""

    @property
    def total(self) -> Tensor:
        """The sum, before the norm of a post-norm model."""
        return self.x + self.update


@dataclass(frozen=True)
class Flow:
    """One token on its way through a stack."""

    stack: str
    position: int
    axis: Axis
    parts: Mapping[str, Tensor]
    """vectors whose sum is normalized to the embedding; empty: the embedding is a single vector"""
    embedding: Tensor
    added: Tensor | None
    """the positional encoding that is added to the embedding"""
    sub_layers: tuple[SubLayer, ...]
    output: Tensor
    """the output of the stack: the residual stream after the final norm, where there is one"""
    lens: tuple[tuple[str, tuple[tuple[str, float], ...]], ...] | None
    """(layer, most likely outputs) of the embedding and after each layer; None: no output layer reads single tokens"""
    error: float
    """largest difference between the sum of the parts and the residual stream, relative to its norm"""


def flow_stacks(prediction: Prediction, task: Task) -> list[str]:
    """Return the names of the stacks whose residual stream can be followed."""
    modules = named_modules(task)
    names = dict.fromkeys(match[1] for name in prediction.attention if (match := LAYER.fullmatch(name)))
    return [name for name in names if isinstance(modules.get(name), Transformer | GraphTransformer)]


@torch.no_grad()
def token_flow(task: Task, prediction: Prediction, stack: str, position: int) -> Flow:
    """Return the flow of one token of a prediction; the model is run again and never changed."""
    axis, modules = _check(task, prediction, stack, position), named_modules(task)
    reader = _Reader(modules, stack, position)
    with reader.listeners():
        trace = task.rerun(prediction)
    if reader.output is None or not reader.sub_layers:
        raise UsageError(f"'{stack}' did not read token {position}; choose another token")
    layers = tuple(reader.sub_layers)
    flow = Flow(stack, position, axis, reader.parts, reader.embedding, reader.added, layers, reader.output, None, 0.0)
    error = _largest_error(flow, modules)
    lens = None
    if trace.output_layer is not None and trace.output_layer.stack == stack:
        lens = _logit_lens(flow, modules[stack], trace.output_layer, trace.output_name)
    return replace(flow, lens=lens, error=error)


def _check(task: Task, prediction: Prediction, stack: str, position: int) -> Axis:
    """Return the tokens of a stack, if it has a residual stream and this token."""
    stacks = flow_stacks(prediction, task)
    if not stacks:
        kinds = ", ".join(sorted({type(network).__name__ for network in task.networks().values()}))
        raise UsageError(
            f"{kinds} has no stack of Transformer layers over one residual stream, so no flow can be computed; "
            "choose a model with Transformer layers"
        )
    if stack not in stacks:
        raise UsageError(f"no residual stream '{stack}'{suggest(stack, stacks)}; there are: {', '.join(stacks)}")
    axis = stack_axis(prediction, stack)
    if isinstance(axis, NodeAxis) and axis.part_of:
        raise UsageError("the flow needs a graph shown as a whole, but this is a part of one; choose a smaller graph")
    if not 0 <= position < len(axis):
        raise UsageError(f"position must be 0 to {len(axis) - 1} in '{stack}', but is {position}")
    return axis


def stack_axis(prediction: Prediction, stack: str) -> Axis:
    """Return the axis of the tokens that flow through a stack."""
    maps = prediction.attention
    name = next(name for name in maps if (match := LAYER.fullmatch(name)) and match[1] == stack)
    return maps[name].queries


def default_position(prediction: Prediction, stack: str) -> int:
    """Return the token whose flow is shown first: the last of a decoder, else the first word."""
    axis = stack_axis(prediction, stack)
    if stack.endswith("decoder"):
        return len(axis) - 1
    return next((at for at, label in enumerate(axis.labels) if is_word(label)), 0)


@dataclass
class _Reader:
    """Reads one token of one stack while the model runs; of several calls the one that has the token."""

    modules: Mapping[str, nn.Module]
    stack: str
    position: int
    seen: int = 0  # tokens of the calls before
    row: int | None = None  # of the token in this call
    pending: dict[str, Tensor] = field(default_factory=dict)  # of the embedding
    attended: dict[str, Attended] = field(default_factory=dict)
    parts: dict[str, Tensor] = field(default_factory=dict)
    embedding: Tensor = field(default_factory=lambda: torch.empty(0))
    added: Tensor | None = None
    sub_layers: list[SubLayer] = field(default_factory=list)
    output: Tensor | None = None

    def listeners(self) -> ExitStack:
        """Return a context in which the token is read."""
        contexts = ExitStack()
        contexts.enter_context(listening([self.modules[self.stack]], self._pass))
        for name, module in self.modules.items():
            if isinstance(module, Bert) and f"{name}.encoder".lstrip(".") == self.stack:
                contexts.enter_context(listening([module], self.pending.update))
            if not name.startswith(f"{self.stack}."):
                continue
            if isinstance(module, Attention):
                listener = partial(self._attention, name, module)
            elif isinstance(module, Residual):
                listener = partial(self._residual, name.removesuffix("_residual"), module)
            elif name.endswith("_norm") and isinstance(self.modules[name.rpartition(".")[0]], GraphLayer):
                listener = partial(self._residual, name.removesuffix("_norm"), module)
            else:
                continue
            contexts.enter_context(listening([module], listener))
        return contexts

    def _pass(self, event: StackInput | StackOutput) -> None:
        if isinstance(event, StackOutput):
            if self.row is not None:
                self.output = event.result[0, self.row].clone()
            self.row = None
            return
        row, count = self.position - self.seen, event.x.shape[1]
        self.seen += count
        if not 0 <= row < count:
            return
        self.row = row
        self.parts = {name: _row(part, row) for name, part in self.pending.items()}
        self.embedding = _row(event.x, row)
        self.added = None if event.position is None else _row(event.position, row)

    def _attention(
        self, name: str, module: Attention, x: Tensor, memory: Tensor | None, mask: Mask | KernelMask | None
    ) -> None:
        if self.row is not None:
            self.attended[name] = _attend(module, x, memory, mask, self.row)

    def _residual(self, name: str, module: nn.Module, step: ResidualStep) -> None:
        if self.row is None:
            return
        x, output, update, result = (_row(part, self.row) for part in step)
        attended = self.attended.pop(name, None)
        norm = module.update_norm if isinstance(module, Residual) else None
        if attended is not None and norm is not None:
            attended = _normalize_parts(attended, norm, output)
        pre_norm = bool(getattr(module, "norm_first", True))
        self.sub_layers.append(SubLayer(name, pre_norm, x, output, update, result, attended))


def _row(x: Tensor, row: int) -> Tensor:
    """Return a token (D,) of (B or 1, T or 1, D)."""
    return x[0, row if x.shape[1] > 1 else 0].clone()


def _attend(
    attention: Attention, x: Tensor, memory: Tensor | None, mask: Mask | KernelMask | None, query: int
) -> Attended:
    """Return what each key contributes to the output of one query of the first row."""
    q, k, v = project(attention, x, memory)
    row = visible_keys(mask, q.shape[2], k.shape[2], query, x.device)
    weights = attention.weights(q[:1, :, query : query + 1], k[:1], row)[0, :, 0]  # (H, K)
    weighted = weights[..., None] * repeat_heads(v[:1], attention.heads)[0]  # (H, K, E)
    constant: Tensor = attention.out(weighted.new_zeros(weighted.shape[0] * weighted.shape[2]))
    by_key = attention.out(weighted.transpose(0, 1).flatten(1)) - constant  # (K, D)
    heads = attention.out(torch.block_diag(*weighted.sum(1).split(1))) - constant  # (H, D): each head alone
    top = by_key.norm(dim=-1).topk(min(SOURCES, len(by_key))).indices
    sources = by_key[top]
    return Attended(weights, tuple(top.tolist()), sources, by_key.sum(0) - sources.sum(0), constant, heads)


def _normalize_parts(attended: Attended, norm: nn.Module, total: Tensor) -> Attended | None:
    """Return the parts after a norm of their sum, which scales all of them alike; None: another kind of norm."""
    if not isinstance(norm, RMSNorm):
        return None
    factor = (total.square().mean() + norm.epsilon).rsqrt() * (1.0 if norm.weight is None else norm.weight)
    return replace(
        attended,
        sources=attended.sources * factor,
        others=attended.others * factor,
        constant=attended.constant * factor,
        heads=attended.heads * factor,
    )


def _largest_error(flow: Flow, modules: Mapping[str, nn.Module]) -> float:
    """Return the largest relative error of the sums; a stream whose parts do not sum to it is refused by name."""
    stack = modules[flow.stack]
    stream = flow.embedding if flow.added is None else flow.embedding + flow.added
    errors = []
    if flow.parts:
        bert = modules[flow.stack.removesuffix("encoder").removesuffix(".")]
        assert isinstance(bert, Bert)
        errors.append(_compare("the embedding", bert.norm(torch.stack([*flow.parts.values()]).sum(0)), flow.embedding))
    for sub_layer in flow.sub_layers:
        name = sub_layer.name
        errors.append(_compare(f"the residual stream before '{name}'", stream, sub_layer.x))
        if sub_layer.attended is not None:
            parts, update = sub_layer.attended, sub_layer.update
            total = parts.sources.sum(0) + parts.others + parts.constant
            errors.append(_compare(f"the output of '{name}'", total, update))
            errors.append(_compare(f"the heads of '{name}'", parts.heads.sum(0) + parts.constant, update))
        total = sub_layer.total
        if not sub_layer.pre_norm:
            norm = modules[f"{name}_residual"].norm
            assert isinstance(norm, nn.Module)
            total = norm(total)
        errors.append(_compare(f"the residual stream after '{name}'", total, sub_layer.result))
        stream = sub_layer.result
    errors.append(_compare(f"the output of '{flow.stack}'", _final_norm(stack, stream), flow.output))
    return max(errors)


def _compare(what: str, total: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference, relative to the norm of what is expected."""
    error = float((total - expected).norm() / expected.norm().clamp_min(1e-12))
    if not error <= TOLERANCE:
        raise UsageError(
            f"{what} is not the sum of its parts (they differ by {100 * error:.2g}% of its norm), so the flow of this "
            "model cannot be computed exactly"
        )
    return error


def _final_norm(stack: nn.Module, x: Tensor) -> Tensor:
    """Return a vector (D,) after the norm of its stack."""
    assert isinstance(stack.norm, nn.Module)
    normalized: Tensor = stack.norm(x[None, None])[0, 0]
    return normalized


def _logit_lens(
    flow: Flow, stack: nn.Module, output: OutputLayer, output_name: Callable[[int], str]
) -> tuple[tuple[str, tuple[tuple[str, float], ...]], ...]:
    """Return the most likely outputs of the embedding and after each layer."""
    last: dict[str, Tensor] = {"embedding": flow.sub_layers[0].x}
    for sub_layer in flow.sub_layers:
        last[sub_layer.name.rpartition(".")[0]] = sub_layer.result
    streams = torch.stack([_final_norm(stack, x) for x in last.values()])
    probs = output.logits(streams).float().softmax(-1)
    values, indices = probs.topk(min(TOP, probs.shape[-1]))
    rows = zip(last, values.tolist(), indices.tolist(), strict=True)
    return tuple(
        (name, tuple((output_name(index), value) for index, value in zip(best, top, strict=True)))
        for name, top, best in rows
    )


def strongest_head(attended: Attended) -> int:
    """Return the head that contributes the vector with the largest norm."""
    return int(attended.heads.norm(dim=-1).argmax())
