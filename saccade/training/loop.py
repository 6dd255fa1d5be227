"""The only training loop: it drives any task, and a kill at any moment changes no number."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from saccade.core.task import Batch, Split, Task
from saccade.errors import Interrupted, ModelFileError, ResourceError, SaccadeError
from saccade.runs import checkpoint as checkpoints
from saccade.runs.checkpoint import Checkpoint
from saccade.runs.journal import Journal
from saccade.runs.snapshots import pack, write_snapshot
from saccade.runs.weights import check_settings, optimizer_tensors, restore, restore_optimizers, settings_hash, weights
from saccade.training.budget import Budget
from saccade.training.device import busy, choose_device, choose_precision, describe_device, out_of_memory, stop_signals
from saccade.training.optim import OptimConfig, build, rate


@dataclass(frozen=True)
class TrainConfig:
    """How long, how, where, and what is kept."""

    steps: int = 0
    """length of the run in steps; give one of steps, minutes, epochs"""
    minutes: float = 0.0
    """length of the run in minutes; the schedule fits itself to it; default 5"""
    epochs: float = 0.0
    """length of the run in passes over the data"""
    seed: int = 1
    """the only source of randomness"""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps"""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 where a GPU computes it fast, else float32"""
    compile: bool = False
    """torch.compile; falls back with a message"""
    average: float = 0.0
    """decay of a running mean of the weights, used to evaluate and predict; 0: none"""
    evaluate_every: int = 0
    """steps between evaluations; 0: about ten a run"""
    save_every: int = 0
    """steps between checkpoints; 0: with every evaluation and every five minutes"""
    keep: int = 2
    """newest checkpoints kept, beside the best"""
    patience: int = 0
    """stop after this many evaluations without a better score; 0: train to the end"""
    optim: OptimConfig = field(default_factory=OptimConfig)

    def __post_init__(self) -> None:
        budgets, said = (self.steps, self.minutes, self.epochs), f"{self.steps}, {self.minutes} and {self.epochs}"
        if sum(1 for budget in budgets if budget) > 1:
            raise ValueError(f"steps, minutes and epochs must not be given together, but are {said}; give one of them")
        if min(budgets) < 0:
            raise ValueError(f"steps, minutes and epochs must be 0 or more, but are {said}")
        for name, least in (("keep", 1), ("evaluate_every", 0), ("save_every", 0), ("patience", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed must be at least 0 and below 2^63, but is {self.seed}")
        if not 0 <= self.average < 1:
            raise ValueError(f"average must be at least 0 and below 1, but is {self.average}")


class Callback(Protocol):
    """Who is told how it goes."""

    def say(self, message: str) -> None: ...

    def advance(self, what: str, share: float) -> None: ...

    def step(self, record: dict[str, Any], progress: float, total: int | None) -> None: ...

    def evaluated(self, record: dict[str, Any], sample: str) -> None: ...


class NullCallback:
    """Tells nobody."""

    def say(self, message: str) -> None: ...

    def advance(self, what: str, share: float) -> None: ...

    def step(self, record: dict[str, Any], progress: float, total: int | None) -> None: ...

    def evaluated(self, record: dict[str, Any], sample: str) -> None: ...


class Trainer:
    """One run of one task in one folder, new or resumed."""

    def __init__(self, task: Task, config: TrainConfig, folder: Path, report: Callback) -> None:
        self.task, self.config, self.folder, self.report = task, config, folder, report
        self.device = choose_device(config.device)
        self.precision = choose_precision(config.precision, self.device)
        report.say(f"device: {describe_device(self.device)}, {self.precision}")
        if advice := busy(self.device):
            report.say(advice)
        self.networks = {name: player.to(self.device) for name, player in task.networks().items()}
        self.optimizers = {name: build(config.optim, player) for name, player in self.networks.items()}
        self.batches = task.batches(Split.TRAIN, config.seed)
        self.average = {name: value.clone() for name, value in weights(self.networks).items()} if config.average else {}
        self.step, self.elapsed = 0, 0.0
        self.best: dict[str, float] = {}
        self.stale = 0  # evaluations since the best one
        self.saved: int | None = None
        self._resume()
        self.budget = self._budget()
        self._compile()

    def fit(self) -> dict[str, float]:
        """Train to the end of the budget; the scores of the best checkpoint."""
        there = len(checkpoints.steps(self.folder / "checkpoints"))
        checkpoints.check_space(self.folder, self._bytes(), max(1, self.config.keep + 2 - there))
        self.metrics = Journal(self.folder / "metrics.jsonl", self.step)
        self.samples = Journal(self.folder / "samples.jsonl", self.step)
        began, saved_at = time.perf_counter() - self.elapsed, time.perf_counter()
        try:
            with stop_signals() as stop:
                while not self._over():
                    record = self._train_step()
                    self.elapsed = time.perf_counter() - began
                    self.budget.decide(self.step, self.elapsed)
                    record["seconds"] = round(self.elapsed, 3)
                    self.metrics.write(record)
                    self.report.step(record, self.budget.progress(self.step, self.elapsed), self.budget.total)
                    due = self._due()
                    if due:
                        self._evaluate()
                    late = not self.config.save_every and time.perf_counter() - saved_at > 300
                    every = self.config.save_every and self.step % self.config.save_every == 0
                    if due or late or every or stop.number:
                        self.save()
                        saved_at = time.perf_counter()
                    if stop.number:
                        raise Interrupted(stop.number, f"stopped at step {self.step}; the checkpoint is saved")
                self.save()
                if stop.number:
                    raise Interrupted(stop.number, f"stopped at the last step, {self.step}; the checkpoint is saved")
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            raise ResourceError(
                f"step {self.step + 1} needs more memory than {self.device} has; raise parts, or lower batch or the "
                f"model's size ({str(error).splitlines()[0]})"
            ) from error
        finally:
            self.metrics.close()
            self.samples.close()
        return self.best

    def _train_step(self) -> dict[str, Any]:
        """One step of every player; what to log of it."""
        factor = rate(self.config.optim, self.step, self.budget.total_at(self.step))
        parts = [part.to(self.device) for part in self.batches.at(self.step)]
        total = sum(part.count for part in parts)
        # The step's randomness (dropout) depends on nothing but the seed and the step.
        torch.manual_seed(_seed(self.config.seed, self.step))
        record: dict[str, Any] = {"step": self.step + 1}
        rounds = [self.task.losses(part) for part in parts]
        for player, loss in self._play(parts, rounds, total):
            suffix = "" if len(self.networks) == 1 else f"_{player}"
            record[f"loss{suffix}"] = loss
            if self.config.optim.clip:
                record[f"norm{suffix}"] = self._clip(player, parts)
            self._move(player, factor)
        self.step += 1
        if self.average:
            # Early on the mean is short, so that it does not remember the first weights.
            decay = min(self.config.average, self.step / (self.step + 10))
            torch._foreach_lerp_(list(self.average.values()), list(weights(self.networks).values()), 1 - decay)
        return record | {"rate": factor, "tokens": total}

    def _play(
        self, parts: Sequence[Batch], rounds: list[Iterator[tuple[str, Tensor]]], total: int
    ) -> Iterator[tuple[str, float]]:
        """Gradients of one player after the other, summed over the parts by their weight."""
        while True:
            player, value = "", 0.0
            for part, losses in zip(parts, rounds, strict=True):
                with self._autocast():
                    found = next(losses, None)
                if found is None:
                    return
                player, loss = found
                share = loss * (part.count / total) if len(parts) > 1 else loss
                share.backward(inputs=list(self.networks[player].parameters()) if len(self.networks) > 1 else None)
                value += float(share.detach())
            if not math.isfinite(value):
                raise self._broken(f"loss is {value}", player, parts)
            yield player, value

    def _clip(self, player: str, parts: Sequence[Batch]) -> float:
        """Shorten the gradient of a player where it is too long; the norm it had."""
        norm = float(nn.utils.clip_grad_norm_(self.networks[player].parameters(), self.config.optim.clip))
        if not math.isfinite(norm):
            raise self._broken(f"the norm of the gradient is {norm}", player, parts)
        return norm

    def _move(self, player: str, factor: float) -> None:
        """Step a player and clear its gradients."""
        for optimizer in self.optimizers[player]:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def _broken(self, what: str, player: str, parts: Sequence[Batch]) -> SaccadeError:
        """The error for a number that is not finite: step, rows and the first parameter that shows it."""
        named = self.networks[player].named_parameters()
        bad = "none of the parameters or gradients"
        for name, value in named:
            if not torch.isfinite(value).all():
                bad = f"parameter {name}"
                break
            if value.grad is not None and not torch.isfinite(value.grad).all():
                bad = f"the gradient of {name}"
                break
        rows = [row for part in parts for row in part.rows]
        shown = ", ".join(rows[:8]) + (f" and {len(rows) - 8} more" if len(rows) > 8 else "")
        step, where = (self.step + 1, f"rows: {shown}; ") if parts else (self.step, "")
        return SaccadeError(
            f"step {step}: {what}, expected a finite number; {where}first not finite: {bad}. "
            "Lower train.optim.lr and train.optim.matrix_lr, or look at these rows; the last checkpoint is whole"
        )

    def _evaluate(self) -> None:
        """Score the model (or its average) on the validation data and remember the best."""
        with self._averaged(), self._autocast():
            scores = self.task.evaluate(Split.VALID, quick=True)
            score = scores[self.task.score]
            if not math.isfinite(score):
                raise self._broken(
                    f"{self.task.score} on the validation data is {score}", next(iter(self.networks)), []
                )
            sample = self.task.sample()
            seen = pack(self.task.attention_snapshot())
        worse = self.task.score.endswith("loss")
        if not self.best or (score < self.best["score"] if worse else score > self.best["score"]):
            self.best, self.stale = {"step": self.step, "score": score, **scores}, 0
        else:
            self.stale += 1
        record = {"step": self.step, "elapsed": round(self.elapsed, 3), **scores, "best": self.best["score"]}
        self.metrics.write(record)
        if sample:
            self.samples.write({"step": self.step, "text": sample})
        self.metrics.flush()
        self.samples.flush()
        write_snapshot(self.folder, self.step, seen)
        self.report.evaluated(record, sample)
        if self.config.patience and self.stale >= self.config.patience:
            self.report.say(f"no better {self.task.score} in {self.stale} evaluations: stopping at step {self.step}")

    def _due(self) -> bool:
        """Whether to evaluate after this step: a function of the step and the decided total alone."""
        if self._over():
            return True
        if self.config.evaluate_every:
            return self.step % self.config.evaluate_every == 0
        if self.config.steps or self.config.epochs:
            return self.step % max(1, -(-(self.budget.total or 1) // 10)) == 0
        return self.step >= 64 and self.step & (self.step - 1) == 0  # 64, 128, 256, ...

    def _over(self) -> bool:
        if self.config.patience and self.stale >= self.config.patience:
            return True
        return self.budget.total is not None and self.step >= self.budget.total

    def save(self) -> None:
        """Write a checkpoint of this step, unless it is there already."""
        if self.saved == self.step:
            return
        for name, player in self.networks.items():  # never a checkpoint that cannot be trained on
            if not all(bool(torch.isfinite(value).all()) for value in player.parameters()):
                raise self._broken("a weight is not finite", name, ())
        self.metrics.flush()
        self.samples.flush()
        parts = {"model": weights(self.networks), "optimizer": optimizer_tensors(self.networks, self.optimizers)}
        if self.average:
            parts["average"] = self.average
        state = {"elapsed": self.elapsed, "best": self.best, "stale": self.stale, "made_with": self._made_with()}
        state["settings"] = settings_hash(self.task.config)
        folder = self.folder / "checkpoints"
        checkpoints.save(folder, Checkpoint(self.step, parts, state))
        self.saved = self.step
        checkpoints.prune(folder, self.step, self.config.keep, int(self.best["step"]) if self.best else None)

    def _resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one."""
        folder = self.folder / "checkpoints"
        found = checkpoints.newest(folder, self.report.say, ("model", "optimizer", "average"))
        if found is None:
            return
        where = str(checkpoints.at(folder, found.step))
        check_settings(found.state, self.task.config, where)
        if self.average and "average" not in found.parts:
            raise ModelFileError(f"{where} must hold the averaged weights for train.average, but does not")
        restore(self.networks, found.parts["model"], where)
        restore_optimizers(self.networks, self.optimizers, found.parts["optimizer"])
        for name, value in self.average.items():
            value.copy_(found.parts["average"][name])
        self.step, self.saved = found.step, found.step
        self.elapsed, self.best = found.state["elapsed"], found.state["best"]
        self.stale = found.state.get("stale", 0)
        self.report.say(f"going on after step {self.step}")
        before = found.state.get("made_with", {})
        now = self._made_with()
        changed = [
            f"{what} {before[what]}, now {now[what]}" for what in now if before.get(what, now[what]) != now[what]
        ]
        if changed:
            self.report.say(f"the last digits may differ from an unbroken run: {'; '.join(changed)}")

    def _made_with(self) -> dict[str, Any]:
        """What the last digits of every number depend on, beside the seed."""
        where = {"device": str(self.device), "precision": self.precision, "threads": torch.get_num_threads()}
        return {**where, "torch": str(torch.__version__)}

    def _budget(self) -> Budget:
        """How long to train; five minutes where nothing is said."""
        config = self.config
        steps = config.steps or (max(1, round(config.epochs * self.batches.per_epoch)) if config.epochs else 0)
        return Budget.of(self.folder / "budget.json", steps, 60 * (config.minutes or 5.0), config.optim)

    def _compile(self) -> None:
        """Compile the networks where asked for; a first step shows whether that works here."""
        if not self.config.compile:
            return
        try:
            for player in self.networks.values():
                player.compile()
            for _, loss in self.task.losses(self.batches.at(self.step)[0].to(self.device)):
                loss.backward()
        except Exception as error:  # noqa: BLE001 - the compiler may fail in any way; the plain form always works
            for player in self.networks.values():
                player._compiled_call_impl = None
            self.report.say(f"torch.compile does not work here ({type(error).__name__}); going on without it")
        for player in self.networks.values():
            player.zero_grad(set_to_none=True)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    @contextlib.contextmanager
    def _averaged(self) -> Iterator[None]:
        """Put the mean of the weights in the place of the weights for a while, where there is one."""
        if not self.average:
            yield
            return
        kept = {name: value.clone() for name, value in weights(self.networks).items()}
        restore(self.networks, self.average, "average")
        try:
            yield
        finally:
            restore(self.networks, kept, "weights")

    def _bytes(self) -> int:
        """Size of a checkpoint: the weights, two moments and the mean."""
        size = sum(value.numel() * value.element_size() for value in weights(self.networks).values())
        return size * (4 if self.average else 3)


def _seed(*parts: int) -> int:
    """One number from several; 32 bits, since the generator of a CPU looks at no more."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4])
