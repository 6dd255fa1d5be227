"""Sentence vectors: cosine and contrastive losses by hand, with and without numbers, retrieval, and errors."""

import dataclasses
import json
import math
import random

import numpy as np
import pytest
import torch

import saccade
from saccade.config import override
from saccade.core import NumberOutput, Split, VectorOutput
from saccade.errors import DataError, UsageError
from saccade.look.explain import Explanation
from saccade.tasks.sentence_vectors import SentenceVectorsConfig, recall_at_1

WORDS = ["red", "blue", "cat", "dog", "sat", "ran", "mat"]


def sides(count=50):
    draw = random.Random(4)
    return [[" ".join(draw.choices(WORDS, k=2 + draw.randrange(7))) + f" {at}" for _ in "12"] for at in range(count)]


@pytest.fixture
def measured(tmp_path):
    path = tmp_path / "measured.tsv"
    rows = [f"{one}\t{two}\t{1 + at % 5}\n" for at, (one, two) in enumerate(sides())]
    path.write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    return path


@pytest.fixture
def alike(tmp_path):
    """Pairs of texts without a number."""
    path = tmp_path / "alike.tsv"
    path.write_text("".join(f"{one}\t{two}\n" for one, two in sides()))
    return path


def directions(task, alone, batch):
    """The vectors of length 1 of both texts of each row of a batch, each text read alone."""
    part = task.splits[Split.TRAIN]
    row_of = {part.origins.describe(row): row for row in range(len(part))}
    rows = [row_of[name] for name in batch.rows]
    found = []
    for texts in (part.texts, part.seconds):
        vectors = [alone(task, task.encode(texts[row])).mean(0) for row in rows]
        found.append([vector / vector.norm() for vector in vectors])
    return rows, *found


def nll(logits, target):
    return math.log(sum(map(math.exp, logits))) - logits[target]


@pytest.mark.parametrize("contrast", [0, 0.5])
@torch.no_grad()
def test_with_numbers_the_loss_is_the_squared_error_of_the_cosine(ready, alone, loss_of, measured, contrast):
    task = ready("sentence_vectors", measured, f"contrast={contrast}", "scale=3")
    (batch,) = task.source(Split.TRAIN, 1).at(0)
    rows, ones, others = directions(task, alone, batch)
    targets = [(task.splits[Split.TRAIN].numbers[row] - 1) / 4 for row in rows]  # 1 to 5 become 0 to 1
    cosines = [[float(one @ other) for other in others] for one in ones]
    expected = sum((cosines[at][at] - targets[at]) ** 2 for at in range(len(rows))) / len(rows)
    near = [at for at in range(len(rows)) if targets[at] >= contrast] if contrast else []
    assert bool(near) == bool(contrast)
    if near:
        expected += sum(nll([3 * value for value in cosines[at]], at) for at in near) / len(near)
    assert loss_of(task, batch) == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
def test_without_numbers_the_loss_is_contrastive_over_all_pairs(ready, alone, loss_of, alike):
    task = ready("sentence_vectors", alike, "scale=3")
    assert (task.metric.name, task.metric.higher_is_better) == ("recall_at_1", True)
    (batch,) = task.source(Split.TRAIN, 1).at(0)
    rows, ones, others = directions(task, alone, batch)
    assert len(rows) > 2
    total = 0.0
    for at in range(len(rows)):
        total += nll([3 * float(ones[at] @ other) for other in others], at)
        total += nll([3 * float(one @ others[at]) for one in ones], at)
    assert loss_of(task, batch) == pytest.approx(total / (2 * len(rows)), rel=1e-4)


@torch.no_grad()
def test_micro_batches_add_up_to_the_batch(ready, measured, whole_and_parts):
    whole, one, parts, three = whole_and_parts(lambda *more: ready("sentence_vectors", measured, *more))
    assert (one, three) == (1, 3)
    assert parts == pytest.approx(whole, rel=1e-5)


