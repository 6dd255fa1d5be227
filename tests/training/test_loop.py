"""The loop: parts weigh what they hold, networks take turns, randomness belongs to the step, troubles are named."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from saccade.core.task import Prediction, Split, Task
from saccade.errors import SaccadeError, UsageError
from saccade.runs import checkpoint
from saccade.runs.weights import weights
from saccade.training import device
from saccade.training.loop import NullCallback, TrainConfig, Trainer
from saccade.training.optim import OptimConfig

OPTIM = OptimConfig(kind="adamw", lr=0.05, warmup=2, clip=1e9)


@dataclass(frozen=True)
class Points:
    """Rows of numbers: `x` (B, 4) and what they are to become, `y` (B, 1)."""

    x: Tensor
    y: Tensor
    first: int

    @property
    def count(self) -> int:
        return len(self.x)

    @property
    def rows(self) -> list[str]:
        return [f"point {self.first + index}" for index in range(len(self.x))]

    def to(self, where: Any) -> "Points":
        return Points(self.x.to(where), self.y.to(where), self.first)


@dataclass(frozen=True)
class Cut:
    """The same six rows a step, cut into parts of the given sizes."""

    sizes: tuple[int, ...]
    per_epoch: int = 7

    def at(self, step: int) -> list[Points]:
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(6, 4, generator=generator)
        firsts = [sum(self.sizes[:index]) for index in range(len(self.sizes))]
        parts = zip(x.split(self.sizes), firsts, strict=True)
        return [Points(part, part.sum(1, keepdim=True), first) for part, first in parts]


class Lines(Task):
    """A straight line (or, with dropout, a shaky one); the sum of the inputs is the answer."""

    score = "loss"

    def __init__(self, sizes: tuple[int, ...] = (6,), dropout: float = 0.0) -> None:
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Dropout(dropout), nn.Linear(4, 1))
        self.sizes, self.scores, self.config = sizes, iter(()), OPTIM  # any config does

    @classmethod
    def prepare(cls, config: Any, data: Path, assets: Path, advance: Any = None) -> list[str]:
        return []

    @classmethod
    def open(cls, config: Any, assets: Path) -> "Lines":
        return cls()

    def load_data(self, data: Path, advance: Any = None, *, whole: bool = False) -> list[str]:
        return []

    def batches(self, split: Split, seed: int) -> Cut:
        return Cut(self.sizes)

    def losses(self, batch: Points) -> Iterator[tuple[str, Tensor]]:
        yield "model", (self.model(batch.x) - batch.y).square().mean()

    def evaluate(self, split: Split, *, quick: bool = False, advance: Any = None) -> dict[str, float]:
        return {"loss": next(self.scores, float(self.model[1].weight.detach().sum()))}

    def predict(self, input: str, options: Any) -> Prediction:
        return Prediction(input, "")

    def sample(self) -> str:
        return "a sample"


class Heard(NullCallback):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.totals: list[tuple[float, int | None]] = []

    def say(self, message: str) -> None:
        self.said.append(message)

    def step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        self.totals.append((progress, total))


def trainer(task: Task, folder: Path, report: Any = None, **settings: Any) -> Trainer:
    folder.mkdir(exist_ok=True)
    config = TrainConfig(**{"steps": 6, "device": "cpu", "optim": OPTIM, **settings})
    return Trainer(task, config, folder, report or NullCallback())


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def flat(task: Task) -> Tensor:
    return torch.cat([value.flatten() for value in weights(task.networks()).values()])


@pytest.mark.parametrize("sizes", [(3, 3), (1, 5), (2, 1, 3), (1,) * 6])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_parts_give_the_same_as_the_whole(tmp_path: Path, sizes: tuple[int, ...], kind: str) -> None:
    optim = OptimConfig(kind=kind, lr=0.05, matrix_lr=0.05, clip=1.0)
    whole, parts = Lines(), Lines(sizes)
    trainer(whole, tmp_path / "whole", optim=optim).fit()
    trainer(parts, tmp_path / "parts", optim=optim).fit()
    torch.testing.assert_close(flat(parts), flat(whole), rtol=0, atol=1e-6)
    for one, other in zip(records(tmp_path / "whole"), records(tmp_path / "parts"), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-5)
        assert one.get("norm") == pytest.approx(other.get("norm"), abs=1e-5)


def test_the_loss_falls_and_is_logged_with_its_rate(tmp_path: Path) -> None:
    trainer(Lines(), tmp_path, steps=60, evaluate_every=20).fit()
    steps = [record for record in records(tmp_path) if "norm" in record]
    assert [record["step"] for record in steps] == list(range(1, 61))
    assert steps[-1]["loss"] < steps[0]["loss"] / 3
    assert [record["rate"] for record in steps[:2]] == [0.5, 1.0]
    assert {record["tokens"] for record in steps} == {6}
    assert [record["step"] for record in records(tmp_path) if "elapsed" in record] == [20, 40, 60]


def test_a_step_is_the_same_whatever_came_before(tmp_path: Path) -> None:
    """Dropout differs from step to step, yet a step does not depend on how many random numbers were drawn before."""
    one, other = Lines(dropout=0.5), Lines(dropout=0.5)
    first, second = trainer(one, tmp_path / "a"), trainer(other, tmp_path / "b")
    for _ in range(4):
        first._train_step()
        torch.rand(17)
        second._train_step()
    assert torch.equal(flat(one), flat(other))
    fixed = Lines(dropout=0.5)
    third = trainer(fixed, tmp_path / "c", optim=OptimConfig(kind="adamw", lr=0.0))
    batch = Cut((6,)).at(0)
    third.batches = type("Same", (), {"at": lambda self, step: batch, "per_epoch": 1})()
    assert len({third._train_step()["loss"] for _ in range(4)}) == 4


def test_another_seed_is_another_dropout(tmp_path: Path) -> None:
    losses = [
        trainer(Lines(dropout=0.5), tmp_path / str(seed), seed=seed)._train_step()["loss"] for seed in (1, 2, 3, 1)
    ]
    assert losses[0] == losses[3]
    assert len(set(losses)) == 3


def test_a_stopped_run_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    settings = {"steps": 9, "save_every": 2, "average": 0.9, "evaluate_every": 3}
    whole, broken = Lines(dropout=0.3), Lines(dropout=0.3)
    trainer(whole, tmp_path / "whole", **settings).fit()
    first = trainer(broken, tmp_path / "broken", **settings)
    step = first._train_step

    def breaks() -> dict[str, Any]:
        if first.step == 7:
            raise KeyboardInterrupt
        return step()

    first._train_step = breaks  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        first.fit()
    heard, again = Heard(), Lines(dropout=0.3)
    second = trainer(again, tmp_path / "broken", heard, **settings)
    assert second.step == 6
    assert "going on after step 6" in heard.said
    second.fit()
    assert torch.equal(flat(again), flat(whole))
    plain = [
        [{key: value for key, value in record.items() if key not in ("seconds", "elapsed")} for record in records(run)]
        for run in (tmp_path / "whole", tmp_path / "broken")
    ]
    assert plain[0] == plain[1]
    ends = [
        checkpoint.read(checkpoint.at(tmp_path / run / "checkpoints", 9), ("average",)) for run in ("whole", "broken")
    ]
    for name, value in ends[0].parts["average"].items():
        assert torch.equal(value, ends[1].parts["average"][name])


def test_another_number_of_threads_is_said_on_resume(tmp_path: Path) -> None:
    class Heard(NullCallback):
        said: ClassVar[list[str]] = []

        def say(self, message: str) -> None:
            self.said.append(message)

    trainer(Lines(), tmp_path, steps=2).fit()
    trainer(Lines(), tmp_path, Heard(), steps=2)
    assert not any("last digits" in said for said in Heard.said)
    torch.set_num_threads(2)  # the fixture for all tests sets one, and puts it back
    trainer(Lines(), tmp_path, Heard(), steps=2)
    assert "the last digits may differ from an unbroken run: threads 1, now 2" in Heard.said


def test_the_average_is_a_running_mean(tmp_path: Path) -> None:
    task = Lines()
    run = trainer(task, tmp_path, average=0.5)
    mean = flat(task)
    for step in range(1, 13):
        run._train_step()
        decay = min(0.5, step / (step + 10))
        mean = decay * mean + (1 - decay) * flat(task)
    found = torch.cat([value.flatten() for value in run.average.values()])
    torch.testing.assert_close(found, mean, rtol=1e-5, atol=1e-6)


def test_the_average_is_evaluated_and_the_weights_come_back(tmp_path: Path) -> None:
    task = Lines()
    run = trainer(task, tmp_path, average=0.9, steps=5, evaluate_every=5)
    run.fit()
    mean = float(run.average["1.weight"].sum())
    own = float(task.model[1].weight.detach().sum())
    assert mean != own
    assert records(tmp_path)[-1]["loss"] == mean


def test_the_best_score_is_kept(tmp_path: Path) -> None:
    task = Lines()
    task.scores = iter([3.0, 1.0, 2.0, 1.5])
    best = trainer(task, tmp_path, steps=4, evaluate_every=1, keep=1).fit()
    assert best == {"step": 2, "score": 1.0, "loss": 1.0}
    assert checkpoint.steps(tmp_path / "checkpoints") == [2, 4]


def test_higher_is_better_unless_the_score_is_a_loss(tmp_path: Path) -> None:
    task = Lines()
    task.score = "right"
    task.evaluate = lambda split, quick: {"right": next(values)}  # type: ignore[method-assign]
    values = iter([1.0, 3.0, 2.0])
    assert trainer(task, tmp_path, steps=3, evaluate_every=1).fit()["step"] == 2


class Duel(Lines):
    """Two networks: the critic moves first, and the maker's loss is computed with the critic that has moved."""

    def __init__(self, sizes: tuple[int, ...] = (6,)) -> None:
        super().__init__(sizes)
        self.maker, self.critic = nn.Linear(4, 4), nn.Linear(4, 1)
        self.seen: list[tuple[str, Tensor, Tensor]] = []

    def networks(self) -> dict[str, nn.Module]:
        return {"critic": self.critic, "maker": self.maker}

    def losses(self, batch: Points) -> Iterator[tuple[str, Tensor]]:
        for player, sign in (("critic", 1.0), ("maker", -1.0)):
            self.seen.append((player, self.maker.weight.detach().clone(), self.critic.weight.detach().clone()))
            yield player, sign * self.critic(self.maker(batch.x)).square().mean()

    def evaluate(self, split: Split, *, quick: bool = False, advance: Any = None) -> dict[str, float]:
        return {"loss": 1.0}


