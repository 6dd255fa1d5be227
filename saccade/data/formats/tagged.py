"""Tagged words: sentences of a CoNLL file; a line has a word first and its tag last, a blank line ends a sentence."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from saccade.data.splitting import SplitSettings, hold_back
from saccade.data.tables.encodings import explain
from saccade.data.tables.files import find
from saccade.data.tables.problems import Problem, Problems, Strays
from saccade.data.tables.rows import FORBIDDEN, Lines, forbidden_problem
from saccade.data.tables.sniffing import DataFile, sniff
from saccade.errors import DataError, suggest

PLAIN = (".conll", ".conll03", ".iob", ".iob2", ".bio")  # names of files that can hold nothing else
SUFFIXES = (*PLAIN, ".tsv", ".txt")
OUTSIDE = "O"
DOCUMENT = "-DOCSTART-"
LISTED = 20  # tags named in a message
BLANKS = re.compile(r"[ \t]+")
STEP = "write each word on a line of its own, with its tag behind a tab"


@dataclass(frozen=True)
class Sentence:
    """Words in a row, the tag of each, and the line each stands on."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    lines: tuple[int, ...]
    file: Path


@dataclass(frozen=True)
class Tagged:
    """Tagged sentences in memory."""

    sentences: tuple[Sentence, ...]
    names: tuple[str, ...]
    """Every tag there is: O first, the others sorted."""
    files: tuple[DataFile, ...]
    wordless: int
    strays: Strays

    def __len__(self) -> int:
        return len(self.sentences)

    def notes(self) -> list[str]:
        """What was found, for people."""
        count = sum(len(sentence.words) for sentence in self.sentences)
        notes = [f"{len(self):,} sentences, {count:,} words, tags: {_listed(self.names)}"]
        if self.wordless:
            lines = "1 line" if self.wordless == 1 else f"{self.wordless:,} lines"
            notes.append(f"{lines} with the tag {OUTSIDE} and no word left out")
        return notes + self.strays.notes()

    def split(self, settings: SplitSettings) -> tuple["Tagged", "Tagged"]:
        """The sentences to learn from, and a share of those with each kind of tag held back; copies stay together."""
        kinds = [sorted({tag.partition("-")[2] or tag for tag in sentence.tags}) for sentence in self.sentences]
        keys = [" ".join(sentence.words) for sentence in self.sentences]
        held = hold_back(keys, ["|".join(kind) for kind in kinds], settings, self.files[0].path)
        train, valid = (
            tuple(sentence for sentence, value in zip(self.sentences, held, strict=True) if value is wanted)
            for wanted in (False, True)
        )
        return replace(self, sentences=train), replace(self, sentences=valid)


@dataclass(frozen=True)
class _Line:
    """One line with a word on it, not yet checked."""

    number: int
    cells: tuple[str, ...]
    remark: bool  # begins with #: a comment, or a word


def read_tagged(path: Path, *, encoding: str | None = None, like: Tagged | None = None) -> Tagged:
    """All sentences of a file or of the files in a folder; bad lines are raised together at the end.

    With `like`, the sentences to learn from, the tags must be among theirs.
    """
    problems, strays = Problems(), Strays()
    found = [sniff(file, encoding=encoding) for file in _files(Path(path))]
    sentences: list[Sentence] = []
    wordless = 0
    for file in found:
        if file.format in ("csv", "jsonl"):
            message = f"{file.path}:1: a table ({file.format}), expected a CoNLL file"
            raise DataError(f"{message}; {STEP}, and leave a line blank between sentences")
        blocks = list(_blocks(file, problems, strays))
        width, tags = _shape(blocks)
        for block in blocks:
            sentence, left_out = _sentence(file.path, block, width, tags, problems)
            wordless += left_out
            sentences += [sentence] if sentence.words else []
    if like is not None:
        _check_tags(sentences, like.names, problems)
    if not sentences and not problems.count:
        problems.add(Problem(found[0].path, 1, None, "no words", "a word and its tag on each line", STEP))
    problems.check()
    others = {tag for sentence in sentences for tag in sentence.tags} - {OUTSIDE}
    names = (OUTSIDE, *sorted(others)) if like is None else like.names
    return Tagged(tuple(sentences), names, tuple(found), wordless, strays)


def is_tagged(path: Path) -> bool:
    """Whether a file, or one in a folder, has a name that only files of tagged words have."""
    names = [entry.name for entry in path.glob("*")] if path.is_dir() else [path.name]
    return any(name.lower().removesuffix(".gz").endswith(PLAIN) for name in names)


def _files(path: Path) -> list[Path]:
    """The file itself, or the files of a folder whose names end as those of tagged words do."""
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


def _blocks(found: DataFile, problems: Problems, strays: Strays) -> Iterator[list[_Line]]:
    """The lines between blank ones, in columns: by tabs if the first line with a word has one, else by spaces."""
    lines = Lines(found, strays=strays)
    block: list[_Line] = []
    tabs: bool | None = None
    for line in lines:
        lines.recent.clear()
        bad = FORBIDDEN.search(line)
        line = line.removesuffix("\n")
        if bad is not None:
            problems.add(forbidden_problem(found.path, lines.number, bad.start() + 1, bad.group()))
        elif not line.strip() or line.startswith(DOCUMENT):
            yield block
            block = []
        else:
            if tabs is None and not (line.startswith("#") and "\t" not in line):
                tabs = "\t" in line
            cells = line.split("\t") if tabs else BLANKS.split(line.strip(" \t"))
            remark = line.startswith("#") and not (tabs and "\t" in line)
            block.append(_Line(lines.number, tuple(cell.strip() for cell in cells), remark))
    yield block


def _shape(blocks: Sequence[Sequence[_Line]]) -> tuple[_Line | None, set[str]]:
    """The first line that is no comment, which shows how many columns there are; and all tags of such lines."""
    words = [line for block in blocks for line in block if not line.remark]
    first = words[0] if words else next((line for block in blocks for line in block if len(line.cells) > 1), None)
    return first, {OUTSIDE, *(line.cells[-1] for line in words)}


def _sentence(
    path: Path, block: Sequence[_Line], first: _Line | None, tags: set[str], problems: Problems
) -> tuple[Sentence, int]:
    """One block as a sentence, and how many of its lines have no word; what breaks a rule is noted."""
    width = len(first.cells) if first is not None else 2
    kept: list[_Line] = []
    wordless = 0
    for line in block:
        word, tag, count = line.cells[0], line.cells[-1], len(line.cells)
        what = expected = ""
        if line.remark and (count != width or (word == "#" and tag not in tags)):
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
    words, found_tags = (tuple(line.cells[place] for line in kept) for place in (0, -1))
    return Sentence(words, found_tags, tuple(line.number for line in kept), path), wordless


def _check_tags(sentences: Sequence[Sentence], names: Sequence[str], problems: Problems) -> None:
    """Note every tag that no sentence to learn from has."""
    step = "correct it, or add sentences with this tag to the training data"
    for sentence in sentences:
        for tag, line in zip(sentence.tags, sentence.lines, strict=True):
            if tag not in names:
                near = suggest(tag, list(names))
                hint = near if "did you mean" in near else ""
                expected = f"one of the training sentences: {_listed(names)}{hint}"
                problems.add(Problem(sentence.file, line, None, f"tag '{tag[:40]}'", expected, step))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
