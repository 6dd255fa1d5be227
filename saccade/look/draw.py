"""Drawings of one map: for the terminal, as SVG and as PNG; and the page and the JSON of a whole prediction."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from torch import Tensor

from saccade.core.task import AttentionMap, Axis, Prediction
from saccade.look.labels import cells, clusters, cut, rightwards, shown
from saccade.look.maps import align, merge, only, written
from saccade.look.page import page as page
from saccade.look.picture import png as png

SHADES = " ░▒▓█"
STEPS = (0.05, 0.25, 0.5, 0.75)  # of the largest weight, from which each shade but the first begins
# From nearly black to light yellow: readable with any colour blindness, on light and dark terminals alike.
RAMP = ((16, 18, 40), (32, 62, 120), (40, 120, 140), (110, 180, 110), (250, 230, 90))
LABEL, TALL = 20, 14  # cells of the longest row label and of the highest column label
SHOWN = 3  # keys of each query in the list
LEAST = 0.05  # weights below are left out of the list


def terminal(read: AttentionMap, *, width: int, colour: bool) -> str:
    """One map in text: targets as rows, sources as columns; a list of the strongest where that is too wide."""
    weights = only(read)
    rows, columns = [shown(label) for label in read.queries.labels], [shown(label) for label in read.keys.labels]
    if not rows or not columns:
        return "(an empty map)"
    left = min(max(cells(label) for label in rows), LABEL, width - 2 * len(columns) - 1)
    if left < min(max(cells(label) for label in rows), 6):
        return "\n".join(_list(weights, rows, columns, width))
    top = float(weights.max())
    lines = [" " * (left + 1) + line for line in _upright(columns)]
    for label, row in zip(rows, weights.tolist(), strict=True):
        lines.append(f"{rightwards(label, left)} {_row(row, top, colour)}")
    return "\n".join([*lines, *_legend(top, width, colour)])


def _upright(labels: Sequence[str]) -> list[str]:
    """The lines of labels written from top to bottom, two cells each, that end on the same line."""
    columns = [clusters(label) for label in labels]
    columns = [[*column[: TALL - 1], "⋮"] if len(column) > TALL else column for column in columns]
    height = max(len(column) for column in columns)
    lines = []
    for line in range(height):
        places = [line - height + len(column) for column in columns]
        signs = [column[place] if place >= 0 else "" for column, place in zip(columns, places, strict=True)]
        lines.append("".join(sign + " " * (2 - cells(sign)) for sign in signs).rstrip())
    return lines


def _row(row: Sequence[float], top: float, colour: bool) -> str:
    """The cells of one query."""
    shares = [weight / top if top > 0 else 0.0 for weight in row]
    if not colour:
        return "".join(2 * SHADES[sum(share >= step for step in STEPS)] for share in shares).rstrip()
    return "".join(f"\x1b[48;2;{';'.join(map(str, _ramp(share)))}m  " for share in shares) + "\x1b[0m"


def _ramp(share: float) -> tuple[int, ...]:
    """The colour of a share of the largest weight."""
    place = min(max(share, 0.0), 1.0) * (len(RAMP) - 1)
    low = min(int(place), len(RAMP) - 2)
    return tuple(round(a + (b - a) * (place - low)) for a, b in zip(RAMP[low], RAMP[low + 1], strict=True))


def _legend(top: float, width: int, colour: bool) -> list[str]:
    """What the shades mean, where there is room for it."""
    if colour:
        bar = "".join(f"\x1b[48;2;{';'.join(map(str, _ramp(number / 9)))}m " for number in range(10)) + "\x1b[0m"
        line, room = f"0 {bar} {top:.2f}", 17
    else:
        line = "  ".join(f"{shade} {step * top:.2f}" for shade, step in zip(SHADES[1:], STEPS, strict=True))
        room = cells(line)
    return ["", line] if room <= width else []


def _list(weights: Tensor, rows: Sequence[str], columns: Sequence[str], width: int) -> list[str]:
    """'word <- word 0.83, word 0.11' for each query."""
    left = min(max(cells(label) for label in rows), LABEL, max(width // 3, 1))
    lines = []
    for label, row in zip(rows, weights, strict=True):
        line = f"{rightwards(label, left)} <-"
        values, places = row.topk(min(SHOWN, len(columns)))
        for number, (value, place) in enumerate(zip(values.tolist(), places.tolist(), strict=True)):
            ahead = line + (", " if number else " ")
            room = width - cells(ahead) - 5  # for the weight
            if value < LEAST or (number and cells(columns[place]) > room):
                break
            line = f"{ahead}{cut(columns[place], min(max(room, 1), LABEL))} {value:.2f}"
        lines.append(cut(line, width))
    return lines


CELL, FONT = 28, 13  # pixels
CHARACTER = 0.62 * FONT  # width of one cell of text
SLANT = math.radians(60)
STYLE = """
svg{color:#1b1f24;background:#fff;font:13px system-ui,"Noto Sans","Noto Sans CJK SC",sans-serif}
text{fill:currentColor}.w{fill:#1a56c4}.f{fill:none;stroke:currentColor;stroke-opacity:.35}
@media(prefers-color-scheme:dark){svg{color:#e6e8eb;background:#15181c}.w{fill:#6db1ff}}
"""


def svg(read: AttentionMap, title: str = "") -> str:
    """One map as an SVG of its own: every cell tells its words and its weight, and a screen reader its title."""
    weights = only(read)
    rows, columns = ([shown(label) for label in axis.labels] for axis in (read.queries, read.keys))
    left, high = _room(rows, 1.0) + 12, _room(columns, math.sin(SLANT)) + 16
    across, down = CELL * len(columns), CELL * len(rows)
    head = FONT * 2 if title else 0
    width, height = left + across + _room(columns, math.cos(SLANT)) + 16, head + high + down + 44
    top = float(weights.max()) if weights.numel() else 0.0
    name = escape(shown(title or f"Attention {read.name}"))
    about = f"{len(rows)} rows looking at {len(columns)} columns; the darkest cell is {top:.2f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{name}"><title>{name}</title><desc>{about}</desc>'
        f"<style>{STYLE}</style>"
    ]
    if title:
        parts.append(
            f'<text x="12" y="{FONT + 8}" font-weight="600">{escape(cut(shown(title), int(width / 8)))}</text>'
        )
    parts.append(f'<g transform="translate({left:.0f} {head + high:.0f})">')
    for number, label in enumerate(columns):
        x = (number + 0.5) * CELL
        parts.append(_text(label, f'transform="translate({x:.1f} -6) rotate(-60)" dominant-baseline="central"'))
    for number, label in enumerate(rows):
        y = (number + 0.5) * CELL
        parts.append(_text(label, f'x="-8" y="{y:.1f}" text-anchor="end" dominant-baseline="central"'))
    parts.append(f'<rect class="f" width="{across}" height="{down}"/>')
    for line, row in enumerate(weights.tolist()):
        parts += [
            _cell(line, number, weight, top, f"{rows[line]} <- {columns[number]}") for number, weight in enumerate(row)
        ]
    parts.append(_scale(down + 16, top))
    return "".join([*parts, "</g></svg>"])


def _room(labels: Sequence[str], share: float) -> float:
    """The pixels that the longest label takes along one side."""
    return max((cells(cut(label, LABEL)) for label in labels), default=0) * CHARACTER * share


def _text(label: str, place: str) -> str:
    whole = f"<title>{escape(label)}</title>" if cells(label) > LABEL else ""
    return f"<text {place}>{whole}{escape(cut(label, LABEL))}</text>"


def _cell(row: int, column: int, weight: float, top: float, words: str) -> str:
    shade = weight / top if top > 0 else 0.0
    return (
        f'<rect class="w" x="{column * CELL + 1}" y="{row * CELL + 1}" width="{CELL - 2}" height="{CELL - 2}" '
        f'fill-opacity="{shade:.3g}"><title>{escape(words)}: {weight:.2f}</title></rect>'
    )


def _scale(y: int, top: float) -> str:
    """The shades from 0 to the largest weight."""
    steps = "".join(
        f'<rect class="w" x="{16 + 8 * step}" y="{y}" width="8" height="12" fill-opacity="{step / 9:.2f}"/>'
        for step in range(10)
    )
    return f'<text y="{y + 11}">0</text>{steps}<text x="102" y="{y + 11}">{top:.2f}</text>'


def as_json(prediction: Prediction) -> dict[str, Any]:
    """A prediction in plain values: texts, scores, the alignment of words, maps, readings, the next best answers."""
    alignment = prediction.alignment
    return {
        "input": prediction.input,
        "output": prediction.output,
        "scores": {name: _finite(value) for name, value in prediction.scores.items()},
        "alignment": None if alignment is None else written(align(merge(alignment))),
        "maps": [_map(read) for read in prediction.maps],
        "readings": [
            {"name": reading.name, "axis": _axis(reading.axis), "values": [_finite(value) for value in reading.values]}
            for reading in prediction.readings
        ],
        "others": [as_json(other) for other in prediction.others],
    }


def _map(read: AttentionMap) -> dict[str, Any]:
    weights = [[[_finite(weight) for weight in row] for row in head] for head in read.weights.tolist()]
    return {"name": read.name, "queries": _axis(read.queries), "keys": _axis(read.keys), "weights": weights}


def _axis(axis: Axis) -> dict[str, Any]:
    return {"kind": axis.kind, "labels": list(axis.labels), "words": list(axis.words)}


def _finite(value: float) -> float | None:
    """A number JSON has a form for, in six digits after the point; None for nan and the infinities."""
    return round(value, 6) if math.isfinite(value) else None
