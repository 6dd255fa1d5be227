"""The Compare page as JSON: the maps of two predictions, their aligned labels and weights, and what changed most."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from saccade.core import Progress
from saccade.core.serialize import pack
from saccade.errors import UsageError
from saccade.look.difference import (
    Change,
    MapDifference,
    compare_predictions,
    difference_of,
    largest_changes,
    paired_maps,
)
from saccade.look.difference_figure import difference_svg
from saccade.look.labels import visible
from saccade.look.names import map_titles
from saccade.look.serialize import prediction_title
from saccade.studio.params import head_number, number
from saccade.studio.sessions import Inspection

CELLS = 1 << 22  # most weights of one response
RANKED, MOST_RANKED = 20, 200  # changes, the largest first

Params = Mapping[str, str]


def respond(first: Inspection, second: Inspection, part: str, params: Params, progress: Progress) -> Any:
    """Return a part of the comparison of two predictions: JSON, or the bytes of weights."""
    parts: dict[str, Callable[[], Any]] = {
        "maps": lambda: maps(first, second),
        "axes": lambda: axes(_difference(first, second, params)),
        "cells": lambda: cells(_difference(first, second, params), params),
        "changes": lambda: changes(first, second, params, progress),
        "difference.svg": lambda: figure(first, second, params),
    }
    if part not in parts:
        raise UsageError(f"no part '{part[:40]}' of a comparison; there are: {', '.join(parts)}")
    return parts[part]()


def maps(first: Inspection, second: Inspection) -> dict[str, Any]:
    """Return the maps of each prediction, and which of them are compared."""
    sides = [side.prediction.attention for side in (first, second)]
    described = [
        [
            {"name": name, "title": title, "heads": attention[name].shape[0]}
            for name, title in map_titles(attention).items()
        ]
        for attention in sides
    ]
    return {"maps": described, "pairs": paired_maps(*sides)}


def axes(difference: MapDifference) -> dict[str, Any]:
    """Return the aligned labels of the queries and of the keys, each of both predictions; null is a gap."""
    queries = [_visible(difference.query_labels(at)) for at in range(len(difference.queries))]
    keys = [_visible(difference.key_labels(at)) for at in range(len(difference.keys))]
    return {"queries": queries, "keys": keys}


def cells(difference: MapDifference, params: Params) -> bytes:
    """Return a rectangle of the weights of the first and then of the second prediction, 0 in gaps.

    A weight is an unsigned 16-bit integer, little-endian, 65535 for 1.
    """
    rows = range(number(params, "top"), number(params, "bottom"))
    columns = range(number(params, "left"), number(params, "right"))
    count = 2 * len(rows) * len(columns)
    if count > CELLS:
        raise UsageError(f"two rectangles must have at most {CELLS:,} weights, but have {count:,}")
    weights = difference.weights(rows, columns, head_number(params), head_number(params, "other_head"))
    return b"".join(pack(side, "uint16") for side in weights)


def figure(first: Inspection, second: Inspection, params: Params) -> bytes:
    """Return the matrix of the difference as SVG."""
    difference, heads = _difference(first, second, params), (head_number(params), head_number(params, "other_head"))
    names = [
        f"{name}, {'mean of the heads' if head is None else f'head {head}'}"
        for name, head in zip(difference.maps, heads, strict=True)
    ]
    sides = " minus ".join(prediction_title(side.prediction) for side in (second, first))
    where = " and ".join(dict.fromkeys(names))
    return difference_svg(difference, *heads, f"{where}: {sides}").encode()


def changes(first: Inspection, second: Inspection, params: Params, progress: Progress) -> dict[str, Any]:
    """Return how much of every head changed, and the weights that change most over all layers and heads."""
    count = number(params, "count", RANKED)
    if count > MOST_RANKED:
        raise UsageError(f"count must be at most {MOST_RANKED}, but is {count}")
    differences = compare_predictions(first.prediction, second.prediction, words=_merged(params))
    words = params.get("special", "1") == "0"
    heads, ranked = largest_changes(differences, count, words=words, progress=progress)
    titles = map_titles(first.prediction.attention), map_titles(second.prediction.attention)
    by_maps = {difference.maps: difference for difference in differences}
    layers = [
        {"maps": difference.maps, "title": titles[0][difference.maps[0]], "changed": changed}
        for difference, changed in zip(differences, heads, strict=True)
    ]
    return {"layers": layers, "ranked": [_change(change, by_maps[change.maps], titles[0]) for change in ranked]}


def _change(change: Change, difference: MapDifference, titles: Mapping[str, str]) -> dict[str, Any]:
    return {
        "maps": change.maps,
        "title": titles[change.maps[0]],
        "head": change.head,
        "query": change.query,
        "key": change.key,
        "query_labels": _visible(difference.query_labels(change.query)),
        "key_labels": _visible(difference.key_labels(change.key)),
        "before": change.before,
        "after": change.after,
        "difference": change.difference,
    }


def _difference(first: Inspection, second: Inspection, params: Params) -> MapDifference:
    """Return the two maps of the parameters `map` and `other`, aligned."""
    one, other = params.get("map", ""), params.get("other", "") or params.get("map", "")
    return difference_of(first.attention(one), second.attention(other), words=_merged(params))


def _merged(params: Params) -> bool:
    """Whether sub-word tokens are merged."""
    return params.get("words", "1") != "0"


def _visible(labels: tuple[str | None, str | None]) -> list[str | None]:
    return [None if label is None else visible(label) for label in labels]
