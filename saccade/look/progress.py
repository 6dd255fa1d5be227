"""The progress of a prediction: how many of the layers of a model have been computed."""

from __future__ import annotations

from contextlib import AbstractContextManager

from saccade.core import Progress, Task
from saccade.nn.attention import Attention
from saccade.nn.listeners import listening


def layer_progress(task: Task, progress: Progress) -> AbstractContextManager[None]:
    """Report the fraction of attention layers that have begun while the block runs, in this thread.

    A model that generates token by token computes them again for each token; the fraction then stays at 1.
    """
    modules = [
        part for network in task.networks().values() for part in network.modules() if isinstance(part, Attention)
    ]
    done = 0

    def count(*_: object) -> None:
        nonlocal done
        done += 1
        progress(min(1.0, done / len(modules)))

    return listening(modules, count)
