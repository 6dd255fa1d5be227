"""Parallel map: order, errors and context variables; only the workers' number of threads changes."""

import threading
import time

import pytest
import torch

from saccade.nn.ablation import patch_embeddings, patched_embeddings
from saccade.tasks._parallel import parallel_map


@pytest.fixture
def cores():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def test_results_come_in_order_from_workers_with_one_thread_each(cores):
    results = list(parallel_map(lambda n: (n * n, torch.get_num_threads(), threading.get_ident()), range(50)))
    assert [(square, threads) for square, threads, _ in results] == [(n * n, 1) for n in range(50)]
    assert threading.get_ident() not in {thread for _, _, thread in results}
    again = list(parallel_map(lambda _: (time.sleep(0.01), threading.get_ident())[1], range(50)))
    assert {thread for _, _, thread in results} <= set(again)  # the workers stay
    assert len(set(again)) == cores


def test_other_threads_keep_their_number_of_threads(cores):
    seen, done = [], threading.Event()

    def observe():
        while not done.is_set():
            seen.append(torch.get_num_threads())
            time.sleep(0.001)

    observer = threading.Thread(target=observe)
    observer.start()
    # The caller's own number, in the middle of the call.
    seen.extend(torch.get_num_threads() for _ in parallel_map(lambda _: time.sleep(0.01), range(60)))
    done.set()
    observer.join()
    assert len(seen) > 70 and set(seen) == {cores}
    fresh = []
    newcomer = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
    newcomer.start()
    newcomer.join()
    assert fresh == [cores]


def test_a_worker_that_maps_itself_does_not_wait_for_other_workers(cores):
    results = list(parallel_map(lambda n: sum(parallel_map(lambda m: m, range(n))), range(30)))
    assert results == [n * (n - 1) // 2 for n in range(30)]


def test_few_items_are_computed_by_the_caller_on_all_cores(cores):
    assert list(parallel_map(lambda _: torch.get_num_threads(), range(2))) == [cores] * 2


def test_an_error_is_raised_and_an_abandoned_call_stops(cores):
    with pytest.raises(ZeroDivisionError):
        list(parallel_map(lambda number: 1 // (number - 7), range(50)))
    started = []
    results = parallel_map(lambda number: (started.append(number), time.sleep(0.01))[0], range(500))
    next(results)
    results.close()
    assert len(started) < 20
    assert list(parallel_map(str, range(4))) == ["0", "1", "2", "3"]


def test_context_variables_of_the_caller_apply_to_the_workers(cores):
    x = torch.ones(2)
    with patched_embeddings(lambda x: 2 * x):
        assert all(torch.equal(y, 2 * x) for y in parallel_map(lambda _: patch_embeddings(x), range(20)))
    assert all(torch.equal(y, x) for y in parallel_map(lambda _: patch_embeddings(x), range(20)))
