"""An episode as text or JSON: a line of blocks for each number, and the mean attention over the history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from saccade.atomic_io import new_file
from saccade.core.serialize import dump_json
from saccade.errors import ResourceError, UsageError

BLOCKS = "▁▂▃▄▅▆▇█"
NAME = 22  # columns of the name of a curve


def episode_text(episode: Mapping[str, Any], width: int = 100) -> list[str]:
    """Return the lines that describe an episode, as wide as a terminal."""
    steps: Sequence[Mapping[str, Any]] = episode["steps"]
    total = "not finite" if episode["return"] is None else f"{episode['return']:.1f}"
    head = f"{episode['environment']}, seed {episode['seed']}: {len(steps)} steps, return {total}"
    names, labels = list(episode["observations"]), list(episode["labels"])
    curves = {name: [step["observation"][n] for step in steps] for n, name in enumerate(names)}
    if labels:
        curves["action"] = [float(labels.index(step["action"])) for step in steps]
        curves |= {f"probability of {label}": [s["probabilities"][n] for s in steps] for n, label in enumerate(labels)}
    else:
        curves |= {f"action {n}": [step["action"][n] for step in steps] for n in range(len(steps[0]["action"]))}
    room = max(10, width - NAME - 24)
    lines = [f"{head}, {episode['end']}"]
    for name, recorded in curves.items():
        values = [value for value in recorded if value is not None]
        if len(values) < len(recorded):
            lines.append(f"{name[:NAME]:{NAME}} {len(recorded) - len(values)} of {len(recorded)} values are not finite")
            continue
        low, high = min(values), max(values)
        lines.append(f"{name[:NAME]:{NAME}} {_blocks(values, room)} {low:.3g} to {high:.3g}")
    for name in steps[0]["attention"]:
        weights = mean_attention(episode, name)
        shown = [
            f"t-{len(weights) - 1 - n} {w:.2f}" if n + 1 < len(weights) else f"t {w:.2f}" for n, w in enumerate(weights)
        ]
        lines.append(f"{name[:NAME]:{NAME}} {'  '.join(shown)}")
    return lines


def write_episode(episode: Mapping[str, Any], path: Path) -> None:
    """Write every step of an episode to a .json file."""
    if path.suffix.lower() != ".json":
        raise UsageError(f"an episode is written as .json, but the file is '{path}'; the studio replays it")
    try:
        with new_file(path) as file:
            file.write(dump_json(episode).encode())
    except OSError as error:
        raise ResourceError(f"cannot write {path}: {error.strerror}; choose another file with --out") from error


def mean_attention(episode: Mapping[str, Any], name: str) -> list[float]:
    """Return the weights over a whole history, the mean over heads and over all steps that have one."""
    longest = max(len(step["attention"][name][0]) for step in episode["steps"])
    heads = [head for step in episode["steps"] for head in step["attention"][name] if len(head) == longest]
    return [sum(head[n] for head in heads) / len(heads) for n in range(longest)]


def _blocks(values: Sequence[float], width: int) -> str:
    """Return values as blocks of eight heights, the mean of several steps where there are more than columns."""
    count = min(width, len(values))
    spans = [(len(values) * n // count, len(values) * (n + 1) // count) for n in range(count)]
    means = [sum(values[first:last]) / (last - first) for first, last in spans]
    low, high = min(means), max(means)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((mean - low) * scale)] for mean in means)
