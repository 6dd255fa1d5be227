"""Times: when each letter and word was said, from cross-attention over sound; as TextGrid, SRT and JSON.

Shapes: Q queries (letters or tokens), K positions of the sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor

from saccade.core import AttentionMap, TimeAxis, TokenAxis
from saccade.errors import UsageError
from saccade.metrics.alignment import head_weights

TINY = 1e-6  # weight that counts as none


@dataclass(frozen=True)
class Interval:
    """A part of a sound and what is said in it."""

    start: float
    end: float
    """seconds"""
    text: str


def is_over_time(attention: AttentionMap) -> bool:
    """Whether a map shows when each token of a text was said."""
    return isinstance(attention.keys, TimeAxis) and isinstance(attention.queries, TokenAxis)


def letter_times(attention: AttentionMap) -> list[Interval]:
    """Return when each token of a map with one head was said, in order and without gaps between two of them.

    Each token has a centre on the best monotone path, and lasts to half of the way to its neighbours.
    """
    axis = attention.keys
    assert isinstance(axis, TimeAxis)
    labels = attention.queries.labels
    if not labels:
        return []
    centres = [(position + 0.5) * axis.seconds_per_frame for position in monotone_path(head_weights(attention))]
    ends = [(before + after) / 2 for before, after in pairwise(centres)]
    half = axis.seconds_per_frame / 2
    reach = max(half, min((ends[0] - centres[0]) if ends else half, 4 * half))
    tail = max(half, min((centres[-1] - ends[-1]) if ends else half, 4 * half))
    borders = [max(0.0, centres[0] - reach), *ends, min(len(axis) * axis.seconds_per_frame, centres[-1] + tail)]
    return [Interval(start, end, text) for start, end, text in zip(borders, borders[1:], labels, strict=False)]


def word_times(letters: Sequence[Interval], words: Sequence[int] = ()) -> list[Interval]:
    """Return when each word was said; `words`: the word of each token.

    Without them, spaces separate the words of single characters, and longer texts are words already.
    """
    if not words and any(len(letter.text) > 1 for letter in letters):
        return [letter for letter in letters if letter.text.strip()]
    groups: list[list[Interval]] = []
    before: int | None = None
    for number, letter in enumerate(letters):
        word = words[number] if words else None
        if not letter.text.strip():
            before = None
            groups.append([])
            continue
        if not groups or (words and word != before):
            groups.append([])
        groups[-1].append(letter)
        before = word
    joined = (
        (group[0].start, group[-1].end, "".join(part.text for part in group).strip()) for group in groups if group
    )
    return [Interval(start, end, text) for start, end, text in joined if text]


def monotone_path(weights: Tensor) -> list[int]:
    """Return the position of each query that never goes back and has the largest product of weights (Q, K).

    Dynamic programming: best[q, k] = log w[q, k] + max over k' <= k of best[q - 1, k'].
    """
    scores = weights.detach().cpu().double().clamp_min(TINY).log()
    best = scores[0]
    choices = []
    for row in scores[1:]:
        reached, choice = best.cummax(0)
        choices.append(choice)
        best = row + reached
    path = [int(best.argmax())]
    for choice in reversed(choices):
        path.append(int(choice[path[-1]]))
    return path[::-1]


def times_of(attention: AttentionMap) -> tuple[list[Interval], list[Interval]]:
    """Return when each letter or token and each word was said."""
    if not is_over_time(attention):
        what = f"the keys of '{attention.name}' are {attention.keys.kind}, its queries {attention.queries.kind}"
        raise UsageError(f"times need attention from a text to a sound, but {what}; choose a layer of cross-attention")
    letters = letter_times(attention)
    words = attention.queries.words if isinstance(attention.queries, TokenAxis) else ()
    return letters, word_times(letters, words)


def times_to_json(attention: AttentionMap) -> dict[str, Any]:
    """Return the times of letters and words as JSON."""
    letters, words = times_of(attention)
    return {"letters": [_to_json(letter) for letter in letters], "words": [_to_json(word) for word in words]}


def _to_json(interval: Interval) -> dict[str, Any]:
    return {"start": round(interval.start, 3), "end": round(interval.end, 3), "text": interval.text}


def text_grid(attention: AttentionMap) -> str:
    """Return the times as a TextGrid of Praat with a tier of words and a tier of letters."""
    letters, words = times_of(attention)
    axis = attention.keys
    assert isinstance(axis, TimeAxis)
    total = len(axis) * axis.seconds_per_frame
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", f"xmin = 0\nxmax = {total:.3f}"]
    lines += ["tiers? <exists>", "size = 2", "item []:"]
    for number, (name, intervals) in enumerate((("words", words), ("letters", letters)), start=1):
        filled = _filled(intervals, total)
        lines += [f"    item [{number}]:", '        class = "IntervalTier"', f'        name = "{name}"']
        lines += ["        xmin = 0", f"        xmax = {total:.3f}", f"        intervals: size = {len(filled)}"]
        for at, interval in enumerate(filled, start=1):
            text = interval.text.replace('"', '""')
            lines += [f"        intervals [{at}]:", f"            xmin = {interval.start:.3f}"]
            lines += [f"            xmax = {interval.end:.3f}", f'            text = "{text}"']
    return "\n".join([*lines, ""])


def _filled(intervals: Sequence[Interval], total: float) -> list[Interval]:
    """Return intervals with empty ones between them, as a tier must cover all of the sound."""
    filled, at = [], 0.0
    for interval in intervals:
        if interval.start > at + 1e-4:
            filled.append(Interval(at, interval.start, ""))
        filled.append(Interval(max(at, interval.start), interval.end, interval.text))
        at = interval.end
    return filled if at >= total - 1e-4 else [*filled, Interval(at, total, "")]


def srt(attention: AttentionMap) -> str:
    """Return the times as subtitles, a word each."""
    _, words = times_of(attention)
    cues = [
        f"{number}\n{_clock(word.start)} --> {_clock(word.end)}\n{word.text}\n"
        for number, word in enumerate(words, start=1)
    ]
    return "\n".join(cues)


def _clock(seconds: float) -> str:
    """Return a time as 00:01:02,345."""
    total = round(seconds * 1000)
    hours, rest = divmod(total, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02},{rest % 1000:03}"
