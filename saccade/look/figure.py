"""The figure of a prediction: one of its attention maps as text, SVG, PNG, film, page or JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from saccade.atomic_io import new_file
from saccade.core import AttentionMap, GridAxis, Prediction, StepAxis, TimeAxis, TokenAxis
from saccade.core.serialize import dump_json
from saccade.errors import ResourceError, UsageError, suggest
from saccade.look import draw
from saccade.look.film import film
from saccade.look.labels import cells, truncate, visible
from saccade.look.names import SEPARATOR, map_titles
from saccade.look.overlay import OverlayStyle
from saccade.look.page import page
from saccade.look.pdf import pdf
from saccade.look.picture import png
from saccade.look.rollout import NAME as ROLLOUT
from saccade.look.rollout import rollout, rollout_layers
from saccade.look.serialize import prediction_title, prediction_to_json
from saccade.look.times import srt, text_grid
from saccade.metrics.alignment import align, format_alignment, mean_heads, merge_words, one_head

TIMES = {"textgrid": text_grid, "srt": srt}
ENDINGS = ".html, .svg, .pdf, .png, .gif, .json, .TextGrid or .srt"
ALIGNMENT = "word alignment"
NOTEBOOK = 3_000_000  # weights in a cell of a notebook: 8 MB, of which it keeps every output


@dataclass(frozen=True)
class AttentionFigure:
    """A prediction and one attention of it, over words or the tokens of the model."""

    prediction: Prediction
    attention: AttentionMap
    """(1, queries, keys)"""
    style: OverlayStyle = field(default_factory=OverlayStyle)
    """of attention over an image"""
    words: AttentionMap | None = None
    """what a film shows instead: the words of a question over the image, where the attention has no words as queries"""
    selection: str = ""
    """which heads are shown; empty: the map has one"""
    head: int | None = None
    """the head that is shown; None: it was not chosen"""

    @classmethod
    def of(
        cls,
        prediction: Prediction,
        layer: str = "",
        head: int | None = None,
        *,
        pieces: bool = False,
        style: OverlayStyle = OverlayStyle(),
    ) -> AttentionFigure:
        """Return the figure of the best aligned attention, or of the mean or one head of a layer, or of rollout."""
        if not prediction.attention:
            raise UsageError("this model has no attention to show; take one with attention, such as transformer")
        attention = _layer(prediction, layer, style)
        if style.at is not None and not isinstance(attention.queries, GridAxis):
            message = (
                f"at must name a cell of an image, but the queries of '{attention.name}' are {attention.queries.kind}"
            )
            raise UsageError(f"{message}; choose a layer of self-attention over the image")
        words = None
        heads = attention.shape[0]
        selection = f"mean of {heads} heads" if heads > 1 else ""
        if head is not None:
            chosen, selection = one_head(attention, head), f"head {head}"
        elif layer or style.at or prediction.alignment is None:
            chosen = mean_heads(attention)
        else:
            chosen, words, selection = prediction.alignment, _words_over_image(prediction), ALIGNMENT
        if pieces:
            return cls(prediction, chosen, style, words, selection, head)
        return cls(prediction, merge_words(chosen), style, words and merge_words(words), selection, head)

    def shown(self, kind: str = "") -> AttentionMap:
        """Return the map that a kind of file shows."""
        return self.words if kind == "gif" and self.words is not None else self.attention

    @property
    def alignment(self) -> str:
        """The word alignment of cross-attention, as `0-0 1-2`; empty for self-attention, images and sound."""
        queries, keys = self.attention.queries, self.attention.keys
        if queries.role == keys.role or isinstance(keys, GridAxis | TimeAxis):
            return ""
        return format_alignment(align(self.attention))

    def terminal(self, width: int, *, colour: bool) -> str:
        """Return the map as text."""
        return draw.terminal(self.attention, width=width, colour=colour, style=self.style)

    def to_json(self) -> dict[str, Any]:
        return prediction_to_json(self.prediction)

    def page(self) -> str:
        """Return all maps as one HTML file that needs nothing else; rollout is the last where there is one."""
        return page(self.prediction, self._maps, title=self._title, start=self._start)

    def _repr_html_(self) -> str:
        """Return the page for a notebook, in a sandboxed frame; of more than `NOTEBOOK` weights where to see them."""
        count = sum(math.prod(attention.shape) for attention in self._maps)
        if count > NOTEBOOK:
            message = f"A notebook shows at most {NOTEBOOK:,} weights of attention, but these maps have {count:,}: "
            return f"<p>{message}write them to a file with <code>model.attention(...).write(Path('a.html'))</code>.</p>"
        frame = 'sandbox="allow-scripts" style="width:100%;height:48rem;border:0"'
        return f'<iframe title="{escape(self._title)}" {frame} srcdoc="{escape(self.page())}"></iframe>'

    @property
    def _start(self) -> tuple[str, int | None]:
        """The map and the head that the page opens with; the alignment is its first map."""
        return "" if self.selection == ALIGNMENT else self.attention.name, self.head

    @property
    def _maps(self) -> list[AttentionMap]:
        maps, layers = list(self.prediction.attention.values()), rollout_layers(self.prediction)
        return [*maps, *([rollout(layers)] if layers else [])]

    @property
    def _title(self) -> str:
        """The inputs and a map; a page has all its heads."""
        return f"{prediction_title(self.prediction)} - {self._map_title}"

    @property
    def _map_title(self) -> str:
        """The title of the map on every page."""
        return map_titles([*self.prediction.attention, ROLLOUT]).get(self.attention.name, self.attention.name)

    @property
    def _heading(self) -> str:
        """The inputs, shortened where the title would be too wide, and the heads that are drawn."""
        shown = f"{self._map_title}{SEPARATOR}{self.selection}" if self.selection else self._map_title
        inputs = truncate(visible(prediction_title(self.prediction)), max(20, draw.TITLE - cells(shown) - 3))
        return f"{inputs} - {shown}"

    def write(self, path: Path) -> None:
        """Write the map as .svg, .pdf, .png or .gif, the prediction as .html or .json, times as .TextGrid or .srt."""
        content = self.render(path.suffix.lower().removeprefix("."))
        try:
            with new_file(path) as file:
                file.write(content)
        except OSError as error:
            raise ResourceError(f"cannot write {path}: {error.strerror}; choose another file with --out") from error

    def render(self, kind: str) -> bytes:
        """Return the content of a file: the map as svg, pdf, png or a film (gif), or the prediction as html or json.

        Over sound also the times of letters and words, as textgrid or srt.
        """
        if kind in TIMES:
            return TIMES[kind](self.attention).encode()
        if kind == "svg":
            return draw.svg(self.attention, self._heading, self.style).encode()
        if kind == "pdf":
            return pdf(draw.svg(self.attention, self._heading, self.style))
        if kind == "png":
            return png(self.attention, self._heading, self.style)
        if kind == "gif":
            return film(self.shown(kind), self.style, self._heading)
        if kind == "html":
            return self.page().encode()
        if kind == "json":
            return dump_json(self.to_json()).encode()
        raise UsageError(f"--out must end on {ENDINGS}, but ends on '{kind and '.'}{kind}'")


def _words_over_image(prediction: Prediction) -> AttentionMap | None:
    """Return the last map of words over an image, if the alignment has no words; None: there is no such map."""
    if prediction.alignment is None or not isinstance(prediction.alignment.queries, StepAxis):
        return None
    maps = [
        attention
        for attention in prediction.attention.values()
        if isinstance(attention.queries, TokenAxis) and isinstance(attention.keys, GridAxis)
    ]
    return mean_heads(maps[-1]) if maps else None


def _layer(prediction: Prediction, name: str, style: OverlayStyle) -> AttentionMap:
    """Return an attention by its name, or rollout; without a name the last one, of the cells if a cell is chosen."""
    names, layers = list(prediction.attention), rollout_layers(prediction)
    if name == ROLLOUT and not layers:
        message = "rollout must have two or more layers of self-attention over the same positions"
        raise UsageError(f"{message}, but this prediction has none; choose a layer{suggest(name, names)}")
    if name == ROLLOUT:
        return rollout(layers)
    if name and name not in names:
        raise UsageError(f"no attention '{name}'{suggest(name, [*names, *([ROLLOUT] if layers else [])])}")
    cells = [attention for attention in prediction.attention.values() if isinstance(attention.queries, GridAxis)]
    if not name and style.at is not None and cells:
        return cells[-1]
    return prediction.attention[name or names[-1]]
