"""The page of a prediction: one HTML file that needs no network, to follow each word through every layer and head."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from torch import Tensor

from saccade.core.task import AttentionMap, Prediction, TokenScores
from saccade.errors import UsageError
from saccade.look.labels import shown
from saccade.look.maps import merge

MOST = 30_000_000  # weights; a browser opens the 80 MB they make, but not many more
BAR = 28  # pixels of the highest bar


def page(prediction: Prediction, reads: Sequence[AttentionMap], *, title: str) -> str:
    """One HTML file with texts, scores, readings and the maps `reads`, the alignment of words first if there is one."""
    aligned = prediction.alignment
    ahead = [] if aligned is None else [replace(aligned, name=f"word alignment ({aligned.name})")]
    maps = [read for read in [*ahead, *reads] if math.prod(read.shape)]
    count = sum(math.prod(read.shape) for read in maps)
    if count > MOST:
        raise UsageError(
            f"a page must hold at most {MOST:,} weights, but these maps have {count:,}; choose fewer layers"
        )
    style, script = _part("page.css"), _part("page.js")
    return Template(_part("page.html")).substitute(
        title=_html(title),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        input=_html(prediction.input),
        output=_html(prediction.output),
        scores=_scores(prediction),
        others=_others(prediction.others),
        readings="".join(_reading(reading) for reading in prediction.readings),
        bare=_bare(maps),
        data=_data([_map(read) for read in maps]),
    )


def _part(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The name by which the page's rules let this text, and no other, run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _html(text: str) -> str:
    """A text as HTML that shows it, whatever is in it: also halves of pairs and signs that write it backwards."""
    return escape(re.sub("[\ud800-\udfff\u202d\u202e]", "\ufffd", text))


def _data(maps: list[dict[str, Any]]) -> str:
    """JSON that no label can end: without '<' there is no way out of its script element."""
    return json.dumps({"maps": maps}, separators=(",", ":")).replace("<", "\\u003c")


def _map(read: AttentionMap) -> dict[str, Any]:
    split = bool(read.queries.words or read.keys.words)
    return {
        "name": read.name,
        "heads": read.shape[0],
        "pieces": _labelled(read),
        "words": _labelled(merge(read)) if split else None,
    }


def _labelled(read: AttentionMap) -> dict[str, Any]:
    rows, columns = ([shown(label) for label in axis.labels] for axis in (read.queries, read.keys))
    return {"rows": rows, "columns": columns, "weights": _packed(read.weights)}


def _packed(weights: Tensor) -> str:
    """Weights as numbers of 16 bits, low byte first, 65535 for 1: exact to 0.00001."""
    numbers = np.nan_to_num(weights.detach().float().cpu().numpy()).clip(0, 1)
    return base64.b64encode((numbers * 65535).round().astype("<u2").tobytes()).decode()


def _scores(prediction: Prediction) -> str:
    """The scores of an answer, side by side."""
    if not prediction.scores:
        return ""
    terms = "".join(
        f"<div><dt>{_html(name)}</dt><dd>{value:.4g}</dd></div>" for name, value in prediction.scores.items()
    )
    return f'<dl class="scores">{terms}</dl>'


def _others(others: Iterable[Prediction]) -> str:
    """The next best answers, folded away."""
    items = "".join(f'<li><span dir="auto">{_html(other.output)}</span>{_scores(other)}</li>' for other in others)
    return f"<details><summary>Next best answers</summary><ol>{items}</ol></details>" if items else ""


def _reading(reading: TokenScores) -> str:
    """A number for each token, as a small bar over it."""
    top = max((abs(value) for value in reading.values), default=0.0) or 1.0
    bars = []
    for label, value in zip(reading.axis.labels, reading.values, strict=True):
        high = abs(value) / top * BAR
        bar = f'<rect y="{BAR - high:.1f}" width="14" height="{high:.1f}" rx="2"/>'
        picture = f'<svg width="14" height="{BAR}" aria-hidden="true">{bar}</svg>'
        bars.append(f"<div><small>{value:.3g}</small>{picture}<span>{_html(shown(label))}</span></div>")
    name = _html(reading.name)
    row = f'<div class="bars" dir="auto">{"".join(bars)}</div>'
    return f'<section class="reading" aria-label="{name}"><h2>{name}</h2>{row}</section>'


def _bare(maps: Sequence[AttentionMap]) -> str:
    """What stands below the texts where there is no map to show, or no script to show it."""
    if not maps:
        return "<p>No attention was kept with this prediction.</p>"
    return "<noscript><p>The maps of this page are drawn by its script, which this browser does not run.</p></noscript>"
