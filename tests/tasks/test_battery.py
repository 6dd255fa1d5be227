"""The battery: what every task in the folder must do, on generated data; a new task is tested by existing."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade import api
from saccade.config import from_json, override, to_json
from saccade.core.task import Split, Task
from saccade.errors import UsageError
from saccade.look import explain
from saccade.nn.ablation import Ablation, patched_embeddings
from saccade.tasks import load_task, task_names

STEPS = 20
PAIRS = [
    "model.transformer.dim=32",
    "model.transformer.depth=1",
    "model.transformer.decoder_depth=1",
    "model.transformer.heads=2",
    "model.transformer.hidden=64",
    "search.beam=2",
    "tokens=400",
]
ENCODER = ["model.dim=32", "model.depth=1", "model.heads=2", "model.hidden=64", "vocabulary=60", "tokens=400"]
TINY: dict[str, list[str]] = {  # a task not named here is tested with its own defaults
    "language_model": [
        "model.dim=32",
        "model.depth=1",
        "model.heads=2",
        "model.hidden=64",
        "model.max_positions=32",
        "batch=8",
    ],
    "translation": PAIRS,
    "summarisation": [*PAIRS, "search.no_repeat_ngram_size=0"],
    "masked_language_model": [*ENCODER, "max_length=32", "tokens=512"],
    "text_classification": ENCODER,
    "regression": ENCODER,
    "sentence_vectors": ENCODER,
    "tagging": ENCODER,
    "question_answering": [*ENCODER, "max_length=64", "stride=8"],
}
INPUTS = {"masked_language_model": "the [MASK] sat"}  # "the cat" for the others
WORDS = {"question_answering": ["context=the blue cat sat."], "regression": ["second=the dog"]}
WHY = {**WORDS, "sentence_vectors": ["second=the dog"], "language_model": ["length=12"]}
LOOP = ["train.device=cpu", f"train.steps={STEPS}", "train.evaluate_every=10"]


@dataclasses.dataclass(frozen=True)
class Made:
    """A trained run and where its data lie."""

    name: str
    data: Path
    root: Path

    @property
    def run(self) -> str:
        return str(self.root / self.name)


@pytest.fixture(scope="module", params=task_names())
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder, name = tmp_path_factory.mktemp(request.param), request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        data = folder / "text.txt"
        chance = random.Random(3)
        words = ["red", "blue", "cat", "dog", "sat", "ran", "the", "a"]
        lines = [" ".join(chance.choices(words, k=8)) + "." for _ in range(300)]
        if name in ("translation", "summarisation"):
            data = folder / "pairs.tsv"
            lines = [f"{line}\t{line.upper()}" for line in lines]
        if name == "text_classification":
            data = folder / "rows.tsv"
            lines = ["text\tlabel", *(f"{line}\t{'pet' if 'cat' in line else 'none'}" for line in lines)]
        if name in ("regression", "sentence_vectors"):
            data = folder / "rows.tsv"
            others = [line if chance.random() < 0.5 else chance.choice(lines) for line in lines]
            rows = [f"{one}\t{two}\t{len(set(one) & set(two)) / 10}" for one, two in zip(lines, others, strict=True)]
            lines = ["sentence1\tsentence2\tscore", *rows]
        if name == "tagging":
            data = folder / "words.conll"
            tags = {"cat": "B-PET"}
            sentences = ([f"{word} {tags.get(word, 'O')}" for word in line.strip(".").split()] for line in lines)
            lines = [line for sentence in sentences for line in (*sentence, "")]
        if name == "question_answering":
            data = folder / "questions.json"
            lines = [json.dumps({"data": [article(number, line) for number, line in enumerate(lines)]})]
        data.write_text("".join(line + "\n" for line in lines))
        api.train(data, [*TINY.get(name, []), *LOOP], task=name, name=name, root=folder / "runs")
        yield Made(name, data, folder / "runs")


def article(number: int, line: str) -> dict[str, Any]:
    """An article of one paragraph with one question, which is answered by the word after "the"."""
    start = line.find("the ") + 4
    answers = [{"text": line[start:].split()[0].strip("."), "answer_start": start}] if 4 <= start < len(line) else []
    asked = {"id": str(number), "question": "the what?", "answers": answers, "is_impossible": not answers}
    return {"title": str(number), "paragraphs": [{"context": line, "qas": [asked]}]}


def opened(made: Made) -> Task:
    task = api.load(made.run, device="cpu")
    task.load_data(made.data)
    return task


def same(one: Any, other: Any) -> bool:
    """Whether two batches hold the same, also deep inside."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one))
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_the_config_survives_json(made: Made) -> None:
    kind = load_task(made.name)
    config = override(kind.Config(), TINY.get(made.name, []))
    assert from_json(kind.Config, json.loads(json.dumps(to_json(config)))) == config


def test_a_batch_is_counted_named_and_the_same_each_time(made: Made) -> None:
    batches = opened(made).batches(Split.TRAIN, 1)
    assert batches.per_epoch >= 1
    for one, other in zip(batches.at(3), batches.at(3), strict=True):
        assert one.count > 0
        assert len(one.rows) > 0
        assert list(one.rows) == list(other.rows)
        assert same(one, other)
    assert [row for part in batches.at(3) for row in part.rows] != [row for part in batches.at(4) for row in part.rows]


