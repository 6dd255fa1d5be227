"""Attention maps, axes and inputs as JSON: one format for files, pages, the studio and the snapshots of a run."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from saccade.core.attention import AttentionMap
from saccade.core.axes import Axis, GridAxis, StepAxis, TimeAxis
from saccade.core.outputs import png
from saccade.core.prediction import TokenScores

Encoding = Literal["list", "uint16", "uint8"]
DTYPES: Mapping[str, torch.dtype] = {"uint16": torch.uint16, "uint8": torch.uint8}
SIGNATURES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"BM": "image/bmp"}
RIFF = {b"WAVE": "audio/wav", b"WEBP": "image/webp"}  # by the kind of its content

Label = Callable[[str], str]
"""formats a label, for example without control characters"""


class Images:
    """The images of several axes as data URLs, each once: all layers of a model lie over the same image."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self._numbers: dict[int, tuple[Tensor, int]] = {}  # by id, which no other tensor has while this one is kept

    def number(self, image: Tensor) -> int:
        """Return the position of an image in `urls`."""
        if id(image) not in self._numbers:
            url = image_url(image)
            if url not in self.urls:
                self.urls.append(url)
            self._numbers[id(image)] = (image, self.urls.index(url))
        return self._numbers[id(image)][1]


def map_to_json(
    attention: AttentionMap,
    encoding: Encoding | None = "list",
    *,
    images: Images | None = None,
    limit: int | None = None,
    label: Label = str,
) -> dict[str, Any]:
    """Return an attention map as JSON.

    encoding: nested lists, base64 of integers (little-endian, 1 is the largest), or None for a map without weights.
    images: collects the images, which are then named by their number; None: each axis has its own.
    limit: maximum number of positions of an axis.
    """
    axes = (attention.queries, attention.keys)
    queries, keys = (axis_to_json(axis, images=images, limit=limit, label=label) for axis in axes)
    header = {"name": attention.name, "heads": attention.shape[0], "queries": queries, "keys": keys}
    if encoding is None:
        return header
    rows, columns = len(queries["labels"]), len(keys["labels"])
    weights = attention.rows(0, rows)[:, :, :columns]
    if encoding == "list":
        rounded = [[[finite(weight) for weight in row] for row in head] for head in weights.tolist()]
        return {**header, "weights": rounded}
    packed = base64.b64encode(pack(weights, encoding)).decode()
    return {**header, "encoding": encoding, "weights": packed}


def axis_to_json(
    axis: Axis, *, images: Images | None = None, limit: int | None = None, label: Label = str
) -> dict[str, Any]:
    """Return an axis as JSON, with the images it covers and their size; a grid is never truncated."""
    fields = axis.to_json()
    if isinstance(axis, GridAxis | TimeAxis):
        image = axis.image if isinstance(axis, GridAxis) else axis.spectrogram
        fields["image"] = None if image is None else image_url(image) if images is None else images.number(image)
        fields["size"] = None if image is None else [image.shape[2], image.shape[1]]  # width, height
    elif isinstance(axis, StepAxis) and axis.frames:
        fields["frames"] = [image_url(frame) if images is None else images.number(frame) for frame in axis.frames]
        fields["size"] = [axis.frames[0].shape[2], axis.frames[0].shape[1]]
    if limit is not None and not isinstance(axis, GridAxis):
        fields |= {name: value[:limit] for name, value in fields.items() if name in ("labels", "words", "frames")}
    fields["labels"] = [label(text) for text in fields["labels"]]
    return fields


def pack(weights: Tensor, encoding: Encoding) -> bytes:
    """Return weights between 0 and 1 as integers, little-endian; 1 is the largest."""
    dtype = DTYPES[encoding]
    values = weights.detach().float().cpu().nan_to_num().clamp(0, 1)
    return (values * torch.iinfo(dtype).max).round().to(torch.int32).to(dtype).contiguous().numpy().tobytes()


def token_scores_to_json(scores: TokenScores, *, label: Label = str) -> dict[str, Any]:
    """Return the scores of the tokens of an axis as JSON."""
    axis = axis_to_json(scores.axis, label=label)
    return {"name": scores.name, "axis": axis, "values": [finite(value) for value in scores.values]}


def inputs_to_json(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of an example as JSON."""
    return {name: input_to_json(value) for name, value in inputs.items()}


def input_to_json(value: Any) -> Any:
    """Return an input as JSON that its field can read: text, numbers, node-link graphs, data URLs of files."""
    if isinstance(value, bytes):
        return f"data:{media_type(value)};base64,{base64.b64encode(value).decode()}"
    if isinstance(value, Tensor):
        return image_url(value) if value.dim() == 3 else value.tolist()
    if isinstance(value, tuple):  # samples and their rate
        return [input_to_json(part) for part in value]
    return value


def media_type(data: bytes) -> str:
    """Return the media type of a file by its first bytes."""
    if data.startswith(b"RIFF"):
        return RIFF.get(data[8:12], "application/octet-stream")
    return next((name for start, name in SIGNATURES.items() if data.startswith(start)), "application/octet-stream")


def image_url(image: Tensor) -> str:
    """Return a uint8 image (C, H, W) as a PNG data URL."""
    return f"data:image/png;base64,{base64.b64encode(png(image[:3] if len(image) != 2 else image[:1])).decode()}"


def dump_json(value: Any) -> str:
    """Return strict JSON in ASCII: nan and infinities, which JSON does not have, become null."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(value), allow_nan=False)


def json_parts(value: Any) -> Iterator[str]:
    """Yield what `dump_json` returns in parts of a row each, between which other threads can run."""
    if isinstance(value, Mapping) and value and all(isinstance(key, str) for key in value):
        for at, (key, entry) in enumerate(value.items()):
            yield f"{', ' if at else '{'}{json.dumps(key)}: "
            yield from json_parts(entry)
        yield "}"
    elif isinstance(value, list | tuple) and any(isinstance(entry, Mapping | list | tuple) for entry in value):
        for at, entry in enumerate(value):
            yield ", " if at else "["
            yield from json_parts(entry)
        yield "]"
    else:
        yield dump_json(value)


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _without_nan(entry) for key, entry in value.items()}
    return [_without_nan(entry) for entry in value] if isinstance(value, list | tuple) else value


def finite(value: float) -> float | None:
    """Return a number rounded to six decimals; None for nan and infinities, which JSON does not have."""
    return round(value, 6) if math.isfinite(value) else None
