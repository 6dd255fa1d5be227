"""The film of a training: a map of a fixed example at every snapshot of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from saccade.errors import UsageError
from saccade.look.names import SEPARATOR, map_titles
from saccade.look.overlay import OverlayStyle
from saccade.look.training_film import training_film
from saccade.runs.snapshots import read_snapshot, snapshot_steps
from saccade.studio.live import get_run


def film_of_run(root: Path, name: str, shown: tuple[int, str, int | None], style: OverlayStyle) -> bytes:
    """Return a GIF of what is shown, an example, a map and a head (None: their mean), at every snapshot of a run."""
    run, (_, layer, head) = get_run(root, name), shown
    snapshots, title = [], layer
    for step in snapshot_steps(run.folder):
        maps, images = _example(read_snapshot(run.folder, step), shown)
        title, entry = map_titles(maps)[layer], dict(maps[layer])
        keys = entry["keys"]
        if isinstance(keys.get("image"), int):  # the images of an example are kept once
            entry["keys"] = {**keys, "image": images[keys["image"]]}
        snapshots.append((step, entry))
    label = SEPARATOR.join([run.name, title, "mean of all heads" if head is None else f"head {head}"])
    return training_film(label, snapshots, head, style)


def _example(snapshot: dict[str, Any], shown: tuple[int, str, int | None]) -> tuple[dict[str, Any], list[str]]:
    """Return the maps of an example by name, and its images."""
    number, layer, _ = shown
    examples = snapshot["examples"]
    if number >= len(examples):
        raise UsageError(f"example must be 0 to {len(examples) - 1}, but is {number}")
    maps = {entry["name"]: entry for entry in examples[number]["maps"]}
    if layer not in maps:
        raise UsageError(f"no map '{layer[:100]}'; there are: {', '.join(maps) or 'none'}")
    return maps, examples[number]["images"]
