"""Wrapped networks: torch.compile sees the loss, DDP gives the gradients of one process, a failing compiler is left."""

import multiprocessing
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from saccade.core import Batch
from saccade.training.loop import loss_of
from tests.training.fakes import Lines, PointSource, Recorder, flat, trainer
from tests.training.test_networks import CountedLines


def test_a_compiler_that_fails_is_logged_and_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        def call(*_: Any, **__: Any) -> Any:
            raise RuntimeError("no compiler")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    recorder, plain, compiled = Recorder(), Lines(dropout=0.5), Lines(dropout=0.5)
    trainer(compiled, tmp_path / "compiled", recorder, compile=True).fit()
    trainer(plain, tmp_path / "plain").fit()
    assert "torch.compile does not work here (RuntimeError); training without it" in recorder.messages
    assert torch.equal(flat(compiled), flat(plain))


def test_a_compiler_that_works_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(torch, "compile", lambda call, *_, **__: lambda *a, **k: calls.append(1) or call(*a, **k))
    trainer(Lines(), tmp_path, Recorder(), compile=True, steps=3).fit()
    assert len(calls) >= 3


def test_the_compiler_sees_the_loss(tmp_path: Path) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    recorder, compiled, plain = Recorder(), Lines(), Lines()
    trainer(compiled, tmp_path / "compiled", recorder, compile=True, compile_backend="eager").fit()
    assert torch._dynamo.utils.counters["frames"]["ok"] > 0
    assert not [message for message in recorder.messages if "compile" in message]
    trainer(plain, tmp_path / "plain").fit()
    torch.testing.assert_close(flat(compiled), flat(plain))


def test_trying_the_compiler_leaves_no_trace(tmp_path: Path) -> None:
    compiled, plain = CountedLines(), CountedLines()
    plain.model.load_state_dict(compiled.model.state_dict())
    trainer(compiled, tmp_path / "compiled", compile=True, compile_backend="eager").fit()
    trainer(plain, tmp_path / "plain").fit()
    assert int(compiled.model.calls) == int(plain.model.calls) == 6
    torch.testing.assert_close(flat(compiled), flat(plain))


def test_every_network_is_wrapped_for_its_loss_alone(tmp_path: Path) -> None:
    class Wrapper(nn.Module):
        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.network, self.calls = network, 0

        def forward(self, *inputs: Any) -> Any:
            self.calls += 1
            return self.network(*inputs)

    run = trainer(Lines(), tmp_path, wrap=Wrapper, evaluate_every=2)
    run.fit()
    assert run.wrapped["model"].calls == 6
    assert set(run.networks["model"].state_dict()) == {"1.weight", "1.bias"}  # what is saved is not wrapped


def distributed_step(rank: int, port: int, folder: Path, results: Any) -> None:
    """Half of the batch in one of two processes: the gradients after a step, as DDP has averaged them."""
    torch.set_num_threads(1)
    store = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)

    class Half(Lines):
        def source(self, split: Any, seed: int) -> Any:
            whole = PointSource((3, 3))
            return type("HalfSource", (PointSource,), {"at": lambda self, step: [whole.at(step)[rank]]})((3,))

    task = Half()
    (folder / str(rank)).mkdir()
    run = trainer(task, folder / str(rank), wrap=DistributedDataParallel)
    gradients: list[Any] = []
    run._update = lambda name: gradients.extend(p.grad.tolist() for p in task.model.parameters())  # type: ignore[method-assign]
    run._train_step()
    results.put((rank, gradients))
    distributed.barrier()
    distributed.destroy_process_group()


def test_two_processes_compute_the_gradients_of_one(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=distributed_step, args=(rank, port, tmp_path, results)) for rank in range(2)]
    for process in processes:
        process.start()
    gradients = dict(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    task = Lines()
    batch: Batch = PointSource((6,)).at(0)[0]
    task.model.train()
    loss_of(task, batch, task.networks())["model"].backward()
    for rank in range(2):
        for value, parameter in zip(gradients[rank], task.model.parameters(), strict=True):
            torch.testing.assert_close(torch.tensor(value), parameter.grad)
