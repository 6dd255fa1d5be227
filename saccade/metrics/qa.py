"""Metrics of question answering: exact match and F1 as the evaluation script of SQuAD 2.0 computes them.

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
class SubsetScores:
    """Exact match and F1, 0 to 100, over some of the questions."""

    exact: float
    f1: float
    count: int


@dataclass(frozen=True)
class Threshold:
    """The best score any threshold of the no-answer probability reaches, and that threshold."""

    value: float
    threshold: float


@dataclass(frozen=True)
class AnswerScores:
    """Exact match and F1 over all questions, over the answerable ones, and over the unanswerable ones."""

    exact: Score
    f1: Score
    count: int
    answered: SubsetScores | None
    unanswered: SubsetScores | None
    best_exact: Threshold | None
    best_f1: Threshold | None


def normalize(text: str) -> str:
    """Normalize an answer: lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(ARTICLE.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def exact_match(prediction: str, reference: str) -> float:
    """Return 1 if two answers are equal when normalized, else 0."""
    return float(normalize(prediction) == normalize(reference))


def word_f1(prediction: str, reference: str) -> float:
    """F1 of the words that two answers share, 0 to 1; 1 of two empty answers, 0 if only one is empty."""
    predicted, expected = normalize(prediction).split(), normalize(reference).split()
    if not predicted or not expected:
        return float(predicted == expected)
    shared = (Counter(predicted) & Counter(expected)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)


def score_answers(
    predictions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    *,
    no_answer: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> AnswerScores:
    """Compare the answer to each question, by its id, with its best reference; no answer is an empty string.

    With `no_answer`, the probability that a question has no answer, an answer counts as empty where it is above the
    threshold, and the best thresholds on these questions are computed.
    """
    _check(predictions, references, no_answer)
    exact, f1 = {}, {}
    for key, answers in references.items():
        nonempty = [answer for answer in answers if normalize(answer)] or [""]
        exact[key] = max(exact_match(predictions[key], answer) for answer in nonempty)
        f1[key] = max(word_f1(predictions[key], answer) for answer in nonempty)
    best: list[Threshold | None] = [None, None]
    if no_answer is not None:
        best = [_best(scores, predictions, references, no_answer) for scores in (exact, f1)]
    for key, probability in (no_answer or {}).items():
        if probability > threshold:
            exact[key] = f1[key] = float(not references[key])
    overall = _average(exact, f1, list(references))
    signature = f"squad:2.0|threshold:{'no' if no_answer is None else threshold}|version:saccade-{__version__}"
    answered = [key for key, answers in references.items() if answers]
    unanswered = [key for key, answers in references.items() if not answers]
    return AnswerScores(
        exact=Score(overall.exact, f"exact|{signature}"),
        f1=Score(overall.f1, f"F1|{signature}"),
        count=overall.count,
        answered=_average(exact, f1, answered) if answered else None,
        unanswered=_average(exact, f1, unanswered) if unanswered else None,
        best_exact=best[0],
        best_f1=best[1],
    )


def _check(
    predictions: Mapping[str, str], references: Mapping[str, Sequence[str]], no_answer: Mapping[str, float] | None
) -> None:
    if not references:
        raise ValueError("references must hold at least one question, but are empty")
    for name, by_id in (("predictions", predictions), ("no_answer", no_answer)):
        if by_id is None:
            continue
        missing = next((key for key in references if key not in by_id), None)
        if missing is not None:
            raise ValueError(f"{name} must hold every question of references, but '{missing}' is missing")
        unknown = next((key for key in by_id if key not in references), None)
        if unknown is not None:
            raise ValueError(f"{name} must hold questions of references only, but '{unknown}' is not one")


def _average(exact: Mapping[str, float], f1: Mapping[str, float], keys: Sequence[str]) -> SubsetScores:
    total_exact, total_f1 = (100 * sum(scores[key] for key in keys) / len(keys) for scores in (exact, f1))
    return SubsetScores(total_exact, total_f1, len(keys))


def _best(
    scores: Mapping[str, float],
    predictions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    no_answer: Mapping[str, float],
) -> Threshold:
    """Return the best threshold: start without answers and admit them in order of no-answer probability."""
    total = best = float(sum(not answers for answers in references.values()))
    threshold = 0.0
    for key in sorted(no_answer, key=lambda key: no_answer[key]):
        if references[key]:
            total += scores[key]
        elif predictions[key]:
            total -= 1  # an answer to an unanswerable question loses its point
        if total > best:
            best, threshold = total, no_answer[key]
    return Threshold(100 * best / len(references), threshold)
