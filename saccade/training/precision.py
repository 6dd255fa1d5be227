"""Precision: float32, or bfloat16 where the device computes faster with it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from saccade.atomic_io import read_sealed, write_sealed
from saccade.errors import ModelFileError

TRIALS = 3  # timed steps, of which the fastest counts
GAIN = 1.1  # how much faster bfloat16 must be to be worth its rounding


def choose_precision(name: str, device: torch.device, file: Path, seconds: Callable[[str], float]) -> str:
    """Return float32 or bfloat16; fastest: what is faster on this machine, measured once and written to `file`.

    `seconds` times a step. On a CPU bfloat16 is twice as fast for convolutions or ten times slower, by the processor.
    """
    if name == "fastest" and device.type == "cpu":
        if not file.exists():
            times = {precision: seconds(precision) for precision in ("float32", "bfloat16")}
            faster = "bfloat16" if times["bfloat16"] * GAIN < times["float32"] else "float32"
            write_sealed(file, {"precision": faster, "seconds": times})
        chosen = str(read_sealed(file).get("precision"))
        if chosen not in ("float32", "bfloat16"):
            raise ModelFileError(f"{file}: precision must be float32 or bfloat16, but is {chosen[:40]!r}")
        return chosen
    if name not in ("auto", "fastest"):
        return name
    return "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Return the context in which networks compute with a precision."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")


def fastest(step: Callable[[], object]) -> float:
    """Return the seconds of the fastest of a few calls, after one to warm up."""
    times = []
    for _ in range(TRIALS + 1):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return min(times[1:])
