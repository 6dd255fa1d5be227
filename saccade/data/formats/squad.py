"""Questions about texts: reads SQuAD 1.1 and 2.0 files and checks that every answer stands where it says."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from saccade.data.splitting import SplitSettings, hold_back
from saccade.data.tables.encodings import explain, marked_encoding, text_blocks
from saccade.data.tables.files import find
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.sniffing import people_size
from saccade.errors import DataError

MOST_CHARACTERS = 1 << 28  # of a whole file, unpacked; ten times the largest SQuAD
LONGEST_CONTEXT = 1 << 20  # characters
LONGEST_QUESTION = 1 << 14
DAMAGED = re.compile("[\x00\ud800-\udfff]")
SHAPE = '{"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [...]}]}]}'

Json = dict[str, object]


@dataclass(frozen=True)
class Answer:
    """Words of a context, and the character of it that they start at."""

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question about a context, with the answers that people marked; none where it cannot be answered from it."""

    id: str
    title: str
    context: str
    question: str
    answers: tuple[Answer, ...]
    article: int
    """The number of the article in the file, from 1."""

    @property
    def impossible(self) -> bool:
        """Whether the context does not answer the question."""
        return not self.answers


@dataclass(frozen=True)
class Squad:
    """The questions of one file."""

    questions: tuple[Question, ...]
    file: Path

    def __len__(self) -> int:
        return len(self.questions)

    def notes(self) -> list[str]:
        """What was found, for people."""
        articles = len({question.article for question in self.questions})
        answered = sum(not question.impossible for question in self.questions)
        counts = f"{len(self):,} questions about {articles:,} article{'' if articles == 1 else 's'}"
        return [f"{self.file.name}: {counts}, {answered:,} with an answer, {len(self) - answered:,} without"]

    def wanted(self) -> dict[str, list[str]]:
        """The texts of the answers to each question, by its id."""
        return {question.id: [answer.text for answer in question.answers] for question in self.questions}

    def split(self, settings: SplitSettings) -> tuple["Squad", "Squad"]:
        """The questions to learn from, and those about a share of the articles held back."""
        keys = [question.title or str(question.article) for question in self.questions]
        held = hold_back(keys, [""] * len(keys), settings, self.file, unit="article")
        train, valid = (
            tuple(question for question, value in zip(self.questions, held, strict=True) if value is wanted)
            for wanted in (False, True)
        )
        return replace(self, questions=train), replace(self, questions=valid)


