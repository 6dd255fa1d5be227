"""Translation: teacher forcing against free running, maps with words on their axes, scores, and that it learns."""

import dataclasses
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from saccade import api
from saccade.config import override
from saccade.core.task import Split
from saccade.errors import DataError
from saccade.tasks import guess_task
from saccade.tasks.translation import Task, TranslationConfig, TranslationOptions

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SMALL = ["dim=16", "heads=2", "hidden=24", "depth=2", "decoder_depth=2"]
TINY = {
    "rnn": ["model.rnn.dim=8", "model.rnn.state=12"],
    "rnn+attention": ["model.rnn.dim=8", "model.rnn.state=12"],
    "convolution": ["model.convolution.dim=8", "model.convolution.depth=2", "model.convolution.decoder_depth=2"],
    "transformer": [f"model.transformer.{word}" for word in SMALL],
    "universal": [f"model.universal.{word}" for word in SMALL],
}
FREE = TranslationOptions(beam=3)


def digits(count: int = 400) -> list[tuple[str, str]]:
    """A number, and its digits in words, the last one first."""
    chance = random.Random(1)
    numbers = {"".join(chance.choices("0123456789", k=chance.randint(2, 4))): None for _ in range(2 * count)}
    chosen = list(numbers)[:count]
    return [(number, " ".join(NAMES[int(digit)] for digit in reversed(number))) for number in chosen]


def sentences(count: int = 200) -> list[tuple[str, str]]:
    chance = random.Random(2)
    words = ["".join(chance.choices("aeioubdklmnprst", k=chance.randint(2, 8))) for _ in range(800)]
    rows = [chance.choices(words, k=chance.randint(2, 6)) for _ in range(count)]
    return [(" ".join(row), " ".join(f"{word}en" for word in reversed(row))) for row in rows]


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    return path


def made(folder: Path, rows: list[tuple[str, str]], *words: str) -> Task:
    """An untrained model with lively weights, so that what it says varies."""
    data, assets = write(folder / "pairs.tsv", rows), folder / "assets"
    assets.mkdir(exist_ok=True)
    config = override(TranslationConfig(), list(words))
    Task.prepare(config, data, assets)
    task = Task.open(config, assets)
    task.load_data(data)
    torch.manual_seed(1)
    for parameter in task.model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return task


@pytest.fixture(scope="module", params=TINY)
def task(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Task]:
    folder = tmp_path_factory.mktemp("translation")
    yield made(folder, digits(150), f"model.architecture={request.param}", *TINY[request.param])


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Task:
    """A Transformer over byte pairs."""
    return made(tmp_path_factory.mktemp("bpe"), sentences(), *TINY["transformer"], "data.vocabulary=300")


# losses


def test_losses_are_finite_have_a_gradient_and_equal_a_hand_computation(task: Task) -> None:
    (batch,) = task.batches(Split.TRAIN, 1).at(0)
    task.model.eval()
    ((player, loss),) = task.losses(batch)
    assert player == "model"
    loss.backward()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in task.model.parameters())
    with torch.no_grad():
        memory = task.model.encode(batch.source, batch.keep)
        logits = task.model.head(task.model.decode(batch.inputs, memory)).double()
    by_hand = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-1, label_smoothing=0.1)
    steps = [
        float(halting.cost[row, at])
        for halting, real in zip(memory.halting, (batch.keep, batch.labels >= 0), strict=False)
        for row, at in real.nonzero().tolist()
    ]
    ponder = task.config.model.universal.ponder * sum(steps) / batch.count  # padding costs nothing
    assert bool(memory.halting) == (task.config.model.architecture == "universal")
    assert float(loss.detach()) == pytest.approx(float(by_hand) + ponder, rel=1e-4)
    task.model.zero_grad()
    task.model.train()


def test_a_batch_reads_the_begin_and_predicts_the_end(task: Task) -> None:
    (batch,) = task.batches(Split.TRAIN, 1).at(2)
    stop, begin, end = task.marks
    pairs = task.parts[Split.TRAIN]
    rows = [pairs.lines.tolist().index(line) for line in batch.lines]
    for at, row in enumerate(rows):
        source, target = pairs.source[row].tolist(), pairs.target[row].tolist()
        assert batch.source[at][batch.keep[at]].tolist() == [*source, stop]
        real = batch.labels[at] >= 0
        assert batch.labels[at][real].tolist() == [*target, end]
        assert batch.inputs[at][real].tolist() == [begin, *target]
    assert batch.count == sum(len(pairs.target[row]) + 1 for row in rows)
    assert batch.rows[0] == f"line {batch.lines[0]}"


