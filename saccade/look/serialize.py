"""Predictions as JSON, and inputs as short texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from saccade.core import AttentionMap, GridAxis, Prediction
from saccade.core.serialize import Images, finite, inputs_to_json, map_to_json, token_scores_to_json
from saccade.look.maps import word_alignment
from saccade.look.panels import gaze
from saccade.look.times import is_over_time, times_to_json
from saccade.metrics.alignment import format_alignment, merge_words


def prediction_to_json(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as JSON: inputs, output, scores, word alignment, maps, token scores and alternatives.

    Axes over an image name it by its number among `images`.
    """
    images = Images()
    maps = [map_to_json(attention, images=images) for attention in prediction.attention.values()]
    return {
        "inputs": inputs_to_json(prediction.inputs),
        "output": prediction.output.to_json(),
        "scores": {name: finite(value) for name, value in prediction.scores.items()},
        "alignment": None,
        **alignment_to_json(prediction.alignment),
        "maps": maps,
        "token_scores": [token_scores_to_json(scores) for scores in prediction.token_scores],
        "alternatives": [prediction_to_json(other) for other in prediction.alternatives],
        **({"images": images.urls} if images.urls else {}),
        **({"notes": list(prediction.notes)} if prediction.notes else {}),
    }


def alignment_to_json(alignment: AttentionMap | None) -> dict[str, Any]:
    """Return the word alignment; over an image the gaze of each word (x and y from 0 to 1), over sound times."""
    if alignment is None:
        return {}
    if is_over_time(alignment):
        return {"times": times_to_json(alignment)}
    if not isinstance(alignment.keys, GridAxis):
        return {"alignment": format_alignment(word_alignment(alignment))}
    merged = merge_words(alignment)
    pairs = zip(merged.queries.labels, gaze(merged), strict=True)
    return {"gaze": [{"word": word, "x": round(x, 4), "y": round(y, 4)} for word, (x, y) in pairs]}


def input_text(value: Any) -> str:
    """Return an input as a short text for titles."""
    if isinstance(value, str):
        return value
    if isinstance(value, Tensor):
        return f"{'image' if value.dim() == 3 else 'vector'} of {' x '.join(map(str, value.shape))}"
    if isinstance(value, tuple):
        return f"{len(value[0]):,} samples at {value[1]:,} Hz"
    return f"{len(value):,} bytes" if isinstance(value, bytes) else type(value).__name__


def inputs_text(inputs: Mapping[str, Any]) -> str:
    """Return the inputs of an example as one short text."""
    return " | ".join(input_text(value) for value in inputs.values())


def prediction_title(prediction: Prediction) -> str:
    """Return a title: the inputs; of those that are no text, which a figure shows itself, the output instead."""
    texts = [value for value in prediction.inputs.values() if isinstance(value, str)]
    if len(texts) == len(prediction.inputs):
        return inputs_text(prediction.inputs)
    return " \u2192 ".join(filter(None, [" | ".join(texts), prediction.text])) or inputs_text(prediction.inputs)
