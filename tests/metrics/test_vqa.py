"""VQA accuracy: the published normalization and agreement, by hand and by leaving people out; and the blind prior."""

import random

import pytest

from saccade import __version__
from saccade.metrics.vqa import normalize, question_prior, vqa_accuracy


@pytest.mark.parametrize(
    "answer, normalized",
    [
        ("Yes", "yes"),
        ("The  Cat.", "cat"),
        ("an apple a day", "apple day"),
        ("two", "2"),
        ("none", "0"),
        ("TEN", "10"),
        ("eleven", "eleven"),
        ("dont", "don't"),
        ("couldnt've", "couldn't've"),
        ("couldn'tve", "couldn't've"),
        ("y'all'dve", "y'all'd've"),
        ("ow's'at", "'ow's'at"),
        ("couldntve", "couldntve"),  # only one apostrophe is restored
        ("were", "were"),  # a word of its own
        ("somebody'd", "somebodyd"),  # as published
        ("im", "im"),  # published as "Im", which a lower-case word never is
        ("it's", "it's"),
        ("black/white", "black white"),
        ("black / white", "black white"),
        ("t-shirt", "t shirt"),
        ("hello!", "hello"),
        ("what?!", "what"),
        ("1,000", "1000"),  # a comma in a number removes all punctuation
        ("1,000-2,000", "10002000"),
        ("red, white", "red white"),
        ("red,white", "red white"),
        ("3.5", "3.5"),
        ("3.", "3"),
        ("u.s.a.", "usa"),
        ("10:30", "10:30"),  # a colon stays
        ("line\nbreak\tand  tab", "line break and tab"),
        ("", ""),
    ],
)
def test_normalization(answer, normalized):
    assert normalize(answer) == normalized


def by_leaving_out(prediction, answers):
    """The published loop over ten sets of nine people."""
    if len(set(answers)) > 1:
        prediction, answers = normalize(prediction), [normalize(answer) for answer in answers]
    values = []
    for person in range(len(answers)):
        others = answers[:person] + answers[person + 1 :]
        values.append(min(1.0, others.count(prediction) / 3))
    return sum(values) / len(values)


def test_accuracy_is_the_mean_over_leaving_each_person_out():
    generator = random.Random(0)
    answers = ["yes", "Yes.", "no", "the no", "2", "two"]
    for _ in range(200):
        people = generator.choices(answers, k=generator.choice([4, 10, 10, 10]))
        prediction = generator.choice(answers)
        assert vqa_accuracy([prediction], [people]).value == pytest.approx(100 * by_leaving_out(prediction, people))


@pytest.mark.parametrize("agreeing, accuracy", [(0, 0), (1, 30), (2, 60), (3, 90), (4, 100), (9, 100), (10, 100)])
def test_accuracy_by_the_number_of_people(agreeing, accuracy):
    people = ["red"] * agreeing + ["blue"] * (10 - agreeing)
    score = vqa_accuracy(["red"], [people])
    assert score.value == pytest.approx(accuracy)
    assert score.signature == f"vqa|answers:10|version:saccade-{__version__}"


def test_unanimous_answers_are_compared_as_they_are():
    assert vqa_accuracy(["The yes"], [["yes"] * 10]).value == 0
    assert vqa_accuracy(["The yes"], [["yes"] * 9 + ["no"]]).value == 100
    assert vqa_accuracy([" yes\n"], [["yes"] * 10]).value == 100


def test_few_answers_need_to_be_equal_when_normalized():
    score = vqa_accuracy(["The Circle.", "two", "red"], [["circle"], ["2"], ["blue"]])
    assert score.value == pytest.approx(200 / 3)
    assert score.signature == f"vqa|answers:1|version:saccade-{__version__}"
    assert vqa_accuracy(["B"], [["x", "b", "c"]]).value == 100
    assert "|answers:var|" in vqa_accuracy(["b", "b"], [["b"], ["b", "c"]]).signature


def test_the_prior_knows_only_questions():
    train = [
        ("What colour is the circle?", ["red"]),
        ("what colour is the circle", ["red"]),
        ("What colour is the circle?", ["blue"]),
        ("What colour is the sky?", ["blue"]),
        ("What colour is the sea?", ["blue"]),
        ("Is there a circle?", ["yes"]),
        ("Is there a square?", ["no"]),
        ("Is there a star?", ["no"]),
        ("How many?", ["no"]),
    ]
    questions = ["What colour is the circle?", "What colour is the door?", "Is there a moon?", "Where am I?"]
    answers = question_prior(questions, [question for question, _ in train], [answers for _, answers in train])
    assert answers == ["red", "blue", "no", "blue"]  # as often as no, but asked first
    assert vqa_accuracy(answers, [["red"], ["green"], ["no"], ["here"]]).value == 50


def test_the_prior_counts_every_person():
    assert question_prior(["q"], ["q", "q"], [["a b"] * 4, ["c"] * 10]) == ["c"]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: vqa_accuracy(["a"], []), "predictions and references must have the same length, but have 1 and 0"),
        (lambda: vqa_accuracy([], []), "references must hold at least one question, but are empty"),
        (lambda: vqa_accuracy(["a", "b"], [["a"], []]), "each question must have an answer, but row 1 has none"),
        (lambda: question_prior(["q"], [], []), "train_questions must hold at least one question, but are empty"),
    ],
)
def test_what_cannot_be_scored_is_refused(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message