def test_the_scores_of_fixed_vectors(ready, measured, monkeypatch):
    task = ready("sentence_vectors", measured)
    expected = np.array(task.splits[Split.VALID].numbers)
    angles = torch.linspace(0, 1, len(expected))
    found = [torch.stack([torch.ones_like(angles), 0 * angles], -1), torch.stack([angles.cos(), angles.sin()], -1)]
    monkeypatch.setattr(task, "vectors", lambda *_: torch.cat(found))
    scores = task.evaluate(Split.VALID)
    assert scores["pearson"] == pytest.approx(100 * np.corrcoef(np.cos(angles.numpy()), expected)[0, 1], abs=1e-3)
    ranks = np.argsort(np.argsort(np.cos(angles.numpy())))
    shared = [np.mean(np.flatnonzero(np.sort(expected) == number)) for number in expected]
    assert scores["spearman"] == pytest.approx(100 * np.corrcoef(ranks, shared)[0, 1], abs=1e-3)
    assert scores["rows"] == len(expected)


def test_recall_counts_the_nearest_texts_that_are_the_partner(ready, alike):
    task = ready("sentence_vectors", alike)
    ones = torch.eye(4)
    others = torch.tensor([[2.0, 0, 0, 0], [0, 0, 3, 0], [0, 1, 0, 0], [0, 0, 0, 9]])  # the middle two are swapped
    assert recall_at_1(ones, others, ["a", "b", "c", "d"]).values == {"recall_at_1": 50.0, "rows": 4}
    assert recall_at_1(ones, others, ["a", "b", "b", "d"]).values == {"recall_at_1": 100.0, "rows": 4}  # a copy counts
    found = task.evaluate(Split.VALID)
    assert set(found.values) == {"recall_at_1", "rows"} and found.complete


