"""The Look page as JSON: a prediction, thumbnails of its heads, rectangles of a map, and explanations."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import Any

from saccade.core import AttentionMap, Axis, GridAxis, ImageOutput
from saccade.core.serialize import Images, axis_to_json, inputs_to_json, pack, token_scores_to_json
from saccade.errors import UsageError
from saccade.look.explain import Ablation, PositionScores
from saccade.look.labels import visible
from saccade.look.maps import is_self_attention, word_alignment, word_labels
from saccade.look.names import map_titles
from saccade.look.patterns import head_patterns, head_pictures
from saccade.look.rollout import NAME as ROLLOUT
from saccade.look.search import HeadSearch, search_heads
from saccade.look.times import is_over_time, times_to_json
from saccade.look.view import grid_thumbnails, head_statistics, thumbnails
from saccade.studio.sessions import ALIGNMENT, Inspection

THUMBNAIL = 40  # cells of a thumbnail, each way
CELLS = 1 << 22  # most weights of one response
MOST_ABLATIONS = 1000
PICTURE = 32  # cells of a head in the gallery, each way
RANKED = 10  # heads of a search, the strongest first


def describe(inspection: Inspection) -> dict[str, Any]:
    """Return a prediction and the axes of its maps; weights are fetched when they are shown."""
    prediction = inspection.prediction
    alignment, known = prediction.alignment, _Maps()
    maps = [] if alignment is None else [known.describe(alignment, name=ALIGNMENT)]
    maps += [known.describe(attention) for attention in prediction.attention.values()]
    if inspection.layers:  # computed when it is shown
        maps.append(known.describe(inspection.layers[0], name=ROLLOUT, heads=1))
    over_image = alignment is not None and isinstance(alignment.keys, GridAxis)
    timed = alignment is not None and is_over_time(alignment)
    texts = {name: value for name, value in prediction.inputs.items() if name not in inspection.uploads}
    alternatives = [
        {"output": other.text, "scores": dict(other.scores)}
        | ({"image": other.output.to_json()} if isinstance(other.output, ImageOutput) else {})
        for other in prediction.alternatives
    ]
    return {
        "id": inspection.id,
        "model": inspection.name,
        "continues": inspection.model.task.continues,
        "generated": inspection.generated,
        "inputs": {**inputs_to_json(texts), **inspection.uploads},
        "output": prediction.output.to_json(),
        "scores": {visible(name): value for name, value in prediction.scores.items()},
        "alternatives": alternatives,
        "notes": list(prediction.notes),
        "token_scores": [token_scores_to_json(scores, label=visible) for scores in prediction.token_scores],
        "maps": with_titles(maps),
        "images": known.images.urls,
        "alignment": None if alignment is None or over_image or timed else word_alignment(alignment),
        "times": times_to_json(alignment) if alignment is not None and timed else None,
    }


class _Maps:
    """Maps as JSON, without weights; an axis that several maps have is described once, and shares its images."""

    def __init__(self) -> None:
        self.images = Images()
        self._axes: dict[int, tuple[Axis, dict[str, Any]]] = {}  # by id, which no other axis has while it is kept

    def describe(self, attention: AttentionMap, **changes: Any) -> dict[str, Any]:
        """Return a map with its axes; keys are null for self-attention."""
        keys = None if is_self_attention(attention) else self._axis(attention.keys)
        header = {"name": attention.name, "heads": attention.shape[0]}
        return {**header, "queries": self._axis(attention.queries), "keys": keys, **changes}

    def _axis(self, axis: Axis) -> dict[str, Any]:
        if id(axis) not in self._axes:
            described = axis_to_json(axis, images=self.images, label=visible)
            merged = {"merged": word_labels(axis)} if described.get("words") else {}
            self._axes[id(axis)] = axis, {**described, **merged}
        return self._axes[id(axis)][1]


def with_titles(maps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return described maps with a title for people beside the name that the model gave them."""
    titles = map_titles(entry["name"] for entry in maps)
    return [{**entry, "title": titles[entry["name"]]} for entry in maps]


def overview(inspection: Inspection, name: str = "") -> list[dict[str, Any]]:
    """Return a thumbnail of every head of a map (no name: of every map), over an image in the shape of its grid.

    A cell is one byte.
    """
    pictures = []
    for attention in [inspection.attention(name)] if name else inspection.prediction.attention.values():
        over_image = isinstance(attention.keys, GridAxis)
        small = grid_thumbnails(attention) if over_image else thumbnails(attention, THUMBNAIL)
        heads, rows, columns = small.shape
        cells = base64.b64encode(pack(small, "uint8")).decode()
        pictures.append({"name": attention.name, "heads": heads, "rows": rows, "columns": columns, "cells": cells})
    return pictures


def cells(inspection: Inspection, name: str, head: int | None, rows: range, columns: range, *, words: bool) -> bytes:
    """Return the weights of a rectangle as unsigned 16-bit integers, little-endian, 65535 for 1."""
    count = len(rows) * len(columns)
    if count > CELLS:
        raise UsageError(f"a rectangle must have at most {CELLS:,} weights, but has {count:,}")
    return pack(inspection.view(name, words=words).cells(rows, columns, head), "uint16")


