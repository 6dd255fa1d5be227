"""Slow down the moments when a kill could do harm: preparing, saving, clearing up."""

import os
import random
import shutil
import time
from collections.abc import Callable
from typing import Any

from saccade import api
from saccade.runs import checkpoint

PAUSE = 0.02  # seconds at most before and after each small act


def slowly(act: Callable[..., Any]) -> Callable[..., Any]:
    def acted(*arguments: Any, **named: Any) -> Any:
        time.sleep(random.uniform(0, PAUSE))
        result = act(*arguments, **named)
        time.sleep(random.uniform(0, PAUSE))
        return result

    return acted


def slow_down() -> None:
    """Patch this process."""
    random.seed(os.getpid())
    for name in ("save_file", "_fingerprint", "sync_folder", "_delete"):
        setattr(checkpoint, name, slowly(getattr(checkpoint, name)))
    for name in ("write_sealed", "sync_tree"):
        setattr(api, name, slowly(getattr(api, name)))
    os.fsync = slowly(os.fsync)
    shutil.rmtree = slowly(shutil.rmtree)  # type: ignore[assignment]
    checkpoint.check_written = slowly(checkpoint.check_written)
