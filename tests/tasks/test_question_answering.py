"""Question answering: windows cover every token, spans have exact characters, no answer, scores by hand."""

import json
import math
from itertools import pairwise

import pytest
import torch

from saccade.config import override
from saccade.core import SpanOutput, Split, bind
from saccade.data.formats.squad import Answer, Question, Questions, read_squad
from saccade.data.text.templates import InputTemplate
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.data.windows import cut_windows
from saccade.errors import UsageError
from saccade.metrics.qa import word_f1
from saccade.tasks.question_answering import MAX_ANSWER_TOKENS, QuestionAnsweringConfig, SpanCandidate, best_span

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


SMALL = ["max_length=64", "stride=8", "batch_tokens=400"]


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
    template = InputTemplate(2, 3, (3,) * marks, 4, max_length)
    ids, spans = tokenizer.encode_with_offsets([context])[0]
    for asked in ("?", "how high is it", "x" * 80):
        windows = cut_windows(Questions.of([question(context, asked=asked)]), tokenizer, template, stride)
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
            starts = [
                window.spans[window.answer[0] - window.second][0]
                for window in cut_windows(Questions.of([one]), tokenizer, template, stride)
                if window.answer != (0, 0)
            ]
            assert starts and set(starts) == {start}


def test_an_answer_truncated_by_a_window_is_not_in_it(tokenizer):
    template = InputTemplate(2, 3, (3,), 4, 16)
    context = " ".join(f"{number}" for number in range(100, 130))
    start, end = context.index("105"), context.index("125")
    windows = cut_windows(Questions.of([question(context, context[start:end], start)]), tokenizer, template, 4)
    assert {window.answer for window in windows} == {(0, 0)}


def test_the_positions_of_an_answer_are_its_tokens(ready, tower):
    task = ready("question_answering", tower, *SMALL)
    questions = task.splits[Split.TRAIN].questions
    found = 0
    for window in task.windows(questions):
        one = questions[window.question]
        first, last = window.answer
        if (first, last) != (0, 0):
            start, end = window.spans[first - window.second][0], window.spans[last - window.second][1]
            assert one.context[start:end] == one.answers[0].text == "330 m"
            found += 1
    assert found >= sum(not one.impossible for one in questions)


def logits_of(task, alone, window):
    return alone(task, (window.ids, window.second)) @ task.model.head.weight.t() + task.model.head.bias  # (T, 2)


@torch.no_grad()
def test_the_loss_is_over_the_context_and_the_cls_token_of_each_row_alone(ready, alone, loss_of, tower):
    task = ready("question_answering", tower, *SMALL)
    (batch,) = task.source(Split.TRAIN, 1).at(0)
    questions = task.splits[Split.TRAIN].questions
    by_row = {(questions[one.question].id, tuple(one.ids)): one for one in task.windows(questions)}
    total, rows = 0.0, range(batch.count)
    for row, name in enumerate(batch.rows):
        length = batch.inputs.ids.shape[1] if batch.inputs.keep is None else int(batch.inputs.keep[row].sum())
        window = by_row[name.removeprefix("question "), tuple(batch.inputs.ids[row, :length].tolist())]
        logits = logits_of(task, alone, window)
        allowed = [0, *range(window.second, window.second + len(window.spans))]
        for side, position in enumerate(window.answer):
            values = {at: float(logits[at, side]) for at in allowed}
            total += math.log(sum(map(math.exp, values.values()))) - values[position]
    assert loss_of(task, batch) == pytest.approx(total / (2 * len(rows)), rel=1e-4)


@torch.no_grad()
def test_micro_batches_add_up_to_the_batch(ready, tower, whole_and_parts):
    make = lambda *more: ready("question_answering", tower, *SMALL, *more)  # noqa: E731
    whole, one, parts, three = whole_and_parts(make)
    assert (one, three) == (1, 3)
    assert parts == pytest.approx(whole, rel=1e-5)


def test_best_span_equals_brute_force():
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        starts, ends = (torch.randn(45, generator=generator) for _ in range(2))
        every = {
            (float(starts[first] + ends[last]), first, last)
            for first in range(45)
            for last in range(first, min(45, first + MAX_ANSWER_TOKENS))
        }
        assert best_span(starts, ends) == max(every)
    assert best_span(torch.zeros(0), torch.zeros(0))[0] == float("-inf")


@torch.no_grad()
def test_answers_over_all_windows_are_spans_of_the_context(ready, alone, batched_as_alone, tower):
    task = ready("question_answering", tower, *SMALL, "max_length=24")
    questions = task.splits[Split.TRAIN].questions[:6]
    windows = task.windows(questions)
    assert len(windows) > 2 * len(questions)
    examples = [{"question": one.question, "context": one.context} for one in questions]
    answers = batched_as_alone(task, examples)
    for number, found in enumerate(task.best_spans(questions, windows)):
        best, nothing = (float("-inf"), ""), float("inf")
        for window in (one for one in windows if one.question == number):
            logits = logits_of(task, alone, window)
            nothing = min(nothing, float(logits[0].sum()))
            inside = slice(window.second, window.second + len(window.spans))
            score, first, last = best_span(logits[inside, 0], logits[inside, 1])
            text = questions[number].context[window.spans[first][0] : window.spans[last][1]]
            best = max(best, (score, text))
        text = questions[number].context[found.start : found.end]
        assert text == best[1].strip()
        assert found.margin == pytest.approx(best[0] - nothing, abs=1e-3)
        answer = answers[number].output
        assert isinstance(answer, SpanOutput) and answer.context == questions[number].context
        assert (answer.value, answer.start, answer.end) == (
            (text, found.start, found.end) if found.margin > 0 else ("", 0, 0)
        )


