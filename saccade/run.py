"""Run: what `saccade.train` returns; a notebook shows its metrics and learning curves."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from saccade.core import Evaluation
from saccade.runs.folder import Run as Folder
from saccade.runs.journal import read_journal

WIDTH, HEIGHT, MARGIN = 360, 160, 36  # of a learning curve, in pixels
POINTS = 400  # of a curve: more cannot be seen
RECORD = {"step", "elapsed", "best"}  # of an evaluation, beside its metrics


class Run:
    """A trained run: its folder, and the evaluation of its best checkpoint on all the validation data."""

    def __init__(self, path: Path, evaluation: Evaluation) -> None:
        self.path, self.evaluation = path, evaluation

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics of the best checkpoint by name, such as `loss` or `bleu`."""
        return self.evaluation.values

    @property
    def settings(self) -> dict[str, Any]:
        """What the run was started with: run.json."""
        return Folder(self.path).describe()

    @property
    def history(self) -> list[dict[str, Any]]:
        """The records of training steps and evaluations, in order: metrics.jsonl."""
        return read_journal(self.path / "metrics.jsonl")

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return f"<saccade.Run {self.path}: {metrics}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{value:,.4f}</td>"
            f"<td><small>{html.escape(self.evaluation.signatures.get(name, ''))}</small></td></tr>"
            for name, value in self.metrics.items()
        )
        title = f"{self.name}: {self.settings['task']}, {self.path}"
        return f"<h4>{html.escape(title)}</h4><table>{rows}</table>{''.join(self._curves())}"

    def _curves(self) -> list[str]:
        """Return a learning curve for the training loss and for each metric of the validation data."""
        history = self.history
        steps = [record for record in history if "lr_scale" in record]
        evaluations = [record for record in history if "lr_scale" not in record]
        losses = {name: f"training {name}" for record in steps[:1] for name in record if name.startswith("loss")}
        metrics = {
            name: f"validation {name}"
            for record in evaluations[:1]
            for name, value in record.items()
            if name not in RECORD and isinstance(value, float)
        }
        return [
            *(curve(title, _points(steps, name)) for name, title in losses.items()),
            *(curve(title, _points(evaluations, name)) for name, title in metrics.items()),
        ]


def curve(title: str, points: Sequence[tuple[float, float]]) -> str:
    """Return a line chart of (step, value) as SVG; empty if there is nothing to draw."""
    points = [point for point in points if math.isfinite(point[1])]
    if len(points) < 2:
        return ""
    points = points[:: -(-len(points) // POINTS)]
    (left, right), (low, high) = ((min(side), max(side)) for side in zip(*points, strict=True))
    across, up = (right - left) or 1.0, (high - low) or 1.0
    line = " ".join(
        f"{MARGIN + (x - left) / across * (WIDTH - 2 * MARGIN):.1f},"
        f"{HEIGHT - MARGIN - (y - low) / up * (HEIGHT - 2 * MARGIN):.1f}"
        for x, y in points
    )
    texts = [
        (WIDTH / 2, 16, "middle", title),
        (MARGIN - 4, MARGIN + 4, "end", f"{high:.3g}"),
        (MARGIN - 4, HEIGHT - MARGIN + 4, "end", f"{low:.3g}"),
        (MARGIN, HEIGHT - MARGIN + 16, "start", f"step {left:,.0f}"),
        (WIDTH - MARGIN, HEIGHT - MARGIN + 16, "end", f"{right:,.0f}"),
    ]
    labels = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="11" fill="currentColor">{html.escape(text)}</text>'
        for x, y, anchor, text in texts
    )
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{html.escape(title)}">{labels}'
        f'<polyline points="{line}" fill="none" stroke="#3568b8" stroke-width="1.5"/></svg>'
    )


def _points(records: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """Return the values of a metric by step; one that was not finite is null in the journal."""
    return [(record["step"], record[name]) for record in records if record.get(name) is not None]
