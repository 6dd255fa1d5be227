"""Processes: those that torchrun started to train one run together, and what they tell each other."""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from saccade.errors import Interrupted, PeerError, ResourceError, UsageError

TIMEOUT = timedelta(minutes=10)  # of a training step's communication: a process that is silent for longer is lost
PATIENCE = timedelta(days=1)  # for what rank 0 does alone: prepare, evaluate, save; if it dies that is noticed at once
FAREWELL = timedelta(seconds=10)  # for the process that reports an error, before the others end too
POLL = 0.02  # seconds between two looks into the store while processes meet
BROKEN = ("gloo/", "Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL")

Value = TypeVar("Value")


class Processes:
    """The processes that train a run together; without torchrun it is one. Rank 0 alone prints and writes."""

    restarted: bool
    """whether torchrun has started any of them again, after a failure (--max-restarts)"""

    def __init__(self, rank: int = 0, size: int = 1, store: Store | None = None) -> None:
        self.rank, self.size, self._store = rank, size, store
        self._control = dist.new_group(backend="gloo", timeout=PATIENCE) if size > 1 else None
        self.restarted = self.largest(int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))) > 0

    @property
    def main(self) -> bool:
        """Whether this is the process of rank 0."""
        return self.rank == 0

    def share(self, value: Value) -> Value:
        """Return the value of rank 0 in every process, however long rank 0 takes to come here."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self._control)
        return values[0]

    def wait(self) -> None:
        """Wait for rank 0."""
        self.share(None)

    def total(self, values: Sequence[float]) -> list[float]:
        """Return the sum over all processes of each value."""
        if self.size == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(sums, group=self._control)
        return sums.tolist()

    def largest(self, value: int) -> int:
        """Return the largest of the values of all processes."""
        if self.size == 1:
            return value
        number = torch.tensor(value)
        dist.all_reduce(number, dist.ReduceOp.MAX, group=self._control)
        return int(number)

    @contextlib.contextmanager
    def rank_by_rank(self) -> Iterator[None]:
        """Run a block on rank 0 first and then on the others, which find what it has cached."""
        if not self.main:
            self.wait()
        yield
        if self.main:
            self.wait()

    def reported(self, error: BaseException) -> BaseException:
        """Return the error to raise: one process raises what happened, all others that it has been reported."""
        assert self._store is not None
        error = self._lost(error) if _is_connection_error(error) else error
        try:
            interrupted = isinstance(error, Interrupted)  # all processes at once, after they have saved
            if self.main if interrupted else self._store.add("failures", 1) == 1:
                self._store.set("exit code", str(getattr(error, "exit_code", 1)))
                atexit.register(_end, self._store)
                return error
            code = int(self._store.get("exit code"))
            with contextlib.suppress(dist.DistStoreError):
                self._store.wait(["ended"], FAREWELL)  # torchrun ends all processes when the first has ended
        except RuntimeError:  # the store is gone, and the process of torchrun that held it
            return error
        return PeerError(code)

    def _lost(self, error: BaseException) -> ResourceError:
        reason = (str(error).splitlines() or ["no reason is known"])[0]
        return ResourceError(
            f"one of the {self.size} processes of this run has ended or does not answer ({reason[:160]}); the last "
            "checkpoint is intact: continue with `saccade resume` under torchrun, or start with its --max-restarts"
        )


@contextlib.contextmanager
def joined() -> Iterator[Processes]:
    """Join the processes that torchrun started, for as long as a run is trained; an error in one of them ends all."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        yield Processes()
        return
    if dist.is_initialized():
        raise UsageError(
            "saccade joins the processes of torchrun itself, but torch.distributed is in use; call "
            "destroy_process_group first"
        )
    processes = _meet()
    try:
        yield processes
    except BaseException as error:
        if threading.current_thread() is threading.main_thread():
            # torchrun ends all processes as soon as the first has ended, which could be before the message is printed
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        told = processes.reported(error)
        if told is error:
            raise
        raise told from error
    finally:
        gc.collect()  # wrapped networks must go before the group they belong to
        dist.destroy_process_group()


def _meet() -> Processes:
    """Return the processes, once all of them are there."""
    place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    try:
        shared, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
        store = _agreed(shared, rank, size)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        return Processes(rank, size, store)
    except (RuntimeError, ValueError) as error:
        raise ResourceError(
            f"the processes of torchrun must reach each other through {place}, but this one does not: "
            f"{str(error).splitlines()[0][:200]}; check the addresses, the ports and that all of them were started"
        ) from error


def _agreed(shared: Store, rank: int, size: int) -> Store:
    """Return a part of the store for the processes that meet now.

    torchrun keeps its store when it starts processes again, each of its agents counts restarts on its own, and one
    process may train several runs: names of earlier meetings are still there. Rank 0 offers a new name, every rank
    answers to it with a number of its own, and only those whose numbers rank 0 repeats have met.
    """
    own = uuid.uuid4().hex
    if rank == 0:
        shared.set("saccade/offer", own)
        answers = [f"saccade/{own}/answer/{other}" for other in range(1, size)]
        shared.wait(answers, TIMEOUT)
        shared.set(f"saccade/{own}/met", json.dumps([shared.get(answer).decode() for answer in answers]))
        return PrefixStore(f"saccade/{own}", shared)
    deadline, answered = time.monotonic() + TIMEOUT.total_seconds(), ""
    while time.monotonic() < deadline:
        offer = shared.get("saccade/offer").decode()
        if offer != answered:
            shared.set(f"saccade/{offer}/answer/{rank}", own)
            answered = offer
        met = f"saccade/{offer}/met"
        if shared.check([met]) and own in json.loads(shared.get(met)):
            return PrefixStore(f"saccade/{offer}", shared)
        time.sleep(POLL)
    raise RuntimeError("rank 0 has not answered")


def job_id() -> str:
    """Return the name that the user has given to the job (torchrun --rdzv-id), or an empty string."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return "" if name == "none" else name  # the default of torchrun, which says nothing


def launch() -> str:
    """Return what is the same in all restarts of one torchrun and differs between two of them; empty without it."""
    if job_id() or "TORCHELASTIC_RUN_ID" not in os.environ:
        return job_id()
    agent = os.getppid()
    status = Path(f"/proc/{agent}/stat")
    started = status.read_text().rpartition(")")[2].split()[19] if status.exists() else ""
    return f"{socket.gethostname()}/{agent}/{started}"


def _is_connection_error(error: BaseException) -> bool:
    """Whether another process did not answer."""
    return isinstance(error, RuntimeError) and (
        isinstance(error, dist.DistError) or any(mark in str(error) for mark in BROKEN)
    )


def _end(store: Store) -> None:
    """Tell the other processes that this one has reported the error."""
    with contextlib.suppress(RuntimeError):
        store.set("ended", "")
