"""Answers: every rule of SQuAD's own script, by figures worked out by hand."""

import pytest

from saccade import __version__
from saccade.metrics.qa import SubsetScores, Threshold, exact_match, normalize, score_answers, word_f1


@pytest.mark.parametrize(
    "text, normal",
    [
        ("The Normans", "normans"),
        ("a man, an apple; the end", "man apple end"),
        ("theatre another data", "theatre another data"),
        ("U.S.A.", "usa"),
        ("the-end", "theend"),  # punctuation goes first, so that this is no article
        ("  10th \t and\n11th ", "10th and 11th"),
        ("«La» Manche’s", "«la» manche’s"),  # only ASCII punctuation goes
        ("The", ""),
        ("$5.50", "550"),
        ("", ""),
    ],
)
def test_answers_are_normalized(text, normal):
    assert normalize(text) == normal


@pytest.mark.parametrize(
    "predictions, references, exact, f1",
    [
        ("the 10th century", "10th Century.", 1, 1),
        ("in the 10th century", "10th century", 0, 2 * (2 / 3) * 1 / (2 / 3 + 1)),
        ("red red blue", "red green", 0, 2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2)),  # a word counts as often as in both
        ("red", "blue", 0, 0),
        ("", "", 1, 1),
        ("", "blue", 0, 0),
        ("blue", "", 0, 0),
        ("the", "", 1, 1),  # nothing is left of it
    ],
)
def test_one_answer_against_another(predictions, references, exact, f1):
    assert exact_match(predictions, references) == exact
    assert word_f1(predictions, references) == pytest.approx(f1)


WANTED = {
    "q1": ["France", "in France"],
    "q2": ["10th century", "the first half of the 10th century"],
    "q3": [],
    "q4": [],
    "q5": ["the"],  # an answer of which nothing is left counts as none, but its question has one
}
FOUND = {"q1": "In France", "q2": "10th", "q3": "", "q4": "Rollo", "q5": ""}


def test_questions_are_scored_with_their_best_answer_and_in_two_parts():
    scores = score_answers(FOUND, WANTED)
    # exact: q1, q3, q5; F1: q1 1, q2 2/3 (1 of 1 predicted, 1 of 2 expected), q3 1, q4 0, q5 1
    assert scores.exact.value == pytest.approx(60)
    assert scores.f1.value == pytest.approx(100 * (1 + 2 / 3 + 1 + 0 + 1) / 5)
    assert scores.count == 5
    assert scores.answered == SubsetScores(pytest.approx(200 / 3), pytest.approx(100 * (1 + 2 / 3 + 1) / 3), 3)
    assert scores.unanswered == SubsetScores(50, 50, 2)
    assert (scores.best_exact, scores.best_f1) == (None, None)
    assert scores.exact.signature == f"exact|squad:2.0|threshold:no|version:saccade-{__version__}"
    assert scores.f1.signature == f"F1|squad:2.0|threshold:no|version:saccade-{__version__}"


def test_without_unanswerable_questions_there_is_one_part():
    scores = score_answers({"q": "France"}, {"q": ["France"]})
    assert (scores.answered, scores.unanswered) == (SubsetScores(100, 100, 1), None)
    assert score_answers({"q": "France"}, {"q": []}).answered is None


NO_ANSWER = {"q1": 0.1, "q2": 0.3, "q3": 0.9, "q4": 0.6, "q5": 0.5}


def test_above_the_threshold_an_answer_is_none():
    scores = score_answers(FOUND, WANTED, no_answer=NO_ANSWER, threshold=0.5)
    # q3 and q4 are apply_ablations and right; q5 is not above 0.5 and keeps its point
    assert scores.exact.value == pytest.approx(80)
    assert scores.f1.value == pytest.approx(100 * (1 + 2 / 3 + 1 + 1 + 1) / 5)
    assert scores.unanswered == SubsetScores(100, 100, 2)
    assert scores.f1.signature == f"F1|squad:2.0|threshold:0.5|version:saccade-{__version__}"
    low = score_answers(FOUND, WANTED, no_answer=NO_ANSWER, threshold=0.0)
    assert low.answered == SubsetScores(0, 0, 3)  # silence is wrong where there is an answer, also for q5


def test_the_best_threshold_is_computed_on_scores_without_one():
    for threshold in (0.0, 1.0):
        scores = score_answers(FOUND, WANTED, no_answer=NO_ANSWER, threshold=threshold)
        # by probability: 2 for silence, q1 +1, q2 +0 exact or +2/3 F1, q5 +1, q4 -1, q3 0
        assert scores.best_exact == Threshold(pytest.approx(80), 0.5)
        assert scores.best_f1 == Threshold(pytest.approx(100 * (2 + 1 + 2 / 3 + 1) / 5), 0.5)


def test_the_best_may_be_never_to_answer():
    scores = score_answers({"a": "x", "b": "y"}, {"a": [], "b": ["z"]}, no_answer={"a": 0.2, "b": 0.4})
    assert scores.best_exact == Threshold(50, 0.0)


@pytest.mark.parametrize(
    "predictions, references, no_answer, message",
    [
        ({}, {}, None, "references must hold at least one question, but are empty"),
        ({"a": ""}, {"a": [], "b": []}, None, "predictions must hold every question of references, but 'b' is missing"),
        ({"a": "", "c": ""}, {"a": []}, None, "predictions must hold questions of references only, but 'c' is not one"),
        ({"a": ""}, {"a": []}, {}, "no_answer must hold every question of references, but 'a' is missing"),
    ],
)
def test_what_cannot_be_scored_is_refused(predictions, references, no_answer, message):
    with pytest.raises(ValueError) as caught:
        score_answers(predictions, references, no_answer=no_answer)
    assert str(caught.value) == message