@pytest.mark.parametrize("text", ["T\u00f6wer (of  Paris)", "Gustave's men", "1889", "330 m"])
def test_no_character_of_an_answer_is_changed(ready, predict, tower, monkeypatch, text):
    task = ready("question_answering", tower, *SMALL)
    start = CONTEXT.index(text)
    one = question(CONTEXT, text, start)
    (window,) = [window for window in task.windows(Questions.of([one])) if window.answer != (0, 0)]

    def pointing(inputs):
        """Logits that are high at the answer, and at [CLS] where it is not in the row."""
        logits = torch.zeros(*inputs.ids.shape, 2)
        for row, ids in enumerate(inputs.ids.tolist()):
            if ids[: len(window.ids)] == window.ids:
                logits[row, window.answer[0], 0] = logits[row, window.answer[1], 1] = 5.0
        return logits

    monkeypatch.setattr(task.model, "forward", pointing)
    found = predict(task, {"question": "How high?", "context": CONTEXT})
    assert found.text == CONTEXT[found.output.start : found.output.end] == text


def test_no_answer_if_the_cls_token_scores_highest(ready, predict, tower, monkeypatch):
    task = ready("question_answering", tower, *SMALL)
    for margin, predicted in ((0.1, "1889"), (0.0, ""), (-2.0, "")):
        monkeypatch.setattr(task, "best_spans", lambda *_, margin=margin: [SpanCandidate(3, 7, margin, 0)])
        found = predict(task, {"question": "Where?", "context": CONTEXT})
        assert found.text == predicted
        assert found.scores["answerable"] == pytest.approx(1 / (1 + math.exp(-margin)))
        assert found.output.probability == found.scores["answerable"]


def test_the_scores_of_fixed_answers(ready, tower, monkeypatch):
    task = ready("question_answering", tower, *SMALL, "data.valid_fraction=0.4")
    questions = task.splits[Split.VALID].questions
    high, city = (questions[0].context.index(text) for text in ("330", "Paris"))
    predicted = [
        SpanCandidate(high, high + 3, 1.0 - at, 0) if at < 2 else SpanCandidate(city, city + 5, -float(at), 0)
        for at in range(len(questions))
    ]
    assert not questions[0].impossible and questions[1].impossible and len(questions) >= 6
    monkeypatch.setattr(task, "best_spans", lambda *_: predicted)
    scores = task.evaluate(Split.VALID)
    none = sum(one.impossible for one in questions)
    half = word_f1("330", "330 m")  # the only answer that is given; the others get none
    assert scores["exact"] == pytest.approx(100 * none / len(questions))
    assert scores["f1"] == pytest.approx(100 * (none + half) / len(questions))
    assert scores["best_f1"] == pytest.approx(scores["f1"])  # no other threshold is better
    assert scores["questions"] == len(questions)


def test_maps_are_of_the_window_with_the_answer(ready, predict, tower):
    task = ready("question_answering", tower, *SMALL, "max_length=24")
    found = predict(task, {"question": "How high?", "context": CONTEXT}, attention=True)
    windows = task.windows(Questions.of([question(CONTEXT)]))
    (best,) = task.best_spans(Questions.of([question(CONTEXT)]), windows)
    row = windows[best.window].ids
    assert len(found.attention) == 2
    for one in found.attention.values():
        assert one.weights.shape == (2, len(row), len(row))
        assert list(one.queries.labels) == list(one.keys.labels) == task.tokenizer.pieces(row)


@pytest.mark.parametrize("name", ["question", "context"])
def test_a_question_or_a_context_without_a_token_is_refused(ready, predict, tower, name):
    task = ready("question_answering", tower, *SMALL)
    rule = rf"^{name} must have at least one token, but ' \\u200b ' has none; write words in it$"
    with pytest.raises(UsageError, match=rule):
        predict(task, {"question": "How high?", "context": CONTEXT, name: " \u200b "}, attention=True)


def test_invalid_inputs_are_refused(ready, tower):
    task = ready("question_answering", tower, *SMALL)
    with pytest.raises(UsageError, match=r"^context must be given, but is not; this model takes question, context$"):
        bind(task.inputs, ["How high?"])
    for overrides, rule in (
        (["stride=128"], r"^stride must be at least 0 and below half of max_length, but is 128$"),
        (["stride=-1"], r"^stride must be at least 0 and below half of max_length, but is -1$"),
        (["data.valid_fraction=0"], r"^data\.valid_fraction must be above 0 and below 1, but is 0\.0$"),
    ):
        with pytest.raises(UsageError, match=rule):
            override(QuestionAnsweringConfig(), overrides)


def test_every_answer_of_squad_is_in_a_window(dataset):
    squad = read_squad(dataset("qa/squad2/dev-v2.0.json"))
    questions = Questions.of([question for question in squad.questions if not question.impossible][::10])
    tokenizer = train_tokenizer("wordpiece", {one.context for one in questions}, 4000)
    windows = cut_windows(questions, tokenizer, InputTemplate.of(tokenizer, 384), 128)
    found = set()
    for window in windows:
        if window.answer != (0, 0):
            first, last = (position - window.second for position in window.answer)
            one = questions[window.question]
            text = one.context[window.spans[first][0] : window.spans[last][1]]
            assert one.answers[0].text in text  # a token may be wider than the answer
            found.add(window.question)
    assert found == set(range(len(questions)))
