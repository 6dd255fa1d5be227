"""Calibration: how long the operators of a traced step take on this machine, each timed by itself on its own shapes.

No training step is run: the sum over the operators is a prediction of one, which a finished run can contradict.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from saccade.core.callback import Progress, ignore_progress
from saccade.models.text.gpt import GPT, GPTConfig
from saccade.planning.steps import TracedNetworks, one_loss
from saccade.planning.tracing import Operation, TensorSpec
from saccade.training.optim import OptimConfig, build_optimizers

LEAST_CALLS, MOST_CALLS, LEAST_SECONDS = 3, 30, 0.005
LOW, HIGH = 0.5, 1.5  # of the numbers that operators are timed on: their products stay far from 0 and infinity
TINY = GPTConfig(dim=16, depth=4, heads=2, hidden=32, max_positions=8)


class Stopwatch:
    """Seconds of operators on this machine; calls of the same operator on the same shapes are timed once."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self.overhead = 0.0
        """seconds between two operators: Python and autograd"""

    def measure_overhead(self) -> None:
        """Time a network so small that its operators take no time, and compare."""
        seconds, operations = _tiny_step()
        self.overhead = max(0.0, (seconds - self.step_seconds(operations)) / len(operations))

    def step_seconds(self, operations: Sequence[Operation], progress: Progress = ignore_progress) -> float:
        """Return the predicted seconds of a step."""
        calls: Counter[str] = Counter()
        examples: dict[str, Operation] = {}
        for operation in operations:
            key = operation.key
            calls[key] += 1
            examples.setdefault(key, operation)
        for number, (key, operation) in enumerate(examples.items()):
            if key not in self._seconds:
                self._seconds[key] = operator_seconds(operation)
            progress(number / len(examples))
        progress(1.0)
        return sum(self._seconds[key] * count for key, count in calls.items()) + self.overhead * len(operations)


@torch.no_grad()
def operator_seconds(operation: Operation) -> float:
    """Return the median seconds of an operator, after one call to warm up."""
    args, kwargs = pytree.tree_map(_materialize, (operation.args, dict(operation.kwargs)))
    call = operation.operator
    return _median(lambda: call(*args, **kwargs))


def _median(call: Callable[[], Any]) -> float:
    # The processor time of one thread is the time on a machine that does nothing else.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    call()
    times: list[float] = []
    while len(times) < LEAST_CALLS or (len(times) < MOST_CALLS and sum(times) < LEAST_SECONDS):
        began = clock()
        call()
        times.append(clock() - began)
    return statistics.median(times)


def _materialize(value: Any) -> Any:
    """Return a tensor of the shape, strides and type of a spec."""
    if not isinstance(value, TensorSpec):
        return value
    size = 1 + sum((length - 1) * stride for length, stride in zip(value.shape, value.stride, strict=True))
    size = 0 if 0 in value.shape else size
    storage = torch.empty(size, dtype=value.dtype)
    if value.dtype.is_floating_point:
        storage.uniform_(LOW, HIGH)
    else:
        storage.fill_(1 if value.dtype in (torch.bool, torch.uint8) or value.dtype.is_complex else 0)
    return storage.as_strided(value.shape, value.stride)


def _tiny_step() -> tuple[float, Sequence[Operation]]:
    """Return the seconds of a real step of a tiny network, and the operators of that step."""
    ids, config = torch.zeros(1, 8, dtype=torch.int64), OptimConfig(kind="adamw")
    with torch.random.fork_rng(devices=[]):
        network = GPT(TINY, 16)
        optimizers = build_optimizers(config, network)

        def step() -> None:
            network(ids, ids).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

        seconds = _median(step)
    traced = TracedNetworks({"model": network}, lambda _, each: build_optimizers(config, each))
    for _ in range(2):  # the first step creates the state of the optimizer
        trace = traced.trace(one_loss("model", lambda model: model(ids, ids)))
    return seconds, trace.operations
