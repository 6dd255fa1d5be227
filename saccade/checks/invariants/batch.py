"""A batch gives each example what it gets alone."""

from __future__ import annotations

import torch

from saccade.checks.differences import describe_module, first_difference
from saccade.checks.examples import NoExamples
from saccade.checks.predictions import differing_prediction
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.checks.token_models import TokenModel

ORDER = 10
SUMMARY = "a batch gives each example what it gets alone"
ROWS = 3


@torch.no_grad()
def run(subject: Subject) -> Outcome:
    for view in subject.tokens:
        failure = _rows(view)
        if failure is not None:
            return failure
    if subject.task is None:
        return passed(f"{ROWS} rows of equal length at once and alone")
    try:
        examples = subject.examples
    except NoExamples as error:
        return skipped(str(error))
    together = subject.predict(examples)
    for number, prediction in enumerate(together):
        difference = differing_prediction(subject, subject.predictions[number], prediction)
        if difference:
            fewest = _fewest(subject, number)
            return Outcome(
                "failed",
                f"in a batch of {len(fewest)} an example gets another prediction than alone: {difference}",
                f"{fewest!r:.300}",
                f"{type(subject.task).__module__.replace('.', '/')}.py, predict: how it stacks and pads examples",
            )
    return passed(f"{len(examples)} examples at once and alone")


def _rows(view: TokenModel) -> Outcome | None:
    """Compare rows of equal length, shortest first."""
    for length in view.lengths():
        rows = [view.sample(length, row) for row in range(ROWS)]
        together = view.logits(view.tensor(rows))
        for number, row in enumerate(rows):
            difference = first_difference(view.logits(view.tensor([row]))[0], together[number])
            if difference is not None:
                return Outcome(
                    "failed",
                    f"row {number} of a batch of {ROWS} rows differs from the row alone at position "
                    f"{difference.index[0]}: {difference}",
                    f"ids {rows}",
                    describe_module("", view.root()),
                )
    return None


def _fewest(subject: Subject, number: int) -> list[object]:
    """Return the smallest batch in which an example gets another prediction: it and one other where that is enough."""
    example, alone = subject.examples[number], subject.predictions[number]
    for other in subject.examples:
        if other is not example:
            pair = subject.predict([example, other])
            if differing_prediction(subject, alone, pair[0]):
                return [dict(example), dict(other)]
    return [dict(one) for one in subject.examples]
