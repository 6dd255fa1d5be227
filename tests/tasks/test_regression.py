"""Regression: standardized numbers, losses and correlations by hand, and errors."""

import math
import random

import numpy as np
import pytest
import torch

from saccade.core import NumberOutput, Split, bind
from saccade.errors import DataError, UsageError


@pytest.fixture
def prices(tmp_path):
    """Pairs of texts of unequal length with numbers far from 0."""
    draw = random.Random(2)
    words = ["red", "blue", "cat", "dog", "sat"]
    sides = [[" ".join(draw.choices(words, k=1 + draw.randrange(8))) for _ in range(2)] for _ in range(50)]
    rows = [f"{one} {at}\t{two}\t{100 + draw.gauss(0, 20):.2f}\n" for at, (one, two) in enumerate(sides)]
    path = tmp_path / "prices.tsv"
    path.write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    return path


def output(task, alone, text, second):
    pooled = alone(task, task.encode(text, second)).mean(0)
    return float(task.model.head.weight[0] @ pooled + task.model.head.bias[0])


@torch.no_grad()
def test_the_loss_is_the_mean_square_in_deviations_of_each_row_alone(ready, alone, loss_of, prices):
    task = ready("regression", prices)
    part = task.splits[Split.TRAIN]
    mean = sum(part.numbers) / len(part)
    deviation = math.sqrt(sum((number - mean) ** 2 for number in part.numbers) / len(part))
    row_of = {part.origins.describe(row): row for row in range(len(part))}
    (batch,) = task.source(Split.TRAIN, 1).at(0)
    total = 0.0
    for row in map(row_of.__getitem__, batch.rows):
        expected = (part.numbers[row] - mean) / deviation
        total += (output(task, alone, part.texts[row], part.seconds[row]) - expected) ** 2
    assert loss_of(task, batch) == pytest.approx(total / batch.count, rel=1e-4)


@torch.no_grad()
def test_micro_batches_add_up_to_the_batch(ready, prices, whole_and_parts):
    whole, one, parts, three = whole_and_parts(lambda *more: ready("regression", prices, *more))
    assert (one, three) == (1, 3)
    assert parts == pytest.approx(whole, rel=1e-5)


def test_the_scores_of_fixed_numbers(ready, prices, monkeypatch):
    task = ready("regression", prices)
    expected = np.array(task.splits[Split.VALID].numbers)
    found = expected**3  # the same order, but not in line
    monkeypatch.setattr(task, "numbers", lambda *_: found.tolist())
    scores = task.evaluate(Split.VALID)
    assert scores["spearman"] == pytest.approx(100)
    assert scores["pearson"] == pytest.approx(100 * np.corrcoef(found, expected)[0, 1])
    assert scores["pearson"] < 99.9
    assert scores["rmse"] == pytest.approx(math.sqrt(((found - expected) ** 2).mean()))
    assert scores["rows"] == len(expected)


@torch.no_grad()
def test_a_number_is_in_its_original_units_and_the_same_alone_and_in_a_batch(ready, alone, batched_as_alone, prices):
    task = ready("regression", prices)
    part = task.splits[Split.VALID]
    examples = [{"first": one, "second": two} for one, two in zip(part.texts, part.seconds, strict=True)]
    many = task.numbers(list(task.encoded(Split.VALID)[0]))
    for row, answer in enumerate(batched_as_alone(task, examples)):
        one = output(task, alone, part.texts[row], part.seconds[row]) * task.deviation + task.mean
        assert many[row] == pytest.approx(one, rel=1e-4)
        assert isinstance(answer.output, NumberOutput)
        assert answer.output.value == answer.scores["value"] == pytest.approx(many[row], rel=1e-4)
        assert answer.text == f"{answer.scores['value']:.4g}"


def test_maps_are_there_on_request(ready, predict, prices):
    task = ready("regression", prices)
    found = predict(task, {"first": "red cat", "second": "dog"}, attention=True)
    row = task.encode("red cat", "dog").ids
    assert [one.weights.shape for one in found.attention.values()] == [(2, len(row), len(row))] * 2
    assert list(found.attention["bert.encoder.0.self"].queries.labels) == task.tokenizer.pieces(row)


def test_constant_numbers_cannot_be_scored(ready, prices, tmp_path):
    task = ready("regression", prices)
    other = tmp_path / "same.tsv"
    other.write_text("sentence1\tsentence2\tscore\n" + "a\tb\t3.5\nc\td\t3.5\n")
    expected = "expected different ones; give more rows, or data.valid=FILE"
    message = rf"^{other}: every number of the validation rows is 3.5, {expected}$"
    with pytest.raises(DataError, match=message):
        task.load_data(other, eval_only=True)


def test_rows_without_a_number_or_a_second_text_are_refused(ready, prices, tmp_path):
    task = ready("regression", prices)
    other = tmp_path / "bad.tsv"
    other.write_text("sentence1\tsentence2\tscore\na\tb\t3.5\nc\td\tfour\n")
    with pytest.raises(DataError, match=r"bad\.tsv:3: the label is 'four', expected a finite number in every row"):
        task.load_data(other, eval_only=True)
    with pytest.raises(UsageError, match=r"^second must be given, but is not; this model takes first, second$"):
        bind(task.inputs, ["red cat"])
