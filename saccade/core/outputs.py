"""Outputs: typed results of a model, which render themselves as text, JSON and HTML."""

from __future__ import annotations

import abc
import base64
import html
import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor


@dataclass(frozen=True)
class Output(abc.ABC):
    """The output of a model for one example."""

    kind: ClassVar[str]

    @property
    @abc.abstractmethod
    def text(self) -> str:
        """The output on one line, for a terminal."""

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text}

    def to_html(self) -> str:
        return f"<p>{html.escape(self.text)}</p>"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class TextOutput(Output):
    """A generated text."""

    value: str

    kind: ClassVar[str] = "text"

    @property
    def text(self) -> str:
        return self.value


@dataclass(frozen=True)
class LabelOutput(Output):
    """One label or several, and the probability of every label of the model, highest first."""

    labels: tuple[str, ...]
    probabilities: Mapping[str, float]

    kind: ClassVar[str] = "labels"

    @property
    def text(self) -> str:
        return "|".join(self.labels)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "labels": list(self.labels), "probabilities": dict(self.probabilities)}

    def to_html(self) -> str:
        rows = (f"<tr><td>{html.escape(n)}</td><td>{p:.4f}</td></tr>" for n, p in self.probabilities.items())
        return f"<p>{html.escape(self.text)}</p><table>{''.join(rows)}</table>"


@dataclass(frozen=True)
class SpanOutput(Output):
    """A span of characters of a context; an empty one where the context has no answer."""

    value: str
    start: int
    end: int
    probability: float
    """probability that the context has an answer"""
    context: str = field(repr=False, default="")

    kind: ClassVar[str] = "span"

    @property
    def text(self) -> str:
        return self.value

    def to_json(self) -> dict[str, Any]:
        span = {"start": self.start, "end": self.end, "probability": self.probability}
        return {**super().to_json(), **span}

    def to_html(self) -> str:
        before, span, after = self.context[: self.start], self.value, self.context[self.end :]
        return f"<p>{html.escape(before)}<mark>{html.escape(span)}</mark>{html.escape(after)}</p>"


@dataclass(frozen=True)
class TagOutput(Output):
    """A tag for each word, with its probability."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]

    kind: ClassVar[str] = "tags"

    @property
    def text(self) -> str:
        return " ".join(f"{word}/{tag}" for word, tag in zip(self.words, self.tags, strict=True))

    def to_json(self) -> dict[str, Any]:
        probabilities = list(self.probabilities)
        return {**super().to_json(), "words": list(self.words), "tags": list(self.tags), "probabilities": probabilities}

    def to_html(self) -> str:
        cells = (
            f"{html.escape(word)}<sub>{html.escape(tag)}</sub>" for word, tag in zip(self.words, self.tags, strict=True)
        )
        return f"<p>{' '.join(cells)}</p>"


@dataclass(frozen=True)
class NumberOutput(Output):
    """A number, such as a score or a similarity."""

    value: float
    name: str = "value"

    kind: ClassVar[str] = "number"

    @property
    def text(self) -> str:
        return f"{self.value:.4g}"

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "name": self.name, "value": self.value}


@dataclass(frozen=True)
class VectorOutput(Output):
    """A vector (D,)."""

    values: Tensor

    kind: ClassVar[str] = "vector"

    @property
    def text(self) -> str:
        return json.dumps([round(value, 6) for value in self.values.tolist()])

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "vector": self.values.tolist()}

    def to_html(self) -> str:
        first = ", ".join(f"{value:.4f}" for value in self.values[:8].tolist())
        return f"<p>vector of {len(self.values)}: {first}, …</p>"


@dataclass(frozen=True)
class ImageOutput(Output):
    """An image: uint8 (C, H, W), grey or RGB."""

    pixels: Tensor

    kind: ClassVar[str] = "image"

    @property
    def text(self) -> str:
        channels, height, width = self.pixels.shape
        return f"image of {width} x {height} pixels, {'grey' if channels == 1 else 'RGB'}"

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "png": base64.b64encode(png(self.pixels)).decode()}

    def to_html(self) -> str:
        return f'<img alt="{self.text}" src="data:image/png;base64,{base64.b64encode(png(self.pixels)).decode()}">'


@dataclass(frozen=True)
class ActionsOutput(Output):
    """The actions of an episode, and its return if known."""

    actions: tuple[str, ...]
    reward: float | None = None

    kind: ClassVar[str] = "actions"

    @property
    def text(self) -> str:
        return " ".join(self.actions)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "actions": list(self.actions), "return": self.reward}


COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # of PNG, by the number of channels


def png(pixels: Tensor) -> bytes:
    """Encode a uint8 image (C, H, W) as PNG: grey, RGB or RGBA."""
    channels, height, width = pixels.shape
    if channels not in COLOUR_TYPES:
        raise ValueError(f"an image must have 1, 3 or 4 channels, but has {channels}")
    rows = pixels.permute(1, 2, 0).contiguous().cpu()
    raw = b"".join(b"\0" + row.numpy().tobytes() for row in rows)  # filter 0: the bytes as they are

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, COLOUR_TYPES[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