def test_consistency_costs_nothing_where_both_readings_agree_and_something_where_dropout_parts_them(task: Task) -> None:
    pulled = Task(dataclasses.replace(task.config, consistency=5.0), task.reader)
    pulled.model.load_state_dict(task.model.state_dict())
    (batch,) = task.batches(Split.TRAIN, 1).at(0)
    for one in (task, pulled):
        one.model.eval()
    with torch.no_grad():
        assert float(next(pulled.losses(batch))[1]) == pytest.approx(float(next(task.losses(batch))[1]), rel=1e-5)
        pulled.model.train()
        torch.manual_seed(1)
        near = float(pulled._loss(batch.twice(), 0.1, consistency=1e-9)[0])
        torch.manual_seed(1)
        far = float(pulled._loss(batch.twice(), 0.1, consistency=50.0)[0])
    task.model.train()
    assert far > 1.01 * near


def test_a_step_in_parts_has_the_same_mean_loss(speaker: Task) -> None:
    whole, parts = (
        Task(dataclasses.replace(speaker.config, parts=count, smoothing=0.0), speaker.reader) for count in (1, 3)
    )
    for one in (whole, parts):
        one.model.load_state_dict(speaker.model.state_dict())
        one.model.eval()
        one.parts = speaker.parts
    (batch,) = whole.batches(Split.TRAIN, 1).at(0)
    pieces = parts.batches(Split.TRAIN, 1).at(0)
    assert len(pieces) == 3 and sum(piece.count for piece in pieces) == batch.count
    with torch.no_grad():
        total = float(next(whole.losses(batch))[1])
        shares = [float(next(parts.losses(piece))[1]) * piece.count / batch.count for piece in pieces]
    assert sum(shares) == pytest.approx(total, rel=1e-5)


# teacher forcing and free running


def test_a_given_target_is_scored_as_the_loss_scores_it(task: Task) -> None:
    source, target = digits(150)[3]
    found = task.predict(source, TranslationOptions(target=target))
    ids = torch.tensor([[*task.reader.source.encode(source), task.marks[0]]])
    wanted = task.reader.target.encode(target)
    task.model.eval()
    with torch.no_grad():
        logits = task.model(ids, torch.ones_like(ids, dtype=torch.bool), torch.tensor([[task.marks[1], *wanted]]))[0]
    task.model.train()
    labels = torch.tensor([*wanted, task.marks[2]])
    loss = float(F.cross_entropy(logits, labels))
    assert found.scores["log_probability"] == pytest.approx(-loss * len(labels), abs=1e-4)
    assert found.scores["perplexity"] == pytest.approx(math.exp(loss), rel=1e-4)
    said = [token for token in logits.argmax(-1).tolist() if token != task.marks[2]]
    assert found.output == task.reader.target.decode(said).strip()


def test_free_running_differs_from_teacher_forcing(task: Task) -> None:
    """An untrained model: after words that it would not have said itself, it says something else."""
    differ = 0
    for source, target in digits(150)[:8]:
        free = task.predict(source, dataclasses.replace(FREE, maps=False))
        forced = task.predict(source, TranslationOptions(target=target, maps=False))
        differ += free.output != forced.output
    assert differ >= 4


def test_a_prefix_begins_the_output(task: Task) -> None:
    found = task.predict("407", dataclasses.replace(FREE, prefix="seven two"))
    assert found.output.startswith("seven two")


def test_answers_to_many_are_those_to_each_in_their_order(task: Task) -> None:
    inputs = [source for source, _ in digits(150)[:9]]
    together = list(task.predict_all(inputs, FREE))
    assert [found.input for found in together] == inputs
    for text, found in zip(inputs, together, strict=True):
        alone = task.predict(text, FREE)
        assert found.output == alone.output
        assert found.scores["score"] == pytest.approx(alone.scores["score"], abs=1e-4)
    assert task.model.training


def test_other_answers_are_worse_and_different(speaker: Task) -> None:
    found = speaker.predict("a text", TranslationOptions(beam=4, best=4, maps=False))
    scores = [one.scores["score"] for one in (found, *found.others)]
    assert len(found.others) == 3 and scores == sorted(scores, reverse=True)


# maps


