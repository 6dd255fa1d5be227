"""Inputs at the limit work; longer ones are refused, truncated or read in pieces, and never crash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from saccade.checks.differences import describe_module
from saccade.checks.examples import NoExamples, fast_options
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.checks.token_models import TokenModel
from saccade.core import Text
from saccade.errors import SaccadeError

ORDER = 110
SUMMARY = "an input at the limit works, a longer one is refused or truncated, and neither crashes"
MOST = 4096  # tokens that are tried: a longer limit is not reached


@torch.no_grad()
def run(subject: Subject) -> Outcome:
    tried = []
    for view in subject.tokens:
        if view.limit is not None and view.limit <= MOST:
            failure = _network(view, view.limit)
            if failure is not None:
                return failure
            tried.append(f"{view.limit} positions")
    if subject.task is not None:
        try:
            failure, limits = _task(subject)
        except NoExamples:
            failure, limits = None, []
        if failure is not None:
            return failure
        tried += limits
    return passed(f"at the limit and above: {', '.join(tried)}") if tried else skipped(_no_limit(subject))


def _no_limit(subject: Subject) -> str:
    longest = max((view.limit or 0 for view in subject.tokens), default=0)
    return f"the limit of {longest:,} positions is too long to try" if longest else "the model has no limit of length"


def _network(view: TokenModel, limit: int) -> Outcome | None:
    row = (view.sample(min(limit, 300)) * (limit // 300 + 1))[:limit]
    try:
        out = view.logits(view.tensor([row]))
    except (IndexError, RuntimeError, ValueError) as error:
        problem = f"raises {type(error).__name__}: {error}"
    else:
        problem = "" if bool(out.isfinite().all()) else "gives numbers that are not finite"
    if not problem:
        return None
    where = describe_module("", view.root())
    return Outcome("failed", f"a row of {limit} tokens, which is the limit, {problem}", f"{limit} ids", where)


def _task(subject: Subject) -> tuple[Outcome | None, list[str]]:
    """Give each text of an example more and more words: at the limit, and beyond it."""
    assert subject.task is not None
    tried: list[str] = []
    example = subject.examples[0]
    for field in subject.task.inputs:
        if not isinstance(field, Text) or not isinstance(example.get(field.name), str):
            continue
        limit = _limit(subject, example, field.name)
        if limit is None or limit > MOST:
            continue
        words = str(example[field.name]).split()
        words = (words * (limit + 1))[: limit + 8]
        most = _most_words(subject, example, field.name, words, limit)
        for count in sorted({most, len(words)} - {0}):
            longer = {**example, field.name: " ".join(words[:count])}
            failure = _crash(subject, longer, f"{field.name} of {count} words", limit, above=count > most)
            if failure is not None:
                return failure, tried
        tried.append(f"{field.name} {limit} tokens")
    return None, tried


def _limit(subject: Subject, example: Mapping[str, Any], name: str) -> int | None:
    assert subject.task is not None
    lengths = subject.task.input_lengths(example, fast_options(subject.task))
    return next((one.limit for one in lengths if name in one.name.split(" and ")), None)


def _most_words(subject: Subject, example: Mapping[str, Any], name: str, words: list[str], limit: int) -> int:
    """Return how many words there are in the longest text within the limit; 0 if one word is too long."""
    assert subject.task is not None
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        lengths = subject.task.input_lengths({**example, name: " ".join(words[:middle])}, fast_options(subject.task))
        tokens = max(one.tokens for one in lengths if name in one.name.split(" and "))
        low, high = (middle, high) if tokens <= limit else (low, middle - 1)
    return low


def _crash(subject: Subject, example: Mapping[str, Any], text: str, limit: int, *, above: bool) -> Outcome | None:
    """Predict a text; above the limit, and only there, it may be refused."""
    what = f"{text}, {'above' if above else 'within'} the limit of {limit} tokens"
    where = f"{type(subject.task).__module__.replace('.', '/')}.py, predict"
    try:
        subject.predict([example])
    except SaccadeError as error:
        return None if above else Outcome("failed", f"{what}, is refused: {error}", what, where)
    except (IndexError, RuntimeError, ValueError, AssertionError) as error:
        return Outcome("failed", f"{what}: {type(error).__name__}: {error}", what, where)
    return None
