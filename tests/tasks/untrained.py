"""Untrained tasks with random weights, so that their outputs vary."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from saccade.core import Task

AnyTask = TypeVar("AnyTask", bound=Task)


def open_untrained(
    kind: type[AnyTask], config: Any, data: Path, assets: Path, *, std: float
) -> tuple[AnyTask, list[str]]:
    """Return a task with the data loaded and normally distributed weights, and the notes on the data."""
    kind.prepare(config, data, assets)
    task: Any = kind.open(config, assets)
    notes = task.load_data(data)
    torch.manual_seed(1)
    for parameter in task.model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    task.model.eval()
    return task, notes


def in_two_threads(work: Callable[[int], None]) -> None:
    """Run work(0) and work(1) at once."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
