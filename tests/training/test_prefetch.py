"""Prefetching: the batches of the source in its order, prepared ahead on a thread that ends, but not for a CPU."""

import threading
from typing import Any

import pytest
import torch

from saccade.training.prefetch import Prefetcher
from tests.training.fakes import Points, PointSource

CPU = torch.device("cpu")


class Slow(PointSource):
    """Notes which thread asked for which step."""

    def __init__(self) -> None:
        super().__init__((6,))
        object.__setattr__(self, "asked", [])

    def at(self, step: int) -> Any:
        self.asked.append((step, threading.current_thread() is threading.main_thread()))
        if step == 4:
            raise ValueError("damaged row")
        return super().at(step)


class Stateful(Slow):
    def state(self) -> Any:
        return {"position": torch.zeros(1)}


def test_batches_are_those_of_the_source_and_prepared_ahead() -> None:
    source = Slow()
    with Prefetcher(source, CPU, ahead=True) as batches:
        for step in (0, 1, 2):
            (batch,) = batches.at(step)
            assert isinstance(batch, Points)
            assert torch.equal(batch.x, PointSource((6,)).at(step)[0].x)
    assert source.asked[:3] == [(0, True), (1, False), (2, False)]
    assert source.asked[3:] in ([], [(3, False)])  # the last one is cancelled if it has not started


def test_a_step_out_of_order_is_read_anew() -> None:
    with Prefetcher(Slow(), CPU, ahead=True) as batches:
        batches.at(0)
        assert torch.equal(batches.at(3)[0].x, PointSource((6,)).at(3)[0].x)


def test_a_source_with_a_state_is_not_run_ahead() -> None:
    source = Stateful()
    with Prefetcher(source, CPU, ahead=True) as batches:
        for step in (0, 1, 2):
            batches.at(step)
    assert source.asked == [(0, True), (1, True), (2, True)]


def test_an_error_comes_with_its_step_when_that_is_asked_for() -> None:
    with Prefetcher(Slow(), CPU, ahead=True) as batches:
        batches.at(3)  # 4 is being prepared, and fails
        with pytest.raises(ValueError, match="damaged row") as caught:
            batches.at(4)
    assert caught.value.__notes__ == ["while preparing the batch of step 5"]


def test_the_thread_ends() -> None:
    before = threading.active_count()
    with Prefetcher(Slow(), CPU, ahead=True) as batches:
        batches.at(0)
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    assert torch.equal(batches.at(1)[0].x, PointSource((6,)).at(1)[0].x)  # without a thread it reads by itself


def test_on_a_cpu_whose_cores_are_busy_nothing_is_prepared_ahead() -> None:
    source = Slow()
    with Prefetcher(source, CPU, ahead=False) as batches:
        for step in (0, 1, 2):
            batches.at(step)
    assert source.asked == [(0, True), (1, True), (2, True)]
