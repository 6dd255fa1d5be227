"""Where to compute and how precisely; and signals that ask to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

import torch

from saccade.errors import UsageError


def choose_device(wish: str) -> torch.device:
    """The device of that name; auto: the best there is."""
    if wish == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wish)
        if device.type not in ("cpu", "cuda", "mps", "xpu"):
            raise RuntimeError("no device to compute on")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"device must be auto, cpu or one this machine has, but is '{wish}': {reason}") from error
    return device


def describe_device(device: torch.device) -> str:
    """The device as a person knows it."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"cpu ({torch.get_num_threads()} threads)" if device.type == "cpu" else str(device)


def busy(device: torch.device) -> str:
    """A word of advice where other programs hold the cores; empty where they do not.

    The threads of a kernel wait for each other: one that gets no core stops all of them.
    """
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    if device.type != "cpu" or torch.get_num_threads() == 1 or load < 1.5 * cores:
        return ""
    return f"other programs keep this machine busy (load {load:.1f}, {cores} cores): OMP_NUM_THREADS=1 may be faster"


def choose_precision(wish: str, device: torch.device) -> str:
    """float32 on a CPU, where bfloat16 is often ten times slower; bfloat16 on a GPU that has it."""
    if wish != "auto":
        return wish
    return "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"


def out_of_memory(error: RuntimeError) -> bool:
    """Whether torch could not have the memory it asked for, on a GPU or a CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


@dataclass
class Stop:
    """The signal that came, 0 if none did."""

    number: int = 0


@contextlib.contextmanager
def stop_signals() -> Iterator[Stop]:
    """Turn SIGINT, SIGTERM and SIGHUP into a wish that the loop grants after its step; a second one ends at once."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def wish(number: int, frame: FrameType | None) -> None:
        if stop.number:  # asked twice: end at once
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        stop.number = number

    before = {number: signal.signal(number, wish) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
