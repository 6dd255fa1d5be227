"""Tagged words: sentences of a CoNLL file; a line has a word first and its tag last, a blank line ends a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress, ignore_progress
from saccade.data.cache import EntryWriter, Record, cached, file_key
from saccade.data.fingerprints import hash_lines
from saccade.data.splitting import SplitSettings, hold_out
from saccade.data.tables.encodings import explain
from saccade.data.tables.files import find
from saccade.data.tables.problems import BadRows, ControlCharacters, Problem, Problems, did_you_mean
from saccade.data.tables.progress import BytesRead, FileProgress
from saccade.data.tables.rows import FORBIDDEN, Lines, forbidden_problem
from saccade.data.tables.sniffing import DataFile, sniff
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.texts import NumberWriter, Texts, TextWriter
from saccade.data.token_rows import TokenArray
from saccade.data.tokenization import tokenize
from saccade.errors import DataError

CONLL_SUFFIXES = (".conll", ".conll03", ".iob", ".iob2", ".bio")  # used for CoNLL files only
SUFFIXES = (*CONLL_SUFFIXES, ".tsv", ".txt")
OUTSIDE = "O"
DOCUMENT = "-DOCSTART-"
LISTED = 20  # tags named in a message
BLANKS = re.compile(r"[ \t]+")
ENTITY_TAG = re.compile(r"O|[BIESLU]-\S+")  # of entities: IOB, IOBES, BILOU
WORD_TAG = re.compile(r"[A-Z][A-Z0-9$_+|-]{0,15}|[^\w\s]{1,6}")  # parts of speech: NN, PRP$, NOUN, and punctuation
CONLLU_COLUMNS = 10
SNIFFED = 400  # lines that decide whether a file has tagged words
FEWEST = 5  # words below which a file shows nothing
STEP = "write each word on a line of its own, with its tag behind a tab"


@dataclass(frozen=True)
class Sentence:
    """Words, the tag of each, and the line of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    lines: tuple[int, ...]
    file: Path


@dataclass(frozen=True, eq=False)
class Sentences(Sequence[Sentence]):
    """Sentences in one column of words and one of tags: sentence i has the words starts[i] : ends[i]."""

    words: Texts
    tags: Texts
    lines: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    file_numbers: NDArray[np.int64]
    files: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, row: int) -> Sentence: ...
    @overload
    def __getitem__(self, row: slice) -> Sentences: ...
    def __getitem__(self, row: int | slice) -> Sentence | Sentences:
        if isinstance(row, slice):
            return self.take(np.arange(len(self))[row])
        words = slice(int(self.starts[row]), int(self.ends[row]))
        lines = tuple(self.lines[words].tolist())
        return Sentence(tuple(self.words[words]), tuple(self.tags[words]), lines, self.files[self.file_numbers[row]])

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> Sentences:
        """Return some of the sentences; no word is copied."""
        chosen = np.asarray(rows, dtype=np.int64)
        starts, ends, numbers = self.starts[chosen], self.ends[chosen], self.file_numbers[chosen]
        return replace(self, starts=starts, ends=ends, file_numbers=numbers)

    def tokenize(
        self, tokenizer: Tokenizer, *, spaced: bool = False, progress: Progress = ignore_progress
    ) -> list[list[TokenArray]]:
        """Return the tokens of each word of each sentence; `spaced`: as if each word followed a space."""
        tokens = tokenize(self.words, tokenizer, spaced=spaced, progress=progress)
        bounds = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [[tokens[word] for word in range(start, end)] for start, end in bounds]


@dataclass(frozen=True, eq=False)
class Tagged:
    """Tagged sentences of some files."""

    sentences: Sentences
    names: tuple[str, ...]
    """every tag: O first, the others sorted"""
    wordless: int
    """lines with a tag and no word, which are skipped"""
    replaced: ControlCharacters = field(default_factory=ControlCharacters)
    """control characters that were read as spaces"""
    cache_notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.sentences)

    def notes(self) -> list[str]:
        """Describe the sentences for the user."""
        count = int((self.sentences.ends - self.sentences.starts).sum())
        notes = [f"{len(self):,} sentences, {count:,} words, tags: {_listed(self.names)}"]
        if self.wordless:
            lines = "1 line" if self.wordless == 1 else f"{self.wordless:,} lines"
            notes.append(f"{lines} with the tag {OUTSIDE} and no word skipped")
        return [*notes, *self.cache_notes, *self.replaced.notes()]

    def fingerprint(self) -> str:
        """Return a hash of all words and tags."""
        return hash_lines(json.dumps([sentence.words, sentence.tags]) for sentence in self.sentences)

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> Tagged:
        """Return some of the sentences; the names of the tags stay the same."""
        return replace(self, sentences=self.sentences.take(rows))

    def split(self, settings: SplitSettings) -> tuple[Tagged, Tagged]:
        """Return training sentences, and a fraction of those with each kind of tag held out; copies stay together."""
        keys, strata = [], []
        for sentence in self.sentences:
            keys.append(" ".join(sentence.words))
            strata.append("|".join(sorted({tag.partition("-")[2] or tag for tag in sentence.tags})))
        held_out = np.array(hold_out(keys, strata, settings, self.sentences.files[0]))
        return self.take(np.flatnonzero(~held_out)), self.take(np.flatnonzero(held_out))


