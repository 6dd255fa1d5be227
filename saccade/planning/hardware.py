"""Hardware: peak FLOP/s, memory and bandwidth of devices, from their data sheets; of this machine measured."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import torch

from saccade.errors import UsageError, suggest

GEMM = 1024  # rows and columns of the matrices that are multiplied to measure this machine
GEMM_SECONDS = 0.5


@dataclass(frozen=True)
class Device:
    """A device as its data sheet describes it; dense products, without sparsity."""

    name: str
    flops: float
    """peak FLOP/s in the precision in which models are trained on it"""
    precision: str
    memory: float
    """bytes"""
    bandwidth: float
    """bytes per second between the processor and its memory"""
    link: float = 0.0
    """bytes per second to other devices of the same machine, both directions together; 0: not stated"""
    source: str = ""


DEVICES = {
    "p100": Device("P100", 10.6e12, "float32", 16e9, 732e9, 160e9, "NVIDIA P100 data sheet, NVLink version"),
    "v100": Device("V100", 125e12, "float16", 32e9, 900e9, 300e9, "NVIDIA V100 data sheet, NVLink version"),
    "a100": Device("A100", 312e12, "bfloat16", 80e9, 2039e9, 600e9, "NVIDIA A100 data sheet, 80 GB SXM"),
    "h100": Device("H100", 989e12, "bfloat16", 80e9, 3350e9, 900e9, "NVIDIA H100 data sheet, SXM"),
    "h200": Device("H200", 989e12, "bfloat16", 141e9, 4800e9, 900e9, "NVIDIA H200 data sheet, SXM"),
    "rtx4090": Device("RTX 4090", 165e12, "bfloat16", 24e9, 1008e9, 0.0, "NVIDIA Ada architecture white paper"),
    "tpu-v3": Device("TPU v3", 123e12, "bfloat16", 32e9, 900e9, 0.0, "Google Cloud documentation, per chip"),
    "tpu-v4": Device("TPU v4", 275e12, "bfloat16", 32e9, 1200e9, 0.0, "Google Cloud documentation, per chip"),
}
THIS = "this"


def find_device(name: str) -> Device:
    """Return a device by its name; `this`: the machine that runs the command, measured."""
    if name.lower() == THIS:
        return this_machine()
    if name.lower() not in DEVICES:
        raise UsageError(f"no device '{name}'{suggest(name, [THIS, *DEVICES])}")
    return DEVICES[name.lower()]


def this_machine() -> Device:
    """Return this machine's CPU: FLOP/s of a product of matrices and bytes per second of a copy, measured now."""
    a, b = torch.randn(GEMM, GEMM), torch.randn(GEMM, GEMM)
    product = _seconds(lambda: a @ b)
    x = torch.empty(1 << 24)
    copy = _seconds(lambda: x.clone())
    threads = torch.get_num_threads()
    source = f"measured: {threads} thread{'s' if threads > 1 else ''}, products of {GEMM} x {GEMM} matrices"
    name = f"this machine ({threads} thread{'s' if threads > 1 else ''})"
    return Device(name, 2 * GEMM**3 / product, "float32", float(machine_memory()), 2 * x.nbytes / copy, 0.0, source)


def machine_memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _seconds(call: object) -> float:
    """Return the seconds of the fastest call within half a second."""
    assert callable(call)
    best, began = float("inf"), time.perf_counter()
    while (now := time.perf_counter()) - began < GEMM_SECONDS:
        call()
        best = min(best, time.perf_counter() - now)
    return best
