"""Maps and predictions as JSON: the one form for files, pages, the studio and the snapshots of a run."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from torch import Tensor

from saccade.core import AttentionMap, Axis, GridAxis, Prediction, TokenScores
from saccade.core.outputs import png
from saccade.look.labels import visible
from saccade.look.maps import word_alignment
from saccade.metrics.alignment import format_alignment

Encoding = Literal["list", "uint16", "uint8"]
TYPES: Mapping[str, str] = {"uint16": "<u2", "uint8": "u1"}
SIGNATURES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "audio/wav"}


def map_to_json(
    attention: AttentionMap, encoding: Encoding | None = "list", *, limit: int | None = None, clean: bool = False
) -> dict[str, Any]:
    """Return a map as JSON.

    encoding: nested lists, base64 of integers (little-endian, the largest for 1), or None for a map without weights.
    limit: the most tokens of an axis. clean: labels without control characters, for pages.
    """
    queries, keys = (axis_to_json(axis, limit=limit, clean=clean) for axis in (attention.queries, attention.keys))
    described = {"name": attention.name, "heads": attention.shape[0], "queries": queries, "keys": keys}
    if encoding is None:
        return described
    rows, columns = len(queries["labels"]), len(keys["labels"])
    weights = attention.rows(0, rows)[:, :, :columns]
    if encoding == "list":
        return {**described, "weights": [[[finite(one) for one in row] for row in head] for head in weights.tolist()]}
    packed = base64.b64encode(pack(weights, encoding)).decode()
    return {**described, "encoding": encoding, "weights": packed}


def axis_to_json(axis: Axis, *, limit: int | None = None, clean: bool = False) -> dict[str, Any]:
    """Return an axis as JSON, with the image a grid covers; a grid is never cut."""
    described = axis.to_json()
    if isinstance(axis, GridAxis):
        described["image"] = None if axis.image is None else image_url(axis.image)
    elif limit is not None:
        described |= {name: value[:limit] for name, value in described.items() if name in ("labels", "words")}
    if clean:
        described["labels"] = [visible(label) for label in described["labels"]]
    return described


def pack(weights: Tensor, encoding: Encoding) -> bytes:
    """Return weights between 0 and 1 as integers, little-endian, the largest for 1."""
    kind = np.dtype(TYPES[encoding])
    values = np.nan_to_num(weights.detach().float().cpu().numpy()).clip(0, 1)
    return bytes((values * np.iinfo(kind).max).round().astype(kind).tobytes())


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
    }


def token_scores_to_json(scores: TokenScores, *, clean: bool = False) -> dict[str, Any]:
    """Return the numbers of an axis as JSON."""
    axis = axis_to_json(scores.axis, clean=clean)
    return {"name": scores.name, "axis": axis, "values": [finite(value) for value in scores.values]}


def inputs_to_json(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of an example as JSON."""
    return {name: input_to_json(value) for name, value in inputs.items()}


def input_to_json(value: Any) -> Any:
    """Return an input as JSON that its field reads again: text, numbers, node-link graphs, data URLs of files."""
    if isinstance(value, bytes):
        media = next(
            (name for start, name in SIGNATURES.items() if value.startswith(start)), "application/octet-stream"
        )
        return f"data:{media};base64,{base64.b64encode(value).decode()}"
    if isinstance(value, Tensor):
        return image_url(value) if value.dim() == 3 else value.tolist()
    if isinstance(value, tuple):  # samples and their rate
        return [input_to_json(part) for part in value]
    return value


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


def image_url(image: Tensor) -> str:
    """Return a uint8 image (C, H, W) as a PNG data URL."""
    return f"data:image/png;base64,{base64.b64encode(png(image[:3] if len(image) != 2 else image[:1])).decode()}"


def finite(value: float) -> float | None:
    """Return a number JSON can hold, rounded to six decimals; None for nan and the infinities."""
    return round(value, 6) if math.isfinite(value) else None
