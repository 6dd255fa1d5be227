"""Prompts of examples: `Input: ...` and `Output: ...`, as often as there are examples, and an input without output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.data.formats.pair_files import find_pairs
from saccade.data.formats.pairs import read_pairs
from saccade.errors import UsageError

TEMPLATE = "Input: {input}\nOutput: {output}"
SEPARATOR = "\n\n"

Pair = tuple[str, str]
"""input and output"""


@dataclass(frozen=True)
class PromptTemplate:
    """How an example is written; its output is at the end."""

    text: str = TEMPLATE
    instruction: str = ""
    """text before the examples"""

    def __post_init__(self) -> None:
        before, found, after = self.text.partition("{output}")
        if not found or after.strip() or before.count("{input}") != 1:
            raise UsageError(
                "a template must have {input} once and {output} at its end, such as "
                f"'Input: {{input}}\\nOutput: {{output}}', but is {self.text!r:.80}"
            )

    def example(self, pair: Pair) -> str:
        """Return an example."""
        head, tail = self._around_input
        return f"{head}{pair[0]}{tail}{pair[1]}"

    def query(self, source: str) -> str:
        """Return an example up to its output; white space before the output is part of the answer."""
        head, tail = self._around_input
        return f"{head}{source}{tail.rstrip()}"

    @property
    def _around_input(self) -> tuple[str, str]:
        head, _, tail = self.text.partition("{output}")[0].partition("{input}")
        return head, tail

    def prompt(self, examples: Iterable[Pair], source: str) -> str:
        """Return the whole prompt of an input."""
        parts = [self.instruction] if self.instruction else []
        return SEPARATOR.join([*parts, *map(self.example, examples), self.query(source)])

    def stops(self, outputs: Sequence[str]) -> tuple[str, ...]:
        """Return the strings before which an answer ends: its line, or the next example if outputs have several."""
        if not any("\n" in output for output in outputs):
            return ("\n",)
        first = self.text.partition("{input}")[0].strip()
        return (f"{SEPARATOR}{first}",)


def read_examples(path: Path, source: str = "", target: str = "", encoding: str | None = None) -> list[Pair]:
    """Read the inputs and outputs of a table or of two files of lines."""
    pairs = read_pairs(find_pairs(path, source=source, target=target, encoding=encoding))
    return [(pair.source, pair.target) for pair in pairs]


# T. Brown et al., Language models are few-shot learners, 2020, figure 3.17: correcting English.
DEMO_TEMPLATE = "Poor English input: {input}\nGood English output: {output}"
DEMO_EXAMPLES: list[Pair] = [
    ("I eated the purple berries.", "I ate the purple berries."),
    (
        "Thank you for picking me as your designer. I'd appreciate it.",
        "Thank you for choosing me as your designer. I appreciate it.",
    ),
    (
        "The mentioned changes have done. or I did the alteration that you requested. or I changed things you wanted "
        "and did the modifications.",
        "The requested changes have been made. or I made the alteration that you requested. or I changed things you "
        "wanted and made the modifications.",
    ),
]
DEMO_TEST: list[Pair] = [
    (
        "I'd be more than happy to work with you in another project.",
        "I'd be more than happy to work with you on another project.",
    ),
    ("The patient was died.", "The patient died."),
    ("We think that Leslie likes ourselves.", "We think that Leslie likes us."),
    ("Janet broke Bill on the finger.", "Janet broke Bill's finger."),
    ("She no went to the market.", "She didn't go to the market."),
]
