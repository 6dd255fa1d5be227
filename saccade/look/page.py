"""A prediction as a page: one HTML file without network access, to follow each token through every layer and head."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from saccade.core import AttentionMap, Axis, GridAxis, Prediction, TimeAxis, TokenAxis, TokenScores
from saccade.core.serialize import Images, map_to_json
from saccade.errors import UsageError
from saccade.look import ramps
from saccade.look.labels import visible
from saccade.look.names import map_titles
from saccade.look.rollout import NAME as ROLLOUT
from saccade.look.serialize import input_text, prediction_title
from saccade.metrics.alignment import merge_words

MOST = 30_000_000  # weights; 80 MB, about as much as a browser opens
BAR = 28  # pixels of the highest bar


def page(
    prediction: Prediction, attention: Iterable[AttentionMap], *, title: str, start: tuple[str, int | None] = ("", None)
) -> str:
    """Return one HTML file with inputs, output, scores and maps, the word alignment first if there is one.

    It opens with the map and the head of `start`; without a name with the first map.
    """
    aligned = prediction.alignment
    over_image = aligned is not None and isinstance(aligned.keys, GridAxis)
    over_time = aligned is not None and isinstance(aligned.keys, TimeAxis)
    what = "gaze" if over_image else "times" if over_time else "word alignment"
    first = [] if aligned is None else [replace(aligned, name=f"{what} ({aligned.name})")]
    maps = [weights for weights in [*first, *attention] if math.prod(weights.shape)]
    count = sum(math.prod(weights.shape) for weights in maps)
    if count > MOST:
        raise UsageError(
            f"a page must hold at most {MOST:,} weights, but these maps have {count:,}; choose fewer layers"
        )
    style, script = _part("page.css"), _part("page_lines.js") + _part("page.js")
    pictured = any(_is_pictured(weights.keys) for weights in maps)
    inputs = {name: value for name, value in prediction.inputs.items() if isinstance(value, str) or not pictured}
    return Template(_part("page.html")).substitute(
        title=_html(title),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        inputs="".join(_input(name, value) for name, value in inputs.items()),
        output=_html(prediction.text),
        scores=_scores(prediction),
        alternatives=_alternatives(prediction.alternatives),
        token_scores="".join(_token_scores(scores) for scores in prediction.token_scores),
        no_maps=_no_maps(maps),
        heading=_html(prediction_title(prediction) or title),
        data=_data(maps, [*prediction.attention, ROLLOUT], start),
    )


def _is_pictured(axis: Axis) -> bool:
    """Whether the page shows an axis over its image or its spectrogram."""
    if isinstance(axis, TimeAxis):
        return axis.spectrogram is not None
    return isinstance(axis, GridAxis) and axis.image is not None


def _part(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the hash by which the page's content security policy allows this text alone."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _html(text: str) -> str:
    """Escape a text, whatever is in it: also lone surrogates and characters that reverse the line."""
    return escape(re.sub("[\ud800-\udfff\u202d\u202e]", "\ufffd", text))


def _data(maps: Sequence[AttentionMap], names: Sequence[str], start: tuple[str, int | None]) -> str:
    """Return JSON that no label can end: without '<' it cannot leave its script element."""
    images = Images()
    titles = map_titles([*names, *(attention.name for attention in maps)])
    described = [{"title": _title(attention.name, titles), **_map(attention, images)} for attention in maps]
    first = next((at for at, attention in enumerate(maps) if attention.name == start[0]), 0)
    opened = {"map": first, "head": "mean" if start[1] is None else start[1]}
    value = {
        "maps": described,
        "start": opened,
        "images": images.urls,
        "ramps": {"light": ramps.LIGHT, "dark": ramps.DARK},
    }
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _title(name: str, titles: Mapping[str, str]) -> str:
    """Return the title of a map on every page; of the alignment, whose name has it in parentheses, too."""
    what, _, inner = name.removesuffix(")").partition(" (")
    return f"{what} ({titles[inner]})" if inner in titles else titles[name]


def _map(attention: AttentionMap, images: Images) -> dict[str, Any]:
    """Return a map over tokens, and over words where tokens are parts of words."""
    axes = (attention.queries, attention.keys)
    split = any(isinstance(axis, TokenAxis) and axis.words for axis in axes)
    words = map_to_json(merge_words(attention), "uint16", images=images, label=visible) if split else None
    return {"tokens": map_to_json(attention, "uint16", images=images, label=visible), "words": words}


def _input(name: str, value: Any) -> str:
    return f'<div><h2>{_html(name)}</h2><p dir="auto">{_html(input_text(value))}</p></div>'


def _scores(prediction: Prediction) -> str:
    """Return the scores of an answer, side by side."""
    if not prediction.scores:
        return ""
    terms = "".join(
        f"<div><dt>{_html(name)}</dt><dd>{value:.4g}</dd></div>" for name, value in prediction.scores.items()
    )
    return f'<dl class="scores">{terms}</dl>'


def _alternatives(alternatives: Iterable[Prediction]) -> str:
    """Return the next best answers, folded away."""
    items = "".join(f'<li><span dir="auto">{_html(other.text)}</span>{_scores(other)}</li>' for other in alternatives)
    return f"<details><summary>Next best answers</summary><ol>{items}</ol></details>" if items else ""


def _token_scores(scores: TokenScores) -> str:
    """Return a number for each token, as a small bar over it."""
    largest = max((abs(value) for value in scores.values), default=0.0) or 1.0
    bars = []
    for label, value in zip(scores.axis.labels, scores.values, strict=True):
        high = abs(value) / largest * BAR
        bar = f'<rect y="{BAR - high:.1f}" width="14" height="{high:.1f}" rx="2"/>'
        picture = f'<svg width="14" height="{BAR}" aria-hidden="true">{bar}</svg>'
        bars.append(f"<div><small>{value:.3g}</small>{picture}<span>{_html(visible(label))}</span></div>")
    name = _html(scores.name)
    row = f'<div class="bars" dir="auto">{"".join(bars)}</div>'
    return f'<section class="token-scores" aria-label="{name}"><h2>{name}</h2>{row}</section>'


def _no_maps(maps: Sequence[AttentionMap]) -> str:
    """Return the message shown without maps, or without the script that draws them."""
    if not maps:
        return "<p>No attention was recorded with this prediction.</p>"
    return "<noscript><p>The maps of this page are drawn by a script, which this browser does not run.</p></noscript>"