def read_squad(path: Path, *, encoding: str = "utf-8") -> Squad:
    """All questions of a file; what breaks a rule is raised together at the end, with article and question."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path}: a folder, expected a SQuAD file (.json); name one of the files in it")
    (path,) = find(path)
    reader = _Reader(path)
    questions = tuple(reader.questions(_load(path, encoding)))
    if not questions and not reader.problems.count:
        reader.note("no questions", "at least one", "name a file with questions in it")
    reader.problems.check()
    return Squad(questions, path)


def is_squad(path: Path) -> bool:
    """Whether a file is called .json and begins as SQuAD files do."""
    if not path.name.lower().removesuffix(".gz").endswith(".json"):
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
        blocks = text_blocks(path, packed=head[:2] == b"\x1f\x8b", encoding=marked_encoding(head) or "utf-8")
        text = next(iter(blocks), "")
    except (OSError, DataError):  # whoever reads it says what is wrong
        return False
    return text.lstrip("\ufeff \t\r\n").startswith("{") and all(f'"{key}"' in text for key in ("paragraphs", "qas"))


def _load(path: Path, encoding: str) -> object:
    """The JSON of a file, not larger than any such file needs to be."""
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
    except OSError as error:
        raise explain(path, error) from error
    parts: list[str] = []
    size = 0
    for block in text_blocks(path, packed=head[:2] == b"\x1f\x8b", encoding=marked_encoding(head) or encoding):
        parts.append(block)
        size += len(block)
        if size > MOST_CHARACTERS:
            what, expected = f"more than {people_size(MOST_CHARACTERS)} of text", "a smaller file"
            raise BadRows([Problem(path, None, None, what, expected, "divide it by articles into several files")])
    try:
        return json.loads("".join(parts))
    except json.JSONDecodeError as error:
        what, step = f"invalid JSON ({error.msg})", "download the file again, or correct it"
        raise BadRows([Problem(path, error.lineno, error.colno, what, "one JSON document", step)]) from error
    except (RecursionError, ValueError) as error:
        what = "JSON nested too deeply" if isinstance(error, RecursionError) else f"invalid JSON ({error})"
        raise BadRows([Problem(path, None, None, what, "a SQuAD file", f"write it as {SHAPE}")]) from error


class _Reader:
    """Walks through articles, paragraphs and questions, and notes what is wrong with the place it is at."""

    def __init__(self, path: Path) -> None:
        self.problems = Problems()
        self._path = path
        self._place = ""
        self._seen: set[str] = set()

    def note(self, what: str, expected: str, step: str) -> None:
        """Add a problem of the place this is at."""
        self.problems.add(Problem(self._path, None, None, f"{self._place}{what}", expected, step))

    def questions(self, document: object) -> Iterator[Question]:
        """Every whole question of a document."""
        for number, article in enumerate(self._objects(document, "data"), 1):
            self._place = f"article {number}: "
            title = article.get("title", "")
            for paragraph in self._objects(article, "paragraphs"):
                context = self._text(paragraph, "context", LONGEST_CONTEXT)
                for item in self._objects(paragraph, "qas") if context else ():
                    question = self._question(item, context, title if isinstance(title, str) else "", number)
                    if question is not None:
                        yield question
        self._place = ""

    def _objects(self, owner: object, key: str) -> Iterator[Json]:
        """The objects in the list under a key; the place is that of their owner again for each of them."""
        place = self._place
        items = owner.get(key) if isinstance(owner, dict) else None
        if not isinstance(items, list):
            self.note(f"no list under '{key}'", "a SQuAD file", f"write it as {SHAPE}")
            return
        for number, item in enumerate(items, 1):
            self._place = place
            if isinstance(item, dict):
                yield item
            else:
                self.note(f"item {number} of '{key}' is {_shown(item)}", "an object", f"write it as {SHAPE}")

    def _text(self, owner: Json, key: str, max_length: int) -> str:
        """The text under a key; empty if there is something wrong with it, which is noted."""
        text = owner.get(key)
        if not isinstance(text, str) or not text.strip():
            found = f"'{key}' is {_shown(text)}" if key in owner else f"no '{key}'"
            self.note(found, "some text", "fill it in or delete the entry")
            return ""
        if len(text) > max_length:
            what = f"'{key}' has {len(text):,} characters"
            self.note(what, f"at most {max_length:,}", "divide it into paragraphs of their own")
            return ""
        bad = DAMAGED.search(text)
        if bad is not None:
            what = f"'{key}' holds U+{ord(bad.group()):04X} at character {bad.start()}"
            self.note(what, "printable text", "remove it and correct the starts of the answers behind it")
            return ""
        return text

    def _question(self, item: Json, context: str, title: str, article: int) -> Question | None:
        """One question, or None if something is wrong with it, which is noted."""
        before = self.problems.count
        key = str(item["id"]) if isinstance(item.get("id"), str | int) else ""
        self._place = f"article {article}, question '{key}': " if key else f"article {article}: "
        if not key.strip():
            self.note("a question without an id", "an id of its own for every question", "add it under 'id'")
        elif key in self._seen:
            self.note("an id that another question has", "an id of its own for every question", "change one of them")
        self._seen.add(key)
        question = self._text(item, "question", LONGEST_QUESTION)
        answers = [self._answer(answer, context) for answer in self._objects(item, "answers")]
        said = item.get("is_impossible", not answers)
        if said is not True and said is not False:
            self.note(f"'is_impossible' is {_shown(said)}", "true or false", "correct it or leave it out")
        elif said is True and answers:
            what = f"is_impossible is true beside {len(answers)} answer{'' if len(answers) == 1 else 's'}"
            self.note(what, "no answers", "move them to 'plausible_answers', or write false")
        elif said is False and not answers:
            self.note("no answers", "at least one", 'add one, or write "is_impossible": true')
        whole = tuple(answer for answer in answers if answer is not None)
        if self.problems.count > before:
            return None
        return Question(key, title, context, question, whole, article)

    def _answer(self, answer: Json, context: str) -> Answer | None:
        """One answer that stands in the context where it says."""
        text = self._text(answer, "text", LONGEST_CONTEXT)
        start = answer.get("answer_start")
        if not text:
            return None
        if not isinstance(start, int) or isinstance(start, bool):
            self.note(f"'answer_start' is {_shown(start)}", "a whole number", "count characters from 0")
            return None
        if start >= 0 and context.startswith(text, start):
            return Answer(text, start)
        places = [match.start() for match in re.finditer(re.escape(text), context)]
        near = min(places, key=lambda place: abs(place - start), default=None)
        what = f"at character {start} stands {_shown(context[start : start + len(text)])}"
        if not 0 <= start < len(context):
            what = f"'answer_start' is {start} in a context of {len(context):,} characters"
        step = "correct answer_start" if places else "correct the answer or the context, which does not hold it"
        place = f" (it stands at {near})" if near is not None else ""
        self.note(what, f"the answer {_shown(text)}{place}", step)
        return None


def _shown(value: object) -> str:
    """A value as people write it, not too long."""
    text = f"'{value}'" if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
