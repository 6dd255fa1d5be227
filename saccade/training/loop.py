"""The only training loop: it drives any task, and a kill at any moment changes no number."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from saccade.config import override
from saccade.core import Batch, Callback, Evaluation, Split, StopTraining, Task
from saccade.errors import Interrupted, ModelFileError, ResourceError
from saccade.runs import checkpoint as checkpoints
from saccade.runs.checkpoint import Checkpoint
from saccade.runs.journal import Journal
from saccade.runs.selection import select_weights
from saccade.runs.snapshots import pack, write_snapshot
from saccade.runs.weights import (
    check_config,
    config_hash,
    optimizer_tensors,
    restore,
    restore_optimizers,
    restore_states,
    state_tensors,
    weights,
)
from saccade.training import device as devices
from saccade.training.averaging import WeightAverage
from saccade.training.budget import Budget
from saccade.training.compiling import compile_networks, unchanged
from saccade.training.finite import is_finite, not_finite
from saccade.training.optim import OptimConfig, build_optimizers, lr_scale
from saccade.training.prefetch import Prefetcher

SAVE_SECONDS = 300  # at most between two checkpoints, where save_every is 0

Wrap = Callable[[nn.Module], nn.Module]


@dataclass(frozen=True)
class TrainConfig:
    """Length, precision, evaluation and checkpoints of a run."""

    steps: int = 0
    """length of the run in steps; give one of steps, minutes, epochs"""
    minutes: float = 0.0
    """length of the run in minutes; the learning-rate schedule is fitted to it; default 5"""
    epochs: float = 0.0
    """length of the run in passes over the training data"""
    seed: int = 1
    """random seed: the only source of randomness"""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps"""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 autocast where a GPU supports it, else float32"""
    compile: bool = False
    """compile the networks with torch.compile; where that fails, train without it and log why"""
    compile_backend: str = "inductor"
    """backend of torch.compile"""
    average: float = 0.0
    """decay of an exponential moving average of the weights, used to evaluate and predict; 0: none"""
    evaluate_every: int = 0
    """steps between evaluations; 0: about ten evaluations a run"""
    save_every: int = 0
    """steps between checkpoints; 0: with every evaluation and every five minutes"""
    keep: int = 2
    """number of newest checkpoints to keep, in addition to the best one"""
    patience: int = 0
    """early stopping: end the run after this many evaluations without improvement; 0: never"""
    optim: OptimConfig = field(default_factory=OptimConfig)

    def __post_init__(self) -> None:
        lengths, shown = (self.steps, self.minutes, self.epochs), f"{self.steps}, {self.minutes} and {self.epochs}"
        if sum(1 for length in lengths if length) > 1:
            raise ValueError(f"steps, minutes and epochs must not be given together, but are {shown}; give one of them")
        if min(lengths) < 0:
            raise ValueError(f"steps, minutes and epochs must be 0 or more, but are {shown}")
        for name, least in (("keep", 1), ("evaluate_every", 0), ("save_every", 0), ("patience", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed must be at least 0 and below 2^63, but is {self.seed}")
        if not 0 <= self.average < 1:
            raise ValueError(f"average must be at least 0 and below 1, but is {self.average}")


class Trainer:
    """One run of one task in one folder, new or resumed.

    `wrap` is applied to each network before the task computes its loss with it: the seam for DDP and FSDP.
    """

    def __init__(
        self, task: Task, config: TrainConfig, folder: Path, callback: Callback, *, wrap: Wrap | None = None
    ) -> None:
        self.task, self.config, self.folder, self.callback = task, config, folder, callback
        self.device = devices.choose_device(config.device)
        self.precision = devices.choose_precision(config.precision, self.device)
        callback.log(f"device: {devices.describe_device(self.device)}, {self.precision}")
        if advice := devices.advise_threads(self.device):
            callback.log(advice)
        self.networks = {name: network.to(self.device).eval() for name, network in task.networks().items()}
        self.optim = {name: override(config.optim, task.optimizer_overrides(name)) for name in self.networks}
        self.optimizers = {name: build_optimizers(self.optim[name], self.networks[name]) for name in self.networks}
        self.source = task.source(Split.TRAIN, config.seed)
        self.batches = Prefetcher(self.source, self.device)
        self.average = WeightAverage(self.networks, config.average) if config.average else None
        self.step, self.elapsed = 0, 0.0
        self.best: dict[str, float] = {}
        self.best_evaluation: Evaluation | None = None  # of the best step, where this process evaluated it
        self.unimproved = 0  # evaluations since the best one
        self.stopped = False  # by a callback
        self.saved: int | None = None
        self._resume()
        self.budget = self._budget()
        self.wrapped = {name: wrap(network) if wrap else network for name, network in self.networks.items()}
        self._compile_next = config.compile

    def fit(self) -> dict[str, float]:
        """Train to the end of the budget; return the values of the best evaluation."""
        existing = len(checkpoints.steps(self.folder / "checkpoints"))
        checkpoints.check_space(self.folder, self._bytes(), max(1, self.config.keep + 2 - existing))
        self.metrics = Journal(self.folder / "metrics.jsonl", self.step)
        self.samples = Journal(self.folder / "samples.jsonl", self.step)
        if self._over():
            self.callback.log(f"the run finished at step {self.step}: there is nothing left to train")
        try:
            with devices.stop_signals() as stop, self.batches:
                self._run(stop)
        except RuntimeError as error:
            if not devices.out_of_memory(error):
                raise
            raise ResourceError(
                f"step {self.step + 1} needs more memory than {self.device} has; raise micro_batches, or lower the "
                f"size of the batch or of the model ({str(error).splitlines()[0]})"
            ) from error
        finally:
            self.metrics.close()
            self.samples.close()
        return self.best

    def _run(self, stop: devices.Stop) -> None:
        """Train, evaluate and save until the run is over or a signal comes."""
        started, saved_at = time.perf_counter() - self.elapsed, time.perf_counter()
        while not self._over():
            before = time.perf_counter()
            record = self._train_step()
            now = time.perf_counter()
            self.elapsed = now - started
            self.budget.time_step(self.step, now - before)
            if self.budget.decide(self.step, self.elapsed) and (warning := self.budget.shortage(self.elapsed)):
                self.callback.log(warning)
            record["seconds"] = round(self.elapsed, 3)
            self.metrics.write(record)
            with self._stoppable():
                progress = self.budget.progress(self.step, self.elapsed)
                self.callback.on_step(record, progress, self.budget.total)
            due = self._evaluation_due()
            if due:
                self._evaluate()
            late = not self.config.save_every and time.perf_counter() - saved_at > SAVE_SECONDS
            every = self.config.save_every and self.step % self.config.save_every == 0
            if due or late or every or stop.number:
                self.save()
                saved_at = time.perf_counter()
            if stop.number:
                raise Interrupted(stop.number, f"stopped at step {self.step}; the checkpoint is saved")
        self.save()
        if stop.number:
            raise Interrupted(stop.number, f"stopped at the last step, {self.step}; the checkpoint is saved")

    def _train_step(self) -> dict[str, Any]:
        """Update every network once; return the record of the step."""
        batches = self.batches.at(self.step)
        if self._compile_next:
            self._compile(batches[0])
        # The randomness of a step (dropout) depends on nothing but the seed and the step.
        torch.manual_seed(_seed(self.config.seed, self.step))
        scale = lr_scale(self.config.optim, self.step, self.budget.total_at(self.step))
        record: dict[str, Any] = {"step": self.step + 1, "lr_scale": scale}
        with self._training_mode():
            for name, loss in self._gradients(batches):
                suffix = "" if len(self.networks) == 1 else f"_{name}"
                record[f"loss{suffix}"] = loss
                if self.optim[name].clip:
                    record[f"grad_norm{suffix}"] = self._clip(name, batches)
                self._update(name)
        self.step += 1
        if self.average:
            self.average.update(self.step)
        unit = self.task.unit
        return record | {"unit": unit, unit: sum(batch.units for batch in batches)}

    def _gradients(self, batches: Sequence[Batch]) -> Iterator[tuple[str, float]]:
        """Compute the gradients of one network after another, as the mean over the micro-batches by their counts."""
        total = sum(batch.count for batch in batches)
        rounds = [self.task.losses(batch, self.wrapped) for batch in batches]
        while True:
            name, value = "", 0.0
            for batch, losses in zip(batches, rounds, strict=True):
                with self._autocast():
                    pair = next(losses, None)
                if pair is None:
                    return
                name, loss = pair
                weighted = loss * (batch.count / total) if len(batches) > 1 else loss
                weighted.backward(inputs=self._trainable(name) if len(self.networks) > 1 else None)
                value += float(weighted.detach())
            if not math.isfinite(value):
                raise not_finite(f"loss is {value}", self.step + 1, self.networks[name], batches)
            yield name, value

    def _trainable(self, name: str) -> list[Tensor]:
        return [parameter for parameter in self.networks[name].parameters() if parameter.requires_grad]

    def _clip(self, name: str, batches: Sequence[Batch]) -> float:
        """Clip the gradient of a network; return the norm it had."""
        norm = float(nn.utils.clip_grad_norm_(self.networks[name].parameters(), self.optim[name].clip))
        if not math.isfinite(norm):
            raise not_finite(f"the norm of the gradient is {norm}", self.step + 1, self.networks[name], batches)
        return norm

    def _update(self, name: str) -> None:
        """Step the optimizers of a network and clear its gradients."""
        scale = lr_scale(self.optim[name], self.step, self.budget.total_at(self.step))
        for optimizer in self.optimizers[name]:
            for group in optimizer.param_groups:
                group["lr"] = group["peak_lr"] * scale
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def _evaluate(self) -> None:
        """Evaluate the model (or its average) on the validation data and keep the best."""
        metric, began = self.task.metric, time.perf_counter()
        with self.average.applied() if self.average else contextlib.nullcontext(), self._autocast():
            evaluation = self.task.evaluate(Split.VALID, quick=True)
            value = evaluation[metric.name]
            if not math.isfinite(value):
                problem = f"{metric.name} on the validation data is {value}"
                raise not_finite(problem, self.step, next(iter(self.networks.values())))
            sample = self.task.sample()
            snapshot = pack(self.task.attention_snapshot())
        if not self.best or metric.better(value, self.best["score"]):
            self.best, self.unimproved = {"step": self.step, "score": value, **evaluation.values}, 0
            self.best_evaluation = evaluation
        else:
            self.unimproved += 1
        self.budget.evaluation_seconds = time.perf_counter() - began
        elapsed = round(self.elapsed, 3)
        record = {"step": self.step, "elapsed": elapsed, **evaluation.values, "best": self.best["score"]}
        self.metrics.write(record)
        if sample:
            self.samples.write({"step": self.step, "text": sample})
        self.metrics.flush()
        self.samples.flush()
        write_snapshot(self.folder, self.step, snapshot)
        with self._stoppable():
            self.callback.on_evaluation(record, sample)
        if self.config.patience and self.unimproved >= self.config.patience:
            evaluations = f"{self.unimproved} evaluations"
            self.callback.log(f"{metric.name} has not improved in {evaluations}: stopping at step {self.step}")

    def _evaluation_due(self) -> bool:
        """Whether to evaluate after this step: a function of the step and of decisions that are on disk."""
        if self._over():
            return True
        if self.config.evaluate_every:
            return self.step % self.config.evaluate_every == 0
        return self.budget.evaluate_after(self.step, self.elapsed)

    def _over(self) -> bool:
        if self.stopped or (self.config.patience and self.unimproved >= self.config.patience):
            return True
        return self.budget.total is not None and self.step >= self.budget.total

    @contextlib.contextmanager
    def _stoppable(self) -> Iterator[None]:
        """End the run after this step if a callback asks for it."""
        try:
            yield
        except StopTraining as error:
            self.stopped = True
            self.callback.log(f"stopped by a callback at step {self.step}{f': {error}' if str(error) else ''}")

    def restore_best(self) -> Task:
        """Give the networks the weights of the best checkpoint (the average, where there is one); return the task."""
        if best := select_weights(self.folder / "checkpoints", "best", self.callback.log):
            restore(self.networks, best.tensors, self.folder.name)
        return self.task

    def save(self) -> None:
        """Write a checkpoint of this step, unless there is one."""
        if self.saved == self.step:
            return
        for network in self.networks.values():  # never a checkpoint that cannot be trained on
            if not is_finite(network):
                raise not_finite("a weight is not finite", self.step, network)
        self.metrics.flush()
        self.samples.flush()
        parts = {"model": weights(self.networks), "optimizer": optimizer_tensors(self.networks, self.optimizers)}
        if self.average:
            parts["average"] = self.average.tensors
        if states := state_tensors({"source": self.source, "task": self.task}):
            parts["state"] = states
        state = {
            "elapsed": self.elapsed,
            "best": self.best,
            "unimproved": self.unimproved,
            "stopped": self.stopped,
            "environment": devices.environment(self.device, self.precision),
            "config_hash": config_hash(self.task.config),
        }
        folder = self.folder / "checkpoints"
        checkpoints.save(folder, Checkpoint(self.step, parts, state))
        self.saved = self.step
        checkpoints.prune(folder, self.step, self.config.keep, int(self.best["step"]) if self.best else None)

    def _resume(self) -> None:
        """Continue from the newest intact checkpoint, if there is one."""
        folder = self.folder / "checkpoints"
        saved = checkpoints.newest(folder, self.callback.log)
        if saved is None:
            return
        where = str(checkpoints.at(folder, saved.step))
        check_config(saved.state, self.task.config, where)
        restore(self.networks, saved.parts["model"], where)
        restore_optimizers(self.networks, self.optimizers, saved.parts.get("optimizer", {}))
        if self.average:
            if "average" not in saved.parts:
                raise ModelFileError(f"{where} must hold the averaged weights for train.average, but does not")
            self.average.load(saved.parts["average"], where)
        restore_states({"source": self.source, "task": self.task}, saved.parts.get("state", {}), where)
        self.step = self.saved = saved.step
        self.elapsed, self.best = saved.state["elapsed"], saved.state["best"]
        self.unimproved, self.stopped = saved.state.get("unimproved", 0), saved.state.get("stopped", False)
        self.callback.log(f"resuming after step {self.step}")
        now = devices.environment(self.device, self.precision)
        if changes := devices.environment_changes(saved.state.get("environment", {}), now):
            self.callback.log(f"the last digits may differ from an unbroken run: {changes}")

    def _budget(self) -> Budget:
        """Return the budget of steps or of time: five minutes by default."""
        config = self.config
        steps = config.steps or (max(1, round(config.epochs * self.source.per_epoch)) if config.epochs else 0)
        seconds = 60 * (config.minutes or 5.0)
        return Budget.of(self.folder / "budget.json", steps, seconds, self.optim.values(), elapsed=self.elapsed)

    def _compile(self, batch: Batch) -> None:
        """Compile the networks; losses and gradients of one batch show whether that works on this machine."""
        self._compile_next = False
        try:
            compiled = compile_networks(self.wrapped, self.config.compile_backend)
            with unchanged(self.task, self.networks), self._training_mode(), self._autocast():
                for loss in loss_of(self.task, batch, compiled).values():
                    loss.backward()
        except Exception as error:  # noqa: BLE001 - the compiler may fail in any way; the plain form always works
            self.callback.log(f"torch.compile does not work here ({type(error).__name__}); training without it")
        else:
            self.wrapped = compiled

    @contextlib.contextmanager
    def _training_mode(self) -> Iterator[None]:
        """Put the networks in train mode for a block; everywhere else they are in eval mode."""
        for network in self.networks.values():
            network.train()
        try:
            yield
        finally:
            for network in self.networks.values():
                network.eval()

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _bytes(self) -> int:
        """Return the size of a checkpoint: the weights, two moments and the average."""
        size = sum(value.numel() * value.element_size() for value in weights(self.networks).values())
        return size * (4 if self.average else 3)


def loss_of(task: Task, batch: Any, networks: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Return the loss of every network on one batch, without an update between them."""
    return dict(task.losses(batch, networks))


def _seed(*numbers: int) -> int:
    """Combine several numbers to one of 32 bits: the generator of a CPU uses no more."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:4])
