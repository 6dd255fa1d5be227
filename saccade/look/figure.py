"""The figure of a prediction: one of its attention maps as text, SVG, PNG, page or JSON."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from saccade.atomic_io import new_file
from saccade.core import AttentionMap, Prediction
from saccade.core.serialize import dump_json
from saccade.errors import ResourceError, UsageError, suggest
from saccade.look import draw
from saccade.look.page import page
from saccade.look.picture import png
from saccade.look.serialize import inputs_text, prediction_to_json
from saccade.metrics.alignment import align, format_alignment, mean_heads, merge_words, one_head


@dataclass(frozen=True)
class AttentionFigure:
    """A prediction and one attention of it, over words or the tokens of the model."""

    prediction: Prediction
    attention: AttentionMap
    """(1, queries, keys)"""

    @classmethod
    def of(
        cls, prediction: Prediction, layer: str = "", head: int | None = None, *, pieces: bool = False
    ) -> AttentionFigure:
        """Return the figure of the best aligned attention, or of the mean or one head of a layer."""
        names = list(prediction.attention)
        if layer and layer not in names:
            raise UsageError(f"no attention '{layer}'{suggest(layer, names)}")
        if not names:
            raise UsageError("this model has no attention to show; take one with attention, such as transformer")
        attention = prediction.attention[layer or names[-1]]
        if head is not None:
            chosen = one_head(attention, head)
        elif layer or prediction.alignment is None:
            chosen = mean_heads(attention)
        else:
            chosen = prediction.alignment
        return cls(prediction, chosen if pieces else merge_words(chosen))

    @property
    def alignment(self) -> str:
        """The word alignment of cross-attention, as `0-0 1-2`; empty for self-attention."""
        queries, keys = self.attention.queries, self.attention.keys
        return "" if queries.role == keys.role else format_alignment(align(self.attention))

    def terminal(self, width: int, *, colour: bool) -> str:
        """Return the map as text."""
        return draw.terminal(self.attention, width=width, colour=colour)

    def to_json(self) -> dict[str, Any]:
        return prediction_to_json(self.prediction)

    def page(self) -> str:
        """Return all maps as one HTML file that needs nothing else."""
        return page(self.prediction, self.prediction.attention.values(), title=self._title)

    def _repr_html_(self) -> str:
        """Return the page for a notebook, in a sandboxed frame."""
        frame = 'sandbox="allow-scripts" style="width:100%;height:40rem;border:0"'
        return f'<iframe title="{escape(self._title)}" {frame} srcdoc="{escape(self.page())}"></iframe>'

    @property
    def _title(self) -> str:
        return f"{inputs_text(self.prediction.inputs)} - {self.attention.name}"

    def write(self, path: Path) -> None:
        """Write the map as .svg or .png, or the prediction as .html or .json, by the suffix of the file."""
        content = self.render(path.suffix.lower().removeprefix("."))
        try:
            with new_file(path) as file:
                file.write(content)
        except OSError as error:
            raise ResourceError(f"cannot write {path}: {error.strerror}; choose another file with --out") from error

    def render(self, kind: str) -> bytes:
        """Return the content of a file: the map as svg or png, or the prediction as html or json."""
        if kind == "svg":
            return draw.svg(self.attention, self._title).encode()
        if kind == "png":
            return png(self.attention, self._title)
        if kind == "html":
            return self.page().encode()
        if kind == "json":
            return dump_json(self.to_json()).encode()
        raise UsageError(f"--out must end on .html, .svg, .png or .json, but ends on '{kind and '.'}{kind}'")