def test_maps_have_the_tokens_of_both_sides_on_their_axes(task: Task) -> None:
    architecture, target = task.config.model.architecture, "four zero"
    found = task.predict("407", TranslationOptions(target=target))
    names = {read.name.rpartition(".")[2] for read in found.maps}
    assert (
        names
        == {
            "rnn": set(),
            "rnn+attention": {"attention"},
            "convolution": {"cross"},
            "transformer": {"self", "cross"},
            "universal": {"self", "cross"},
        }[architecture]
    )
    read, written, given = ("4", "0", "7"), ("four", "zero"), ("four", "zero")
    for one in found.maps:
        heads, queries, keys = one.weights.shape
        assert (len(one.queries.labels), len(one.keys.labels)) == (queries, keys)
        torch.testing.assert_close(one.weights.sum(-1), torch.ones(heads, queries))
        if one.name.endswith(("cross", "attention")):  # T x S: a row says what was looked at to write its word
            assert one.weights.shape[1:] == (3, 4)
            assert one.queries.labels[:-1] == written and one.keys.labels[:-1] == read
            assert (one.queries.kind, one.keys.kind) == ("target", "source")
        elif one.name.startswith("encoder"):
            assert one.queries == one.keys and one.keys.labels[:-1] == read
        else:
            assert one.queries == one.keys and one.keys.labels[1:] == given
            assert (one.weights.triu(1) == 0).all()
    assert (found.alignment is None) == (architecture == "rnn")
    if found.alignment is not None:
        assert found.alignment.weights.shape == (1, 2, 3)  # words alone: no end looks at anything
        assert (found.alignment.queries.labels, found.alignment.keys.labels) == (written, read)
    steps = {reading.axis.kind: reading for reading in found.readings}
    assert set(steps) == ({"source", "target"} if architecture == "universal" else set())
    for reading in steps.values():
        assert len(reading.values) == len(reading.axis.labels)
        assert all(1 <= value <= 2 for value in reading.values)


def test_pieces_know_their_words(speaker: Task) -> None:
    source, target = sentences()[4]
    found = speaker.predict(source, TranslationOptions(target=target))
    for one in found.maps:
        for axis in (one.queries, one.keys):
            assert len(axis.words) == len(axis.labels)
            text = source if axis.kind == "source" else target
            assert len(set(axis.words)) == len(text.split()) + 1  # and the end, or the begin


def test_the_finding_chooses_the_map_that_is_shown(speaker: Task) -> None:
    options = TranslationOptions(target="some words")
    try:
        for name in ("decoder.0.cross", "decoder.1.cross"):
            for head in (0, 1, None):
                speaker.analysis = {"alignment": {"name": name, "head": head}}
                found = speaker.predict("a text", options)
                chosen = next(read.weights for read in found.maps if read.name == name)
                expected = chosen.mean(0) if head is None else chosen[head]
                assert found.alignment is not None
                assert torch.equal(found.alignment.weights[0], expected[:-1, :-1])  # without the end marks
    finally:
        speaker.analysis = {}


def test_studying_finds_one_of_the_crossing_heads(speaker: Task) -> None:
    choice = speaker.analyse()["alignment"]
    assert choice["name"] in ("decoder.0.cross", "decoder.1.cross")
    assert choice["head"] in (0, 1, None)
    assert 0 < choice["score"] < 1


# scores


def test_scores_can_be_repeated_by_others(speaker: Task, task: Task) -> None:
    found = speaker.evaluate(Split.VALID)
    assert speaker.score == "bleu"
    assert {"bleu", "bleu_lowercase", "chrf", "exact", "loss", "pairs"} <= set(found)
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in speaker.explained["bleu"]
    assert "case:lc" in speaker.explained["bleu_lowercase"] and "nc:6" in speaker.explained["chrf"]
    assert found["pairs"] == len(speaker.parts[Split.VALID])
    found = task.evaluate(Split.VALID, quick=True)
    assert task.score == "exact" and {"exact", "token_error", "loss"} <= set(found)
    assert found["loss"] == pytest.approx(-_mean_log_probability(task), rel=1e-4)


def _mean_log_probability(task: Task) -> float:
    """Of the references by teacher forcing, a token."""
    pairs, total, count = task.parts[Split.VALID], 0.0, 0
    for at, (source, target) in enumerate(pairs.texts):
        total += task.predict(source, TranslationOptions(target=target, maps=False)).scores["log_probability"]
        count += len(pairs.target[at]) + 1
    return total / count


def test_a_file_with_nothing_to_hold_back_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"pairs.tsv: the valid part has no pairs, expected at least one; give more"):
        made(tmp_path, [("12", "two one")] * 6)


# learning


