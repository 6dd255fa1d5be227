"""The tokenizer belongs to the model: sizes and special tokens; a run whose files have changed cannot be loaded."""

from __future__ import annotations

from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.checks.token_models import Vocabulary

ORDER = 90
SUMMARY = "the tokenizer belongs to the model: its size and its special tokens"


def run(subject: Subject) -> Outcome:
    if not subject.vocabularies:
        given = "give it: check(model, tokenizer=...)" if subject.foreign is not None else "the model reads no text"
        return skipped(f"no tokenizer; {given}")
    for vocabulary in subject.vocabularies:
        failure = _fits(vocabulary)
        if failure is not None:
            return failure
    sizes = ", ".join(f"{one.tokens:,} tokens in {one.rows:,} rows" for one in subject.vocabularies)
    return passed(sizes)


def _fits(vocabulary: Vocabulary) -> Outcome | None:
    name = vocabulary.name
    for what, rows in (("embedding", vocabulary.rows), ("output layer", vocabulary.outputs)):
        if rows is not None and vocabulary.tokens > rows:
            message = f"the {name} has {vocabulary.tokens:,} tokens, but the {what} has {rows:,} rows"
            return Outcome("failed", message, f"token {rows} has no row", f"the {name} and the {what}")
    for special in vocabulary.specials:
        if not 0 <= special.used < vocabulary.rows:
            message = f"the {special.role} token is {special.used}, but the embedding has {vocabulary.rows:,} rows"
            return Outcome("failed", message, "", f"the {special.role} token in the config")
        if special.named is not None and special.named != special.used:
            message = f"the model uses {special.used} as its {special.role} token, but in the {name} it is "
            return Outcome("failed", f"{message}{special.named}", "", f"the {special.role} token in the config")
    return None
