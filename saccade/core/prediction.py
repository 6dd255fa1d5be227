"""Predictions: the output of a model with its scores, its attention, and what is needed to explain it.

Shapes: N positions, V outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from saccade.core.attention import AttentionMap, AttentionMaps, Weights
from saccade.core.axes import Axis
from saccade.core.generation import Distribution, Finish
from saccade.core.outputs import Output


@dataclass(frozen=True)
class TokenScores:
    """A number for each position of an axis, such as the steps a Universal Transformer took for each token."""

    name: str
    axis: Axis
    values: tuple[float, ...]


@dataclass(frozen=True)
class Prediction:
    """The prediction of a model for one example."""

    inputs: Mapping[str, Any]
    """the values of the task's input fields, by name"""
    output: Output
    scores: Mapping[str, float] = field(default_factory=dict)
    attention: AttentionMaps = field(default_factory=AttentionMaps)
    token_scores: tuple[TokenScores, ...] = ()
    alignment: AttentionMap | None = None
    """which source positions each output position attends to, in the head that aligns best: (1, output, source)"""
    alternatives: tuple[Prediction, ...] = ()
    """the next best predictions, where more than one was requested"""
    trace: Any = None
    """what the task needs to recompute this prediction; opaque to all other code"""
    notes: tuple[str, ...] = ()
    """what the user should know, such as that a text was truncated"""

    @property
    def text(self) -> str:
        """The output as text."""
        return self.output.text


@dataclass(frozen=True)
class GeneratedToken:
    """A generated token, the text it completes, and the attention of all tokens read so far."""

    token: str
    text: str
    attention: Mapping[str, Weights] = field(default_factory=dict)
    prompt: tuple[str, ...] = ()
    """the tokens of the input, which are the first keys"""
    id: int = -1
    """in the vocabulary; -1: only text is added"""
    distribution: Distribution | None = None
    """the distribution it was chosen from; None where it was given, or where a search compared whole sequences"""
    options: Any = None
    """the options it was chosen with"""
    finish: Finish = ""
    """why the output ends here; an end token is yielded only if the caller controls the stream"""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class OutputLayer:
    """The layer that turns the output of a stack into logits, for each token on its own."""

    stack: str
    """name of the stack of layers it reads"""
    logits: Callable[[Tensor], Tensor]
    """returns the logits (N, V) of N tokens from their vectors (N, D)"""


@dataclass(frozen=True)
class ForwardTrace:
    """The logits at each position of a prediction, recomputed to explain it."""

    logits: Tensor
    """(N, V); for a number (N, 1), the number itself"""
    chosen: tuple[int, ...]
    """index of the predicted output at each position"""
    positions: Axis
    inputs: tuple[Axis, ...]
    """the sequences that the network embeds, in order"""
    output_name: Callable[[int], str]
    """returns the name of an output index"""
    layers: tuple[tuple[str, Tensor], ...] = ()
    """logits after each layer (the logit lens), where requested"""
    output_layer: OutputLayer | None = None
    """the layer that reads any single token of a stack; None: the output depends on several, or is not a token's"""