@dataclass(frozen=True)
class _Line:
    """A line with a word on it, not yet checked."""

    number: int
    cells: tuple[str, ...]
    hash_sign: bool
    """starts with #: a comment, or a word"""


def read_tagged(
    path: Path,
    *,
    encoding: str | None = None,
    tags: Sequence[str] | None = None,
    progress: Progress = ignore_progress,
) -> Tagged:
    """Return all sentences of a file or of the files in a folder; bad lines are raised together.

    With `tags`, those of the training sentences, every tag must be among them. The files are parsed once; later calls
    read the cache.
    """
    files = [sniff(file, encoding=encoding) for file in _files(Path(path))]
    table = next((file for file in files if file.format in ("csv", "jsonl")), None)
    if table is not None:
        message = f"{table.path}:1: a table ({table.format}), expected a CoNLL file"
        raise DataError(f"{message}; {STEP}, and leave a line blank between sentences")
    key = [file_key(file) for file in files]
    entry = cached("tagged", key, lambda writer: _build(writer, files, tags, progress), files)
    paths, ends = tuple(file.path for file in files), entry.arrays["ends"]
    starts = np.concatenate([[0], ends[:-1]])
    words, labels = Texts.open(entry, "words"), Texts.open(entry, "tags")
    sentences = Sentences(words, labels, entry.arrays["lines"], starts, ends, entry.arrays["files"], paths)
    names = (OUTSIDE, *sorted(set(labels) - {OUTSIDE}))
    if tags is not None:
        problems = Problems()
        if not set(names) <= set(tags):
            _check_tags(sentences, tags, problems)
        problems.check()
        names = tuple(tags)
    count, number, line = entry.record["replaced"]
    replaced = ControlCharacters(count, paths[number] if count else None, line)
    return Tagged(sentences, names, entry.record["wordless"], replaced, entry.notes)


def _build(writer: EntryWriter, files: Sequence[DataFile], tags: Sequence[str] | None, progress: Progress) -> Record:
    """Parse the files into an entry of the cache."""
    words, labels = TextWriter(writer, "words"), TextWriter(writer, "tags")
    lines, ends, numbers = (NumberWriter(writer, name) for name in ("lines", "ends", "files"))
    problems, replaced = Problems(), ControlCharacters()
    parsed = list(parse_tagged(files, problems, replaced, progress))
    if tags is not None:  # all problems of a file are reported together
        _check_tags([sentence for _, sentence, _ in parsed], tags, problems)
    count = 0
    for number, sentence, _ in parsed:
        for word, tag, line in zip(sentence.words, sentence.tags, sentence.lines, strict=True):
            words.add(word)
            labels.add(tag)
            lines.add(line)
        if sentence.words:
            count += len(sentence.words)
            ends.add(count)
            numbers.add(number)
    if not count and not problems.count:
        problems.add(Problem(files[0].path, 1, None, "no words", "a word and its tag on each line", STEP))
    problems.check()
    for column in (words, labels, lines, ends, numbers):
        column.flush()
    first = [file.path for file in files].index(replaced.file) if replaced.file is not None else 0
    return {"wordless": sum(count for *_, count in parsed), "replaced": [replaced.count, first, replaced.line]}


def parse_tagged(
    files: Sequence[DataFile], problems: Problems, replaced: ControlCharacters, progress: Progress
) -> Iterator[tuple[int, Sentence, int]]:
    """Yield the number of the file, every sentence, and how many of its lines have no word."""
    total = FileProgress(files, progress)
    for number, file in enumerate(files):
        blocks = list(_blocks(file, problems, replaced, total.of(number)))
        first, tags = _shape(blocks)
        if first is not None and _is_conllu(first.cells):
            what, expected = "ten columns of CoNLL-U", "the word first and its tag last"
            step = f"keep two of them, such as: grep -v '^#' '{file.path}' | cut -f2,4 > words.conll"
            raise BadRows([Problem(file.path, first.number, None, what, expected, step)])
        for block in blocks:
            yield number, *_sentence(file.path, block, first, tags, problems)


def is_tagged(path: Path) -> bool:
    """Whether a file, or one in a folder, has the suffix of a CoNLL file."""
    names = [entry.name for entry in path.glob("*")] if path.is_dir() else [path.name]
    return any(name.lower().removesuffix(".gz").endswith(CONLL_SUFFIXES) for name in names)


