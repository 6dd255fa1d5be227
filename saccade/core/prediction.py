"""Predictions: what a model answered, with its scores, its attention, and what is needed to explain it.

Shapes: N positions, V outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from saccade.core.attention import AttentionMap, AttentionMaps, Weights
from saccade.core.axes import Axis
from saccade.core.outputs import Output


@dataclass(frozen=True)
class TokenScores:
    """A number for each position of an axis, such as the steps a Universal Transformer took for each token."""

    name: str
    axis: Axis
    values: tuple[float, ...]


@dataclass(frozen=True)
class Prediction:
    """The answer of a model to one example."""

    inputs: Mapping[str, Any]
    """the values of the task's input fields, by name"""
    output: Output
    scores: Mapping[str, float] = field(default_factory=dict)
    attention: AttentionMaps = field(default_factory=AttentionMaps)
    token_scores: tuple[TokenScores, ...] = ()
    alignment: AttentionMap | None = None
    """which source positions each output position looked at, by the head that shows it best: (1, output, source)"""
    alternatives: tuple[Prediction, ...] = ()
    """the next best answers, where more than one was asked for"""
    trace: Any = None
    """what the task needs to run this answer again; opaque to everyone else"""

    @property
    def text(self) -> str:
        """The answer as text."""
        return self.output.text


@dataclass(frozen=True)
class GeneratedToken:
    """A token that was just generated, the text it completes, and the attention of all tokens read so far."""

    token: str
    text: str
    attention: Mapping[str, Weights] = field(default_factory=dict)
    prompt: tuple[str, ...] = ()
    """the tokens of the input, which the keys begin with"""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ForwardTrace:
    """The logits at each position of an answer, computed again to see what they depend on."""

    logits: Tensor
    """(N, V); for a number (N, 1), the number itself"""
    chosen: tuple[int, ...]
    """which output was the answer at each position"""
    positions: Axis
    inputs: tuple[Axis, ...]
    """the sequences whose embeddings entered the network, in order"""
    output_name: Callable[[int], str]
    """name of an output"""
    layers: tuple[tuple[str, Tensor], ...] = ()
    """logits read off after each layer (the logit lens), where asked for"""
