"""Planning: parameters, FLOPs, memory, time and cost of training, before it is done and against what it took."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.core import Callback
    from saccade.planning.plans import Plan


def plan(
    ref: str | os.PathLike[str] = "",
    /,
    *,
    task: str = "",
    preset: str = "",
    root: str | Path = "runs",
    overrides: Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    **settings: Any,
) -> Plan:
    """Plan a training run: parameters, FLOPs, memory by part, whether it fits, time and cost.

        saccade.plan("pairs.tsv", model={"transformer": {"dim": 512}})  # before training, on this machine
        saccade.plan("pairs.tsv", device="h100", devices=8, price=2.5)  # on other devices
        saccade.plan("pairs-1")["measured"]  # a run: predicted against measured
        saccade.plan("gpt3", device="a100", devices=1024, split=True)  # a published model
        saccade.plan()  # the table of published models

    `device`, `devices`, `price`, `utilisation`, `tokens`, `batch` and `split` are those of `saccade plan`; other
    settings are those of the task, as in `saccade.train`.
    """
    from saccade import api
    from saccade.planning.plans import Options, make_plan
    from saccade.progress import reporting

    options = Options(**{each.name: settings.pop(each.name) for each in fields(Options) if each.name in settings})
    given = [*api.to_overrides(settings), *overrides]
    with reporting(callbacks, progress) as callback:
        return make_plan(
            os.fspath(ref),
            options=options,
            task=task,
            preset=preset,
            overrides=given,
            root=Path(root),
            callback=callback,
        )
