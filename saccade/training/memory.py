"""Peak memory and processor time of training steps, measured once in each process and written to the run folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from saccade.atomic_io import write_sealed

FILE = "memory.json"
WARM_UP = 3  # steps whose time does not count
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """The memory of the steps before the first evaluation: an evaluation leaves memory behind that steps do not need.

    On a CPU the resident memory of the process, as Linux reports it; on a CUDA device what torch allocated there.
    Nothing is written where neither can be measured, or without a file: one process of several writes it. The file
    describes the process, not the model: no number of a run depends on it.
    """

    def __init__(self, device: torch.device, file: Path | None) -> None:
        self._device, self._file, self._done = device, file, False
        self._before = memory_in_use(device) if reset_peak(device) else None
        self._steps, self._clock = 0, 0.0

    def step(self) -> None:
        """Count a step; the clock starts after the first ones."""
        self._steps += 1
        if self._steps == WARM_UP:
            self._clock = time.process_time()

    def record(self, steps: int) -> None:
        """Write the peak of the first `steps` steps and the mean processor time of one, once."""
        peak = peak_memory(self._device)
        if self._done or self._file is None or self._before is None or peak is None:
            return
        self._done = True
        timed = self._steps - WARM_UP
        seconds = (time.process_time() - self._clock) / timed if timed > 0 else 0.0  # 0: too few steps
        record = {"device": self._device.type, "before": self._before, "peak": peak, "steps": steps}
        write_sealed(self._file, {**record, "processor_seconds": seconds})


def memory_in_use(device: torch.device) -> int | None:
    """Return the bytes in use now; None: not known."""
    return int(torch.cuda.memory_allocated(device)) if device.type == "cuda" else _resident("VmRSS:", device)


def peak_memory(device: torch.device) -> int | None:
    """Return the most bytes in use since the last reset; None: not known."""
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else _resident("VmHWM:", device)


def reset_peak(device: torch.device) -> bool:
    """Forget the peak so far; return whether that is possible here."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        RESET.write_text("5")
    except OSError:  # not Linux, or not permitted
        return False
    return device.type == "cpu"


def _resident(name: str, device: torch.device) -> int | None:
    if device.type != "cpu" or not STATUS.exists():
        return None
    fields: list[Any] = next(line.split() for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(fields[1]) * 1024
