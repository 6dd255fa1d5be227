"""The loop: micro-batches are weighted, steps are reproducible, trouble is named, evaluations keep the best."""

import contextlib
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade.core import Callback, Evaluation, Metric, StopTraining, Task
from saccade.errors import SaccadeError, UsageError
from saccade.runs import checkpoint
from saccade.training import device
from saccade.training.optim import OptimConfig
from saccade.training.settings import TrainConfig
from tests.training.fakes import Lines, PointSource, Recorder, flat, records, trainer


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
        assert one.get("grad_norm") == pytest.approx(other.get("grad_norm"), abs=1e-5)


def test_the_loss_falls_and_is_recorded_with_learning_rate_and_throughput(tmp_path: Path) -> None:
    trainer(Lines(), tmp_path, steps=60, evaluate_every=20).fit()
    steps = [record for record in records(tmp_path) if "grad_norm" in record]
    assert [record["step"] for record in steps] == list(range(1, 61))
    assert steps[-1]["loss"] < steps[0]["loss"] / 3
    assert [record["lr_scale"] for record in steps[:2]] == [0.5, 1.0]
    assert {(record["unit"], record["numbers"]) for record in steps} == {("numbers", 24)}  # not the rows
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
    batch = PointSource((6,)).at(0)
    third.batches = type("Same", (), {"at": lambda self, step: batch})()
    assert len({third._train_step()["loss"] for _ in range(4)}) == 4


def test_another_seed_is_another_dropout(tmp_path: Path) -> None:
    losses = [
        trainer(Lines(dropout=0.5), tmp_path / str(seed), seed=seed)._train_step()["loss"] for seed in (1, 2, 3, 1)
    ]
    assert losses[0] == losses[3]
    assert len(set(losses)) == 3


def test_a_stopped_run_resumes_as_if_it_had_not_been(tmp_path: Path) -> None:
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
    recorder, again = Recorder(), Lines(dropout=0.3)
    second = trainer(again, tmp_path / "broken", recorder, **settings)
    assert second.step == 6
    assert "resuming after step 6" in recorder.messages
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


def test_another_number_of_threads_is_logged_on_resume(tmp_path: Path) -> None:
    recorder = Recorder()
    trainer(Lines(), tmp_path, steps=2).fit()
    trainer(Lines(), tmp_path, recorder, steps=2).fit()
    assert recorder.messages[-1] == "the run finished at step 2: there is nothing left to train"
    assert not any("last digits" in message for message in recorder.messages)
    torch.set_num_threads(2)  # the fixture for all tests sets one, and puts it back
    trainer(Lines(), tmp_path, recorder, steps=2)
    assert "the last digits may differ from an unbroken run: threads 1, now 2" in recorder.messages


def test_the_average_is_a_running_mean(tmp_path: Path) -> None:
    task = Lines()
    run = trainer(task, tmp_path, average=0.5)
    mean = flat(task)
    for step in range(1, 13):
        run._train_step()
        decay = min(0.5, step / (step + 10))
        mean = decay * mean + (1 - decay) * flat(task)
    result = torch.cat([value.flatten() for value in run.average.tensors.values()])
    torch.testing.assert_close(result, mean, rtol=1e-5, atol=1e-6)


def test_the_average_is_evaluated_and_the_weights_come_back(tmp_path: Path) -> None:
    task = Lines()
    run = trainer(task, tmp_path, average=0.9, steps=5, evaluate_every=5)
    run.fit()
    mean = float(run.average.tensors["1.weight"].sum())
    own = float(task.model[1].weight.detach().sum())
    assert mean != own
    assert records(tmp_path)[-1]["loss"] == mean


def test_the_best_score_is_kept(tmp_path: Path) -> None:
    task = Lines()
    task.values = iter([3.0, 1.0, 2.0, 1.5])
    best = trainer(task, tmp_path, steps=4, evaluate_every=1, keep=1).fit()
    assert best == {"step": 2, "score": 1.0, "loss": 1.0}
    assert checkpoint.steps(tmp_path / "checkpoints") == [2, 4]


@pytest.mark.parametrize(("higher", "best"), [(True, 2), (False, 1)])
def test_the_metric_says_which_value_is_better(tmp_path: Path, higher: bool, best: int) -> None:
    task = Lines()
    task.metric = Metric("accuracy", higher_is_better=higher, unit="%")
    values = iter([1.0, 3.0, 2.0])
    task.evaluate = lambda split, quick: Evaluation({"accuracy": next(values)})  # type: ignore[method-assign]
    run = trainer(task, tmp_path, steps=3, evaluate_every=1)
    assert run.fit()["step"] == best
    assert run.best_evaluation == Evaluation({"accuracy": 3.0 if higher else 1.0})


