"""Predictions as JSON, and inputs as short texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from saccade.core import Prediction
from saccade.core.serialize import finite, inputs_to_json, map_to_json, token_scores_to_json
from saccade.look.maps import word_alignment
from saccade.metrics.alignment import format_alignment


def prediction_to_json(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as JSON: inputs, output, scores, word alignment, maps, token scores and alternatives."""
    alignment = prediction.alignment
    return {
        "inputs": inputs_to_json(prediction.inputs),
        "output": prediction.output.to_json(),
        "scores": {name: finite(value) for name, value in prediction.scores.items()},
        "alignment": None if alignment is None else format_alignment(word_alignment(alignment)),
        "maps": [map_to_json(attention) for attention in prediction.attention.values()],
        "token_scores": [token_scores_to_json(scores) for scores in prediction.token_scores],
        "alternatives": [prediction_to_json(other) for other in prediction.alternatives],
        **({"notes": list(prediction.notes)} if prediction.notes else {}),
    }


def input_text(value: Any) -> str:
    """Return an input as a short text for titles."""
    if isinstance(value, str):
        return value
    if isinstance(value, Tensor):
        return f"{'image' if value.dim() == 3 else 'vector'} of {' x '.join(map(str, value.shape))}"
    return f"{len(value):,} bytes" if isinstance(value, bytes) else type(value).__name__


def inputs_text(inputs: Mapping[str, Any]) -> str:
    """Return the inputs of an example as one short text."""
    return " | ".join(input_text(value) for value in inputs.values())
