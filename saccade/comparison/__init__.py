"""Comparison of architectures on one file of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.comparison.job import Comparison

MODELS = ("rnn", "rnn+attention", "convolution", "transformer", "universal")


def compare(
    data: str | Path,
    /,
    *,
    models: Sequence[str] = MODELS,
    minutes: float = 5.0,
    probe_minutes: float | None = None,
    name: str = "",
    root: str | Path = "runs",
    overrides: Sequence[str] = (),
    progress: bool | None = None,
    **settings: Any,
) -> Comparison:
    """Train several architectures on a file of pairs for the same time each, and write a report.

        saccade.compare("pairs.tsv", models=["rnn", "rnn+attention"], minutes=10).page

    Settings and overrides are those of translation, as in `saccade.train`. The `name` of an unfinished comparison
    continues it.
    """
    from saccade import api
    from saccade.comparison import job
    from saccade.progress import reporting

    trial = job.Trial(tuple(models), minutes, probe_minutes)
    all_overrides = [*api.to_overrides(settings), *overrides]
    with reporting((), progress) as callback:
        return job.compare(data, trial, overrides=all_overrides, name=name, root=Path(root), callback=callback)
