"""Axes: what the queries and keys of an attention map are; pages and figures dispatch on the class."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from torch import Tensor


class Role(StrEnum):
    """Which part of an example an axis shows."""

    SOURCE = "source"
    TARGET = "target"
    TEXT = "text"
    LABEL = "label"
    IMAGE = "image"
    AUDIO = "audio"
    GRAPH = "graph"
    STATE = "state"


@dataclass(frozen=True)
class Axis(abc.ABC):
    """One axis of an attention map."""

    role: Role

    kind: ClassVar[str]
    """name of the view that renders this class of axis"""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @property
    @abc.abstractmethod
    def labels(self) -> tuple[str, ...]:
        """A short name for each position."""

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "role": self.role.value, "labels": list(self.labels)}


@dataclass(frozen=True)
class TokenAxis(Axis):
    """Tokens of a text."""

    tokens: tuple[str, ...]
    words: tuple[int, ...] = ()
    """for subword tokens: the index of the word each token belongs to; empty: every token is a word"""
    second: int = 0
    """position at which the second of two texts starts, after a separator; 0: there is one text"""

    kind: ClassVar[str] = "tokens"

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.tokens

    def to_json(self) -> dict[str, Any]:
        second = {"second": self.second} if self.second else {}
        return {**super().to_json(), "words": list(self.words), **second}


@dataclass(frozen=True)
class GridAxis(Axis):
    """Cells of a grid over an image, row by row."""

    rows: int
    columns: int
    image: Tensor | None = None
    """the image the grid covers: uint8 (C, H, W)"""
    extra: tuple[str, ...] = ()
    """names of positions before the grid, such as a class token"""

    kind: ClassVar[str] = "grid"

    def __len__(self) -> int:
        return len(self.extra) + self.rows * self.columns

    @property
    def labels(self) -> tuple[str, ...]:
        cells = (f"{row},{column}" for row in range(self.rows) for column in range(self.columns))
        return (*self.extra, *cells)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "rows": self.rows, "columns": self.columns, "extra": list(self.extra)}


@dataclass(frozen=True)
class TimeAxis(Axis):
    """Frames of an audio signal."""

    frames: int
    seconds_per_frame: float
    spectrogram: Tensor | None = None
    """the sound the frames cover: uint8 (1, bands, frames of the spectrogram), the lowest band last"""

    kind: ClassVar[str] = "time"

    def __len__(self) -> int:
        return self.frames

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{frame * self.seconds_per_frame:.2f}" for frame in range(self.frames))

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "seconds_per_frame": self.seconds_per_frame}


@dataclass(frozen=True)
class NodeAxis(Axis):
    """Nodes of a graph."""

    nodes: tuple[str, ...]
    edges: tuple[tuple[int, int], ...] = ()
    positions: tuple[tuple[float, float], ...] = ()
    """coordinates of each node; empty: the view computes a layout"""
    tags: tuple[str, ...] = ()
    """predicted label of each node; empty: none"""
    part_of: int = 0
    """number of nodes of the graph of which these are a part: their weights for other nodes are not here; 0: all"""

    kind: ClassVar[str] = "nodes"

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.nodes

    def to_json(self) -> dict[str, Any]:
        edges, positions = ([list(pair) for pair in pairs] for pairs in (self.edges, self.positions))
        return {**super().to_json(), "edges": edges, "positions": positions, "tags": list(self.tags)}


@dataclass(frozen=True)
class StepAxis(Axis):
    """Steps of a sequence that is not text: outputs of a classifier, actions of an episode."""

    steps: tuple[str, ...]
    frames: tuple[Tensor, ...] = ()
    """what was there at each step of an episode: uint8 images (C, H, W); empty: nothing to show"""

    kind: ClassVar[str] = "steps"

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.steps
