"""Devices: where to compute and how precisely; and signals that ask to stop."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from saccade.errors import ResourceError, UsageError

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # parameters of glibc's mallopt


def choose_device(name: str, processes: int = 1) -> torch.device:
    """Return the device of that name; auto: a GPU if there is one. Each of several processes has a GPU of its own."""
    if processes > 1:
        return _own_device(name)
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda", "mps", "xpu"):
            raise RuntimeError("no device to compute on")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"device must be auto, cpu or one this machine has, but is '{name}': {reason}") from error
    return device


def _own_device(name: str) -> torch.device:
    """Return the device of one of several processes: the CPU, or the GPU of its number on this machine."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return torch.device("cpu")
    number, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if name != "cuda":
        raise UsageError(f"device must be auto, cpu or cuda for several processes, but is '{name}'")
    if number >= count:
        raise UsageError(
            f"device cuda must be there for every process, but this machine has {count} for process {number}; start "
            "torchrun with a smaller --nproc-per-node, or train with --device cpu"
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def describe_device(device: torch.device) -> str:
    """Return the name of a device as it is logged."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    threads = torch.get_num_threads()
    return f"cpu ({threads} thread{'s' if threads > 1 else ''})" if device.type == "cpu" else str(device)


def advise_threads(device: torch.device) -> str:
    """Return advice where other programs use the cores; empty where they do not.

    The threads of a kernel wait for each other: one that gets no core stops all of them.
    """
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    if device.type != "cpu" or torch.get_num_threads() == 1 or load < 1.5 * cores:
        return ""
    return f"other programs keep this machine busy (load {load:.1f}, {cores} cores): OMP_NUM_THREADS=1 may be faster"


def seed_generators(device: torch.device, seed: int) -> None:
    """Seed torch's generators; for a CPU its own alone, as looking for those of other devices takes longer."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def combine_seeds(*numbers: int) -> int:
    """Combine several numbers to one of 32 bits: the generator of a CPU uses no more."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:4])


def keep_freed_memory() -> bool:
    """Let the C library keep what a step frees, for the next step; return whether it does (glibc only).

    Returned to the system it comes back page by page, cleared, which takes up to a fifth of a step.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    values = {M_MMAP_THRESHOLD: 1 << 30, M_TRIM_THRESHOLD: (1 << 31) - 1, M_TOP_PAD: 1 << 26}
    return mallopt is not None and min(mallopt(name, value) for name, value in values.items()) == 1


def environment(device: torch.device, precision: str, processes: int = 1) -> dict[str, Any]:
    """Return what the last digits of every number depend on, apart from the seed."""
    numbers = {"threads": torch.get_num_threads(), "processes": processes}
    return {"device": str(device), "precision": precision, **numbers, "torch": str(torch.__version__)}


def environment_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return which entries of an environment have changed, and how."""
    changed = (key for key in now if before.get(key, now[key]) != now[key])
    return "; ".join(f"{key} {before[key]}, now {now[key]}" for key in changed)


def out_of_memory(error: RuntimeError) -> bool:
    """Whether torch could not allocate the memory it asked for, on a GPU or a CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def explain_memory(error: RuntimeError, step: int, device: torch.device) -> ResourceError:
    """Return what to do about a step that torch has no memory for."""
    return ResourceError(
        f"step {step} needs more memory than {device} has; raise micro_batches, or lower the size of the batch or of "
        f"the model ({str(error).splitlines()[0]})"
    )


@dataclass
class Stop:
    """The signal that came, 0 if none did."""

    number: int = 0


@contextlib.contextmanager
def stop_signals() -> Iterator[Stop]:
    """Let the loop end after its step on SIGINT, SIGTERM and SIGHUP; a second signal ends the process at once.

    After the first one the system's own action is back: the second needs no step, no batch and no thread to come to an
    end.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request(number: int, frame: FrameType | None) -> None:
        stop.number = number
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_DFL)

    before = {number: signal.signal(number, request) for number in STOP_SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
