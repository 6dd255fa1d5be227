"""Sharing a step: every micro-batch counts once, in whatever process; what cannot be shared or sharded is named."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist
from torch import nn

from saccade.core import Split
from saccade.errors import Interrupted, PeerError, ResourceError, UsageError
from saccade.training.device import choose_device
from saccade.training.distributed import Processes, _agreed, _is_connection_error, job_id, joined, launch
from saccade.training.parallel import DataParallel, OneProcess, check_sharding, updates_buffers
from saccade.training.prefetch import Prefetcher
from tests.training.fakes import Lines, PointSource


class Unwrapped(DataParallel):
    """DDP without a process group: the parts of a step do not depend on it."""

    def _wrap(self, networks: Any) -> Any:
        return dict(networks)


def ranks(size: int, *, shared: bool = True) -> list[DataParallel]:
    result = []
    for rank in range(size):
        processes = Processes()
        processes.rank, processes.size = rank, size
        result.append(Unwrapped({"model": nn.Linear(1, 1)}, processes, shared=shared))
    return result


@pytest.mark.parametrize("sizes", [(6,), (2, 4), (1, 2, 3), (1, 1, 1, 3), (1, 1, 1, 1, 2)])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_micro_batch_counts_once_in_any_number_of_processes(sizes: tuple[int, ...], size: int) -> None:
    batches = PointSource(sizes).at(3)
    alone = OneProcess({}).parts(batches)
    shares = [parallel.parts(batches) for parallel in ranks(size)]
    assert len({len(share) for share in shares}) == 1  # all communicate equally often
    if len(sizes) == 1:
        assert shares == [alone] * size
        return
    counted = sorted((part for share in shares for part in share if part.weight), key=lambda part: part.number)
    assert counted == alone
    assert sum(part.weight for part in counted) == pytest.approx(1)


def test_what_is_not_shared_is_computed_by_all() -> None:
    batches = PointSource((2, 4)).at(0)
    for parallel in ranks(2, shared=False):
        assert parallel.parts(batches) == OneProcess({}).parts(batches)
        assert parallel.scale == 1 and parallel.total([0.5, 0.25]) == 0.75


@pytest.mark.parametrize("ahead", [False, True])
def test_the_order_of_the_data_is_the_same_with_and_without_prefetching_and_in_two_processes(ahead: bool) -> None:
    source = PointSource((3, 3))
    expected = [[row for batch in source.at(step) for row in batch.x.tolist()] for step in range(5)]
    for rank, parallel in enumerate(ranks(2)):
        with Prefetcher(source, torch.device("cpu"), ahead=ahead) as batches:
            for step in range(5):
                (part,) = parallel.parts(batches.at(step))
                assert part.number == rank and part.batch.x.tolist() == expected[step][3 * rank : 3 * rank + 3]


def test_a_network_whose_buffers_change_is_named() -> None:
    task = Lines()
    batch = task.source(Split.TRAIN, 1).at(0)[0]
    assert updates_buffers(task, batch, task.networks()) == ""
    task.model.insert(1, nn.BatchNorm1d(4))
    before = task.model[1].running_mean.clone()
    assert updates_buffers(task, batch, task.networks()) == "1.running_mean"
    assert torch.equal(task.model[1].running_mean, before)


def test_what_fsdp_cannot_shard_is_refused_by_name() -> None:
    rule = "train.parallel=fsdp must be given for one network of matrices and vectors"
    with pytest.raises(UsageError, match=f"{rule}, but there are actor, critic; leave train.parallel=ddp"):
        check_sharding({"actor": nn.Linear(1, 1), "critic": nn.Linear(1, 1)})
    network = nn.Linear(1, 1)
    network.scale = nn.Parameter(torch.tensor(1.0))
    with pytest.raises(UsageError, match=f"{rule}, but scale is a single number; leave train.parallel=ddp"):
        check_sharding({"model": network})


class Store(dict[str, str]):
    """The store of torchrun, as far as reporting an error needs it."""

    def add(self, name: str, number: int) -> int:
        self[name] = str(int(self.get(name, "0")) + number)
        return int(self[name])

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def get(self, name: str, default: str = "") -> str:
        return super().get(name, default)

    def wait(self, names: list[str], timeout: Any) -> None:
        pass


def test_the_first_error_is_reported_and_all_others_end_with_its_code() -> None:
    store: Any = Store()
    members = []
    for rank in range(3):
        processes = Processes(rank)
        processes.size, processes._store = 3, store
        members.append(processes)
    first = ResourceError("no memory")
    assert members[1].reported(first) is first
    for other in (members[0], members[2]):
        told = other.reported(RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer"))
        assert isinstance(told, PeerError) and told.exit_code == 5


def test_a_signal_is_reported_by_rank_0() -> None:
    store: Any = Store()
    main, other = Processes(0), Processes(1)
    main._store = other._store = store
    stopped = Interrupted(15, "stopped at step 3; the checkpoint is saved")
    assert main.reported(stopped) is stopped
    told = other.reported(stopped)
    assert isinstance(told, PeerError) and told.exit_code == 143


def test_a_process_that_does_not_answer_is_told_from_other_errors() -> None:
    assert _is_connection_error(RuntimeError("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer"))
    assert not _is_connection_error(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_one_process_needs_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    with joined() as processes:
        assert (processes.rank, processes.size, processes.main) == (0, 1, True)
        assert processes.share("value") == "value" and processes.total([1.5]) == [1.5] and processes.largest(7) == 7


def test_a_launch_has_the_id_that_was_given_or_that_of_its_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert launch() == job_id() == "" and not Processes().restarted
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-7")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert launch() == job_id() == "job-7" and Processes().restarted
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert launch() == launch() != job_id() == "" and Path(launch()).parent.name.isdigit()


@pytest.mark.parametrize(
    "stale", [{}, {"offer": "old", "old/answer/1": "x"}, {"offer": "old", "old/met": '["x", "y"]'}]
)
def test_processes_agree_on_a_part_of_a_store_that_earlier_ones_have_used(
    stale: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart: of the three before, not all had answered, or all of them; rank 0 comes later than rank 1."""
    monkeypatch.setattr("saccade.training.distributed.TIMEOUT", timedelta(seconds=30))
    shared = dist.HashStore()
    shared.set_timeout(timedelta(seconds=30))
    for name, value in stale.items():
        shared.set(f"saccade/{name}", value)
    with ThreadPoolExecutor(3) as pool:

        def meet(*ranks: int) -> list[dist.Store]:
            waiting = []
            for rank in ranks:
                waiting.append(pool.submit(_agreed, shared, rank, 3))
                time.sleep(0.1)
            return [future.result(30) for future in waiting]

        one, two = meet(1, 0, 2), meet(2, 1, 0)
    one[0].set("failures", "1")
    assert [store.get("failures") for store in one] == [b"1"] * 3
    assert not any(store.check(["failures"]) for store in two)
    two[1].set("failures", "2")
    assert [store.get("failures") for store in (*one, *two)] == [b"1"] * 3 + [b"2"] * 3


def test_several_processes_have_a_device_each(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu", 2) == torch.device("cpu")
    with pytest.raises(UsageError, match="device must be auto, cpu or cuda for several processes, but is 'mps'"):
        choose_device("mps", 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(UsageError, match="but this machine has 1 for process 1; start torchrun with a smaller"):
        choose_device("cuda", 2)
