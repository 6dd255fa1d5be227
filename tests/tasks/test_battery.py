"""The battery: tests of every task in the folder and every example, on generated data."""

import dataclasses
import json
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import saccade
from saccade.config import from_json, override, to_json
from saccade.core import Evaluation, Field, Metric, Output, Split, Task, Text, bind
from saccade.errors import UsageError
from saccade.look.explain import mean_token
from saccade.look.flow import flow_stacks, token_flow
from saccade.nn.ablation import patched_embeddings
from saccade.runs.journal import read_journal
from saccade.tasks import load_task
from tests.tasks.battery import EXAMPLES, NAMES, Trial
from tests.tasks.ddp_worker import train

STEPS = 20
LOOP = ["train.device=cpu", "train.precision=float32", f"train.steps={STEPS}", "train.evaluate_every=10"]


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """A trained run and its data."""

    trial: Trial
    data: Path
    run: str

    @property
    def name(self) -> str:
        return self.trial.name

    @property
    def trusted(self) -> str:
        """The task argument of `load`, for tasks that are not built in."""
        return self.name if "." in self.name else ""

    def load(self) -> saccade.Model:
        return saccade.load(self.run, device="cpu", task=self.trusted)

    def predict(self, model: saccade.Model, **options: Any) -> Any:
        return model(**self.trial.inputs, **self.trial.options, **options)


