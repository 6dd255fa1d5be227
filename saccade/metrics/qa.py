"""Answers: exact match and F1 of answers found in texts, counted as the script of SQuAD 2.0 does.

P. Rajpurkar et al., Know what you don't know: unanswerable questions for SQuAD, ACL 2018.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from saccade import __version__
from saccade.metrics.generation import Score

ARTICLE = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class AnswerPart:
    """Both figures, 0 to 100, over some of the questions."""

    exact: float
    f1: float
    count: int


@dataclass(frozen=True)
class Threshold:
    """The best figure that any threshold of the no-answer probability can give, and that threshold."""

    value: float
    at: float


@dataclass(frozen=True)
class AnswerScores:
    """Exact match and F1 over all questions, over those that have an answer, and over those that have none."""

    exact: Score
    f1: Score
    count: int
    answered: AnswerPart | None
    unanswered: AnswerPart | None
    best_exact: Threshold | None
    best_f1: Threshold | None


def normalize(text: str) -> str:
    """The words of an answer in lower case, without ASCII punctuation and articles, one space between them."""
    return " ".join(ARTICLE.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def exact_match(found: str, wanted: str) -> float:
    """1 if two answers are the same when normalized, else 0."""
    return float(normalize(found) == normalize(wanted))


def word_f1(found: str, wanted: str) -> float:
    """The F1 of the words that two answers share, 0 to 1; of two empty ones 1, of one empty and one not 0."""
    ours, theirs = normalize(found).split(), normalize(wanted).split()
    if not ours or not theirs:
        return float(ours == theirs)
    shared = (Counter(ours) & Counter(theirs)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(ours), shared / len(theirs)
    return 2 * precision * recall / (precision + recall)


def score_answers(
    found: Mapping[str, str],
    wanted: Mapping[str, Sequence[str]],
    *,
    no_answer: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> AnswerScores:
    """Compare the answer to each question, by its id, with the best of those wanted; no answer is an empty one.

    With `no_answer`, the probability that a question has none, an answer counts as empty where that is above the
    threshold, and the best thresholds are looked for, on these very questions.
    """
    _check(found, wanted, no_answer)
    exact, f1 = {}, {}
    for key, answers in wanted.items():
        known = [answer for answer in answers if normalize(answer)] or [""]
        exact[key] = max(exact_match(found[key], answer) for answer in known)
        f1[key] = max(word_f1(found[key], answer) for answer in known)
    best = (None, None) if no_answer is None else [_best(each, found, wanted, no_answer) for each in (exact, f1)]
    for key, share in (no_answer or {}).items():
        if share > threshold:
            exact[key] = f1[key] = float(not wanted[key])
    whole = _part(exact, f1, list(wanted))
    signature = f"squad:2.0|threshold:{'no' if no_answer is None else threshold}|version:saccade-{__version__}"
    answered = [key for key, answers in wanted.items() if answers]
    unanswered = [key for key, answers in wanted.items() if not answers]
    return AnswerScores(
        exact=Score(whole.exact, f"exact|{signature}"),
        f1=Score(whole.f1, f"F1|{signature}"),
        count=whole.count,
        answered=_part(exact, f1, answered) if answered else None,
        unanswered=_part(exact, f1, unanswered) if unanswered else None,
        best_exact=best[0],
        best_f1=best[1],
    )


def _check(
    found: Mapping[str, str], wanted: Mapping[str, Sequence[str]], no_answer: Mapping[str, float] | None
) -> None:
    if not wanted:
        raise ValueError("wanted must hold at least one question, but is empty")
    for name, given in (("found", found), ("no_answer", no_answer)):
        if given is None:
            continue
        lost = next((key for key in wanted if key not in given), None)
        if lost is not None:
            raise ValueError(f"{name} must hold every question of wanted, but '{lost}' is missing")
        foreign = next((key for key in given if key not in wanted), None)
        if foreign is not None:
            raise ValueError(f"{name} must hold questions of wanted only, but '{foreign}' is not one")


def _part(exact: Mapping[str, float], f1: Mapping[str, float], keys: Sequence[str]) -> AnswerPart:
    total_exact, total_f1 = (100 * sum(each[key] for key in keys) / len(keys) for each in (exact, f1))
    return AnswerPart(total_exact, total_f1, len(keys))


def _best(
    scores: Mapping[str, float],
    found: Mapping[str, str],
    wanted: Mapping[str, Sequence[str]],
    no_answer: Mapping[str, float],
) -> Threshold:
    """Begin with no answer at all, then let the answers in, the surest first, and keep the best total on the way."""
    total = best = float(sum(not answers for answers in wanted.values()))
    at = 0.0
    for key in sorted(no_answer, key=lambda key: no_answer[key]):
        if wanted[key]:
            total += scores[key]
        elif found[key]:
            total -= 1  # an answer where there is none loses the point that silence had
        if total > best:
            best, at = total, no_answer[key]
    return Threshold(100 * best / len(wanted), at)
