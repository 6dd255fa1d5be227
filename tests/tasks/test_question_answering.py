"""Question answering: windows that miss nothing, spans with their exact characters, the rule of no answer, by hand."""

import json
import math
import os
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from saccade.config import override
from saccade.core.task import Split
from saccade.data.formats.squad import Answer, Question, read_squad
from saccade.data.text.templates import InputTemplate
from saccade.data.text.tokenizers import train_tokenizer
from saccade.data.windows import cut_windows
from saccade.errors import UsageError
from saccade.metrics.qa import word_f1
from saccade.tasks.question_answering import LONGEST, AnswerConfig, AnswerOptions, SpanCandidate, _best_span

CONTEXT = "In 1889 the T\u00f6wer (of  Paris) was built; it is 330 m high. Gustave's men did it."


def write(path, count=12):
    articles = []
    for number in range(count):
        context = f"{CONTEXT} That was note {number}. " + "And so on. " * (number % 4)
        start = context.index("330 m")
        asked = [
            {"id": f"{number}a", "question": "How high?", "answers": [{"text": "330 m", "answer_start": start}]},
            {"id": f"{number}b", "question": "Who paid?", "answers": [], "is_impossible": True},
        ]
        articles.append({"title": str(number), "paragraphs": [{"context": context, "qas": asked}]})
    path.write_text(json.dumps({"data": articles}))
    return path


@pytest.fixture
def tower(tmp_path):
    return write(tmp_path / "tower.json")


SMALL = ["max_length=64", "stride=8", "tokens=400"]


@pytest.fixture(scope="module")
def tokenizer():
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    return train_tokenizer("wordpiece", [CONTEXT, " ".join(letters), letters], 120)


def question(context, answer="", start=0, asked="How high?"):
    answers = (Answer(answer, start),) if answer else ()
    return Question("q", "", context, asked, answers, 1)


