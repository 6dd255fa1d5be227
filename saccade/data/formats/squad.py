"""Questions about texts: reads SQuAD 1.1 and 2.0 files and checks the position of every answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress, ignore_progress
from saccade.data.cache import EntryWriter, Record, cached, hash_file
from saccade.data.fingerprints import hash_lines
from saccade.data.splitting import SplitSettings, hold_out
from saccade.data.tables.files import find
from saccade.data.tables.json_files import is_json_name, json_head, load_json, preview
from saccade.data.tables.problems import Problem, Problems
from saccade.data.texts import NumberWriter, Texts, TextWriter
from saccade.errors import DataError

MAX_CHARACTERS = 1 << 28  # of a decompressed file; ten times the largest SQuAD
MAX_CONTEXT = 1 << 20  # characters
MAX_QUESTION = 1 << 14
DAMAGED = re.compile("[\x00\ud800-\udfff]")
SHAPE = '{"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [...]}]}]}'

Json = dict[str, object]


@dataclass(frozen=True)
class Answer:
    """A span of a context: its text and the character where it starts."""

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question about a context, with its annotated answers; none where the context does not answer it."""

    id: str
    title: str
    context: str
    question: str
    answers: tuple[Answer, ...]
    article: int
    """number of the article in the file, from 1"""

    @property
    def impossible(self) -> bool:
        """Whether the context does not answer the question."""
        return not self.answers