@pytest.fixture(scope="module", params=NAMES)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    trial = Trial.of(request.param)
    folder = tmp_path_factory.mktemp(trial.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        data = trial.write_data(folder)
        run = saccade.train(
            data, task=trial.name, name="run", root=folder / "runs", overrides=[*trial.settings, *LOOP], progress=False
        )
        yield TrainedRun(trial, data, str(run.path))


def opened(trained: TrainedRun) -> Task:
    task = trained.load().task
    task.load_data(trained.data)
    return task


def same(first: Any, second: Any) -> bool:
    """Whether two batches are equal, including nested tensors."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if dataclasses.is_dataclass(first):
        return all(same(getattr(first, field.name), getattr(second, field.name)) for field in dataclasses.fields(first))
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def test_the_config_survives_json(trained: TrainedRun) -> None:
    kind = load_task(trained.name)
    config = override(kind.Config(), trained.trial.settings)
    assert from_json(kind.Config, json.loads(json.dumps(to_json(config)))) == config


def test_the_task_declares_its_inputs_its_metric_and_its_unit(trained: TrainedRun) -> None:
    task = trained.load().task
    assert task.inputs and all(isinstance(field, Field) for field in task.inputs)
    assert isinstance(task.metric, Metric) and task.metric.higher_is_better is not None
    assert task.unit and bind(task.inputs, [], trained.trial.inputs).keys() == trained.trial.inputs.keys()
    options = {field.name for field in dataclasses.fields(task.Options)}
    assert not options & {field.name for field in task.inputs}, "a name is an input or an option, never both"


def test_a_batch_has_counts_and_row_names_and_is_reproducible(trained: TrainedRun) -> None:
    task = opened(trained)
    source, again = task.source(Split.TRAIN, 1), task.source(Split.TRAIN, 1)
    assert source.per_epoch >= 1
    pure = source.state() is None
    if not pure:  # an environment is stepped in order
        assert [source.at(step) for step in range(3)] and [again.at(step) for step in range(3)]
    for one, other in zip(source.at(3), again.at(3), strict=True):
        assert one.count > 0 and one.units > 0
        assert len(one.rows) > 0
        assert list(one.rows) == list(other.rows)
        assert same(one, other)
    third, fourth = (source if pure else again, source)
    rows = [row for batch in fourth.at(4) for row in batch.rows]
    assert rows != [row for batch in (third.at(3) if pure else third.at(4)[:0]) for row in batch.rows]


def test_losses_are_finite_scalars_of_known_networks(trained: TrainedRun) -> None:
    task = opened(trained)
    result = list(task.losses(task.source(Split.TRAIN, 1).at(0)[0], task.networks()))
    assert {network for network, _ in result} <= set(task.networks())
    assert all(loss.dim() == 0 and bool(loss.isfinite()) and loss.requires_grad for _, loss in result)


def test_the_loss_falls_in_twenty_steps(trained: TrainedRun) -> None:
    records = read_journal(Path(trained.run) / "metrics.jsonl")
    steps = [record for record in records if "lr_scale" in record]
    assert len(steps) == STEPS
    task = trained.load().task
    assert all(record[task.unit] > 0 for record in steps)
    if len(task.networks()) == 1:
        losses = [record["loss"] for record in steps]
        assert sum(losses[-3:]) / 3 < 0.9 * losses[0]
        return
    scores = [record[task.metric.name] for record in records if task.metric.name in record]
    assert task.metric.better(scores[-1], scores[0]), "two networks: the metric must improve"


def test_a_saved_model_is_loaded_and_predicts_the_same(trained: TrainedRun) -> None:
    first, second = trained.load(), trained.load()
    for name, network in first.task.networks().items():
        assert not network.training
        for key, value in network.state_dict().items():
            assert torch.equal(value, second.task.networks()[name].state_dict()[key]), key
    answers = [trained.predict(model) for model in (first, second)]
    assert isinstance(answers[0].output, Output)
    assert answers[0].text or trained.name == "question_answering"  # which may predict no answer
    assert answers[0].output.to_json() == answers[1].output.to_json()
    assert answers[0].scores == answers[1].scores


def test_a_batch_is_predicted_as_each_example_alone(trained: TrainedRun) -> None:
    model = trained.load()
    for network in model.task.networks().values():
        for value in network.parameters():  # after twenty steps all outputs are nearly the same
            value.data += 0.1 * torch.randn_like(value)
    inputs = [trained.trial.inputs, *_variants(trained.trial.inputs)]
    together = model(inputs, **trained.trial.options)
    assert len(together) == len(inputs)
    for example, answer in zip(inputs, together, strict=True):
        alone = model(**example, **trained.trial.options)
        assert answer.text == alone.text
        assert answer.scores == pytest.approx(dict(alone.scores), abs=1e-4)


def _variants(inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Return examples of other lengths, if the inputs are texts."""
    if not all(isinstance(value, str) for value in inputs.values()):
        return [inputs, inputs]
    return [{name: f"{value} ran" for name, value in inputs.items()}, {n: f"red {v} a dog" for n, v in inputs.items()}]


def test_a_text_that_says_nothing_is_refused_by_name(trained: TrainedRun) -> None:
    """Whitespace, and control characters of which a BERT tokenizer leaves nothing."""
    model = trained.load()
    nothing = ["\x01\x02"] if getattr(getattr(model.task, "tokenizer", None), "kind", "") == "wordpiece" else []
    for field in model.inputs:
        if not isinstance(field, Text) or field.may_be_empty:
            continue
        for text in nothing if field.optional else ["", " \n\u3000", *nothing]:
            example = {**trained.trial.inputs, field.name: text}
            if trained.name == "tagging" and text.strip():
                assert len(model(**example).output.tags) == 1  # a word of which nothing is known is still a word
                continue
            with pytest.raises(UsageError, match=f"^{field.name} must (hold|have at least one token|be left out)"):
                model(**example, **trained.trial.options)


def test_the_length_of_a_text_is_known_before_anything_is_computed(trained: TrainedRun) -> None:
    model, inputs = trained.load(), trained.trial.inputs
    texts = [field.name for field in model.inputs if isinstance(field, Text)]
    assert bool(texts) == bool(model.input_lengths(inputs))
    for name in texts:
        example = {**inputs, name: " ".join([inputs.get(name, "cat")] * 700)}
        before, after = (max(length.tokens for length in model.input_lengths(one)) for one in (inputs, example))
        assert after > before + 699
        limited = [length for length in model.input_lengths(example) if name in length.name.split(" and ")]
        assert all(length.limit is None or length.limit < length.tokens for length in limited) and limited


def test_evaluation_is_deterministic_and_has_the_metric(trained: TrainedRun) -> None:
    task = opened(trained)
    first, again = task.evaluate(Split.VALID), task.evaluate(Split.VALID)
    assert isinstance(first, Evaluation) and first == again
    assert task.metric.name in first.values
    assert task.metric.name in task.evaluate(Split.VALID, quick=True).values
    assert not any(network.training for network in task.networks().values())


def test_opening_needs_no_data(trained: TrainedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "load_data", lambda *_, **__: pytest.fail("the data were loaded"))
    assert trained.predict(trained.load()).text is not None


@pytest.mark.filterwarnings("ignore")  # the compiler warns of its own internals
def test_the_loss_compiles(trained: TrainedRun) -> None:
    before, task = opened(trained), opened(trained)
    batch = task.source(Split.TRAIN, 1).at(0)[0]
    plain = [(name, float(loss.detach())) for name, loss in before.losses(batch, before.networks())]
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for network in task.networks().values():
        network.compile(backend="eager")
    try:
        compiled = [(name, float(loss.detach())) for name, loss in task.losses(batch, task.networks())]
    finally:
        torch._dynamo.reset()
    assert torch._dynamo.utils.counters["frames"]["ok"] > 0
    assert [name for name, _ in compiled] == [name for name, _ in plain]
    assert [loss for _, loss in compiled] == pytest.approx([loss for _, loss in plain], rel=1e-4)


@pytest.fixture(scope="module")
def ddp_workers() -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes that train one task after another together: starting them takes longest."""
    command = [sys.executable, "-m", "tests.tasks.ddp_worker"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": Path(__file__).parents[2]}
    workers = [subprocess.Popen([*command, rank], **pipes) for rank in "01"]
    yield workers
    alive = all(worker.poll() is None for worker in workers)
    for worker in workers:
        if not alive:  # one of two waits for the other for ever
            worker.kill()
        worker.communicate()


# Tasks whose batches have no parts, and those whose batch norm depends on all parts in turn: no process is faster.
NOT_DIVIDED = {"behaviour_cloning", "image_generation", "node_classification", "adversarial_imitation", "image_text"}
NOT_DIVIDED |= {"visual_question_answering", "reading", *EXAMPLES}
SEVERAL_NETWORKS = {"image_generation", "adversarial_imitation", "tests.examples.toy_corridor"}
SCALARS = {"image_text"}


@pytest.mark.slow
def test_two_processes_train_as_one(
    trained: TrainedRun, ddp_workers: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Losses and norms of gradients of DDP and FSDP2 are those of one process, for every task."""
    for worker in ddp_workers:
        assert worker.stdin is not None
        worker.stdin.write(json.dumps([str(tmp_path), trained.name, trained.run, str(trained.data)]) + "\n")
        worker.stdin.flush()
    alone = train(tmp_path / "alone", trained.name, trained.run, str(trained.data), "ddp", None)
    answers, results = [worker.stdout for worker in ddp_workers if worker.stdout], []
    while answers:  # the end of one of them leaves the other waiting for ever
        ready, _, _ = select.select(answers, [], [], 120)
        results += [json.loads(pipe.readline() or "null") for pipe in ready]
        assert ready and all(results), "a process has ended"
        answers = [pipe for pipe in answers if pipe not in ready]
    for result in results:
        check_equal(trained.name, alone, result)


def check_equal(name: str, alone: dict[str, Any], results: dict[str, Any]) -> None:
    """Compare the steps of two processes with those of one."""
    for mode, result in results.items():
        if mode == "fsdp" and name in SEVERAL_NETWORKS | SCALARS:
            problem = "there are .*, .*" if name in SEVERAL_NETWORKS else ".* is a single number"
            assert re.search(f"but {problem}; leave train.parallel=ddp$", result["refused"])
            continue
        note = next(note for note in result["notes"] if note.startswith("2 processes"))
        assert ("each computes the whole batch" in note) == (name in NOT_DIVIDED), note
        for record, expected in zip(result["records"], alone["records"], strict=True):
            assert record.keys() == expected.keys()
            for key, value in expected.items():
                near = value if key == "unit" else pytest.approx(value, rel=1e-5, abs=1e-5)
                assert record[key] == near, (mode, key)


def predicted(trained: TrainedRun) -> tuple[saccade.Model, Any]:
    model = trained.load()
    for network in model.task.networks().values():
        for value in network.parameters():  # after twenty steps attention is nearly uniform
            value.data += 0.3 * torch.randn_like(value)
    return model, trained.predict(model, attention=True)


def test_a_prediction_is_recomputed_exactly(trained: TrainedRun) -> None:
    model, answer = predicted(trained)
    trace = model.task.rerun(answer, layers=True)
    assert len(trace.chosen) == len(trace.logits) == len(trace.positions)
    for name, logits in trace.layers:
        assert logits.shape == trace.logits.shape, name
    explained = model.explain(answer)
    nothing = explained.ablate()
    assert nothing.before == nothing.after and nothing.lost == 0
    if trained.name == "speech_recognition":  # its decoder is recurrent
        with pytest.raises(UsageError, match="no residual stream"):
            explained.logit_lens()
    else:
        torch.testing.assert_close(trace.layers[-1][1], trace.logits)
        assert [layer.name for layer in explained.logit_lens()] == [name for name, _ in trace.layers]


def test_ablating_heads_changes_the_prediction_only_temporarily(trained: TrainedRun) -> None:
    model, answer = predicted(trained)
    explained = model.explain(answer)
    importance = explained.importance()
    assert importance.keys() == set(answer.attention)
    name = list(answer.attention)[-1]
    once = explained.ablate(name, head=0)
    assert once.lost == pytest.approx(importance[name][0], abs=1e-5)
    assert once.before != once.after
    assert explained.ablate().before == once.before
    with pytest.raises(UsageError, match="nowhere"):
        explained.ablate("nowhere", head=0)


def test_integrated_gradients_are_complete(trained: TrainedRun) -> None:
    model, answer = predicted(trained)
    task = model.task
    for network in task.networks().values():
        network.double()
    explained = model.explain(answer)
    total = sum(sum(scores.values) for scores in explained.attribute(0, "integrated"))
    with torch.no_grad():
        full = task.rerun(answer)
        with patched_embeddings(mean_token):
            empty = task.rerun(answer)
    gained = [_log_prob(trace.logits, full.chosen) for trace in (full, empty)]
    assert total == pytest.approx(gained[0] - gained[1], rel=0.05, abs=0.05)
    scores = explained.attribute(0)
    assert all(len(tokens.values) == len(tokens.axis) for tokens in scores)
    assert any(abs(value) > 0 for tokens in scores for value in tokens.values)


def _log_prob(logits: torch.Tensor, chosen: tuple[int, ...]) -> float:
    """Return the log probability of the first position of a prediction, or its number."""
    return float(logits[0, 0] if logits.shape[1] == 1 else logits[0].log_softmax(-1)[chosen[0]])


def test_what_flows_into_a_token_sums_to_its_residual_stream(trained: TrainedRun) -> None:
    model, answer = predicted(trained)
    stacks = flow_stacks(answer, model.task)
    if not stacks:
        with pytest.raises(UsageError, match="has no stack of Transformer layers over one residual stream"):
            token_flow(model.task, answer, "encoder", 0)
    for stack in stacks:
        flow = token_flow(model.task, answer, stack, 0)
        assert flow.error < 1e-5
        stream = flow.embedding if flow.added is None else flow.embedding + flow.added
        for part in flow.sub_layers:
            torch.testing.assert_close(part.x, stream)
            if part.name.endswith(("self", "cross")):
                assert part.attended is not None or trained.name == "summarisation", part.name
            if part.attended is not None:
                incoming = part.attended
                torch.testing.assert_close(incoming.sources.sum(0) + incoming.others + incoming.constant, part.update)
                torch.testing.assert_close(incoming.heads.sum(0) + incoming.constant, part.update)
                expected = answer.attention[part.name].rows(0, 1)[:, 0]
                torch.testing.assert_close(incoming.weights, expected, atol=1e-5, rtol=1e-4)
            if part.pre_norm:
                torch.testing.assert_close(part.result, part.x + part.update)
            stream = part.result


def test_the_calculation_of_a_head_equals_its_map(trained: TrainedRun) -> None:
    model, answer = predicted(trained)
    explained = model.explain(answer)
    for name, attention in answer.attention.items():
        heads, queries, _ = attention.shape
        calculation = explained.calculation(name, heads - 1, queries - 1)
        torch.testing.assert_close(
            calculation.weights, attention.rows(queries - 1, queries)[-1, 0], atol=1e-5, rtol=1e-4
        )
        torch.testing.assert_close(calculation.head_output, calculation.weights @ calculation.v)
        assert float(calculation.weights[~calculation.allowed].sum()) == 0
        steps = calculation
        torch.testing.assert_close(steps.w_v(steps.inputs), steps.v)
        torch.testing.assert_close(steps.w_o(steps.concatenated), steps.output)
        if steps.residual is not None:
            torch.testing.assert_close(steps.output, steps.residual.output, atol=1e-5, rtol=1e-4)
    with pytest.raises(UsageError, match="query must be 0 to"):
        explained.calculation(next(iter(answer.attention)), 0, 10_000)


def test_attention_snapshots_are_saved_during_training(trained: TrainedRun) -> None:
    snapshots = sorted((Path(trained.run) / "attention").glob("*.json"))
    steps = (0, 1, 2, 4, 8, 10, 16, 20)  # log-spaced, and the evaluations
    assert [path.name for path in snapshots] == [f"step-{step:08d}.json" for step in steps]
    for path in (snapshots[0], snapshots[-1]):
        assert all(example["maps"] for example in json.loads(path.read_text())["examples"])


def test_a_resumed_run_equals_an_uninterrupted_one(trained: TrainedRun, tmp_path: Path) -> None:
    class Stop(saccade.Callback):
        def on_step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
            if record["step"] == 7:
                raise KeyboardInterrupt

    loop = [*LOOP, "train.save_every=5"]
    settings = {"task": trained.name, "name": "run", "root": tmp_path, "overrides": [*trained.trial.settings, *loop]}
    with pytest.raises(KeyboardInterrupt):
        saccade.train(trained.data, callbacks=[Stop()], progress=False, **settings)
    saccade.resume("run", root=tmp_path, task=trained.trusted, progress=False)
    for file in ("model.safetensors", "optimizer.safetensors"):
        one, other = (Path(run) / "checkpoints" / f"step-{STEPS:06d}" / file for run in (trained.run, tmp_path / "run"))
        assert one.read_bytes() == other.read_bytes(), file
