"""The only training loop: it drives any task, and a kill at any moment changes no number."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.config import override
from saccade.core import Batch, Callback, Evaluation, Split, StopTraining, Task
from saccade.errors import Interrupted
from saccade.runs import checkpoint as checkpoints
from saccade.runs.checkpoint import Checkpoint
from saccade.runs.journal import JOURNALS, Journal, NullJournal, Written
from saccade.runs.provenance import check_identity, identity
from saccade.runs.selection import select_weights
from saccade.runs.snapshots import is_log_spaced, pack, write_snapshot
from saccade.runs.state import State
from saccade.runs.weights import Stateful, optimizer_tensors, restore, state_tensors, weights
from saccade.training import device as devices
from saccade.training import precision as precisions
from saccade.training.averaging import WeightAverage
from saccade.training.budget import Budget
from saccade.training.compiling import compile_or_report, seconds_of_step, training_mode
from saccade.training.distributed import Processes
from saccade.training.finite import not_finite
from saccade.training.memory import FILE, PeakMemory
from saccade.training.optim import build_optimizers, lr_scale
from saccade.training.parallel import clip_gradients, parallelize, shard_average, shard_optimizers
from saccade.training.prefetch import Prefetcher
from saccade.training.saving import check_finite, checkpoint_bytes, restore_training, write_checkpoint
from saccade.training.settings import TrainConfig

SAVE_SECONDS = 300  # at most between two checkpoints, where save_every is 0


class Trainer:
    """One run of one task in one folder, new or resumed, by one of the `processes` that train it together."""

    def __init__(
        self, task: Task, config: TrainConfig, folder: Path, callback: Callback, *, processes: Processes | None = None
    ) -> None:
        self.task, self.config, self.folder, self.callback = task, config, folder, callback
        self.processes = processes or Processes()
        self.device = devices.choose_device(config.device, self.processes.size)
        devices.keep_freed_memory()
        self.networks = {name: network.to(self.device).eval() for name, network in task.networks().items()}
        self.optim = {name: override(config.optim, task.optimizer_overrides(name)) for name in self.networks}
        self.optimizers = {name: build_optimizers(self.optim[name], self.networks[name]) for name in self.networks}
        self.source = task.source(Split.TRAIN, config.seed)
        # A step on a CPU uses all cores: a batch that is prepared beside it delays every one of its threads.
        self.batches = Prefetcher(self.source, self.device, ahead=self.device.type != "cpu")
        file = folder / "precision.json"
        with self.processes.rank_by_rank():
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
        self.budget = Budget.of_run(
            folder / "budget.json", config, self.source, self.optim.values(), elapsed=self.elapsed
        )
        if state.budget:
            self.budget.check_saved(state.budget)
        self.journals = {name: state.journals.get(name, Written()) for name in JOURNALS}
        self._parallelize()
        self._compile_next = config.compile

    def _parallelize(self) -> None:
        """Let the processes train together, if there are several; a sharded network has optimizers of its own."""
        self.parallel = parallelize(self.task, self.networks, self.source, self.config, self.processes)
        if self.parallel.note:
            self.callback.log(self.parallel.note)
        trained = self.parallel.trained
        for name, whole in self.optimizers.items() if self.parallel.sharded else ():
            self.optimizers[name] = build_optimizers(self.optim[name], trained[name])
            shard_optimizers(whole, self.optimizers[name], (self.networks[name], trained[name]))
        if self.average and self.parallel.sharded:
            self.average = shard_average(self.average, trained)

    def fit(self) -> dict[str, float]:
        """Train to the end of the budget; return the values of the best evaluation."""
        if self.processes.main:
            existing = self._prune()
            size = checkpoint_bytes(self.networks, average=self.average is not None)
            checkpoints.check_space(self.folder, size, max(1, self.config.keep + 2 - existing))
        kind = Journal if self.processes.main else NullJournal
        self.metrics, self.samples = (kind(self.folder / name, self.journals[name]) for name in JOURNALS)
        if self._over():
            self.callback.log(f"the run finished at step {self.step}: there is nothing left to train")
        try:
            with devices.stop_signals() as stop, self.batches:
                self._run(stop)
        except RuntimeError as error:
            if not devices.out_of_memory(error):
                raise
            raise devices.explain_memory(error, self.step + 1, self.device) from error
        finally:
            self.metrics.close()
            self.samples.close()
        return self.best

    def _run(self, stop: devices.Stop) -> None:
        """Train, evaluate and save until the run is over or a signal comes."""
        memory = PeakMemory(self.device, self.folder / FILE if self.processes.main else None)
        if not self.step:
            self._snapshot()
        started, saved_at = time.perf_counter() - self.elapsed, time.perf_counter()
        while not self._over():
            before = time.perf_counter()
            record = self._train_step()
            now = time.perf_counter()
            memory.step()
            self.elapsed = now - started
            if self.processes.main:
                self._record(record, now - before)
            late = not self.config.save_every and time.perf_counter() - saved_at > SAVE_SECONDS
            number = self.processes.largest(stop.number)  # a signal to one process stops all
            due, late = self._agree(late)
            if due:
                memory.record(self.step)
                self._evaluate()
            elif is_log_spaced(self.step):
                started += self._snapshot()
            scheduled = due or (self.config.save_every > 0 and self.step % self.config.save_every == 0)
            if scheduled or late or number:
                self.save(scheduled=scheduled)
                saved_at = time.perf_counter()
            if number:
                raise Interrupted(number, f"stopped at step {self.step}; the checkpoint is saved")
        self.save(scheduled=True)
        if number := self.processes.largest(stop.number):
            raise Interrupted(number, f"stopped at the last step, {self.step}; the checkpoint is saved")

    def _record(self, record: dict[str, Any], seconds: float) -> None:
        """Let the clock decide what it has to, and report a step."""
        self.budget.time_step(self.step, seconds)
        if self.budget.decide(self.step, self.elapsed) and (warning := self.budget.shortage(self.elapsed)):
            self.callback.log(warning)
        record["seconds"] = round(self.elapsed, 3)
        self.metrics.write(record)
        with self._stoppable():
            progress = self.budget.progress(self.step, self.elapsed)
            self.callback.on_step(record, progress, self.budget.total)

    def _agree(self, late: bool) -> tuple[bool, bool]:
        """Return whether to evaluate and whether to save, as rank 0 says; what its clock has decided holds for all."""
        due = self._evaluation_due() if self.processes.main else False
        if self.processes.size > 1:
            decided = (due, late, self.elapsed, self.stopped, self.budget.decisions())
            due, late, self.elapsed, self.stopped, budget = self.processes.share(decided)
            self.budget.adopt(budget)
        return due, late

    def _train_step(self) -> dict[str, Any]:
        """Update every network once; return the record of the step."""
        try:
            batches = self.batches.at(self.step)
        except (RuntimeError, ValueError):  # in an environment, a network that is not finite cannot act
            check_finite(self.networks, self.step, self.batches.last)
            raise
        if self._compile_next:
            self._compile(batches[0])
        # The randomness of a step (dropout) depends on nothing but the seed and the step.
        devices.seed_generators(self.device, devices.combine_seeds(self.config.seed, self.step))
        scale = lr_scale(self.config.optim, self.step, self.budget.total_at(self.step))
        record: dict[str, Any] = {"step": self.step + 1, "lr_scale": scale}
        with training_mode(self.parallel.trained):
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
        parts, several = self.parallel.parts(batches), len(batches) > 1
        rounds = [self.task.losses(part.batch, self.parallel.networks) for part in parts]
        for turn in itertools.count():
            name, values = "", [0.0] * len(batches)
            for part, losses in zip(parts, rounds, strict=True):
                if several:  # not of the process that computes the part, nor of the parts before it
                    devices.seed_generators(
                        self.device, devices.combine_seeds(self.config.seed, self.step, part.number, turn)
                    )
                with self.parallel.accumulating(last=part is parts[-1]):
                    with self._autocast():
                        pair = next(losses, None)
                    if pair is None:
                        return
                    name, loss = pair
                    weighted = loss * part.weight if several else loss
                    values[part.number] += float(weighted.detach())
                    scaled = weighted * self.parallel.scale if self.parallel.scale != 1 else weighted
                    scaled.backward(inputs=self._trainable(name) if len(self.networks) > 1 else None)
            value = self.parallel.total(values)
            if not math.isfinite(value):
                raise not_finite(f"loss is {value}", self.step + 1, self.parallel.trained[name], batches)
            yield name, value

    def _trainable(self, name: str) -> list[Tensor]:
        return [parameter for parameter in self.networks[name].parameters() if parameter.requires_grad]

    def _clip(self, name: str, batches: Sequence[Batch]) -> float:
        """Clip the gradient of a network; return the norm it had."""
        norm = clip_gradients(self.parallel.trained[name], self.optim[name].clip)
        if not math.isfinite(norm):
            raise not_finite(f"the norm of the gradient is {norm}", self.step + 1, self.parallel.trained[name], batches)
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
        """Evaluate the model (or its average) on the validation data and keep the best; rank 0 does so for all."""
        check_finite(self.parallel.trained, self.step, self.batches.last, self.processes)
        with self.parallel.evaluated(self.average), self._autocast():
            if self.processes.main:
                self._score()
        if self.processes.size > 1:
            self.best, self.unimproved, self.stopped = self.processes.share((self.best, self.unimproved, self.stopped))

    def _score(self) -> None:
        """Evaluate the networks as they are, and record the result."""
        metric, began = self.task.metric, time.perf_counter()
        evaluation = self.task.evaluate(Split.VALID, quick=True)
        value = evaluation[metric.name]
        if not math.isfinite(value):
            problem = f"{metric.name} on the validation data is {value}"
            raise not_finite(problem, self.step, next(iter(self.networks.values())))
        sample = self.task.sample()
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
        write_snapshot(self.folder, self.step, pack(self.task.attention_snapshot()))
        with self._stoppable():
            self.callback.on_evaluation(record, sample)
        if self.config.patience and self.unimproved >= self.config.patience:
            evaluations = f"{self.unimproved} evaluations"
            self.callback.log(f"{metric.name} has not improved in {evaluations}: stopping at step {self.step}")

    def _snapshot(self) -> float:
        """Keep the attention of this step; return how long that took, which a budget of time does not count."""
        began = time.perf_counter()
        check_finite(self.parallel.trained, self.step, self.batches.last, self.processes)
        with self.parallel.evaluated(self.average), self._autocast():
            if self.processes.main:
                write_snapshot(self.folder, self.step, pack(self.task.attention_snapshot()))
        return time.perf_counter() - began

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
        trained = self.parallel.trained
        check_finite(trained, self.step, self.batches.last, self.processes)  # never one that cannot be trained on
        journals = {name: journal.flush() for name, journal in zip(JOURNALS, (self.metrics, self.samples), strict=True)}
        parts = {"model": weights(trained), "optimizer": optimizer_tensors(trained, self.optimizers)}
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
            environment=devices.environment(self.device, self.precision, self.processes.size),
            kept=self._kept(self.step),
            scheduled=self.scheduled,
            optimizer_tensors=len(parts["optimizer"]),
            budget=self.budget.decisions(),
            data=self.provenance,
            journals=journals,
        )
        folder = self.folder / "checkpoints"
        write_checkpoint(folder, Checkpoint(self.step, parts, state), self.processes, sharded=self.parallel.sharded)
        self.saved = self.step
        if self.processes.main:
            checkpoints.prune(folder, state.kept)
        self.processes.wait()

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
        owners: dict[str, Stateful] = {"source": self.source, "task": self.task}
        restore_training(saved, where, self.networks, self.optimizers, self.average, owners)
        self.step = self.saved = saved.step
        self.elapsed, self.best, self.scheduled = state.elapsed, state.best, state.scheduled
        self.unimproved, self.stopped = state.unimproved, state.stopped
        self.callback.log(f"resuming after step {self.step}")
        now = devices.environment(self.device, self.precision, self.processes.size)
        if changes := devices.environment_changes(state.environment, now):
            self.callback.log(f"the last digits may differ from an unbroken run: {changes}")
        return state

    def _compile(self, batch: Batch) -> None:
        """Compile the networks, if that works on this machine."""
        self._compile_next, backend = False, self.config.compile_backend
        if compiled := compile_or_report(self.task, batch, self.networks, backend, self._autocast, self.callback.log):
            self.parallel.compute_with(compiled)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        return precisions.autocast(self.precision, self.device)

    def _step_seconds(self, precision: str) -> float:
        """Return how long losses and gradients of the first batch take with a precision."""
        batch = self.source.at(0)[0].to(self.device)
        return seconds_of_step(self.task, batch, self.networks, lambda: precisions.autocast(precision, self.device))