def test_a_loss_that_is_not_finite_names_step_rows_and_parameter(tmp_path: Path) -> None:
    task = Lines((2, 4))
    run = trainer(task, tmp_path)
    run._train_step()
    with torch.no_grad():
        task.model[1].weight[0, 2] = math.nan
    pattern = r"step 2: loss is nan, .*rows: point 0, point 1, .*point 5; first not finite: parameter 1\.weight"
    with pytest.raises(SaccadeError, match=pattern) as caught:
        run._train_step()
    assert caught.value.exit_code == 1
    assert run.step == 1


def test_a_score_that_is_not_finite_stops_before_it_is_taken_for_the_best(tmp_path: Path) -> None:
    task = Lines()
    task.values = iter([1.0, math.nan])
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
    pattern = r"step 2: a weight is not finite.*rows: point \d+, .*first not finite: parameter 1\.weight"
    with pytest.raises(SaccadeError, match=pattern):
        run.fit()
    assert checkpoint.steps(tmp_path / "checkpoints") == [1]


def test_gradients_are_clipped(tmp_path: Path) -> None:
    moved = []
    for clip in (1e9, 1e-3):
        task = Lines()
        before = flat(task).clone()
        run = trainer(task, tmp_path / str(clip), optim=OptimConfig(kind="adamw", lr=1.0, clip=clip, warmup=0))
        run.optimizers = {"model": [torch.optim.SGD(task.model.parameters(), lr=1.0)]}
        run.optimizers["model"][0].param_groups[0]["peak_lr"] = 1.0
        norm = run._train_step()["grad_norm"]
        assert norm > 0.1  # the norm before clipping is what is logged
        moved.append(float((flat(task) - before).norm()))
    assert moved[0] > 0.1
    assert moved[1] == pytest.approx(1e-3, rel=1e-3)


def test_epochs_become_steps(tmp_path: Path) -> None:
    assert trainer(Lines(), tmp_path, steps=0, epochs=2.0).budget.total == 14


def test_a_run_of_some_seconds_decides_its_length_once(tmp_path: Path) -> None:
    recorder = Recorder()
    run = trainer(Lines(), tmp_path, recorder, steps=0, minutes=0.3 / 60)
    run.fit()
    assert run.step == run.budget.total == json.loads((tmp_path / "budget.json").read_bytes())["total"]
    totals = [total for _, total in recorder.totals]
    assert totals[0] is None
    assert len({total for total in totals if total}) == 1
    assert [progress for progress, _ in recorder.totals][-1] == 1.0
    assert trainer(Lines(), tmp_path, steps=0, minutes=0.3 / 60).step == run.step


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        ({"steps": 3, "minutes": 2.0}, "must not be given together, but are 3, 2.0 and 0.0"),
        ({"steps": -1}, "must be 0 or more, but are -1, 0.0 and 0.0"),
        ({"keep": 0}, "keep must be at least 1, but is 0"),
        ({"save_every": -1}, "save_every must be at least 0, but is -1"),
        ({"average": 1.5}, "average must be at least 0 and below 1, but is 1.5"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern):
        TrainConfig(**settings)