def looks_tagged(file: DataFile) -> bool:
    """Whether the first lines of a file are words with tags, whatever its name: as many columns in each, tags last."""
    if file.format not in ("text", "tsv"):
        return False
    try:
        lines = [line.rstrip("\n") for line in islice(Lines(file), SNIFFED)]
    except DataError:  # reading reports it, with its line
        return False
    words = [line for line in lines if line.strip() and not line.startswith((DOCUMENT, "#"))]
    if len(words) < FEWEST:
        return False
    tabs = "\t" in words[0]
    rows = [line.split("\t") if tabs else BLANKS.split(line.strip(" \t")) for line in words]
    width = len(rows[0])
    regular = [row for row in rows if len(row) == width and " " not in row[0].strip()]
    if width < 2 or len(regular) < 0.95 * len(rows):
        return False
    if _is_conllu(rows[0]):
        return True  # reading it names the columns to keep
    tags = [row[-1].strip() for row in regular]
    ends = any(not line.strip() or line.startswith(DOCUMENT) for line in lines[:-1])
    if all(map(ENTITY_TAG.fullmatch, tags)):
        return ends or len(set(tags)) > 1
    return ends and all(map(WORD_TAG.fullmatch, tags)) and len(set(tags)) < len({row[0] for row in regular})


def _is_conllu(cells: Sequence[str]) -> bool:
    """Whether a line is one of CoNLL-U: ten columns, of which the first numbers the words."""
    return len(cells) == CONLLU_COLUMNS and cells[0].split("-")[0].split(".")[0].isdecimal()


def _files(path: Path) -> list[Path]:
    """Return the file itself, or the files of a folder with the suffixes of tagged words."""
    if not path.is_dir():
        return find(path)
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise explain(path, error) from error
    chosen = [path / name for name in names if name.lower().removesuffix(".gz").endswith(SUFFIXES)]
    if not chosen:
        message = f"{path}: holds no file of tagged words, expected names that end in {', '.join(SUFFIXES)}"
        raise DataError(f"{message}; name the file you mean")
    return chosen


def _blocks(
    file: DataFile, problems: Problems, replaced: ControlCharacters, on_bytes: BytesRead
) -> Iterator[list[_Line]]:
    """Yield the lines between blank ones, in columns: by tabs if the first line with a word has one, else by spaces."""
    lines = Lines(file, on_bytes, replaced=replaced)
    block: list[_Line] = []
    tabs: bool | None = None
    for line in lines:
        lines.recent.clear()
        bad = FORBIDDEN.search(line)
        line = line.removesuffix("\n")
        if bad is not None:
            problems.add(forbidden_problem(file.path, lines.number, bad.start() + 1, bad.group()))
        elif not line.strip() or line.startswith(DOCUMENT):
            yield block
            block = []
        else:
            if tabs is None and not (line.startswith("#") and "\t" not in line):
                tabs = "\t" in line
            cells = line.split("\t") if tabs else BLANKS.split(line.strip(" \t"))
            hash_sign = line.startswith("#") and not (tabs and "\t" in line)
            block.append(_Line(lines.number, tuple(cell.strip() for cell in cells), hash_sign))
    yield block


def _shape(blocks: Sequence[Sequence[_Line]]) -> tuple[_Line | None, set[str]]:
    """Return the first line that is not a comment, which has the number of columns; and all tags of such lines."""
    words = [line for block in blocks for line in block if not line.hash_sign]
    first = words[0] if words else next((line for block in blocks for line in block if len(line.cells) > 1), None)
    return first, {OUTSIDE, *(line.cells[-1] for line in words)}


def _sentence(
    path: Path, block: Sequence[_Line], first: _Line | None, tags: set[str], problems: Problems
) -> tuple[Sentence, int]:
    """Return a block as a sentence, and how many of its lines have no word; bad lines are problems."""
    width = len(first.cells) if first is not None else 2
    kept: list[_Line] = []
    wordless = 0
    for line in block:
        word, tag, count = line.cells[0], line.cells[-1], len(line.cells)
        what = expected = ""
        if line.hash_sign and (count != width or (word == "#" and tag not in tags)):
            continue
        if count < 2:
            what, expected = f"1 column ('{word[:40]}')", "a word and its tag"
        elif count != width and first is not None:
            what, expected = f"{count} columns", f"{width} as in line {first.number}"
        elif not tag:
            what, expected = f"no tag behind '{word[:40]}'", "a tag in the last column"
        elif not word and tag != OUTSIDE:
            what, expected = f"no word before the tag '{tag[:40]}'", "a word in the first column"
        if what:
            problems.add(Problem(path, line.number, None, what, expected, STEP))
        elif not word:
            wordless += 1
        else:
            kept.append(line)
    words, sentence_tags = (tuple(line.cells[cell] for line in kept) for cell in (0, -1))
    return Sentence(words, sentence_tags, tuple(line.number for line in kept), path), wordless


def _check_tags(sentences: Sequence[Sentence], names: Sequence[str], problems: Problems) -> None:
    """Add a problem for every tag that no training sentence has."""
    step = "correct it, or add sentences with this tag to the training data"
    for sentence in sentences:
        for tag, line in zip(sentence.tags, sentence.lines, strict=True):
            if tag not in names:
                expected = f"one of the training sentences: {_listed(names)}{did_you_mean(tag, names)}"
                problems.add(Problem(sentence.file, line, None, f"tag '{tag[:40]}'", expected, step))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
