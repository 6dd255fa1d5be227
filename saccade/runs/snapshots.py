"""Glimpses: the attention of a few fixed examples at each evaluation, kept with the run to be watched as it forms."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from saccade.atomic_io import write_json
from saccade.core.task import AttentionMap, Prediction

FOLDER = "attention"
TOKENS = 48  # of a text, the first ones
WEIGHTS = 1 << 20  # of an example; of a deeper model an even choice of its layers is kept


def write_snapshot(folder: Path, step: int, examples: Sequence[dict[str, Any]]) -> None:
    """Keep what was looked at in a step; the same step always gives the same file."""
    if not any(one["maps"] for one in examples):
        return
    place = folder / FOLDER
    place.mkdir(exist_ok=True)
    write_json(place / f"step-{step:08d}.json", {"step": step, "examples": list(examples)})


def pack(found: Sequence[Prediction]) -> list[dict[str, Any]]:
    """Examples as JSON, with their weights as they are now."""
    return [_example(one) for one in found]


def _example(found: Prediction) -> dict[str, Any]:
    cells = sum(read.shape[0] * min(TOKENS, read.shape[1]) * min(TOKENS, read.shape[2]) for read in found.maps)
    maps = found.maps[:: -(-cells // WEIGHTS)] if cells else ()
    return {"input": found.input, "output": found.output, "maps": [_map(read) for read in maps]}


def _map(read: AttentionMap) -> dict[str, Any]:
    weights = read.rows(0, min(TOKENS, read.shape[1]))[:, :, :TOKENS].float()
    shades = (weights.clamp(0, 1) * 255).round().byte().contiguous()
    return {
        "name": read.name,
        "heads": read.shape[0],
        "queries": list(read.queries.labels[:TOKENS]),
        "keys": list(read.keys.labels[:TOKENS]),
        "weights": base64.b64encode(shades.numpy().tobytes()).decode(),  # a byte each, 255 for 1
    }