def planes(inspection: Inspection, name: str, rows: range, columns: range, *, words: bool) -> bytes:
    """Return a rectangle of every head, and last of their mean, as `cells` does."""
    heads = range(inspection.attention(name).shape[0])
    count = len(rows) * len(columns) * (len(heads) + 1)
    if count > CELLS:
        raise UsageError(f"a rectangle of all heads must have at most {CELLS:,} weights, but has {count:,}")
    return b"".join(cells(inspection, name, head, rows, columns, words=words) for head in (*heads, None))


def statistics(inspection: Inspection, name: str) -> list[dict[str, Any]]:
    """Return what each head of a map attends to."""
    return [
        {**{key: round(value, 4) for key, value in asdict(head).items()}, "pattern": head.pattern}
        for head in head_statistics(inspection.attention(name))
    ]


def heads(inspection: Inspection, name: str, query: int, key: int | None, *, words: bool) -> dict[str, Any]:
    """Return the weights of a query in every head of the maps over the same axes, and the strongest heads.

    `top` is the strongest key of each head, `words` the strongest that is a word of the text other than the query.
    """
    maps = inspection.prediction.attention
    search = search_heads(list(maps.values()), inspection.attention(name), query, words=words)
    titles = map_titles(maps)
    ranked = [
        {
            "map": name,
            "title": titles[name],
            "head": head,
            "key": at,
            "label": visible(search.keys[at]),
            "weight": weight,
        }
        for name, head, at, weight in search.ranked(key, RANKED)
    ]
    layers = [
        {
            "name": layer.name,
            "title": titles[layer.name],
            "weights": None if key is None else layer.weights[:, key].tolist(),
            "top": _labelled(search, layer.top(range(len(search.keys)))),
            "words": _labelled(search, layer.top(search.words)),
        }
        for layer in search.layers
    ]
    chosen = None if key is None else visible(search.keys[key])
    return {"query": visible(search.queries[query]), "key": chosen, "layers": layers, "ranked": ranked}


def _labelled(search: HeadSearch, top: list[tuple[int, float]]) -> list[dict[str, Any]]:
    return [{"key": at, "label": visible(search.keys[at]), "weight": weight} for at, weight in top]


def gallery(inspection: Inspection) -> list[dict[str, Any]]:
    """Return the pattern of every head of every map, and the head in small: square roots of weights, 255 for 1."""
    maps = inspection.prediction.attention
    titles = map_titles(maps)
    heads = []
    for name, attention in maps.items():
        pictures = head_pictures(attention, PICTURE)
        for head, pattern in enumerate(head_patterns(attention)):
            about = {"map": name, "title": titles[name], "head": head, "pattern": pattern.name}
            values = {"entropy": pattern.entropy, "distance": pattern.distance, "scores": pattern.scores}
            cells = base64.b64encode(pack(pictures[head].sqrt(), "uint8")).decode()
            heads.append({**about, **values, "columns": pictures.shape[2], "cells": cells})
    return heads


def parse_ablations(values: object) -> list[Ablation]:
    """Return ablations from JSON."""
    if not isinstance(values, list) or len(values) > MOST_ABLATIONS:
        raise UsageError(f"ablations must be a list of at most {MOST_ABLATIONS:,}")
    ablations = []
    for value in values:
        entry = value if isinstance(value, dict) else {}
        name, numbers = entry.get("map"), [entry.get(key) for key in ("head", "query", "key")]
        if not isinstance(name, str) or not all(number is None or type(number) is int for number in numbers):
            raise UsageError("an ablation must have a map and a head, and may have a query and a key")
        if numbers[0] is None:
            raise UsageError("an ablation must have a head, but has none")
        ablations.append(Ablation(name, numbers[0], numbers[1], numbers[2]))
    return ablations


def effect(inspection: Inspection, values: object) -> dict[str, Any]:
    """Return the scores of the answer before and after ablations."""
    result = inspection.explanation.ablate_all(parse_ablations(values))
    before, after = ([_position(scores) for scores in side] for side in (result.before, result.after))
    number = next((scores.position for scores in result.before if not scores.top), None)  # the answer is no probability
    return {"lost": result.lost, "quantity": number or "log-probability", "before": before, "after": after}


def importance(inspection: Inspection) -> dict[str, list[float]]:
    """Return how much each head contributes to the log-probability of the answer."""
    return inspection.explanation.importance()


def logit_lens(inspection: Inspection) -> list[dict[str, Any]]:
    """Return what the output layer predicts after each layer."""
    layers = inspection.explanation.logit_lens()
    return [{"name": layer.name, "positions": [_position(scores) for scores in layer.positions]} for layer in layers]


def _position(scores: PositionScores) -> dict[str, Any]:
    top = [[visible(name), probability] for name, probability in scores.top]
    labels = {"position": visible(scores.position), "answer": visible(scores.answer)}
    return {**labels, "log_prob": scores.log_prob, "top": top}


def attribution(inspection: Inspection, position: int | None, method: str) -> list[dict[str, Any]]:
    """Return how much each input token contributes to the answer."""
    if method not in ("gradient", "integrated"):
        raise UsageError(f"method must be gradient or integrated, but is '{method}'")
    scores = inspection.explanation.attribute(position, "gradient" if method == "gradient" else "integrated")
    return [token_scores_to_json(entry, label=visible) for entry in scores]