def test_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.choose_device("cpu") == torch.device("cpu")
    assert "cpu" in device.describe_device(torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device.choose_device("auto") == torch.device("cuda")


def test_a_busy_machine_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("torch.get_num_threads", lambda: 4)
    monkeypatch.setattr("os.getloadavg", lambda: (6.5, 0.0, 0.0))
    assert "load 6.5, 4 cores): OMP_NUM_THREADS=1" in device.advise_threads(cpu)
    monkeypatch.setattr("os.getloadavg", lambda: (4.0, 0.0, 0.0))
    assert device.advise_threads(cpu) == ""


@pytest.mark.parametrize("wish", ["gpu", "cuda:99", "no such"])
def test_a_device_that_is_not_there_is_named(wish: str) -> None:
    with pytest.raises(UsageError, match=f"device must be auto, cpu or one this machine has, but is '{wish}'"):
        device.choose_device(wish)


def test_bfloat16_computes_in_bfloat16(tmp_path: Path) -> None:
    task, kinds = Lines(), set()
    task.model[1].register_forward_hook(lambda module, inputs, output: kinds.add(output.dtype))
    trainer(task, tmp_path, precision="bfloat16")._train_step()
    assert kinds == {torch.bfloat16}
    assert task.model[1].weight.dtype == torch.float32


def test_train_mode_is_for_training_steps_only(tmp_path: Path) -> None:
    task, modes = Lines(dropout=0.5), []
    task.model.register_forward_hook(lambda module, inputs, output: modes.append(module.training))
    run = trainer(task, tmp_path, evaluate_every=2)
    assert not task.model.training
    run.fit()
    assert modes == [True] * 6
    assert task.modes == [False] * 3
    assert not task.model.training


def test_eval_mode_comes_back_after_an_error(tmp_path: Path) -> None:
    task = Lines()
    run = trainer(task, tmp_path)
    task.model.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run._train_step()
    assert not task.model.training


class StopAt(Recorder):
    """Asks to stop in an event of a step."""

    def __init__(self, step: int, event: str) -> None:
        super().__init__()
        self.step, self.event, self.evaluated = step, event, []

    def on_step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        super().on_step(record, progress, total)
        if self.event == "step" and record["step"] == self.step:
            raise StopTraining("good enough")

    def on_evaluation(self, record: dict[str, Any], sample: str) -> None:
        self.evaluated.append(record["step"])
        if self.event == "evaluation" and record["step"] == self.step:
            raise StopTraining


@pytest.mark.parametrize("event", ["step", "evaluation"])
def test_a_callback_ends_the_run_after_it_was_evaluated_and_saved(tmp_path: Path, event: str) -> None:
    callback = StopAt(4, event)
    best = trainer(Lines(), tmp_path, callback, steps=100, evaluate_every=2).fit()
    assert callback.evaluated == [2, 4]
    assert checkpoint.steps(tmp_path / "checkpoints")[-1] == 4
    assert best["step"] in (2, 4)
    assert f"stopped by a callback at step 4{': good enough' if event == 'step' else ''}" in callback.messages
    again = trainer(Lines(), tmp_path, steps=100, evaluate_every=2)
    assert again.fit() == best and again.step == 4  # it stays ended


def test_the_best_weights_come_back_at_the_end(tmp_path: Path) -> None:
    for average in (0.0, 0.9):
        task = Lines()
        task.values = iter([2.0, 1.0, 3.0])
        run = trainer(task, tmp_path / str(average), steps=6, evaluate_every=2, average=average)
        run.fit()
        saved = checkpoint.read(checkpoint.at(tmp_path / str(average) / "checkpoints", 4))
        last = flat(task)
        assert run.restore_best() is task
        assert not torch.equal(flat(task), last)
        tensors = saved.parts["average" if average else "model"]
        assert torch.equal(flat(task), torch.cat([tensors[name].flatten() for name in ("1.weight", "1.bias")]))


def test_a_damaged_best_checkpoint_is_not_credited_with_its_evaluation(tmp_path: Path) -> None:
    task, recorder = Lines(), Recorder()
    task.values = iter([2.0, 1.0, 3.0])
    run = trainer(task, tmp_path, recorder, steps=6, evaluate_every=2)
    run.fit()
    assert run.best_evaluation == Evaluation({"loss": 1.0})
    (checkpoint.at(tmp_path / "checkpoints", 4) / "model.safetensors").write_bytes(b"")
    run.restore_best()
    assert run.best_evaluation is None
    assert "the best checkpoint is damaged" in recorder.messages[-1]


def test_patience_ends_a_run_that_does_not_improve(tmp_path: Path) -> None:
    task, recorder = Lines(), Recorder()
    task.values = iter([1.0, 2.0, 3.0])
    run = trainer(task, tmp_path, recorder, steps=100, evaluate_every=1, patience=2)
    run.fit()
    assert run.step == 3
    assert "loss has not improved in 2 evaluations: stopping at step 3" in recorder.messages


@pytest.mark.parametrize("higher", [True, False])
def test_of_equally_good_evaluations_the_last_is_the_best_and_patience_counts_it(tmp_path: Path, higher: bool) -> None:
    """A metric that stays at 0, or at 100, must not make a model predict with its first weights."""
    task = Lines()
    task.metric = Metric("loss", higher_is_better=higher)
    task.values = iter([0.0] * 9)
    run = trainer(task, tmp_path, steps=9, evaluate_every=1, keep=1)
    assert run.fit()["step"] == 9 and run.unimproved == 8
    assert checkpoint.steps(tmp_path / "checkpoints") == [9]
    task.values = iter([0.0] * 9)
    early = trainer(task, tmp_path / "early", steps=9, evaluate_every=1, patience=3)
    assert early.fit()["step"] == 4 and early.step == 4


def end_of(child: Callable[[], None], *signals: int) -> int:
    """Fork a process, send it signals while it runs, and return how the last one ended it."""
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            child()
        os._exit(0)
    for number in signals:
        time.sleep(0.3)
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), "it must run until the last signal"
        os.kill(pid, number)
    for _ in range(60):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 0


