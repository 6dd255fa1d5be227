"""Attention snapshots: the maps of a few fixed examples at each evaluation, kept with the run to watch them form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from saccade.atomic_io import read_json, write_json
from saccade.core import Prediction
from saccade.core.serialize import inputs_to_json, map_to_json
from saccade.errors import ModelFileError

FOLDER = "attention"
POSITIONS = 48  # of an axis, the first ones
WEIGHTS = 1 << 20  # of an example; of a deeper model every n-th map is kept


def write_snapshot(folder: Path, step: int, examples: Sequence[dict[str, Any]]) -> None:
    """Write the attention of a step; the same step always gives the same file."""
    if not any(example["maps"] for example in examples):
        return
    snapshots = folder / FOLDER
    snapshots.mkdir(exist_ok=True)
    write_json(snapshots / f"step-{step:08d}.json", {"step": step, "examples": list(examples)})


def snapshot_steps(folder: Path) -> list[int]:
    """Return the steps of a run whose attention was kept."""
    matches = (re.fullmatch(r"step-(\d{8})\.json", path.name) for path in (folder / FOLDER).glob("step-*.json"))
    return sorted(int(match[1]) for match in matches if match)


def read_snapshot(folder: Path, step: int) -> dict[str, Any]:
    """Return the attention of a step: its examples, each with inputs, output and maps."""
    path = folder / FOLDER / f"step-{step:08d}.json"
    content = read_json(path)
    examples = content.get("examples")
    kinds = {"inputs": dict, "output": str, "maps": list}
    if not isinstance(examples, list) or not all(
        isinstance(example, dict) and all(isinstance(example.get(name), kind) for name, kind in kinds.items())
        for example in examples
    ):
        raise ModelFileError(f"{path} must have a list of examples with inputs, output and maps; delete the file")
    return content


def pack(predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """Return examples as JSON, with a copy of their weights."""
    return [_example(prediction) for prediction in predictions]


def _example(prediction: Prediction) -> dict[str, Any]:
    maps = list(prediction.attention.values())
    shapes = [attention.shape for attention in maps]
    size = sum(heads * min(POSITIONS, queries) * min(POSITIONS, keys) for heads, queries, keys in shapes)
    kept = maps[:: -(-size // WEIGHTS)] if size else []
    return {
        "inputs": inputs_to_json(prediction.inputs),
        "output": prediction.text,
        "maps": [map_to_json(attention, "uint8", limit=POSITIONS) for attention in kept],
    }
