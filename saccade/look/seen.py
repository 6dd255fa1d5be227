"""Seen: one prediction and the map of it that is drawn, in whatever form is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.errors import UsageError, suggest
from saccade.look import draw, maps
from saccade.task import AttentionRead, Prediction


@dataclass(frozen=True)
class Seen:
    """A prediction and one attention of it, over words or the pieces that the model sees."""

    prediction: Prediction
    read: AttentionRead
    """(1, queries, keys)"""

    @classmethod
    def of(cls, found: Prediction, layer: str = "", head: int | None = None, *, pieces: bool = False) -> Seen:
        """The best aligned attention of a prediction, or that of a layer, or one head of it."""
        names = [read.name for read in found.maps]
        if layer and layer not in names:
            raise UsageError(f"no attention '{layer}'{suggest(layer, names)}")
        if not names:
            raise UsageError(
                "this model has no attention to look at; one with attention is needed, such as transformer"
            )
        read = next((one for one in found.maps if one.name == layer), found.maps[-1])
        if head is not None:
            if head >= len(read.weights):
                raise UsageError(f"head must be below {len(read.weights)} in {read.name}, but is {head}")
            chosen = maps.one_head(read, head)
        elif layer or found.alignment is None:
            chosen = maps.mean_heads(read)
        else:
            chosen = found.alignment
        return cls(found, chosen if pieces else maps.merge(chosen))

    @property
    def alignment(self) -> str:
        """Which source word each output word comes from, as `0-0 1-2`; empty where one text looks at itself."""
        return "" if self.read.queries.kind == self.read.keys.kind else maps.written(maps.align(self.read))

    def terminal(self, width: int, *, colour: bool) -> str:
        """The map in text."""
        return draw.terminal(self.read, width=width, colour=colour)

    def as_json(self) -> dict[str, Any]:
        return draw.as_json(self.prediction)

    def write(self, path: Path) -> None:
        """Write the map as .svg or .png, or everything as .html or .json, by the name of the file."""
        import json

        title = f"{self.prediction.input} - {self.read.name}"
        kind = path.suffix.lower()
        if kind == ".svg":
            path.write_text(draw.svg(self.read, title), encoding="utf-8")
        elif kind == ".png":
            path.write_bytes(draw.png(self.read, title))
        elif kind == ".html":
            reads = [read for read in (self.prediction.alignment,) if read is not None]
            path.write_text(draw.page(self.prediction, [*reads, *self.prediction.maps], title=title), encoding="utf-8")
        elif kind == ".json":
            path.write_text(json.dumps(self.as_json(), ensure_ascii=False), encoding="utf-8")
        else:
            raise UsageError(f"--out must end on .html, .svg, .png or .json, but is '{path}'")
