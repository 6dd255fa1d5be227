"""Looking: what the Look page asks for, as plain values: an answer, its maps in small, any rectangle, and reasons."""

from __future__ import annotations

import base64
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from torch import Tensor

from saccade.core.task import AttentionMap, Axis, TokenScores
from saccade.errors import UsageError
from saccade.look import explain
from saccade.look.explain import Ablation, Calculation
from saccade.look.labels import shown
from saccade.look.maps import align, merge
from saccade.look.view import Habits, habits, thumbnails
from saccade.studio.sessions import Look

THUMB = 40  # cells of a small picture, each way
CELLS = 1 << 22  # most weights of one answer
ROLLED = 1024  # tokens of a text whose layers are multiplied
KEYS = 64  # keys of a calculation that is shown number by number


def describe(look: Look) -> dict[str, Any]:
    """An answer and what its maps are called; the weights come when they are asked for."""
    found = look.found
    reads = [*([] if found.alignment is None else [replace(found.alignment, name="alignment")]), *found.maps]
    maps = [_map(read) for read in reads]
    if len(look.layers) > 1 and look.layers[0].shape[1] <= ROLLED:  # computed when somebody looks at it
        maps.append({**_map(look.layers[0]), "name": "rollout", "heads": 1})
    return {
        "id": look.id,
        "model": look.model.name,
        "continues": look.model.task.continues,
        "input": found.input,
        "output": found.output,
        "scores": found.scores,
        "others": [{"output": one.output, "scores": one.scores} for one in found.others],
        "readings": [_reading(one) for one in found.readings],
        "maps": maps,
        "alignment": None if found.alignment is None else align(merge(found.alignment)),
    }


def _map(read: AttentionMap) -> dict[str, Any]:
    same = read.queries == read.keys
    return {
        "name": read.name,
        "heads": read.shape[0],
        "queries": _axis(read.queries),
        "keys": None if same else _axis(read.keys),  # null: the queries look at each other
    }


def _axis(axis: Axis) -> dict[str, Any]:
    return {"kind": axis.kind, "labels": [shown(label) for label in axis.labels], "words": list(axis.words)}


def _reading(reading: TokenScores) -> dict[str, Any]:
    return {"name": reading.name, "labels": [shown(one) for one in reading.axis.labels], "values": list(reading.values)}


def overview(look: Look) -> list[dict[str, Any]]:
    """Every head of every map in small, one byte a cell."""
    found = []
    for read in look.found.maps:
        small = thumbnails(read, THUMB)
        pixels = base64.b64encode((small * 255).round().byte().numpy().tobytes()).decode()
        found.append({"name": read.name, "heads": len(small), "rows": small.shape[1], "columns": small.shape[2]})
        found[-1]["cells"] = pixels
    return found


def cells(look: Look, name: str, head: int | None, rows: range, columns: range, *, words: bool) -> bytes:
    """The weights of a rectangle as numbers of 16 bits, low byte first, 65535 for 1."""
    count = len(rows) * len(columns)
    if count > CELLS:
        raise UsageError(f"a rectangle must have at most {CELLS:,} weights, but has {count:,}")
    return _packed(look.view(name, words=words).cells(rows, columns, head))


def _packed(weights: Tensor) -> bytes:
    numbers = np.nan_to_num(weights.float().numpy()).clip(0, 1)
    return bytes((numbers * 65535).round().astype("<u2").tobytes())


def summary(look: Look, name: str) -> list[dict[str, Any]]:
    """What each head of a map does."""
    return [_habits(one) for one in habits(look.read(name))]


def _habits(one: Habits) -> dict[str, Any]:
    return {**{name: round(value, 4) for name, value in asdict(one).items()}, "kind": one.kind}


def offs_of(values: object) -> list[Ablation]:
    """What is to be switched off, from JSON."""
    if not isinstance(values, list) or len(values) > 1000:
        raise UsageError("offs must be a list of at most 1,000 heads or looks")
    found = []
    for value in values:
        known = value if isinstance(value, dict) else {}
        name, numbers = known.get("map"), [known.get(key) for key in ("head", "query", "key")]
        if not isinstance(name, str) or not all(one is None or type(one) is int for one in numbers):
            raise UsageError("what is switched off must have a map and a head, and may have a query and a key")
        if numbers[0] is None:
            raise UsageError("what is switched off must have a head, but has none")
        found.append(Ablation(name, numbers[0], numbers[1], numbers[2]))
    return found


def effect(look: Look, values: object) -> dict[str, Any]:
    """The answer before and after something is switched off."""
    found = explain.effect(look.model.task, look.found, offs_of(values))
    return {
        "lost": found.lost,
        "before": [_said(one) for one in found.before],
        "after": [_said(one) for one in found.after],
    }


def importance(look: Look) -> dict[str, list[float]]:
    """How much less likely the answer is without each head."""
    return explain.importance(look.model.task, look.found)


def layers(look: Look) -> list[dict[str, Any]]:
    """What the output layer would say after each layer."""
    found = explain.layer_by_layer(look.model.task, look.found)
    return [{"name": one.name, "said": [_said(said) for said in one.said]} for one in found]


def _said(one: explain.Said) -> dict[str, Any]:
    best = [[shown(name), chance] for name, chance in one.best]
    return {"place": shown(one.place), "answer": shown(one.answer), "fit": one.fit, "best": best}


def why(look: Look, place: int | None, by: str) -> list[dict[str, Any]]:
    """How much each token speaks for the answer."""
    if by not in ("gradient", "integrated"):
        raise UsageError(f"by must be gradient or integrated, but is '{by}'")
    found = explain.attribute(look.model.task, look.found, place, "gradient" if by == "gradient" else "integrated")
    return [_reading(one) for one in found]


def steps(look: Look, name: str, head: int, query: int) -> dict[str, Any]:
    """One head for one token, number by number; of many keys those that are looked at most."""
    found = explain.calculation(look.model.task, look.found, name, head, query)
    labels = look.read(name).keys.labels
    kept = sorted(found.weights.topk(min(KEYS, len(found.weights))).indices.tolist())
    if len(labels) <= KEYS:
        kept = list(range(len(labels)))
    return {"keys": kept, "labels": [shown(labels[at]) for at in kept], **_numbers(found, kept), **_rest(found, kept)}


def _rest(found: Calculation, kept: list[int]) -> dict[str, Any]:
    """The keys that are not shown, as one: the score and the value that have the same effect."""
    hidden = found.allowed.clone()
    hidden[kept] = False
    if not bool(hidden.any()):
        return {"rest": None}
    weights = found.scores[hidden].softmax(0)
    return {"rest": {"score": float(found.scores[hidden].logsumexp(0)), "value": (weights @ found.v[hidden]).tolist()}}


def _numbers(found: Calculation, kept: list[int]) -> dict[str, Any]:
    by_key = {"k": found.k, "v": found.v, "fits": found.fits, "scores": found.scores, "weights": found.weights}
    whole = {"x": found.x, "matrix": found.matrix, "bias": found.bias, "plain": found.plain, "q": found.q}
    whole |= {"mixed": found.mixed, "joined": found.joined, "output": found.output}
    numbers = {name: None if value is None else value[kept].tolist() for name, value in by_key.items()}
    numbers |= {name: None if value is None else value.tolist() for name, value in whole.items()}
    return {**numbers, "scale": found.scale, "allowed": found.allowed[kept].tolist()}