def test_losses_are_finite_scalars_of_known_players(made: Made) -> None:
    task = opened(made)
    found = list(task.losses(task.batches(Split.TRAIN, 1).at(0)[0]))
    assert {player for player, _ in found} <= set(task.networks())
    assert all(loss.dim() == 0 and bool(loss.isfinite()) and loss.requires_grad for _, loss in found)


def test_the_loss_falls_in_twenty_steps(made: Made) -> None:
    lines = (Path(made.run) / "metrics.jsonl").read_text().splitlines()
    losses = [record["loss"] for record in map(json.loads, lines) if "rate" in record]
    assert len(losses) == STEPS
    assert sum(losses[-3:]) / 3 < 0.9 * losses[0]


def test_what_is_saved_opens_and_predicts_the_same(made: Made) -> None:
    first, second = api.load(made.run, device="cpu"), api.load(made.run, device="cpu")
    for name, value in first.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name]), name
    text = INPUTS.get(made.name, "the cat")
    words = WORDS.get(made.name, [])
    answers = [api.predict(task, text, words) for task in (first, second)]
    assert answers[0].output or made.name == "question_answering"  # which may say that there is no answer
    assert (answers[0].output, answers[0].scores) == (answers[1].output, answers[1].scores)
    assert "".join(api.stream(first, text, words)) == answers[0].output


def test_evaluation_is_deterministic_and_knows_its_score(made: Made) -> None:
    task = opened(made)
    mode = task.model.training
    first, again = task.evaluate(Split.VALID), task.evaluate(Split.VALID)
    assert first == again == api.evaluate(api.load(made.run, device="cpu"), api.data_of(made.run))
    assert task.score in first
    assert task.score in task.evaluate(Split.VALID, quick=True)
    assert task.model.training == mode


def test_opening_needs_no_data(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "load_data", lambda *_: pytest.fail("the data were asked for"))
    words = WORDS.get(made.name, [])
    assert api.predict(api.load(made.run, device="cpu"), INPUTS.get(made.name, "a"), words).output is not None


def asked(made: Made) -> tuple[Task, Any]:
    task = api.load(made.run, device="cpu")
    for value in task.model.parameters():  # a model of twenty steps says nearly nothing
        value.data += 0.3 * torch.randn_like(value)
    return task, api.predict(task, INPUTS.get(made.name, "the blue cat"), [*WHY.get(made.name, []), "maps=true"])


def test_an_answer_is_computed_again_as_it_was(made: Made) -> None:
    task, found = asked(made)
    outcome = task.rerun(found, layers=True)
    assert len(outcome.chosen) == len(outcome.logits) == len(outcome.places.labels)
    for name, logits in outcome.layers:
        assert logits.shape == outcome.logits.shape, name
    torch.testing.assert_close(outcome.layers[-1][1], outcome.logits)
    nothing = explain.effect(task, found, [])
    assert nothing.before == nothing.after and nothing.lost == 0
    assert [layer.name for layer in explain.layer_by_layer(task, found)] == [name for name, _ in outcome.layers]


def test_switching_heads_off_changes_the_answer_and_nothing_stays(made: Made) -> None:
    task, found = asked(made)
    lost = explain.importance(task, found)
    assert lost.keys() == {read.name for read in found.maps}
    name = found.maps[-1].name
    once = explain.effect(task, found, [Ablation(name, 0)])
    assert once.lost == pytest.approx(lost[name][0], abs=1e-5)
    assert once.before != once.after
    assert explain.effect(task, found, []).before == once.before
    with pytest.raises(UsageError, match="no attention 'nowhere' that can be switched off"):
        explain.effect(task, found, [Ablation("nowhere", 0)])


def test_integrated_gradients_are_complete(made: Made) -> None:
    task, found = asked(made)
    task.model.double()
    total = sum(sum(reading.values) for reading in explain.attribute(task, found, 0, "integrated"))
    with torch.no_grad():
        fits = explain._fits(task.rerun(found).logits, task.rerun(found).chosen)
        with patched_embeddings(explain.mean_token):
            empty = task.rerun(found)
        nothing = explain._fits(empty.logits, task.rerun(found).chosen)
    assert total == pytest.approx(float(fits[0] - nothing[0]), rel=0.05, abs=0.05)
    readings = explain.attribute(task, found, 0)
    assert all(len(reading.values) == len(reading.axis.labels) for reading in readings)
    assert any(abs(value) > 0 for reading in readings for value in reading.values)


def test_the_numbers_of_a_head_are_those_of_its_map(made: Made) -> None:
    task, found = asked(made)
    for read in found.maps:
        heads, queries, _ = read.shape
        one = explain.calculation(task, found, read.name, heads - 1, queries - 1)
        torch.testing.assert_close(one.weights, read.rows(queries - 1, queries)[-1, 0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(one.mixed, one.weights @ one.v)
        assert float(one.weights[~one.allowed].sum()) == 0
    with pytest.raises(UsageError, match="query must be 0 to"):
        explain.calculation(task, found, found.maps[0].name, 0, 10_000)


def test_attention_is_kept_as_it_forms(made: Made) -> None:
    seen = sorted((Path(made.run) / "attention").glob("*.json"))
    assert [path.name for path in seen] == ["step-00000010.json", "step-00000020.json"]
    assert all(example["maps"] for example in json.loads(seen[0].read_text())["examples"])
