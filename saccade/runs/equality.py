"""Comparison of whole run folders: their content byte by byte, without what the clock and the process decide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from saccade.runs.notes import NOTES

CLOCK = ("seconds", "elapsed")  # of a record of metrics.jsonl
# What may differ between two equal runs, by file; a dotted name is that of an entry. Everything else is compared.
MAY_DIFFER: dict[str, tuple[str, ...]] = {
    "run.json": ("created", "launch"),
    "data.json": ("settings", "seal"),  # hashes over the time of creation
    "state.json": ("elapsed", "data", "journals.metrics.jsonl"),  # the clock; hashes over it
    "manifest.json": ("files.state.json", "seal"),  # hashes over the clock
}
NOT_COMPARED = ("run.lock", "memory.json", NOTES)  # the process, the memory it took, and what people wrote of it


def contents(run: Path, skip: str = "") -> dict[str, Any]:
    """Return the content of every file of a run by its path, without one of them; a folder counts too."""
    paths = {str(path.relative_to(run)): path for path in sorted(run.rglob("*"))}
    return {name: content(run, path) for name, path in paths.items() if path.name not in NOT_COMPARED and name != skip}


def content(run: Path, path: Path) -> Any:
    """Return what is compared of a file."""
    if path.is_dir():
        return "folder"
    if path.name in MAY_DIFFER:
        values = json.loads(path.read_bytes())
        for name in MAY_DIFFER[path.name]:
            group, _, entry = name.partition(".")
            values = {**values, group: without(values[group], entry)} if entry else without(values, name)
        return values
    if path.name == "metrics.jsonl":
        return [without(json.loads(line), *CLOCK) for line in path.read_text().splitlines()]
    if path.name == "card.md":
        created = json.loads((run / "run.json").read_bytes())["created"]
        return path.read_text().replace(created, "").replace(f"{run.parent.name}/{run.name}", "").replace(run.name, "")
    return path.read_bytes()


def without(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def differences(one: Path, other: Path) -> list[str]:
    """Return the files that differ between two runs, or that one of them lacks."""
    left, right = contents(one), contents(other)
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))