@pytest.mark.parametrize("sizes", [(6,), (2, 4)])
def test_two_players_take_turns_with_optimizers_of_their_own(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    task = Duel(sizes)
    run = trainer(task, tmp_path, steps=1)
    before = {name: [p.detach().clone() for p in player.parameters()] for name, player in task.networks().items()}
    run.fit()
    turns = [player for player, _, _ in task.seen]
    assert turns == ["critic"] * len(sizes) + ["maker"] * len(sizes)
    (_, maker_then, critic_then), (_, maker_later, critic_later) = task.seen[0], task.seen[-1]
    assert torch.equal(maker_then, maker_later)  # the first turn left the maker alone
    assert not torch.equal(critic_then, critic_later)  # and the second one saw the critic that had moved
    assert torch.equal(critic_later, task.critic.weight)  # which it left alone
    for name, player in task.networks().items():
        assert not torch.equal(before[name][0], next(player.parameters()))
        owned = {id(p) for optimizer in run.optimizers[name] for g in optimizer.param_groups for p in g["params"]}
        assert owned == {id(p) for p in player.parameters()}
    assert {"loss_critic", "loss_maker", "norm_critic", "norm_maker"} <= records(tmp_path)[0].keys()


def test_two_players_in_parts_equal_the_whole(tmp_path: Path) -> None:
    whole, parts = Duel(), Duel((1, 5))
    trainer(whole, tmp_path / "whole").fit()
    trainer(parts, tmp_path / "parts").fit()
    torch.testing.assert_close(flat(parts), flat(whole), rtol=0, atol=1e-5)


def test_a_loss_that_is_not_finite_names_step_rows_and_parameter(tmp_path: Path) -> None:
    task = Lines((2, 4))
    run = trainer(task, tmp_path)
    run._train_step()
    with torch.no_grad():
        task.model[1].weight[0, 2] = math.nan
    says = r"step 2: loss is nan, .*rows: point 0, point 1, .*point 5; first not finite: parameter 1\.weight"
    with pytest.raises(SaccadeError, match=says) as caught:
        run._train_step()
    assert caught.value.exit_code == 1
    assert run.step == 1


def test_a_score_that_is_not_finite_stops_before_it_is_taken_for_the_best(tmp_path: Path) -> None:
    task = Lines()
    task.scores = iter([1.0, math.nan])
    with pytest.raises(SaccadeError, match=r"step 2: loss on the validation data is nan.*not finite: none of the"):
        trainer(task, tmp_path, evaluate_every=1).fit()
    assert checkpoint.steps(tmp_path / "checkpoints") == [1]


def test_a_gradient_that_is_not_finite_is_named(tmp_path: Path) -> None:
    task = Lines()
    task.model[1].weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(SaccadeError, match=r"the norm of the gradient is (nan|inf).*the gradient of 1\.weight"):
        trainer(task, tmp_path)._train_step()


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    task = Lines()
    run = trainer(task, tmp_path, save_every=1, evaluate_every=100)
    step = run._train_step

    def spoil() -> dict[str, Any]:
        record = step()
        if run.step == 2:
            with torch.no_grad():
                task.model[1].weight[0, 0] = math.inf
        return record

    run._train_step = spoil  # type: ignore[method-assign]
    with pytest.raises(SaccadeError, match=r"step 2: a weight is not finite.*first not finite: parameter 1\.weight"):
        run.fit()
    assert checkpoint.steps(tmp_path / "checkpoints") == [1]


def test_gradients_are_clipped(tmp_path: Path) -> None:
    moved = []
    for clip in (1e9, 1e-3):
        task = Lines()
        before = flat(task).clone()
        run = trainer(task, tmp_path / str(clip), optim=OptimConfig(kind="adamw", lr=1.0, clip=clip, warmup=0))
        run.optimizers = {"model": [torch.optim.SGD(task.model.parameters(), lr=1.0)]}
        run.optimizers["model"][0].param_groups[0]["peak"] = 1.0
        norm = run._train_step()["norm"]
        assert norm > 0.1  # the norm before clipping is what is logged
        moved.append(float((flat(task) - before).norm()))
    assert moved[0] > 0.1
    assert moved[1] == pytest.approx(1e-3, rel=1e-3)


def test_epochs_become_steps(tmp_path: Path) -> None:
    assert trainer(Lines(), tmp_path, steps=0, epochs=2.0).budget.total == 14


def test_a_run_of_some_seconds_decides_its_length_once(tmp_path: Path) -> None:
    heard = Heard()
    run = trainer(Lines(), tmp_path, heard, steps=0, minutes=0.3 / 60)
    run.fit()
    assert run.step == run.budget.total == json.loads((tmp_path / "budget.json").read_bytes())["total"]
    totals = [total for _, total in heard.totals]
    assert totals[0] is None
    assert len({total for total in totals if total}) == 1
    assert [progress for progress, _ in heard.totals][-1] == 1.0
    assert trainer(Lines(), tmp_path, steps=0, minutes=0.3 / 60).step == run.step


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"steps": 3, "minutes": 2.0}, "must not be given together, but are 3, 2.0 and 0.0"),
        ({"steps": -1}, "must be 0 or more, but are -1, 0.0 and 0.0"),
        ({"keep": 0}, "keep must be at least 1, but is 0"),
        ({"save_every": -1}, "save_every must be at least 0, but is -1"),
        ({"average": 1.5}, "average must be at least 0 and below 1, but is 1.5"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TrainConfig(**settings)


def test_the_device_and_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.choose_device("cpu") == torch.device("cpu")
    assert device.choose_precision("auto", torch.device("cpu")) == "float32"
    assert device.choose_precision("bfloat16", torch.device("cpu")) == "bfloat16"
    assert "cpu" in device.describe_device(torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert device.choose_device("auto") == torch.device("cuda")
    assert device.choose_precision("auto", torch.device("cuda")) == "bfloat16"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    assert device.choose_precision("auto", torch.device("cuda")) == "float32"


def test_a_busy_machine_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("torch.get_num_threads", lambda: 4)
    monkeypatch.setattr("os.getloadavg", lambda: (6.5, 0.0, 0.0))
    assert "load 6.5, 4 cores): OMP_NUM_THREADS=1" in device.busy(cpu)
    monkeypatch.setattr("os.getloadavg", lambda: (4.0, 0.0, 0.0))
    assert device.busy(cpu) == ""


@pytest.mark.parametrize("wish", ["gpu", "cuda:99", "no such"])
def test_a_device_that_is_not_there_is_named(wish: str) -> None:
    with pytest.raises(UsageError, match=f"device must be auto, cpu or one this machine has, but is '{wish}'"):
        device.choose_device(wish)


def test_bfloat16_computes_in_bfloat16(tmp_path: Path) -> None:
    task, kinds = Lines(), set()
    task.model.register_forward_hook(lambda module, inputs, output: kinds.add(output.dtype))
    trainer(task, tmp_path, precision="bfloat16")._train_step()
    assert kinds == {torch.bfloat16}
    assert task.model[1].weight.dtype == torch.float32


def test_a_compiler_that_fails_is_told_and_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        def call(*_: Any, **__: Any) -> Any:
            raise RuntimeError("no compiler")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    heard, plain, compiled = Heard(), Lines(), Lines()
    trainer(compiled, tmp_path / "compiled", heard, compile=True).fit()
    trainer(plain, tmp_path / "plain").fit()
    assert "torch.compile does not work here (RuntimeError); going on without it" in heard.said
    assert torch.equal(flat(compiled), flat(plain))


def test_a_compiler_that_works_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(torch, "compile", lambda call, *_, **__: lambda *a, **k: calls.append(1) or call(*a, **k))
    trainer(Lines(), tmp_path, Heard(), compile=True, steps=3).fit()
    assert len(calls) >= 3
