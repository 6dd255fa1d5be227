"""Several networks: updates in turn, settings of their own, frozen parameters, buffers, states, second derivatives."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from saccade.core import Evaluation, Source, Split
from saccade.errors import ModelFileError
from saccade.runs import checkpoint
from saccade.training.optim import OptimConfig
from tests.training.fakes import Lines, Points, PointSource, flat, records, trainer


class Duel(Lines):
    """Two networks: the critic is updated first, and the generator's loss is computed with the updated critic."""

    def __init__(self, sizes: tuple[int, ...] = (6,)) -> None:
        super().__init__(sizes)
        self.generator, self.critic = nn.Linear(4, 4), nn.Linear(4, 1)
        self.calls: list[tuple[str, Tensor, Tensor]] = []

    def networks(self) -> dict[str, nn.Module]:
        return {"critic": self.critic, "generator": self.generator}

    def losses(self, batch: Points, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        for name, sign in (("critic", 1.0), ("generator", -1.0)):
            self.calls.append((name, self.generator.weight.detach().clone(), self.critic.weight.detach().clone()))
            yield name, sign * networks["critic"](networks["generator"](batch.x)).square().mean()

    def evaluate(self, split: Split, *, quick: bool = False, progress: Any = None) -> Evaluation:
        return Evaluation({"loss": 1.0})


@pytest.mark.parametrize("sizes", [(6,), (2, 4)])
def test_two_networks_are_updated_in_turn_by_optimizers_of_their_own(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    task = Duel(sizes)
    run = trainer(task, tmp_path, steps=1)
    before = {name: [p.detach().clone() for p in network.parameters()] for name, network in task.networks().items()}
    run.fit()
    assert [name for name, _, _ in task.calls] == ["critic"] * len(sizes) + ["generator"] * len(sizes)
    (_, generator_before, critic_before), (_, generator_after, critic_after) = task.calls[0], task.calls[-1]
    assert torch.equal(generator_before, generator_after)  # the first update left the generator alone
    assert not torch.equal(critic_before, critic_after)  # and the second one used the updated critic
    assert torch.equal(critic_after, task.critic.weight)  # which it left alone
    for name, network in task.networks().items():
        assert not torch.equal(before[name][0], next(network.parameters()))
        owned = {id(p) for optimizer in run.optimizers[name] for g in optimizer.param_groups for p in g["params"]}
        assert owned == {id(p) for p in network.parameters()}
    keys = {"loss_critic", "loss_generator", "grad_norm_critic", "grad_norm_generator", "lr_scale"}
    assert keys <= records(tmp_path)[0].keys()


def test_two_networks_in_micro_batches_equal_the_whole(tmp_path: Path) -> None:
    whole, parts = Duel(), Duel((1, 5))
    trainer(whole, tmp_path / "whole").fit()
    trainer(parts, tmp_path / "parts").fit()
    torch.testing.assert_close(flat(parts), flat(whole), rtol=0, atol=1e-5)


@pytest.mark.parametrize("frozen", [("generator", "weight"), ("critic", "bias")])
@pytest.mark.parametrize("sizes", [(6,), (2, 4)])
def test_frozen_parameters_of_two_networks_stay(tmp_path: Path, frozen: tuple[str, str], sizes: Any) -> None:
    task = Duel(sizes)
    parameter = getattr(task.networks()[frozen[0]], frozen[1]).requires_grad_(False)
    before, everything = parameter.clone(), flat(task)
    trainer(task, tmp_path, steps=3).fit()
    assert torch.equal(parameter, before)
    assert not torch.equal(flat(task), everything)


class TwoScales(Duel):
    def optimizer_overrides(self, network: str) -> Sequence[str]:
        return ["lr=0.5", "clip=0", "warmup=4"] if network == "critic" else []


def test_a_network_has_optimizer_settings_of_its_own(tmp_path: Path) -> None:
    run = trainer(TwoScales(), tmp_path, optim=OptimConfig(kind="adamw", lr=0.01, clip=1.0, warmup=2))
    assert (run.optim["critic"].lr, run.optim["generator"].lr) == (0.5, 0.01)
    record = run._train_step()
    assert "grad_norm_generator" in record and "grad_norm_critic" not in record
    rates = {name: run.optimizers[name][0].param_groups[0]["lr"] for name in run.networks}
    assert rates == {"critic": 0.5 / 4, "generator": 0.01 / 2}


class Counted(nn.Linear):
    """A linear layer with an integer buffer and a running mean."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__(4, 1)
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        self.mean.lerp_(x.mean(0), 0.1)
        return (super().forward(x) - y).square().mean()


class CountedLines(Lines):
    def __init__(self) -> None:
        super().__init__()
        self.model = Counted()

    def evaluate(self, split: Split, *, quick: bool = False, progress: Any = None) -> Evaluation:
        return Evaluation({"loss": float(self.model.calls)})


def test_integer_buffers_are_averaged_as_they_are(tmp_path: Path) -> None:
    task = CountedLines()
    run = trainer(task, tmp_path, average=0.9, steps=5)
    run.fit()
    assert run.average is not None
    assert run.average.tensors["calls"] == 5 and run.average.tensors["calls"].dtype == torch.int64
    assert (run.average.tensors["mean"] - task.model.mean).abs().max() > 0
    assert records(tmp_path)[-1]["loss"] == 5.0


class Environment(PointSource):
    """Each batch depends on the one before it; the generator is part of the state."""

    def __init__(self) -> None:
        super().__init__((6,))
        object.__setattr__(self, "generator", torch.Generator().manual_seed(5))
        object.__setattr__(self, "position", torch.zeros(6, 4))

    def at(self, step: int) -> Sequence[Points]:
        moved = self.position + torch.randn(6, 4, generator=self.generator)
        object.__setattr__(self, "position", moved)
        return [Points(moved, moved.sum(1, keepdim=True), 0)]

    def state(self) -> Mapping[str, Tensor]:
        return {"generator": self.generator.get_state(), "position": self.position}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.generator.set_state(state["generator"])
        object.__setattr__(self, "position", state["position"])


class Walk(Lines):
    """A task whose source and loss have a state."""

    def __init__(self) -> None:
        super().__init__(dropout=0.3)
        self.baseline = torch.zeros(())

    def source(self, split: Split, seed: int) -> Source:
        return Environment()

    def losses(self, batch: Points, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        self.baseline = 0.9 * self.baseline + 0.1 * batch.y.mean()
        yield "model", networks["model"](batch.x, batch.y + self.baseline)

    def state(self) -> Mapping[str, Tensor]:
        return {"baseline": self.baseline}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.baseline = state["baseline"]


@pytest.mark.parametrize("compiled", [False, True])
def test_states_of_source_and_task_resume_exactly(tmp_path: Path, compiled: bool) -> None:
    settings = {"steps": 9, "save_every": 2, "evaluate_every": 9, "compile": compiled, "compile_backend": "eager"}
    whole, again = Walk(), Walk()
    trainer(whole, tmp_path / "whole", **settings).fit()
    first = trainer(Walk(), tmp_path / "broken", **settings)
    step = first._train_step

    def interrupted() -> dict[str, Any]:
        if first.step == 5:
            raise KeyboardInterrupt
        return step()

    first._train_step = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        first.fit()
    saved = checkpoint.read(checkpoint.at(tmp_path / "broken" / "checkpoints", 4))
    assert saved.parts["state"].keys() == {"source/generator", "source/position", "task/baseline"}
    trainer(again, tmp_path / "broken", **settings).fit()
    assert torch.equal(flat(again), flat(whole))
    assert torch.equal(again.baseline, whole.baseline)


def test_a_missing_state_is_named(tmp_path: Path) -> None:
    task = Walk()
    task.source = lambda split, seed: PointSource((6,))  # type: ignore[method-assign]
    task.state = dict  # type: ignore[method-assign]
    trainer(task, tmp_path, steps=2).fit()
    with pytest.raises(
        ModelFileError, match=r"step-000002 must hold model, optimizer, state, but holds model, optimizer"
    ):
        trainer(Walk(), tmp_path, steps=4)


class Penalised(nn.Linear):
    """A critic with a gradient penalty, computed inside its forward."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        value = super().forward(x).tanh()
        (grad,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        return value.mean() + 10 * (grad.norm(dim=1) - 1).square().mean()


class PenalisedDuel(Duel):
    def __init__(self, sizes: tuple[int, ...] = (6,)) -> None:
        super().__init__(sizes)
        self.critic = Penalised(4, 1)

    def losses(self, batch: Points, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        yield "critic", networks["critic"](batch.x)


def test_a_second_derivative_trains_a_network(tmp_path: Path) -> None:
    task = PenalisedDuel()
    batch = PointSource((6,)).at(0)[0]
    expected = torch.autograd.grad(task.critic(batch.x), task.critic.weight)[0]
    run = trainer(task, tmp_path, optim=OptimConfig(kind="adamw", lr=0.0, clip=0.0))
    grads = []
    run._update = lambda name: grads.append(task.critic.weight.grad.clone())  # type: ignore[method-assign]
    run._train_step()
    torch.testing.assert_close(grads[0], expected)
