"""Seen: one prediction and the map of it that is drawn, in whatever form is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from saccade.core.task import AttentionMap, Prediction
from saccade.errors import UsageError, suggest
from saccade.look import draw, maps


@dataclass(frozen=True)
class AttentionFigure:
    """A prediction and one attention of it, over words or the pieces that the model sees."""

    prediction: Prediction
    read: AttentionMap
    """(1, queries, keys)"""

    @classmethod
    def of(
        cls, found: Prediction, layer: str = "", head: int | None = None, *, pieces: bool = False
    ) -> AttentionFigure:
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
            if head >= read.shape[0]:
                raise UsageError(f"head must be below {read.shape[0]} in {read.name}, but is {head}")
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

    def page(self) -> str:
        """Everything as one HTML file that needs nothing else."""
        return draw.page(self.prediction, self.prediction.maps, title=self._title)

    def _repr_html_(self) -> str:
        """The page in a notebook, in a frame of its own that can reach nothing around it."""
        frame = 'sandbox="allow-scripts" style="width:100%;height:40rem;border:0"'
        return f'<iframe title="{escape(self._title)}" {frame} srcdoc="{escape(self.page())}"></iframe>'

    @property
    def _title(self) -> str:
        return f"{self.prediction.input} - {self.read.name}"

    def write(self, path: Path) -> None:
        """Write the map as .svg or .png, or everything as .html or .json, by the name of the file."""
        import json

        kind = path.suffix.lower()
        if kind == ".svg":
            path.write_text(draw.svg(self.read, self._title), encoding="utf-8")
        elif kind == ".png":
            path.write_bytes(draw.png(self.read, self._title))
        elif kind == ".html":
            path.write_text(self.page(), encoding="utf-8")
        elif kind == ".json":
            path.write_text(json.dumps(self.as_json(), ensure_ascii=False), encoding="utf-8")
        else:
            raise UsageError(f"--out must end on .html, .svg, .png or .json, but is '{path}'")