@pytest.mark.parametrize("marks", [1, 2])
@pytest.mark.parametrize(("max_length", "stride"), [(8, 3), (9, 0), (16, 7), (16, 60), (24, 5), (40, 19), (200, 64)])
def test_windows_cover_every_token_and_every_answer_that_fits(tokenizer, max_length, stride, marks):
    context = " ".join(f"{number}" for number in range(100, 200))
    frame = InputTemplate(2, 3, (3,) * marks, 4, max_length)
    ids, spans = tokenizer.encode_with_offsets([context])[0]
    for asked in ("?", "how high is it", "x" * 80):
        windows = cut_windows([question(context, asked=asked)], tokenizer, frame, stride)
        covered = [span for window in windows for span in window.spans]
        assert set(covered) == set(spans)
        room = max(len(window.spans) for window in windows)
        shared = min(stride, room // 2)
        for one, after in pairwise(windows):
            assert spans.index(after.spans[0]) == spans.index(one.spans[0]) + room - shared
        for window in windows:
            assert len(window.ids) <= max_length
            assert window.ids[window.second : -1] == ids[spans.index(window.spans[0]) :][: len(window.spans)]
        for first in range(len(ids) - shared):  # any stretch of as many tokens as neighbours share and one more
            start, end = spans[first][0], spans[first + shared][1]
            one = question(context, context[start:end], start, asked)
            places = [
                window.spans[window.answer[0] - window.second][0]
                for window in cut_windows([one], tokenizer, frame, stride)
                if window.answer != (0, 0)
            ]
            assert places and set(places) == {start}


def test_an_answer_that_a_window_cuts_is_not_in_it(tokenizer):
    frame = InputTemplate(2, 3, (3,), 4, 16)
    context = " ".join(f"{number}" for number in range(100, 130))
    start, end = context.index("105"), context.index("125")
    windows = cut_windows([question(context, context[start:end], start)], tokenizer, frame, 4)
    assert {window.answer for window in windows} == {(0, 0)}


def test_the_places_of_an_answer_are_its_tokens(ready, tower):
    opened = ready("question_answering", tower, *SMALL)
    questions = opened.parts[Split.TRAIN].questions
    found = 0
    for window in opened._windows(questions):
        one = questions[window.question]
        first, last = window.answer
        if (first, last) != (0, 0):
            start, end = window.spans[first - window.second][0], window.spans[last - window.second][1]
            assert one.context[start:end] == one.answers[0].text == "330 m"
            found += 1
    assert found >= sum(not one.impossible for one in questions)


def logits_of(opened, alone, window):
    return alone(opened, (window.ids, window.second)) @ opened.model.head.weight.t() + opened.model.head.bias  # (T, 2)


@torch.no_grad()
def test_the_loss_is_over_the_context_and_the_begin_mark_of_each_row_alone(ready, alone, tower):
    opened = ready("question_answering", tower, *SMALL)
    batches = opened.batches(Split.TRAIN, 1)
    (batch,) = batches.at(0)
    rows = batches.buckets.rows(0).tolist()
    total = 0.0
    for window in (batches.windows[row] for row in rows):
        logits = logits_of(opened, alone, window)
        allowed = [0, *range(window.second, window.second + len(window.spans))]
        for side, place in enumerate(window.answer):
            values = {at: float(logits[at, side]) for at in allowed}
            total += math.log(sum(map(math.exp, values.values()))) - values[place]
    ((_, loss),) = opened.losses(batch)
    assert float(loss) == pytest.approx(total / (2 * len(rows)), rel=1e-4)


@torch.no_grad()
def test_parts_add_up_to_the_whole(ready, tower, whole_and_parts):
    make = lambda *more: ready("question_answering", tower, *SMALL, *more)  # noqa: E731
    whole, one, parts, three = whole_and_parts(make)
    assert (one, three) == (1, 3)
    assert parts == pytest.approx(whole, rel=1e-5)


def test_the_best_span_is_that_of_all_allowed_ones():
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        starts, ends = (torch.randn(45, generator=generator) for _ in range(2))
        every = {
            (float(starts[first] + ends[last]), first, last)
            for first in range(45)
            for last in range(first, min(45, first + LONGEST))
        }
        assert _best_span(starts, ends) == max(every)
    assert _best_span(torch.zeros(0), torch.zeros(0))[0] == float("-inf")


@torch.no_grad()
def test_answers_come_over_all_windows_with_the_characters_of_the_context(ready, alone, tower):
    opened = ready("question_answering", tower, *SMALL, "max_length=24")
    questions = opened.parts[Split.TRAIN].questions[:6]
    windows = opened._windows(questions)
    assert len(windows) > 2 * len(questions)
    for number, found in enumerate(opened._answer(questions, windows)):
        best, nothing = (float("-inf"), ""), float("inf")
        for window in (one for one in windows if one.question == number):
            logits = logits_of(opened, alone, window)
            nothing = min(nothing, float(logits[0].sum()))
            places = slice(window.second, window.second + len(window.spans))
            score, first, last = _best_span(logits[places, 0], logits[places, 1])
            text = questions[number].context[window.spans[first][0] : window.spans[last][1]]
            best = max(best, (score, text))
        assert found.text == best[1].strip()
        assert found.text in questions[number].context
        assert found.margin == pytest.approx(best[0] - nothing, abs=1e-3)
        alone_again = opened.predict(questions[number].question, AnswerOptions(context=questions[number].context))
        assert alone_again.output == (found.text if found.margin > 0 else "")


@pytest.mark.parametrize("text", ["T\u00f6wer (of  Paris)", "Gustave's men", "1889", "330 m"])
def test_no_character_of_an_answer_is_changed(ready, tower, monkeypatch, text):
    opened = ready("question_answering", tower, *SMALL)
    start = CONTEXT.index(text)
    one = question(CONTEXT, text, start)
    (window,) = [window for window in opened._windows([one]) if window.answer != (0, 0)]

    def pointing(features):
        """Logits that are high at the answer, and at the begin mark where it is not in the row."""
        logits = torch.zeros(len(features), 2)
        if len(features) == len(window.ids):
            logits[window.answer[0], 0] = logits[window.answer[1], 1] = 5.0
        return logits

    monkeypatch.setattr(opened.model, "forward", pointing)
    found = opened.predict("How high?", AnswerOptions(context=CONTEXT))
    assert found.output == text


def test_no_answer_is_said_where_the_begin_mark_wins(ready, tower, monkeypatch):
    opened = ready("question_answering", tower, *SMALL)
    for margin, said in ((0.1, "Rome"), (0.0, ""), (-2.0, "")):
        monkeypatch.setattr(opened, "_answer", lambda *_, margin=margin: [SpanCandidate("Rome", margin, 0)])
        found = opened.predict("Where?", AnswerOptions(context=CONTEXT))
        assert found.output == said
        assert found.scores["answerable"] == pytest.approx(1 / (1 + math.exp(-margin)))


def test_the_scores_of_fixed_answers(ready, tower, monkeypatch):
    opened = ready("question_answering", tower, *SMALL, "data.fraction=0.4")
    questions = opened.parts[Split.VALID].questions
    said = [
        SpanCandidate("the 330", 1.0 - at, 0) if at < 2 else SpanCandidate("Paris", -float(at), 0)
        for at in range(len(questions))
    ]
    assert not questions[0].impossible and questions[1].impossible and len(questions) >= 6
    monkeypatch.setattr(opened, "_answer", lambda *_: said)
    scores = opened.evaluate(Split.VALID)
    none = sum(one.impossible for one in questions)
    half = word_f1("330", "330 m")  # the only answer that is given; to the others silence
    assert scores["exact"] == pytest.approx(100 * none / len(questions))
    assert scores["f1"] == pytest.approx(100 * (none + half) / len(questions))
    assert scores["best_f1"] == pytest.approx(scores["f1"])  # no other threshold is better
    assert scores["questions"] == len(questions)


def test_maps_are_of_the_window_with_the_answer(ready, tower):
    opened = ready("question_answering", tower, *SMALL, "max_length=24")
    found = opened.predict("How high?", AnswerOptions(context=CONTEXT, maps=True))
    windows = opened._windows([question(CONTEXT)])
    (best,) = opened._answer([question(CONTEXT)], windows)
    row = windows[best.window].ids
    assert len(found.maps) == 2
    for one in found.maps:
        assert one.weights.shape == (2, len(row), len(row))
        assert list(one.queries.labels) == list(one.keys.labels) == opened.tokenizer.pieces(row)


def test_a_context_without_a_token_has_no_answer(ready, tower):
    found = ready("question_answering", tower, *SMALL).predict(
        "How high?", AnswerOptions(context=" \u200b ", maps=True)
    )
    assert (found.output, found.scores, found.maps) == ("", {"answerable": 0.0}, ())


def test_what_breaks_a_rule_is_refused(ready, tower):
    says = r"^a question needs a text to look in, but none was given; add context=TEXT$"
    with pytest.raises(UsageError, match=says):
        ready("question_answering", tower, *SMALL).predict("How high?", AnswerOptions())
    for words, rule in (
        (["stride=128"], r"^stride must be at least 0 and below half of max_length, but is 128$"),
        (["stride=-1"], r"^stride must be at least 0 and below half of max_length, but is -1$"),
        (["data.fraction=0"], r"^data\.fraction must be above 0 and below 1, but is 0\.0$"),
    ):
        with pytest.raises(UsageError, match=rule):
            override(AnswerConfig(), words)


def test_every_answer_of_squad_stands_in_a_window():
    root = Path(__file__).parents[2]
    path = Path(os.environ.get("SACCADE_DATA", root.parent / "shared" / "data")) / "qa" / "squad2" / "dev-v2.0.json"
    if not path.exists():
        pytest.skip("no SQuAD here: set SACCADE_DATA to a folder that has qa/squad2")
    questions = [one for one in read_squad(path).questions if not one.impossible][::10]
    tokenizer = train_tokenizer("wordpiece", {one.context for one in questions}, 4000)
    windows = cut_windows(questions, tokenizer, InputTemplate.of(tokenizer, 384), 128)
    found = set()
    for window in windows:
        if window.answer != (0, 0):
            first, last = (place - window.second for place in window.answer)
            one = questions[window.question]
            text = one.context[window.spans[first][0] : window.spans[last][1]]
            assert one.answers[0].text in text  # a token may be wider than the answer
            found.add(window.question)
    assert found == set(range(len(questions)))
