"""The only training loop: it drives any task, and a kill at any moment changes no number."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.config import override
from saccade.core import Batch, Callback, Evaluation, Split, StopTraining, Task
from saccade.errors import Interrupted, ModelFileError, ResourceError
from saccade.runs import checkpoint as checkpoints
from saccade.runs.checkpoint import Checkpoint
from saccade.runs.journal import JOURNALS, Journal, Written
from saccade.runs.provenance import check_identity, identity
from saccade.runs.selection import select_weights
from saccade.runs.snapshots import pack, write_snapshot
from saccade.runs.state import State
from saccade.runs.weights import (
    Stateful,
    optimizer_tensors,
    restore,
    restore_optimizers,
    restore_states,
    state_tensors,
    weights,
)
from saccade.training import device as devices
from saccade.training import precision as precisions
from saccade.training.averaging import WeightAverage
from saccade.training.budget import Budget
from saccade.training.compiling import compile_networks, training_mode, unchanged
from saccade.training.finite import is_finite, not_finite
from saccade.training.optim import build_optimizers, lr_scale, state_shapes
from saccade.training.prefetch import Prefetcher
from saccade.training.settings import TrainConfig

SAVE_SECONDS = 300  # at most between two checkpoints, where save_every is 0

Wrap = Callable[[nn.Module], nn.Module]


class Trainer:
    """One run of one task in one folder, new or resumed.

    `wrap` is applied to each network before the task computes its loss with it: the seam for DDP and FSDP.
    """

    def __init__(
        self, task: Task, config: TrainConfig, folder: Path, callback: Callback, *, wrap: Wrap | None = None
    ) -> None:
        self.task, self.config, self.folder, self.callback = task, config, folder, callback
        self.device = devices.choose_device(config.device)
        devices.keep_freed_memory()
        self.networks = {name: network.to(self.device).eval() for name, network in task.networks().items()}
        self.optim = {name: override(config.optim, task.optimizer_overrides(name)) for name in self.networks}
        self.optimizers = {name: build_optimizers(self.optim[name], self.networks[name]) for name in self.networks}
        self.source = task.source(Split.TRAIN, config.seed)
        # A step on a CPU uses all cores: a batch that is prepared beside it delays every one of its threads.
        self.batches = Prefetcher(self.source, self.device, ahead=self.device.type != "cpu")
        file = folder / "precision.json"
        self.precision = precisions.choose_precision(config.precision, self.device, file, self._step_seconds)
        callback.log(f"device: {devices.describe_device(self.device)}, {self.precision}")
        if advice := devices.advise_threads(self.device):
            callback.log(advice)
        self.average = WeightAverage(self.networks, config.average) if config.average else None
        self.step, self.elapsed = 0, 0.0
        self.best: dict[str, Any] = {}
        self.best_evaluation: Evaluation | None = None  # of the best step, where this process evaluated it
        self.unimproved = 0  # evaluations since the last improvement
        self.stopped = False  # by a callback
        self.saved: int | None = None
        self.scheduled: list[int] = []  # checkpoints that are due by the settings, the newest ones
        self.provenance = identity(folder)
        state = self._resume()
        self.budget = self._budget()
        if state.budget:
            self.budget.check_saved(state.budget)
        self.journals = {name: state.journals.get(name, Written()) for name in JOURNALS}
        self.wrapped = {name: wrap(network) if wrap else network for name, network in self.networks.items()}
        self._compile_next = config.compile

    def fit(self) -> dict[str, float]:
        """Train to the end of the budget; return the values of the best evaluation."""
        existing = self._prune()
        checkpoints.check_space(self.folder, self._bytes(), max(1, self.config.keep + 2 - existing))
        self.metrics, self.samples = (Journal(self.folder / name, self.journals[name]) for name in JOURNALS)
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
            scheduled = due or (self.config.save_every > 0 and self.step % self.config.save_every == 0)
            if scheduled or late or stop.number:
                self.save(scheduled=scheduled)
                saved_at = time.perf_counter()
            if stop.number:
                raise Interrupted(stop.number, f"stopped at step {self.step}; the checkpoint is saved")
        self.save(scheduled=True)
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
        with training_mode(self.networks):
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
        improved = not self.best or metric.better(value, self.best["score"])
        self.unimproved = 0 if improved else self.unimproved + 1
        if improved or value == self.best["score"]:  # of equal ones the last: it was trained longer
            self.best = {"step": self.step, "score": value, **evaluation.values}
            self.best_evaluation = evaluation
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
            if best.step != self.best.get("step"):  # it is damaged, and what was evaluated is not what is left
                self.best_evaluation = None
        return self.task

    def save(self, *, scheduled: bool) -> None:
        """Write a checkpoint of this step, unless there is one.

        Only those that are `scheduled` count for `keep`, so that a stop by a signal changes nothing of what is kept.
        """
        if self.saved == self.step:
            return
        for network in self.networks.values():  # never a checkpoint that cannot be trained on
            if not is_finite(network):
                raise not_finite("a weight is not finite", self.step, network)
        journals = {name: journal.flush() for name, journal in zip(JOURNALS, (self.metrics, self.samples), strict=True)}
        parts = {"model": weights(self.networks), "optimizer": optimizer_tensors(self.networks, self.optimizers)}
        if self.average:
            parts["average"] = self.average.tensors
        if states := state_tensors({"source": self.source, "task": self.task}):
            parts["state"] = states
        self.scheduled = [*self.scheduled, self.step][-self.config.keep :] if scheduled else self.scheduled
        state = State(
            elapsed=self.elapsed,
            best=self.best,
            unimproved=self.unimproved,
            stopped=self.stopped,
            environment=devices.environment(self.device, self.precision),
            kept=self._kept(self.step),
            scheduled=self.scheduled,
            optimizer_tensors=len(parts["optimizer"]),
            budget=self.budget.decisions(),
            data=self.provenance,
            journals=journals,
        )
        checkpoints.save(self.folder / "checkpoints", Checkpoint(self.step, parts, state))
        self.saved = self.step
        checkpoints.prune(self.folder / "checkpoints", state.kept)

    def _kept(self, last: int) -> list[int]:
        """Return the steps of the checkpoints to keep: those on schedule, the best and the last one."""
        best = [self.best["step"]] if self.best else []
        return sorted({*self.scheduled, *best, last})

    def _prune(self) -> int:
        """Clear up what a kill around the last save has left; return how many checkpoints there are."""
        folder = self.folder / "checkpoints"
        if self.saved is not None:
            later = [step for step in checkpoints.steps(folder) if step > self.saved]  # until they are reached again
            checkpoints.prune(folder, [*self._kept(self.saved), *later])
        return len(checkpoints.steps(folder))

    def _resume(self) -> State:
        """Continue from the newest checkpoint that can be used, if there is one."""
        folder = self.folder / "checkpoints"
        saved = checkpoints.newest(folder, self.callback.log, checkpoints.read_consistent)
        if saved is None:
            return State()
        state, where = saved.state, str(checkpoints.at(folder, saved.step))
        check_identity(self.folder, state.data)
        self._restore(saved, where)
        self.step = self.saved = saved.step
        self.elapsed, self.best, self.scheduled = state.elapsed, state.best, state.scheduled
        self.unimproved, self.stopped = state.unimproved, state.stopped
        self.callback.log(f"resuming after step {self.step}")
        now = devices.environment(self.device, self.precision)
        if changes := devices.environment_changes(state.environment, now):
            self.callback.log(f"the last digits may differ from an unbroken run: {changes}")
        return state

    def _restore(self, saved: Checkpoint, where: str) -> None:
        """Give networks, optimizers, average, source and task what a checkpoint holds."""
        owners: dict[str, Stateful] = {"source": self.source, "task": self.task}
        present = {"average": bool(self.average), "state": bool(state_tensors(owners))}
        expected = {"model", "optimizer", *(part for part, needed in present.items() if needed)}
        if saved.parts.keys() != expected:
            raise ModelFileError(
                f"{where} must hold {', '.join(sorted(expected))}, but holds {', '.join(sorted(saved.parts))}"
            )
        optimizer = saved.parts["optimizer"]
        if len(optimizer) != saved.state.optimizer_tensors:
            count = f"{saved.state.optimizer_tensors:,} tensors, but has {len(optimizer):,}"
            raise ModelFileError(f"{where}: the optimizer must have {count}")
        restore(self.networks, saved.parts["model"], where)
        restore_optimizers(self.networks, self.optimizers, optimizer, state_shapes, where)
        if self.average:
            self.average.load(saved.parts["average"], where)
        restore_states(owners, saved.parts.get("state", {}), where)

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
            with unchanged(self.task, self.networks), training_mode(self.networks), self._autocast():
                for loss in loss_of(self.task, batch, compiled).values():
                    loss.backward()
        except Exception as error:  # noqa: BLE001 - the compiler may fail in any way; the plain form always works
            self.callback.log(f"torch.compile does not work here ({type(error).__name__}); training without it")
        else:
            self.wrapped = compiled

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        return precisions.autocast(self.precision, self.device)

    def _step_seconds(self, precision: str) -> float:
        """Return how long losses and gradients of the first batch take with a precision."""
        batch = self.source.at(0)[0].to(self.device)

        def step() -> None:
            with precisions.autocast(precision, self.device):
                losses = loss_of(self.task, batch, self.networks)
            sum(losses.values()).backward()  # type: ignore[union-attr]

        with unchanged(self.task, self.networks), training_mode(self.networks):
            return precisions.fastest(step)

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
