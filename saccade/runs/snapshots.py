"""Attention snapshots: the maps of a few fixed examples, kept with the run to watch them form.

They are taken before the first step, after steps 1, 2, 4, 8, ... and at each evaluation: most changes early.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from saccade.atomic_io import read_sealed, save_error, write_sealed
from saccade.core import AttentionMap, GridAxis, Prediction, StepAxis
from saccade.core.serialize import Encoding, Images, inputs_to_json, map_to_json
from saccade.errors import ModelFileError

FOLDER = "attention"
POSITIONS = 48  # of an axis, the first ones
WEIGHTS = 1 << 20  # of an example; of a deeper model every n-th map is kept


def is_log_spaced(step: int) -> bool:
    """Whether a step is 0 or a power of two: a function of the step alone, so that a resumed run keeps the same."""
    return step & (step - 1) == 0


def write_snapshot(folder: Path, step: int, examples: Sequence[dict[str, Any]]) -> None:
    """Write the attention of a step; the same step always gives the same file."""
    if not any(example["maps"] for example in examples):
        return
    snapshots = folder / FOLDER
    try:
        snapshots.mkdir(exist_ok=True)
    except OSError as error:
        raise save_error(snapshots, error) from error
    write_sealed(snapshots / f"step-{step:08d}.json", {"step": step, "examples": list(examples)})


def read_snapshot(folder: Path, step: int) -> dict[str, Any]:
    """Return the attention of a step; raises ModelFileError if the file was changed."""
    path = folder / FOLDER / f"step-{step:08d}.json"
    snapshot = read_sealed(path)
    if snapshot.get("step") != step:
        raise ModelFileError(f"{path} must be of step {step}, but is of step {snapshot.get('step')}")
    return snapshot


def snapshot_steps(folder: Path) -> list[int]:
    """Return the steps of a run whose attention was kept."""
    matches = (re.fullmatch(r"step-(\d{8})\.json", path.name) for path in (folder / FOLDER).glob("step-*.json"))
    return sorted(int(match[1]) for match in matches if match)


def pack(predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """Return examples as JSON, with a copy of their weights."""
    return [_example(prediction) for prediction in predictions]


def _example(prediction: Prediction) -> dict[str, Any]:
    maps = [_reduced(attention) for attention in prediction.attention.values()]
    size = sum(map(_size, maps))
    kept = maps[:: -(-size // WEIGHTS)] if size else []
    images = Images()
    return {
        "inputs": inputs_to_json(prediction.inputs),
        "output": prediction.text,
        "maps": [map_to_json(attention, _encoding(attention), images=images, limit=POSITIONS) for attention in kept],
        "images": images.urls,
    }


def _size(attention: AttentionMap) -> int:
    """Return the number of weights that are kept of a map; a grid is kept whole."""
    heads, *counts = attention.shape
    pairs = zip((attention.queries, attention.keys), counts, strict=True)
    return heads * math.prod(count if isinstance(axis, GridAxis) else min(POSITIONS, count) for axis, count in pairs)


def _reduced(attention: AttentionMap) -> AttentionMap:
    """Return the map; one that alone is too large, by the mean over the cells of its queries."""
    queries = attention.queries
    if not isinstance(queries, GridAxis) or _size(attention) <= WEIGHTS:
        return attention
    first = len(queries.extra)
    weights = attention.weights
    means = torch.cat((weights[:, :first], weights[:, first:].mean(1, keepdim=True)), 1)
    steps = StepAxis(queries.role, (*queries.extra, f"mean of {len(queries) - first} cells"))
    return AttentionMap(attention.name, means, steps, attention.keys)


def _encoding(attention: AttentionMap) -> Encoding:
    """Return how weights are kept: over the many cells of a grid even the largest is far below 1."""
    return "uint16" if isinstance(attention.keys, GridAxis) else "uint8"