@dataclass(frozen=True, eq=False)
class Questions(Sequence[Question]):
    """Questions in columns of texts; contexts and titles are kept once, answers follow each other."""

    ids: Texts
    texts: Texts
    contexts: Texts
    titles: Texts
    answers: Texts
    numbers: NDArray[np.int64]
    """for each question: context, title, article, first answer, end of its answers: (N, 5)"""
    starts: NDArray[np.int64]
    """first character of each answer"""

    @classmethod
    def of(cls, questions: Iterable[Question]) -> Questions:
        """Build the columns in memory."""
        items = list(questions)
        contexts = list(dict.fromkeys(question.context for question in items))
        titles = list(dict.fromkeys(question.title for question in items))
        answers = [answer for question in items for answer in question.answers]
        return cls(
            Texts.of(question.id for question in items),
            Texts.of(question.question for question in items),
            Texts.of(contexts),
            Texts.of(titles),
            Texts.of(answer.text for answer in answers),
            np.array(list(_numbers(items, contexts, titles)), dtype=np.int64).reshape(-1, 5),
            np.array([answer.start for answer in answers], dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, row: int) -> Question: ...
    @overload
    def __getitem__(self, row: slice) -> Questions: ...
    def __getitem__(self, row: int | slice) -> Question | Questions:
        if isinstance(row, slice):
            return self.take(np.arange(len(self))[row])
        context, title, article, first, end = self.numbers[row].tolist()
        answers = tuple(Answer(self.answers[at], int(self.starts[at])) for at in range(first, end))
        return Question(self.ids[row], self.titles[title], self.contexts[context], self.texts[row], answers, article)

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> Questions:
        """Return some of the questions; no text is copied."""
        chosen = np.asarray(rows, dtype=np.int64)
        return replace(self, ids=self.ids.take(chosen), texts=self.texts.take(chosen), numbers=self.numbers[chosen])


def _numbers(
    questions: Iterable[Question], contexts: Sequence[str], titles: Sequence[str]
) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield where the context, the title and the answers of each question are."""
    context_rows, title_rows = ({text: row for row, text in enumerate(texts)} for texts in (contexts, titles))
    end = 0
    for question in questions:
        first, end = end, end + len(question.answers)
        yield context_rows[question.context], title_rows[question.title], question.article, first, end


@dataclass(frozen=True, eq=False)
class Squad:
    """The questions of one file."""

    questions: Questions
    file: Path
    cache_notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.questions)

    def notes(self) -> list[str]:
        """Describe the questions for the user."""
        articles = len(np.unique(self.questions.numbers[:, 2]))
        answered = int((self.questions.numbers[:, 4] > self.questions.numbers[:, 3]).sum())
        counts = f"{len(self):,} questions about {articles:,} article{'' if articles == 1 else 's'}"
        counts = f"{self.file.name}: {counts}, {answered:,} with an answer, {len(self) - answered:,} without"
        return [counts, *self.cache_notes]

    def fingerprint(self) -> str:
        """Return a hash of all questions with their contexts and answers."""
        return hash_lines(repr(question) for question in self.questions)

    def references(self) -> dict[str, list[str]]:
        """Return the texts of the answers to each question, by its id."""
        return {question.id: [answer.text for answer in question.answers] for question in self.questions}

    def split(self, settings: SplitSettings) -> tuple[Squad, Squad]:
        """Return training questions, and those about a fraction of the articles held out."""
        questions = self.questions
        keys = [questions.titles[title] or str(article) for title, article in questions.numbers[:, 1:3].tolist()]
        held_out = np.array(hold_out(keys, [""] * len(keys), settings, self.file, unit="article"))
        train, valid = (questions.take(np.flatnonzero(rows)) for rows in (~held_out, held_out))
        return replace(self, questions=train), replace(self, questions=valid)


def read_squad(path: Path, *, encoding: str = "utf-8", progress: Progress = ignore_progress) -> Squad:
    """Return all questions of a file; bad questions are raised together, with article and id.

    The file is parsed once; later calls read the cache.
    """
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path}: a folder, expected a SQuAD file (.json); name one of the files in it")
    (path,) = find(path)

    def build(writer: EntryWriter) -> Record:
        items = parse_squad(path, encoding)
        progress(0.5)
        contexts = list(dict.fromkeys(question.context for question in items))
        titles = list(dict.fromkeys(question.title for question in items))
        columns: dict[str, Iterable[str]] = {
            "ids": (question.id for question in items),
            "texts": (question.question for question in items),
            "contexts": contexts,
            "titles": titles,
            "answers": (answer.text for question in items for answer in question.answers),
        }
        for name, texts in columns.items():
            column = TextWriter(writer, name)
            for text in texts:
                column.add(text)
            column.flush()
        writer.array("numbers", "int64").write(list(_numbers(items, contexts, titles)))
        starts = NumberWriter(writer, "starts")
        for question in items:
            for answer in question.answers:
                starts.add(answer.start)
        starts.flush()
        progress(1.0)
        return {}

    entry = cached("squad", [hash_file(path), encoding], build, [path])
    ids, texts, contexts, titles, answers = (
        Texts.open(entry, name) for name in ("ids", "texts", "contexts", "titles", "answers")
    )
    numbers, starts = entry.arrays["numbers"].reshape(-1, 5), entry.arrays["starts"]
    questions = Questions(ids, texts, contexts, titles, answers, numbers, starts)
    return Squad(questions, path, entry.notes)


def parse_squad(path: Path, encoding: str) -> list[Question]:
    """Parse all questions of a file."""
    document = load_json(path, encoding, max_characters=MAX_CHARACTERS, expected="a SQuAD file", shape=SHAPE)
    reader = _Reader(path)
    questions = list(reader.questions(document))
    if not questions and not reader.problems.count:
        reader.add("no questions", "at least one", "name a file with questions in it")
    reader.problems.check()
    return questions


def is_squad(path: Path, encoding: str | None = None) -> bool:
    """Whether a file is named .json and starts like a SQuAD file."""
    if not is_json_name(path.name):
        return False
    text = json_head(path, encoding)
    return text.startswith("{") and all(f'"{key}"' in text for key in ("paragraphs", "qas"))


class _Reader:
    """Walks through articles, paragraphs and questions, and collects problems with the article and question."""

    def __init__(self, path: Path) -> None:
        self.problems = Problems()
        self._path = path
        self._context = ""
        self._ids: set[str] = set()

    def add(self, what: str, expected: str, step: str) -> None:
        """Add a problem of the current article or question."""
        self.problems.add(Problem(self._path, None, None, f"{self._context}{what}", expected, step))

    def questions(self, document: object) -> Iterator[Question]:
        """Yield every valid question of a document."""
        for number, article in enumerate(self._objects(document, "data"), 1):
            self._context = f"article {number}: "
            title = article.get("title", "")
            for paragraph in self._objects(article, "paragraphs"):
                context = self._text(paragraph, "context", MAX_CONTEXT)
                for item in self._objects(paragraph, "qas") if context else ():
                    question = self._question(item, context, title if isinstance(title, str) else "", number)
                    if question is not None:
                        yield question
        self._context = ""

    def _objects(self, owner: object, key: str) -> Iterator[Json]:
        """Yield the objects in the list under a key; problems between them are reported for their owner."""
        context = self._context
        items = owner.get(key) if isinstance(owner, dict) else None
        if not isinstance(items, list):
            self.add(f"no list under '{key}'", "a SQuAD file", f"write it as {SHAPE}")
            return
        for number, item in enumerate(items, 1):
            self._context = context
            if isinstance(item, dict):
                yield item
            else:
                self.add(f"item {number} of '{key}' is {preview(item)}", "an object", f"write it as {SHAPE}")

    def _text(self, owner: Json, key: str, max_length: int) -> str:
        """Return the text under a key; empty if there is a problem with it."""
        text = owner.get(key)
        if not isinstance(text, str) or not text.strip():
            what = f"'{key}' is {preview(text)}" if key in owner else f"no '{key}'"
            self.add(what, "some text", "fill it in or delete the entry")
            return ""
        if len(text) > max_length:
            what = f"'{key}' has {len(text):,} characters"
            self.add(what, f"at most {max_length:,}", "divide it into paragraphs of their own")
            return ""
        bad = DAMAGED.search(text)
        if bad is not None:
            what = f"'{key}' holds U+{ord(bad.group()):04X} at character {bad.start()}"
            self.add(what, "printable text", "remove it and correct the starts of the answers behind it")
            return ""
        return text

    def _question(self, item: Json, context: str, title: str, article: int) -> Question | None:
        """Return one question, or None if there is a problem with it."""
        before = self.problems.count
        key = str(item["id"]) if isinstance(item.get("id"), str | int) else ""
        self._context = f"article {article}, question '{key}': " if key else f"article {article}: "
        if not key.strip():
            self.add("a question without an id", "an id of its own for every question", "add it under 'id'")
        elif key in self._ids:
            self.add("an id that another question has", "an id of its own for every question", "change one of them")
        self._ids.add(key)
        question = self._text(item, "question", MAX_QUESTION)
        answers = [self._answer(answer, context) for answer in self._objects(item, "answers")]
        impossible = item.get("is_impossible", not answers)
        if impossible is not True and impossible is not False:
            self.add(f"'is_impossible' is {preview(impossible)}", "true or false", "correct it or leave it out")
        elif impossible is True and answers:
            what = f"is_impossible is true with {len(answers)} answer{'' if len(answers) == 1 else 's'}"
            self.add(what, "no answers", "move them to 'plausible_answers', or write false")
        elif impossible is False and not answers:
            self.add("no answers", "at least one", 'add one, or write "is_impossible": true')
        checked = tuple(answer for answer in answers if answer is not None)
        if self.problems.count > before:
            return None
        return Question(key, title, context, question, checked, article)

    def _answer(self, answer: Json, context: str) -> Answer | None:
        """Return one answer that is in the context at its start."""
        text = self._text(answer, "text", MAX_CONTEXT)
        start = answer.get("answer_start")
        if not text:
            return None
        if not isinstance(start, int) or isinstance(start, bool):
            self.add(f"'answer_start' is {preview(start)}", "a whole number", "count characters from 0")
            return None
        if start >= 0 and context.startswith(text, start):
            return Answer(text, start)
        positions = [match.start() for match in re.finditer(re.escape(text), context)]
        near = min(positions, key=lambda position: abs(position - start), default=None)
        what = f"at character {start} is {preview(context[start : start + len(text)])}"
        if not 0 <= start < len(context):
            what = f"'answer_start' is {start} in a context of {len(context):,} characters"
        step = "correct answer_start" if positions else "correct the answer or the context, which does not hold it"
        hint = f" (it is at {near})" if near is not None else ""
        self.add(what, f"the answer {preview(text)}{hint}", step)
        return None
