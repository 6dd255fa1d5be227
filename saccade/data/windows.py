"""Windows: a question with its context in rows that overlap, so that a long context is read to its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.data.formats.squad import Question
from saccade.data.text.templates import InputTemplate
from saccade.data.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Window:
    """A row: the question, then a stretch of the context."""

    question: int
    """which of the questions"""
    ids: list[int]
    second: int
    """where the context begins in the row"""
    spans: list[tuple[int, int]]
    """the characters of the context that each token of the stretch stands for"""
    answer: tuple[int, int]
    """first and last place of the first answer in the row; (0, 0), the begin mark, where it is not there"""


def cut_windows(questions: Sequence[Question], tokenizer: Tokenizer, frame: InputTemplate, stride: int) -> list[Window]:
    """All rows of all questions, in their order; neighbours share `stride` tokens of the context, at most half."""
    contexts = list(dict.fromkeys(one.context for one in questions))
    known = dict(zip(contexts, tokenizer.spans(contexts), strict=True))
    asked = tokenizer.encode_batch([one.question for one in questions])
    found: list[Window] = []
    for number, one in enumerate(questions):
        ids, spans = known[one.context]
        question = asked[number][: frame.max_length // 3]  # room for the context
        room = frame.max_length - 2 - len(frame.middle) - len(question)
        shared = min(stride, room // 2)  # a base that reads short rows leaves less room than the settings say
        for first in range(0, max(1, len(ids) - shared), room - shared):
            row, second = frame.row(question, ids[first : first + room])
            kept = spans[first : first + room]
            found.append(Window(number, row, second, kept, _place(one, kept, second)))
    return found


def _place(question: Question, spans: Sequence[tuple[int, int]], second: int) -> tuple[int, int]:
    """Where the first answer stands in a row."""
    if not question.answers:
        return 0, 0
    start = question.answers[0].start
    end = start + len(question.answers[0].text)
    inside = [place for place, (one, other) in enumerate(spans) if one < end and other > start]
    if not inside or spans[inside[0]][0] > start or spans[inside[-1]][1] < end:
        return 0, 0
    return second + inside[0], second + inside[-1]
