"""Columns: which columns of a table hold the text, a second text and the label, by name or by content."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from saccade.data.tables.numbers import is_number
from saccade.data.tables.problems import BadRows, ControlCharacters, Problem, Problems
from saccade.data.tables.rows import Lines, pick_columns, rows
from saccade.data.tables.sniffing import DataFile, with_named_columns
from saccade.errors import DataError, UsageError

SAMPLE = 1000  # rows
MIN_ROWS = 20  # rows of a table without a header that show whether the values of a column repeat
MAX_WORDS = 3  # in the name of a class
MAX_NUMERIC_CLASSES = 5
# Usual names of columns, in lower case; the first that a table has is read.
TEXTS = (
    *("text", "sentence", "message", "tweet", "review", "comment", "content", "document", "body", "sms", "post"),
    *("utterance", "question", "query", "headline", "description", "email", "title"),
)
# Of these, the names of columns that a language model reads.
TEXT_COLUMNS = ("text", "sentence", "content", "document", "body", "message")
PAIRS = (
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
    ("text_1", "text_2"),
    ("text_a", "text_b"),
    ("text", "text_pair"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("query", "passage"),
    ("first", "second"),
)
LABELS = (
    *("label", "labels", "class", "classes", "category", "categories", "target", "sentiment", "intent", "topic"),
    *("emotion", "polarity", "gold_label", "tag", "tags", "is_duplicate", "is_paraphrase", "entailment", "quality"),
)
NUMBERS = (
    *("score", "similarity", "similarity_score", "relatedness_score", "relatedness", "rating", "stars", "value"),
    *("number", "label", "target"),
)
# Last words of names; a table has such a column if the name of exactly one column ends in one.
LABEL_WORDS = {"label", "class", "category", "sentiment", "judgment", "judgement", "intent", "emotion", "stance"}
NUMBER_WORDS = {"score", "rating", "similarity", "relatedness"}


@dataclass(frozen=True)
class Columns:
    """The names of the columns that are read; a table without a header has numbers for names, from 1."""

    text: str
    label: str
    second: str = ""

    def notes(self) -> list[str]:
        """Describe the columns for the user."""
        second = f", second text: column {self.second}" if self.second else ""
        return [f"text: column {self.text}{second}, label: column {self.label}"]


def find_columns(
    file: DataFile, *, text: str = "", second: str = "", label: str = "", numbers: bool = False
) -> tuple[DataFile, Columns]:
    """Choose the columns to read, and whether the table has a header; given columns are not guessed.

    With `numbers` the label is a number to be predicted, not a class.
    """
    given = [name for name in (text, second, label) if name]
    if len(set(given)) < len(given):
        duplicate = next(name for name in given if given.count(name) > 1)
        message = f"text, second text and label must be different columns, but two are '{duplicate}'"
        raise UsageError(f"{message}; set data.text_column, data.second_column and data.label_column")
    file = with_named_columns(file, given)
    sample = sample_columns(file)
    names = [name for name in sample if name.strip()]
    pick_columns(file.path, list(sample), given)
    label = label or _label_by_name([name for name in names if name not in given], numbers)
    text, second = _texts_by_name([name for name in names if name != label], text, second)
    by_content = not text and not second
    text = text or _longest(sample, [name for name in names if name not in (second, label)])
    if not text:
        raise ambiguous_column(file, sample, "text", "text", "data.text_column", [])
    if not label:
        free = [name for name in names if name not in (text, second)]
        fits = [name for name in free if (_are_measurements if numbers else are_classes)(sample[name])]
        if len(fits) != 1:
            raise ambiguous_column(file, sample, "label", "number" if numbers else "label", "data.label_column", fits)
        label = fits[0]
    others = [name for name in names if name not in (text, label) and _is_second_text(sample[text], sample[name])]
    if by_content and len(others) == 1:
        text, second = sorted([text, others[0]], key=names.index)
    return file, Columns(text, label, second)


def label_kind(
    file: DataFile, *, text: str = "", second: str = "", label: str = ""
) -> Literal["classes", "numbers", ""]:
    """Return the kind of labels of a table: classes, or numbers for pairs of texts; empty if it has none.

    Where one column has classes and another one numbers, the user must choose.
    """
    sample_columns(
        with_named_columns(file, [name for name in (text, second, label) if name])
    )  # raises if it is unreadable
    numbers = _number_column(file, text, second, label)
    classes = _class_column(file, text, second, label, by_content=not numbers)
    if numbers and classes and numbers != classes:
        what = f"2 columns may be the label ({numbers} has numbers, {classes} has classes)"
        step = f"choose one with --label-column {numbers} or --label-column {classes} (data.label_column)"
        raise BadRows([Problem(file.path, 1, None, what, "one of them", step)])
    return "numbers" if numbers else "classes" if classes else ""


def _number_column(file: DataFile, text: str, second: str, label: str) -> str:
    """Return the column of numbers for pairs of texts that is sure enough to choose a task by it; empty if none is."""
    table, columns, values = _label_values(file, text, second, label, numbers=True)
    own = [columns.label]
    named = bool(label or by_usual_name(own, NUMBERS) or _by_last_word(own, NUMBER_WORDS))
    return columns.label if columns.second and _are_scores(values) and (named or not table.columns) else ""


def _class_column(file: DataFile, text: str, second: str, label: str, *, by_content: bool) -> str:
    """Return the column of classes that is sure enough to choose a task by it; empty if none is.

    `by_content`: a column without a usual name may be one, unless the text has a name that a language model reads.
    """
    table, columns, values = _label_values(file, text, second, label, numbers=False)
    own = [columns.label]
    named = bool(label or by_usual_name(own, LABELS) or _by_last_word(own, LABEL_WORDS))
    content = by_content and len(values) >= MIN_ROWS and not by_usual_name(table.columns, TEXT_COLUMNS)
    short = all(len(value.split()) <= MAX_WORDS for value in values)
    # Rows may be sorted by their label, so that the first ones have the same.
    fits = are_classes(values) or (named and len(values) == SAMPLE and len(set(values)) == 1)
    return columns.label if short and fits and (named or content) else ""


def _label_values(
    file: DataFile, text: str, second: str, label: str, *, numbers: bool
) -> tuple[DataFile, Columns, list[str]]:
    """Return a table with its columns and the first values of its label; no values if it has none."""
    try:
        table, columns = find_columns(file, text=text, second=second, label=label, numbers=numbers)
    except DataError:  # no such column
        return file, Columns("", ""), []
    return table, columns, [value.strip() for value in sample_columns(table)[columns.label]]


def _are_scores(values: Sequence[str]) -> bool:
    """Whether values are numbers that are too many or too fine to be names of classes."""
    if not values or not all(map(is_number, values)):
        return False
    return len(set(values)) > MAX_NUMERIC_CLASSES or any(float(value) % 1 for value in values)


def sample_columns(file: DataFile) -> dict[str, list[str]]:
    """Return the first rows of a table, by column."""
    if file.format != "jsonl":
        first = [row.values for row in islice(rows(file, problems=Problems(), replaced=ControlCharacters()), SAMPLE)]
        names = file.columns or [str(number + 1) for number in range(len(first[0]) if first else 0)]
        return {name: [row[index] for row in first] for index, name in enumerate(names)}
    columns: dict[str, list[str]] = {name: [] for name in file.columns}
    for line in islice(Lines(file), SAMPLE):
        try:
            row = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError):  # reading reports it with its line
            continue
        for name in columns.keys() & (row.keys() if isinstance(row, dict) else ()):
            columns[name].append(row[name] if isinstance(row[name], str) else json.dumps(row[name]))
    return columns


def _normalized(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def by_usual_name(names: Sequence[str], usual: Sequence[str]) -> str:
    """Return the column that has the first of some usual names; empty if there is none."""
    by_name = {_normalized(name): name for name in reversed(names)}
    return next((by_name[name] for name in usual if name in by_name), "")


def _label_by_name(names: Sequence[str], numbers: bool) -> str:
    """Return the column with the name of a label, or of a number to be predicted; empty if there is none."""
    usual = by_usual_name(names, (NUMBERS if numbers else ()) + LABELS)
    return usual or _by_last_word(names, NUMBER_WORDS if numbers else LABEL_WORDS)


def _by_last_word(names: Sequence[str], words: Collection[str]) -> str:
    fits = [name for name in names if _normalized(name).rpartition("_")[2] in words]
    return fits[0] if len(fits) == 1 else ""


def _texts_by_name(names: Sequence[str], text: str, second: str) -> tuple[str, str]:
    """Return the columns of one text or two with usual names; where one is given, the other of its pair."""
    if text and second:
        return text, second
    by_name = {_normalized(name): name for name in reversed(names)}
    for pair in PAIRS:
        first, other = (by_name.get(name, "") for name in pair)
        if first and other and text in ("", first) and second in ("", other):
            return first, other
    return text or by_usual_name([name for name in names if name != second], TEXTS), second


def _longest(sample: Mapping[str, list[str]], names: Sequence[str]) -> str:
    """Return the column with the most text; columns of numbers have none."""
    texts = [name for name in names if sample[name] and not all(map(is_number, sample[name]))]
    return max(texts, key=lambda name: _length(sample[name]), default="")


def _length(values: Sequence[str]) -> float:
    return sum(map(len, values)) / max(len(values), 1)


def are_classes(values: Sequence[str]) -> bool:
    """Whether values repeat as labels do."""
    different = len({part for value in values for part in split_labels(value)})
    return 1 < different <= max(2, min(len(values) // 2, max(20, len(values) // 10)))


def _are_measurements(values: Sequence[str]) -> bool:
    """Whether values are numbers that measure something, and do not just number the rows."""
    if not values or not all(map(is_number, values)):
        return False
    numbers = [float(value) for value in values]
    return len(set(numbers)) > 1 and numbers != [numbers[0] + index for index in range(len(numbers))]


def _is_second_text(text: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two columns look like the two sides of a pair: text of about the same length."""
    if all(map(is_number, other)) or are_classes(other):
        return False
    return _length(other) > _length(text) / 3


def ambiguous_column(
    file: DataFile, sample: Mapping[str, list[str]], role: str, kind: str, setting: str, fits: list[str]
) -> BadRows:
    """Return the error for a table in which no column, or several, may have a role."""
    listed = ", ".join(name or "(no name)" for name in sample) or "none"
    what = f"{len(fits)} columns look like a {kind} ({', '.join(fits)})" if fits else f"no column looks like a {kind}"
    what = re.sub("like a (?=[aeiou])", "like an ", what.replace("like a text", "like text"))
    step = f"choose one with {setting}=NAME"
    return BadRows([Problem(file.path, 1, None, what, f"one column for the {role} among: {listed}", step)])


def split_labels(value: str) -> list[str]:
    """Return the labels of one cell: a JSON list, or parts between bars."""
    parts: Sequence[str] = value.split("|")
    if value.lstrip().startswith("["):
        try:
            listed = json.loads(value)
        except (ValueError, RecursionError):
            return [value.strip()]  # brackets that are part of a name
        if all(isinstance(label, str | int | float) for label in listed):
            parts = [label if isinstance(label, str) else json.dumps(label) for label in listed]
    return list(dict.fromkeys(label for part in parts if (label := part.strip())))
