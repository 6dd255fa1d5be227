"""Differences between two tensors that should be equal: how large, where, and how much rounding explains."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

ROUNDINGS = 512  # machine epsilons of the largest value that two orders of summation may differ by


@dataclass(frozen=True)
class Difference:
    """The first place where two tensors differ by more than rounding explains."""

    index: tuple[int, ...]
    expected: float
    actual: float
    largest: float
    """over all places"""
    tolerance: float

    def __str__(self) -> str:
        return f"{self.actual:.6g} instead of {self.expected:.6g}, tolerance {self.tolerance:.1e}"


def tolerance_of(expected: Tensor, dtype: torch.dtype | None = None) -> float:
    """Return by how much values of this size may differ in a dtype: 512 machine epsilons of the largest one."""
    finite = expected.detach()[expected.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    return ROUNDINGS * torch.finfo(dtype or expected.dtype).eps * max(scale, 1e-30)


def first_difference(expected: Tensor, actual: Tensor, tolerance: float | None = None) -> Difference | None:
    """Return the first place where the tensors differ by more than the tolerance; None: they are equal."""
    if expected.shape != actual.shape:
        raise ValueError(f"outputs must have the shape {tuple(expected.shape)}, but have {tuple(actual.shape)}")
    allowed = tolerance_of(expected) if tolerance is None else tolerance
    expected, actual = expected.detach().double().cpu(), actual.detach().double().cpu()
    error = (expected - actual).abs()
    error = torch.where(expected.isnan() & actual.isnan(), torch.zeros_like(error), error)
    wrong = ~(error <= allowed) & ~(expected == actual)  # nan counts, equal infinities do not
    if not bool(wrong.any()):
        return None
    index = tuple(wrong.nonzero()[0].tolist())
    largest = float(error.max()) if bool(error.isfinite().all()) else float("inf")
    return Difference(index, float(expected[index]), float(actual[index]), largest, allowed)


def dtype_of(networks: Iterable[nn.Module]) -> torch.dtype:
    """Return the least exact floating-point type among the weights."""
    kinds = {value.dtype for network in networks for value in network.parameters() if value.is_floating_point()}
    return max(kinds or {torch.float32}, key=lambda kind: torch.finfo(kind).eps)


def describe_module(name: str, module: nn.Module) -> str:
    """Return how a result calls a module: its name, its class and the file of that class."""
    kind = type(module)
    return f"{name or 'the network'} ({kind.__name__}, {kind.__module__.replace('.', '/')}.py)"
