"""Wrapped networks: torch.compile sees the loss, DDP gives the gradients of one process, a failing compiler is left."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from saccade.training.compiling import training_mode
from tests.training.fakes import Lines, Recorder, flat, trainer
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


def test_train_mode_holds_for_every_module_and_ends_with_the_block() -> None:
    network = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.Dropout(0.5))).eval()
    with pytest.raises(KeyError), training_mode({"model": network}):
        assert all(module.training for module in network.modules())
        raise KeyError
    assert not any(module.training for module in network.modules())
