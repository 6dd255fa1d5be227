"""Regression: numbers in units of their deviation, losses and correlations by hand, and every refusal."""

import math
import random

import numpy as np
import pytest
import torch

from saccade.core.task import Split
from saccade.errors import DataError, UsageError
from saccade.tasks.regression import NumberOptions


@pytest.fixture
def prices(tmp_path):
    """Pairs of texts of unequal length with numbers far from 0."""
    chance = random.Random(2)
    words = ["red", "blue", "cat", "dog", "sat"]
    sides = [[" ".join(chance.choices(words, k=1 + chance.randrange(8))) for _ in range(2)] for _ in range(50)]
    rows = [f"{one} {at}\t{two}\t{100 + chance.gauss(0, 20):.2f}\n" for at, (one, two) in enumerate(sides)]
    path = tmp_path / "prices.tsv"
    path.write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    return path


def output(opened, alone, text, second):
    pooled = alone(opened, opened.framed(text, second)).mean(0)
    return float(opened.model.head.weight[0] @ pooled + opened.model.head.bias[0])


@torch.no_grad()
def test_the_loss_is_the_mean_square_in_deviations_of_each_row_alone(ready, alone, prices):
    opened = ready("regression", prices)
    part = opened.parts[Split.TRAIN]
    mean = sum(part.numbers) / len(part)
    deviation = math.sqrt(sum((number - mean) ** 2 for number in part.numbers) / len(part))
    place = {part.place(row): row for row in range(len(part))}
    (batch,) = opened.batches(Split.TRAIN, 1).at(0)
    total = 0.0
    for row in map(place.__getitem__, batch.rows):
        wanted = (part.numbers[row] - mean) / deviation
        total += (output(opened, alone, part.texts[row], part.seconds[row]) - wanted) ** 2
    ((_, loss),) = opened.losses(batch)
    assert float(loss) == pytest.approx(total / batch.count, rel=1e-4)


@torch.no_grad()
def test_parts_add_up_to_the_whole(ready, prices, whole_and_parts):
    whole, one, parts, three = whole_and_parts(lambda *more: ready("regression", prices, *more))
    assert (one, three) == (1, 3)
    assert parts == pytest.approx(whole, rel=1e-5)


def test_the_scores_of_fixed_numbers(ready, prices, monkeypatch):
    opened = ready("regression", prices)
    wanted = np.array(opened.parts[Split.VALID].numbers)
    found = wanted**3  # the same order, but not in line
    monkeypatch.setattr(opened, "_numbers", lambda *_: found.tolist())
    scores = opened.evaluate(Split.VALID)
    assert scores["spearman"] == pytest.approx(100)
    assert scores["pearson"] == pytest.approx(100 * np.corrcoef(found, wanted)[0, 1])
    assert scores["pearson"] < 99.9
    assert scores["error"] == pytest.approx(math.sqrt(((found - wanted) ** 2).mean()))
    assert scores["rows"] == len(wanted)


@torch.no_grad()
def test_a_number_comes_back_in_its_own_units_and_alone_as_in_a_batch(ready, alone, prices):
    opened = ready("regression", prices)
    part = opened.parts[Split.VALID]
    many = opened._numbers(opened._framed(part, range(len(part)))[0])
    for row, number in enumerate(many):
        one = output(opened, alone, part.texts[row], part.seconds[row]) * opened.deviation + opened.mean
        assert number == pytest.approx(one, rel=1e-4)
        found = opened.predict(part.texts[row], NumberOptions(second=part.seconds[row]))
        assert found.scores["number"] == pytest.approx(number, rel=1e-4)
        assert found.output == f"{found.scores['number']:.4g}"


def test_maps_are_there_for_those_who_ask(ready, prices):
    opened = ready("regression", prices)
    found = opened.predict("red cat", NumberOptions(second="dog", maps=True))
    row = opened.framed("red cat", "dog")[0]
    assert [one.weights.shape for one in found.maps] == [(2, len(row), len(row))] * 2
    assert list(found.maps[0].queries.labels) == opened.tokenizer.pieces(row)


def test_numbers_that_are_all_the_same_cannot_be_scored(ready, prices, tmp_path):
    opened = ready("regression", prices)
    other = tmp_path / "same.tsv"
    other.write_text("sentence1\tsentence2\tscore\n" + "a\tb\t3.5\nc\td\t3.5\n")
    says = (
        rf"^{other}: every number of the valid part is 3.5, expected different ones; give more rows, or --valid FILE$"
    )
    with pytest.raises(DataError, match=says):
        opened.load_data(other, whole=True)


def test_numbers_must_be_numbers_and_pairs_whole(ready, prices, tmp_path):
    opened = ready("regression", prices)
    other = tmp_path / "bad.tsv"
    other.write_text("sentence1\tsentence2\tscore\na\tb\t3.5\nc\td\tfour\n")
    with pytest.raises(DataError, match=r"bad\.tsv:3: the label is 'four', expected a finite number in every row"):
        opened.load_data(other, whole=True)
    with pytest.raises(UsageError, match=r"^a pair needs a second text, but none was given; add second=TEXT, or"):
        opened.predict("red cat", NumberOptions())