class Stuck(PointSource):
    """Never returns the batch of a step."""

    def at(self, step: int) -> Any:
        while step >= self.sizes[1]:
            time.sleep(0.01)
        return PointSource((6,)).at(step)


@pytest.mark.parametrize("stuck_at", [0, 2])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_though_a_batch_never_comes(
    tmp_path: Path, stuck_at: int, second: signal.Signals
) -> None:
    task = Lines()
    task.source = lambda split, seed: Stuck((6, stuck_at))  # type: ignore[method-assign]
    run = trainer(task, tmp_path, steps=100)  # step 0 is loaded by the main thread, later ones are prefetched
    assert end_of(run.fit, signal.SIGTERM, second) == -second


def test_no_thread_is_left_behind(tmp_path: Path) -> None:
    before = threading.active_count()
    trainer(Lines(), tmp_path / "whole").fit()
    assert threading.active_count() == before
    task = Lines()
    task.values = iter([math.nan])
    with pytest.raises(SaccadeError):
        trainer(task, tmp_path / "broken").fit()
    assert threading.active_count() == before


class Clock:
    """A clock that a training step moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, task: Task, seconds: Any) -> None:
        self.now, self.steps = 0.0, 0

        def tick(*_: Any) -> None:
            self.steps += 1
            self.now += seconds(self.steps)

        task.networks()["model"].register_forward_hook(tick)
        monkeypatch.setattr("time.perf_counter", lambda: self.now)


def test_a_time_budget_evaluates_about_ten_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Lines()
    Clock(monkeypatch, task, lambda step: 1.0)
    trainer(task, tmp_path, steps=0, minutes=5.0, optim=OptimConfig(kind="adamw", schedule="wsd")).fit()
    steps = [record["step"] for record in records(tmp_path) if "elapsed" in record]
    assert 9 <= len(steps) <= 11
    assert steps[-1] == 300
    gaps = [after - before for before, after in zip([0, *steps], steps, strict=False)]
    assert max(gaps) <= 60  # no long part of the run passes unevaluated


def test_a_killed_run_of_some_minutes_is_evaluated_at_the_same_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the second process runs differently; what the first one decided before its kill holds."""
    settings = {"steps": 0, "minutes": 5.0, "save_every": 5, "optim": OptimConfig(kind="adamw", schedule="wsd")}
    evaluated = []
    for name, killed in (("whole", None), ("killed", 100)):
        task = Lines()
        Clock(monkeypatch, task, lambda step: 1.0)

        class Kill(Callback):
            def on_step(self, record: dict[str, Any], progress: float, total: int | None, killed: Any = killed) -> None:
                if record["step"] == killed:
                    raise KeyboardInterrupt

        run = trainer(task, tmp_path / name, Kill(), **settings)
        if killed is None:
            run.fit()
        else:
            with pytest.raises(KeyboardInterrupt):
                run.fit()
            for step in checkpoint.steps(tmp_path / name / "checkpoints"):
                if step > 50:
                    (checkpoint.at(tmp_path / name / "checkpoints", step) / "state.json").unlink()
            task = Lines()
            Clock(monkeypatch, task, lambda step: 1.0 if step > 50 else 0.01)  # until the kill it is faster
            trainer(task, tmp_path / name, **settings).fit()
        evaluated.append([record["step"] for record in records(tmp_path / name) if "elapsed" in record])
    assert [step for step in evaluated[1] if step <= 99] == [step for step in evaluated[0] if step <= 99]


def test_few_steps_in_the_time_are_warned_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, recorder = Lines(), Recorder()
    Clock(monkeypatch, task, lambda step: 0.1 if step == 2 else 3.0)  # the machine is busy most of the time
    trainer(task, tmp_path, recorder, steps=0, minutes=1.0).fit()
    (warning,) = [message for message in recorder.messages if "allows only" in message]
    total = json.loads((tmp_path / "budget.json").read_bytes())["total"]
    assert total < 30
    assert f"train.minutes=1 allows only {total} steps: " in warning
    assert "the speed of the first ones promised 600 in all" in warning
    assert "OMP_NUM_THREADS=1" in warning and "--steps" in warning


def test_enough_steps_are_not_warned_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, recorder = Lines(), Recorder()
    Clock(monkeypatch, task, lambda step: 0.1)
    trainer(task, tmp_path, recorder, steps=0, minutes=1.0).fit()
    assert not [message for message in recorder.messages if "allows only" in message]
