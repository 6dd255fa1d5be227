"""Metrics of classification and regression: equal to scikit-learn's and scipy's, and to some by hand."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn

from saccade import __version__
from saccade.metrics.classification import (
    accuracy,
    confusion,
    pearson,
    positive_label,
    score_labels,
    spearman,
    top_accuracy,
)
from saccade.metrics.generation import Counts

ROWS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abc")), min_size=1, max_size=30)
SETS = st.lists(st.tuples(st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcd"))), min_size=1, max_size=15)
FEW = st.integers(-3, 3).map(float)
MANY = st.floats(-1e6, 1e6).map(lambda number: round(number, 3))
NUMBERS = st.one_of(*(st.lists(st.tuples(kind, kind), min_size=3, max_size=30) for kind in (FEW, MANY)))


@settings(max_examples=100)
@given(ROWS)
def test_single_labels_are_scored_as_scikit_learn_does(rows):
    predictions, references = zip(*rows, strict=True)
    assume(len({*predictions, *references}) > 1)  # scikit-learn warns of a single one
    ours = score_labels([{label} for label in predictions], [{label} for label in references])
    for average, value in (("micro", ours.micro.value), ("macro", ours.macro.value)):
        assert value == pytest.approx(100 * sklearn.f1_score(references, predictions, average=average, zero_division=0))
    assert accuracy(predictions, references).value == pytest.approx(
        100 * sklearn.accuracy_score(references, predictions)
    )
    assert ours.micro.value == pytest.approx(accuracy(predictions, references).value)
    table = confusion(predictions, references)
    assert table.labels == tuple(sorted({*predictions, *references}))
    assert np.array_equal(table.table, sklearn.confusion_matrix(references, predictions, labels=table.labels))


@settings(max_examples=100)
@given(SETS)
def test_several_labels_a_row_are_scored_as_scikit_learn_does(rows):
    predictions, references = zip(*rows, strict=True)
    labels = sorted(set().union(*predictions, *references))
    assume(len(labels) > 1)  # scikit-learn would read a single one as two classes
    tables = [np.array([[label in row for label in labels] for row in side]) for side in (references, predictions)]
    ours = score_labels(predictions, references)
    for average, value in (("micro", ours.micro.value), ("macro", ours.macro.value)):
        assert value == pytest.approx(100 * sklearn.f1_score(*tables, average=average, zero_division=0))


@settings(max_examples=200)
@given(NUMBERS)
def test_correlations_are_those_of_scipy(rows):
    predictions, references = zip(*rows, strict=True)
    assume(np.ptp(predictions) > 1e-2 and np.ptp(references) > 1e-2)
    assert pearson(predictions, references).value == pytest.approx(
        100 * stats.pearsonr(predictions, references).statistic, abs=1e-5
    )
    assert spearman(predictions, references).value == pytest.approx(
        100 * stats.spearmanr(predictions, references).statistic, abs=1e-8
    )


def test_correlations_by_hand():
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5)
    assert spearman([1, 7, 7, 90], [2, 3, 4, 5]).value == pytest.approx(100 * 4.5 / (4.5 * 5) ** 0.5)
    assert pearson([1, 2, 3], [2, 4, 7]).value == pytest.approx(100 * 5 / (2 * 38 / 3) ** 0.5)
    assert pearson([3, 2, 1], [1, 2, 3]).value == pytest.approx(-100)
    assert pearson([1e200, 2e200, 3e200], [1e-200, 2e-200, 3e-200]).value == pytest.approx(100)
    assert pearson([2, 2, 2], [1, 2, 3]).value == spearman([2, 2, 2], [1, 2, 3]).value == 0


def test_labels_by_hand():
    predictions, references = ["spam", "ham", "ham", "spam"], ["spam", "spam", "ham", "ham"]
    table = confusion(predictions, references, labels=["spam", "ham", "other"])
    assert table.table.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert confusion(["b", "b"], ["a", "a"]).table.tolist() == [[0, 2], [0, 0]]  # reference a, prediction b
    scores = score_labels([["a", "b"], ["b"]], [["a"], ["b", "c"]])
    assert scores.by_label == {"a": Counts(1, 1, 1), "b": Counts(1, 2, 1), "c": Counts(0, 0, 1)}
    assert scores.micro.value == pytest.approx(100 * 4 / 6)
    assert scores.macro.value == pytest.approx(100 * (1 + 2 / 3 + 0) / 3)
    assert accuracy([frozenset("ab"), frozenset("a")], [frozenset("ab"), frozenset("ab")]).value == 50


@pytest.mark.parametrize("k", [1, 3, 5])
def test_top_accuracy_is_that_of_scikit_learn(k):
    generator = np.random.default_rng(k)
    scores, references = generator.normal(size=(200, 8)), generator.integers(8, size=200)
    ours = top_accuracy(scores, references.tolist(), k)
    assert ours.value == pytest.approx(100 * sklearn.top_k_accuracy_score(references, scores, k=k))
    assert ours.signature == f"accuracy|top:{k}|ties:random|version:saccade-{__version__}"
    by_argmax = accuracy(scores.argmax(1).tolist(), references.tolist())
    assert k > 1 or ours.value == pytest.approx(by_argmax.value)


def test_equal_scores_are_ranked_by_lot():
    assert top_accuracy(np.zeros((3, 10)), [0, 5, 9], 1).value == pytest.approx(10)
    assert top_accuracy(np.zeros((3, 10)), [0, 5, 9], 5).value == pytest.approx(50)
    assert top_accuracy([[1.0, 0, 0]], [1], 2).value == pytest.approx(50)
    assert top_accuracy([[0.0, 1, 2]], [0], 5).value == 100  # all of three classes are among five


def test_every_score_has_a_signature():
    version = f"version:saccade-{__version__}"
    scores = score_labels([["a"]], [["a"]])
    assert scores.micro.signature == f"F1|average:micro|{version}"
    assert scores.macro.signature == f"F1|average:macro|{version}"
    assert accuracy(["a"], ["a"]).signature == f"accuracy|{version}"
    assert pearson([1, 2], [1, 2]).signature == f"pearson|{version}"
    assert spearman([1, 2], [1, 2]).signature == f"spearman|ties:mean|{version}"


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: accuracy(["a"], []), "predictions and references must have the same length, but have 1 and 0"),
        (lambda: confusion([], []), "references must hold at least one row, but are empty"),
        (lambda: score_labels([[]], [[]]), "a row must hold a label, but all 1 rows are empty"),
        (lambda: confusion(["a"], ["b"], ["a"]), "labels must name every label, but 'b' is missing"),
        (lambda: pearson([1, float("nan")], [1, 2]), "predictions must hold finite numbers, but one is nan"),
        (lambda: spearman([1, 2], [1, float("inf")]), "references must hold finite numbers, but one is inf"),
        (lambda: top_accuracy([[1.0]], [0], 0), "k must be at least 1, but is 0"),
        (lambda: top_accuracy([1.0], [0]), "scores must have the shape (rows, classes), but have (1,)"),
        (lambda: top_accuracy([[1.0]], [0, 0]), "scores and references must have the same length, but have 1 and 2"),
        (
            lambda: top_accuracy(np.zeros((0, 3)), []),
            "scores must hold at least one row and class, but are empty",
        ),
        (lambda: top_accuracy([[1.0, float("nan")]], [0]), "scores must be finite, but one is nan"),
        (lambda: top_accuracy([[1.0, 2.0]], [-1]), "references must be classes from 0 to 1, but one is -1"),
        (lambda: pearson([1, 2], [3, 3]), "references must hold different numbers, but all 2 are 3"),
    ],
)
def test_what_cannot_be_scored_is_refused(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "labels, positive",
    [
        (("0", "1"), "1"),
        (("-1", "1"), "1"),
        (("1", "2"), "2"),
        (("1.0", "0.0"), "1.0"),
        (("No", "Yes"), "Yes"),
        (("negative", "positive"), "positive"),
        (("ham", "spam"), "spam"),
        (("spam", "not spam"), "spam"),
        (("not_entailment", "entailment"), "entailment"),
        (("unacceptable", "acceptable"), "acceptable"),
        (("OFF", "NOT"), "OFF"),
        (("real", "fake"), "fake"),
        (("tumour", "none"), "tumour"),
        (("cat", "dog"), ""),
        (("yes", "true"), ""),
        (("no", "none"), ""),
    ],
)
def test_the_positive_class_is_known_by_its_name(labels, positive):
    assert positive_label(labels) == positive
    assert positive_label(labels[::-1]) == positive
