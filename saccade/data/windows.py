"""Windows of question answering: a question with its context in overlapping rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.data.formats.squad import Question, Questions
from saccade.data.text.templates import InputTemplate
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.tokenization import tokenize, tokenize_with_offsets


@dataclass(frozen=True)
class Window:
    """A row: the question, then a part of the context."""

    question: int
    """number of the question"""
    ids: list[int]
    second: int
    """where the context starts in the row"""
    spans: list[tuple[int, int]]
    """the characters of the context that each of its tokens covers"""
    question_tokens: int
    """number of tokens of the question, of which a long one is truncated"""
    answer: tuple[int, int]
    """first and last position of the first answer in the row; (0, 0), the [CLS] token, where it is not in the row"""


def cut_windows(questions: Questions, tokenizer: Tokenizer, template: InputTemplate, stride: int) -> list[Window]:
    """Return all rows of all questions, in order; neighbours share `stride` tokens of the context, at most half."""
    contexts, all_spans = tokenize_with_offsets(questions.contexts, tokenizer)
    heads = tokenize(questions.texts, tokenizer)
    windows: list[Window] = []
    for number, question in enumerate(questions):
        row = int(questions.numbers[number, 0])
        ids = contexts[row].tolist()
        spans = [(first, last) for first, last in all_spans[contexts.starts[row] : contexts.ends[row]].tolist()]
        head = heads[number][: question_room(template)].tolist()
        room = template.max_length - 2 - len(template.separators) - len(head)
        overlap = min(
            stride, room // 2
        )  # an encoder with few positions may not have room for the stride of the settings
        for first in range(0, max(1, len(ids) - overlap), room - overlap):
            row_ids, second = template.build(head, ids[first : first + room])
            covered = spans[first : first + room]
            answer = _answer_positions(question, covered, second)
            windows.append(Window(number, row_ids, second, covered, len(heads[number]), answer))
    return windows


def question_room(template: InputTemplate) -> int:
    """Return the number of tokens of a question that are kept, which leaves room for the context."""
    return template.max_length // 3


def _answer_positions(question: Question, spans: Sequence[tuple[int, int]], second: int) -> tuple[int, int]:
    """Return the first and last position of the first answer in a row."""
    if not question.answers:
        return 0, 0
    start = question.answers[0].start
    end = start + len(question.answers[0].text)
    inside = [position for position, (first, last) in enumerate(spans) if first < end and last > start]
    if not inside or spans[inside[0]][0] > start or spans[inside[-1]][1] < end:
        return 0, 0
    return second + inside[0], second + inside[-1]