@pytest.mark.slow
def test_it_learns_to_read_numbers_backwards(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    data = write(tmp_path / "pairs.tsv", digits())
    shape = ["dim=48", "hidden=96", "depth=1", "decoder_depth=1"]
    words = [*(f"model.transformer.{word}" for word in shape), "tokens=600", "train.steps=400"]
    api.train(
        data, [*words, "train.device=cpu", "train.evaluate_every=1000"], task="translation", name="a", root=tmp_path
    )
    task = api.load(tmp_path / "a", device="cpu")
    assert api.evaluate(task, data)["exact"] >= 95
    found = api.predict(task, "4071")
    assert found.output == "one seven zero four"
    assert found.alignment is not None
    assert found.alignment.weights.shape == (1, 4, 4)


# what a file is for, where nobody says


@pytest.mark.parametrize(
    ("name", "rows", "task"),
    [
        ("pairs.tsv", ["one\teins", "two\tzwei", "three\tdrei"], "translation"),
        ("pairs.csv", ["source,target", "one,eins", "two,zwei"], "translation"),
        ("pairs.csv", ["en,de", "one,eins", "two,zwei"], "translation"),
        ("spam.tsv", ["ham\tsee you", "spam\twin", "ham\thello", "ham\tgood bye"], "language_model"),
        ("reviews.csv", ["text,label", "good film,1", "bad film,0"], "text_classification"),
        ("reviews.csv", ["text,label", *(f"film {at},view {at} of it" for at in range(30))], "language_model"),
        ("sms.tsv", [f"{'ham' if at % 3 else 'spam'}\tcall {at}" for at in range(30)], "text_classification"),
        (
            "nli.csv",
            ["premise,hypothesis,label", *(f"a {at},b {at},{at % 3}" for at in range(30))],
            "text_classification",
        ),
        ("rows.jsonl", [f'{{"text": "a {at}", "label": {at % 2}}}' for at in range(30)], "text_classification"),
        ("alike.csv", ["sentence1,sentence2,score", "a cat,a dog,2.5", "one,two,3"], "regression"),
        ("alike.csv", [f"a cat {at},a dog {at},{at % 7}.5" for at in range(30)], "regression"),
        (
            "alike.csv",
            ["id,sentence1,sentence2", *(f"{at * 37 % 61},a {at},b {at}" for at in range(30))],
            "language_model",
        ),
        ("pairs.csv", ["source,target,score", "one,eins,0.5", "two,zwei,0.7"], "translation"),
        ("numbers.tsv", [f"number {at}\t{at}" for at in range(30)], "translation"),
        ("attributed.tsv", [f"one {at}\teins {at}\tby somebody" for at in range(30)], "translation"),
        ("words.conll", ["Anna B-PER", "ran O"], "tagging"),
        (
            "questions.json",
            ['{"version": "v2.0", "data": [{"title": "", "paragraphs": [{"qas": []', "}]}]}"],
            "question_answering",
        ),
        ("prices.csv", ["price,colour", "1,red", "2,blue"], "language_model"),
        ("book.txt", ["It was", "a dark", "night"], "language_model"),
    ],
)
def test_the_file_decides_what_is_learnt(tmp_path: Path, name: str, rows: list[str], task: str) -> None:
    (tmp_path / name).write_text("\n".join(rows) + "\n")
    assert guess_task(tmp_path / name) == task
    assert guess_task(tmp_path / name, ["data.target=x"]) == "translation"


def test_what_a_person_says_of_columns_decides_too(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("note,mood,other,grade\n" + "".join(f"a {at},m{at % 2},b {at},{at / 4}\n" for at in range(40)))
    assert guess_task(path) == "language_model"
    assert guess_task(path, ["data.column=note"]) == "language_model"
    assert guess_task(path, ["data.label=mood"]) == "text_classification"
    assert guess_task(path, ["data.column=note", "data.label=mood"]) == "text_classification"
    assert guess_task(path, ["data.column=note", "data.second=other", "data.label=grade"]) == "regression"


def test_a_folder_with_tagged_words_is_for_tagging(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("names\n")
    (tmp_path / "train.conll").write_text("Anna B-PER\n")
    assert guess_task(tmp_path) == "tagging"


def test_real_files_are_guessed() -> None:
    folder = Path(os.environ.get("SACCADE_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("no real data here: set SACCADE_DATA to a folder that has it")
    files = {
        "classification/sms_spam/SMSSpamCollection": "text_classification",
        "classification/sst2/train.tsv": "text_classification",
        "classification/hate_offensive/labeled_data.csv": "text_classification",
        "pairs/stsb/stsb-en-train.csv": "regression",
        "ner/wnut17/wnut17train.conll": "tagging",
        "qa/squad2/dev-v2.0.json": "question_answering",
        "translation/cmn_2024.txt": "translation",
        "lm/tinyshakespeare.txt": "language_model",
    }
    assert {name: guess_task(folder / name) for name in files} == files
