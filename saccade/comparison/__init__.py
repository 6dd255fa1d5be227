"""Comparison of architectures on the same data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.comparison.job import Comparison

MODELS = ("rnn", "rnn+attention", "convolution", "transformer", "universal")
IMAGE_MODELS = ("cnn", "cnn+attention", "hybrid", "vit")
OPTIONS = ("probe_minutes", "sentence", "images")  # of one kind of comparison each


def compare(
    data: str | Path,
    /,
    *,
    task: str = "",
    models: Sequence[str] | None = None,
    minutes: float = 5.0,
    name: str = "",
    root: str | Path = "runs",
    overrides: Sequence[str] = (),
    progress: bool | None = None,
    **settings: Any,
) -> Comparison:
    """Train several architectures on pairs of texts or images with labels for the same time each, and write a report.

        saccade.compare("pairs.tsv", models=["rnn", "rnn+attention"], minutes=10).page
        saccade.compare("photos/", images=["cat.jpg"]).page

    Without a `task` the data decide. Settings and overrides are those of the task, as in `saccade.train`; pairs also
    have `probe_minutes` and `sentence`, images have `images`, as on the command line. The `name` of an unfinished
    comparison continues it.
    """
    from saccade import api
    from saccade.comparison import job
    from saccade.comparison.trial import Trial
    from saccade.progress import reporting

    options = {option: settings.pop(option) for option in OPTIONS if option in settings}
    if "images" in options:
        options["images"] = tuple(map(str, options["images"]))
    trial = Trial(None if models is None else tuple(models), minutes, task=task, **options)
    all_overrides = [*api.to_overrides(settings), *overrides]
    with reporting((), progress) as callback:
        return job.compare(data, trial, overrides=all_overrides, name=name, root=Path(root), callback=callback)
