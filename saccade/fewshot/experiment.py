"""The experiment: answers to every test row with 0, 1, 2, 4, ... examples, in several orders, and their scores."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from saccade.core.callback import Progress, ignore_progress
from saccade.core.generation import TextEngine, TextRequest, raise_errors
from saccade.errors import UsageError
from saccade.fewshot.prompts import Pair, PromptTemplate
from saccade.metrics.generation import chrf, exact

SPARE_TOKENS = 8  # of an answer beyond the longest output
MAX_LABELS, LABEL_WORDS = 10, 3  # outputs that are few and short are labels
PER_LABEL = 2  # rows for each label, on average


@dataclass(frozen=True)
class Trial:
    """What is tried."""

    examples: Sequence[Pair]
    test: Sequence[Pair]
    template: PromptTemplate = field(default_factory=PromptTemplate)
    counts: tuple[int, ...] = ()
    """numbers of examples; empty: 0, 1, 2, 4, ... and all"""
    orders: int = 1
    """orders of the examples, of which the first is that of the file"""
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.test:
            raise UsageError("there must be at least one test row, but there is none")
        if self.orders < 1:
            raise UsageError(f"orders must be at least 1, but is {self.orders}")
        wrong = next((count for count in self.counts if not 0 <= count <= len(self.examples)), None)
        if wrong is not None:
            raise UsageError(
                f"counts must be from 0 to {len(self.examples)}, the number of examples, but one is {wrong}"
            )

    @property
    def numbers(self) -> list[int]:
        """The numbers of examples that are tried."""
        total = len(self.examples)
        powers = [1 << power for power in range(total.bit_length()) if 1 << power <= total]
        return sorted(set(self.counts)) if self.counts else sorted({0, *powers, total})

    def chosen(self, count: int, order: int) -> list[Pair]:
        """Return the first examples of an order."""
        examples = list(self.examples)
        if order:
            random.Random(f"{self.seed} {order}").shuffle(examples)
        return examples[:count]

    @property
    def labels(self) -> list[str]:
        """The outputs, if they are labels: few, short, and each of several rows."""
        outputs = [output for _, output in (*self.examples, *self.test)]
        distinct = sorted(set(outputs))
        short = all(len(output.split()) <= LABEL_WORDS and "\n" not in output for output in distinct)
        return distinct if short and len(distinct) <= min(MAX_LABELS, len(outputs) // PER_LABEL) else []


@dataclass(frozen=True)
class Answers:
    """The answers to all test rows with one number of examples in one order."""

    count: int
    order: int
    texts: tuple[str, ...]
    scores: dict[str, float]


@dataclass(frozen=True)
class Result:
    """All answers, and what was left out."""

    trial: Trial
    answers: tuple[Answers, ...]
    notes: tuple[str, ...]
    baseline: dict[str, float]
    """scores of answers that need no model"""
    baseline_name: str

    def rows(self) -> list[dict[str, Any]]:
        """Return for each number of examples the mean of every score over the orders, and its range."""
        rows: list[dict[str, Any]] = []
        for count in dict.fromkeys(answers.count for answers in self.answers):
            group = [answers for answers in self.answers if answers.count == count]
            row: dict[str, Any] = {"examples": count, "orders": len(group)}
            for name in group[0].scores:
                values = [answers.scores[name] for answers in group]
                row |= {name: fmean(values), f"{name}_range": [min(values), max(values)]}
            rows.append(row)
        return rows

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield every answer with its row."""
        for answers in self.answers:
            for (source, expected), text in zip(self.trial.test, answers.texts, strict=True):
                yield {
                    "examples": answers.count,
                    "order": answers.order,
                    "input": source,
                    "expected": expected,
                    "answer": text,
                    "correct": _is_correct(text, expected, self.trial.labels),
                }


def run(trial: Trial, engine: TextEngine, *, progress: Progress = ignore_progress) -> Result:
    """Answer every test row with every number of examples, greedily."""
    limit = _longest_output(trial, engine) + SPARE_TOKENS
    plans, notes = _plans(trial, engine, limit)
    answers: list[Answers] = []
    for number, (count, order, prompts) in enumerate(plans):
        texts = _answer(engine, prompts, trial.template.stops([output for _, output in trial.examples]), limit)
        answers.append(Answers(count, order, tuple(texts), _scores(trial, texts)))
        progress((number + 1) / len(plans))
    baseline = [source for source, _ in trial.test]
    name = "copying the input"
    if trial.labels:
        common = Counter(output for _, output in (trial.examples or trial.test)).most_common(1)[0][0]
        baseline, name = [common] * len(trial.test), f"always answering '{common}'"
    return Result(trial, tuple(answers), tuple(notes), _scores(trial, baseline), name)


def _plans(trial: Trial, engine: TextEngine, limit: int) -> tuple[list[tuple[int, int, list[list[int]]]], list[str]]:
    """Return number, order and prompts of what is tried, and a note on the numbers of examples that do not fit."""
    plans: list[tuple[int, int, list[list[int]]]] = []
    for count in trial.numbers:
        orders = range(trial.orders if count else 1)  # no examples have no order
        group = []
        for order in orders:
            chosen = trial.chosen(count, order)
            prompts = [engine.encode(trial.template.prompt(chosen, source)) for source, _ in trial.test]
            group.append((count, order, prompts))
        longest = max(len(ids) for _, _, prompts in group for ids in prompts)
        if longest + limit > engine.context:
            what = (
                f"{count} example{'' if count == 1 else 's'} with the longest test row have {longest:,} tokens, which "
                f"with {limit} for the answer is more than the context of {engine.context:,}"
            )
            if not plans:
                raise UsageError(f"{what}; shorten the rows, or choose a model with a longer context")
            left_out = [other for other in trial.numbers if other >= count]
            return plans, [f"{what}: not tried with {', '.join(map(str, left_out))} examples"]
        plans += group
    return plans, []


def _answer(engine: TextEngine, prompts: Sequence[list[int]], stops: Sequence[str], limit: int) -> list[str]:
    """Return the greedy continuations of some prompts, generated together."""
    texts: dict[int, str] = {}
    for ids in prompts:
        request = TextRequest(ids, max_new_tokens=limit, temperature=0, stop=stops, slide=False)
        engine.check(request)
        texts[engine.add(request)] = ""
    while len(engine):
        for event in raise_errors(engine.step()):
            texts[event.number] += event.text
    return [text.strip() for text in texts.values()]


def _longest_output(trial: Trial, engine: TextEngine) -> int:
    """Return the tokens of the longest output, that of a test row included: it only limits the answers."""
    return max(len(engine.encode(f" {output}")) for _, output in (*trial.examples, *trial.test))


def _scores(trial: Trial, texts: Sequence[str]) -> dict[str, float]:
    expected = [output for _, output in trial.test]
    if trial.labels:
        right = [_is_correct(text, output, trial.labels) for text, output in zip(texts, expected, strict=True)]
        return {"accuracy": 100 * fmean(right), "exact": exact(texts, expected).value}
    return {"exact": exact(texts, expected).value, "chrf": chrf(texts, expected).value}


def _is_correct(text: str, expected: str, labels: Sequence[str]) -> bool:
    """Whether an answer is the output; of a label the case and a full stop do not count."""
    if not labels:
        return text.strip() == expected.strip()
    return text.strip().rstrip(".").casefold() == expected.strip().rstrip(".").casefold()