@pytest.mark.slow
def test_pairs_without_numbers_are_learned(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "upper.tsv"
    draw = random.Random(6)
    names = ["".join(draw.choices("abcdefgh", k=4)) for _ in range(300)]
    path.write_text("".join(f"{name}\t{name[::-1]}\n" for name in names))
    small = [
        "model.dim=32",
        "model.depth=1",
        "model.heads=2",
        "model.hidden=48",
        "vocabulary_size=60",
        "batch_tokens=600",
    ]
    loop = ["train.steps=150", "train.device=cpu", "train.evaluate_every=150"]
    run = saccade.train(path, task="sentence_vectors", root=tmp_path / "runs", overrides=[*small, *loop])
    assert run.metrics["recall_at_1"] > 60  # a random choice is right once in 30


@torch.no_grad()
def test_a_text_becomes_its_vector_and_two_texts_a_cosine(ready, alone, predict, measured):
    task = ready("sentence_vectors", measured)
    assert [(field.name, field.optional) for field in task.inputs] == [("first", False), ("second", True)]
    one, other = (alone(task, task.encode(text)).mean(0) for text in ("red cat", "the dog ran to a mat"))
    found = predict(task, {"first": "red cat"}, attention=True)
    assert isinstance(found.output, VectorOutput)
    assert found.output.values.tolist() == pytest.approx(one.tolist(), abs=1e-4)
    assert json.loads(found.text) == pytest.approx(one.tolist(), abs=1e-4)
    assert [map.weights.shape for map in found.attention.values()] == [(2, 4, 4)] * 2
    pair = predict(task, {"first": "red cat", "second": "the dog ran to a mat"})
    assert isinstance(pair.output, NumberOutput) and pair.output.name == "cosine"
    assert pair.scores["cosine"] == pytest.approx(float(torch.cosine_similarity(one, other, dim=0)), abs=1e-5)
    assert pair.output.value == pair.scores["cosine"]
    encoded = [task.encode(text) for text in ("red cat", "the dog ran to a mat")]
    torch.testing.assert_close(task.vectors(encoded), torch.stack([one, other]), atol=1e-5, rtol=1e-4)


def test_texts_and_pairs_are_answered_in_order_as_each_alone(ready, batched_as_alone, measured):
    task = ready("sentence_vectors", measured)
    examples = [{"first": one, "second": two} if at % 3 else {"first": one} for at, (one, two) in enumerate(sides(20))]
    answers = list(task.predict(examples, task.Options()))
    for example, answer in zip(examples, answers, strict=True):
        (single,) = task.predict([example], task.Options())
        assert answer.inputs == example and ("cosine" in answer.scores) == ("second" in example)
        if "second" in example:
            assert answer.scores["cosine"] == pytest.approx(single.scores["cosine"], abs=1e-5)
        else:
            torch.testing.assert_close(answer.output.values, single.output.values, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("normalize", [False, True])
def test_of_a_single_text_the_component_along_its_own_vector_is_explained(ready, predict, measured, normalize):
    task = ready("sentence_vectors", measured)
    task.model.pooling = dataclasses.replace(task.model.pooling, normalize=normalize)
    answer = predict(task, {"first": "red cat"}, attention=True)
    task.model.pooling = dataclasses.replace(task.model.pooling, normalize=False)
    length = float(task.vectors([task.encode("red cat")]).norm())
    task.model.pooling = dataclasses.replace(task.model.pooling, normalize=normalize)
    trace = task.rerun(answer, layers=True)
    assert trace.logits.shape == (1, 1) and float(trace.logits.detach()) == pytest.approx(length, rel=1e-5)
    assert trace.positions.labels == ("component along its own vector",)
    assert [name for name, _ in trace.layers] == [layer.removesuffix(".self") for layer in answer.attention]
    assert float(trace.layers[-1][1].detach()) == pytest.approx(length, rel=1e-5)
    explained = Explanation(task, answer)
    assert explained.ablate(next(iter(answer.attention)), head=0).lost != 0
    (scores,) = explained.attribute(0)
    assert len(scores.values) == len(answer.attention["bert.encoder.0.self"].keys) and any(scores.values)


@pytest.mark.parametrize(
    ("header", "rows", "overrides"),
    [
        ("source\ttarget", 2, []),
        ("question\tanswer", 2, []),
        ("id\tq\ta", 3, ["data.text_column=q", "data.second_column=a"]),
    ],
)
def test_two_texts_without_a_number_are_pairs(ready, tmp_path, header, rows, overrides):
    path = tmp_path / "pairs.tsv"
    lines = [f"row{at}x\t{one}\t{two}" if rows == 3 else f"{one}\t{two}" for at, (one, two) in enumerate(sides())]
    path.write_text("\n".join([header, *lines]) + "\n")
    task = ready("sentence_vectors", path, *overrides)
    assert not task.scored
    train, valid = task.splits[Split.TRAIN], task.splits[Split.VALID]
    assert len(train) + len(valid) == 50
    known = {(one, two) for one, two in sides()}
    assert all(pair in known for part in (train, valid) for pair in zip(part.texts, part.seconds, strict=True))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["scale=0"], r"^scale must be above 0, but is 0\.0$"),
        (["contrast=1.5"], r"^contrast must be from 0 to 1, but is 1\.5$"),
        (
            ["contrast=0.5", "micro_batches=2"],
            r"^micro_batches must be 1 with contrast, which compares all texts of a step, but is 2$",
        ),
    ],
)
def test_invalid_settings_are_refused(overrides, message):
    with pytest.raises(UsageError, match=message):
        override(SentenceVectorsConfig(), overrides)


def test_unusable_data_are_refused(ready, alike, tmp_path):
    message = (
        r"^micro_batches must be 1 where pairs have no numbers: all texts of a step are compared, but is 2; lower batch"
    )
    with pytest.raises(UsageError, match=message):
        ready("sentence_vectors", alike, "micro_batches=2")
    path = tmp_path / "one.tsv"
    path.write_text("text\tscore\n" + "".join(f"{one}\t{at % 7}\n" for at, (one, _) in enumerate(sides())))
    message = rf"^{path}: one text in a row, expected two; name the column of the second with data.second_column$"
    with pytest.raises(DataError, match=message):
        ready("sentence_vectors", path)
    path.write_text("a\tb\tc\n" + "".join(f"{one}\t{two}\t{one}\n" for one, two in sides()))
    with pytest.raises(DataError, match=r"no column looks like a number, expected one column for the label among: a"):
        ready("sentence_vectors", path)
