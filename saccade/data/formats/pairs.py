"""Pairs: a source text and the target text to be made of it, from two columns of a table or two files of lines."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from saccade.data.tables.counterparts import counterpart, is_file, name_parts, swap_rule
from saccade.data.tables.files import find
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.rows import FORBIDDEN, Lines, Progress, forbidden_problem, pick_columns, rows
from saccade.data.tables.sniffing import DataFile, sniff
from saccade.errors import DataError, UsageError

__all__ = ["Pair", "PairFiles", "Skipped", "counterpart", "find_pairs", "read_pairs", "swap_rule"]

SHOWN = 3  # files described to people
# Names people give to the two columns, in lower case; the first pair that a table has is read.
USUAL = (
    ("source", "target"),
    ("src", "tgt"),
    ("src", "trg"),
    ("input", "output"),
    ("input", "target"),
    ("prompt", "completion"),
    ("prompt", "response"),
    ("question", "answer"),
    ("document", "summary"),
    ("article", "highlights"),
    ("article", "summary"),
    ("dialogue", "summary"),
    ("text", "summary"),
    ("email_body", "subject_line"),
    ("body", "subject"),
)


@dataclass(frozen=True)
class Pair:
    """A source text and its target, and where the source starts."""

    source: str
    target: str
    line: int
    file: Path


@dataclass
class Skipped:
    """Counts the pairs that are left out because a side is empty, and knows the first one."""

    count: int = 0
    file: Path | None = None
    line: int = 0

    def add(self, file: Path, line: int) -> None:
        """Count one pair."""
        if not self.count:
            self.file, self.line = file, line
        self.count += 1

    def notes(self) -> list[str]:
        """One line for people, if anything was left out."""
        if self.file is None:
            return []
        pairs = "1 pair" if self.count == 1 else f"{self.count:,} pairs"
        return [f"{pairs} with an empty side left out (first: {self.file.name}:{self.line})"]


@dataclass(frozen=True)
class PairFiles:
    """Where pairs come from: one table (or several alike), or two files of lines."""

    sources: tuple[DataFile, ...]
    targets: tuple[DataFile, ...]
    columns: tuple[str, str]
    aside: tuple[str, ...] = ()  # columns that are not read
    listed: tuple[str, ...] = ()  # columns that hold lists of strings

    def notes(self) -> list[str]:
        """What was found, for people: the files, and which columns or lines make a pair."""
        every = [file for pair in zip_longest(self.sources, self.targets) for file in pair if file is not None]
        notes = [file.describe() for file in every[:SHOWN]]
        notes += [f"… {len(every)} files in all"] if len(every) > SHOWN else []
        if self.targets:
            first, second = self.sources[0].path.name, self.targets[0].path.name
            return [*notes, f"each line of {first} goes with the same line of {second}"]
        source, target = self.columns
        notes.append(f"source: column {source}, target: column {target}")
        if self.aside:
            notes.append(f"left aside: column{'' if len(self.aside) == 1 else 's'} {', '.join(self.aside)}")
        if source in self.listed:
            notes.append(f"the strings in the lists under {source} are joined with spaces")
        if target in self.listed:
            notes.append(f"only the first string of each list under {target} is read")
        return notes


def find_pairs(path: Path, *, source: str = "", target: str = "", encoding: str | None = None) -> PairFiles:
    """Look at the files that a path means, and decide where the two sides of a pair stand in them.

    In a table `source` and `target` are columns. For plain text `target` is the other file, or the part of the name
    that makes it; `source` picks the files of a folder that have it as a part of their name.
    """
    found = [sniff(file, encoding=encoding) for file in find(path)]
    formats = sorted({file.format for file in found})
    if len(formats) > 1:
        examples = ", ".join(f"{file.path.name} is {file.format}" for file in _one_each(found))
        raise DataError(f"{path}: {examples}, expected files of one kind; name the file you mean")
    if formats == ["text"]:
        return _find_lines(found, Path(path).is_dir(), source, target, encoding)
    tables = [_choose(file, source, target, encoding) for file in found]
    other = next((table for table in tables if table.columns != tables[0].columns), None)
    if other is not None:
        what = f"source and target are the columns {' and '.join(other.columns)}"
        expected = f"{' and '.join(tables[0].columns)} as in {tables[0].sources[0].path.name}"
        raise BadRows([Problem(other.sources[0].path, 1, None, what, expected, "name one file, or rename the columns")])
    return replace(tables[0], sources=tuple(table.sources[0] for table in tables))


def _one_each(found: Sequence[DataFile]) -> list[DataFile]:
    return list({file.format: file for file in reversed(found)}.values())


def _choose(found: DataFile, source: str, target: str, encoding: str | None) -> PairFiles:
    """The columns of one table."""
    given = [name for name in (source, target) if name]
    if found.format != "jsonl" and not found.columns and not all(name.isdecimal() for name in given):
        headed = sniff(found.path, encoding=encoding, header=True)
        # The rows did not look as if they had a header, but a person who names its columns knows better.
        found = headed if set(given) <= set(headed.columns) else found
    names = found.columns or _numbered(found)
    if not names:  # reading reports what is wrong with every row
        return PairFiles((found,), (), (source or "source", target or "target"))
    pick_columns(found.path, names, given)
    columns = _guess([name for name in names if name.strip()], source, target, numbered=not found.columns)
    if columns is None:
        what = "1 column" if len(names) == 1 else f"{len(names)} columns without a usual pair of names"
        listed = ", ".join(name or "(no name)" for name in names)
        expected = f"a source and a target among: {listed}"
        raise BadRows([Problem(found.path, 1, None, what, expected, _step(found, names))])
    if columns[0] == columns[1]:
        message = f"source and target must be different columns, but both are '{columns[0]}'"
        raise UsageError(f"{message}; the columns of {found.path.name} are: {', '.join(names)}")
    aside = tuple(name or "(no name)" for name in names if name not in columns)
    return PairFiles((found,), (), columns, aside, _listed(found, columns) if found.format == "jsonl" else ())


def _step(found: DataFile, names: Sequence[str]) -> str:
    if len(names) > 1:
        return "say which with --source NAME --target NAME"
    return f"separate the two texts of each row of {found.path.name} by a tab"


def _guess(names: Sequence[str], source: str, target: str, *, numbered: bool) -> tuple[str, str] | None:
    """The two columns: those that are given, those with usual names, the first two without names, or the only two."""
    if source and target:
        return source, target
    by_name = {name.strip().lower(): name for name in reversed(names)}
    for pair in USUAL:
        first, second = (by_name.get(name, "") for name in pair)
        if first and second and source in ("", first) and target in ("", second):
            return first, second
    if len(names) < 2 or (len(names) > 2 and not numbered):
        return None
    first, second = names[:2]
    if source:
        return source, next(name for name in names if name != source)
    if target:
        return next(name for name in names if name != target), target
    return first, second


def _numbered(found: DataFile) -> tuple[str, ...]:
    """The columns of a table without a header, by number; none if no row can be read."""
    if found.format == "jsonl":
        return ()
    first = next(rows(found, problems=Problems()), None)
    return tuple(str(number + 1) for number in range(len(first.values))) if first is not None else ()


def _listed(found: DataFile, columns: tuple[str, str]) -> tuple[str, ...]:
    """Those of two columns whose value in the first row is a list."""
    row = json.loads(next(line for line in Lines(found) if line.strip()))
    return tuple(name for name in columns if isinstance(row[name], list))


def _find_lines(found: Sequence[DataFile], folder: bool, source: str, target: str, encoding: str | None) -> PairFiles:
    """The files of lines, each with its counterpart."""
    if not target:
        raise _no_target(found[0])
    if folder:
        found = [file for file in found if not _is_target_side(file.path, target)] or found
    chosen = [file for file in found if not source or source in name_parts(file.path.name)]
    if not chosen:
        message = f"{found[0].path}: plain text has no columns, and '{source}' is no part of its name"
        raise DataError(f"{message}; leave out --source, or name a table")
    targets: dict[Path, DataFile] = {}
    for file in chosen:
        other = counterpart(file.path, target)
        if other in targets:
            message = f"{other}: goes with {targets[other].path.name} and with {file.path.name}, expected one of them"
            raise DataError(f"{message}; say which with --source and a part of the name, or name the file")
        targets[other] = file
    sides = tuple(sniff(other, encoding=encoding) for other in targets)
    table = next((file for file in sides if file.format != "text"), None)
    if table is not None:
        message = f"{table.path}:1: a table ({table.format}), expected plain text like {targets[table.path].path.name}"
        raise DataError(f"{message}; name a file of lines")
    return PairFiles(tuple(targets.values()), sides, ("", ""))


def _is_target_side(path: Path, target: str) -> bool:
    """Whether a file of a folder that holds both sides is one that the target names."""
    named = Path(target)
    return target in (path.name, *name_parts(path.name)) or (is_file(named) and named.samefile(path))


def _no_target(found: DataFile) -> DataError:
    """The error for plain text without a target; a table with one bad row looks like plain text too."""
    step = "plain text needs a target: --target FILE or the part of the name that differs, for example --target de"
    first = 0
    for number, line in enumerate(Lines(found), 1):
        tabs = line.count("\t")
        first = tabs if number == 1 else first
        if not first:
            return DataError(f"{found.path}: {step}")
        if tabs != first:
            problem = Problem(found.path, number, None, f"{tabs + 1} columns", f"{first + 1} as in line 1")
            return BadRows([replace(problem, next_step=f"correct the row; or if this is no table, {step}")])
    return DataError(f"{found.path}: {step}; if it is a table, rename it to .tsv")


def read_pairs(
    files: PairFiles, *, advance: Callable[[float], None] | None = None, skipped: Skipped | None = None
) -> Iterator[Pair]:
    """The pairs, streaming, without white space around the sides; bad rows are raised together at the end.

    `advance` is told the share of the bytes read so far; `skipped` counts the pairs that have an empty side.
    """
    problems, left_out = Problems(), Skipped() if skipped is None else skipped
    progress = _Progress([*files.sources, *files.targets], advance)
    count = 0
    for number, source in enumerate(files.sources):
        if files.targets:
            other = len(files.sources) + number
            pairs = _line_pairs(source, files.targets[number], problems, (progress.of(number), progress.of(other)))
        else:
            pairs = _table_pairs(source, files.columns, problems, progress.of(number))
        for pair in pairs:
            if pair.source and pair.target:
                count += 1
                yield pair
            else:
                left_out.add(pair.file, pair.line)
    if not count and not problems.count:
        file = files.sources[0].path
        what = "an empty side in every pair"
        problems.add(Problem(file, 1, None, what, "at least one whole pair", "fill in the sides, or name another file"))
    problems.check()


def _table_pairs(found: DataFile, columns: tuple[str, str], problems: Problems, advance: Progress) -> Iterator[Pair]:
    lists: dict[str, Callable[[list[str]], str]] = {columns[0]: " ".join, columns[1]: _first}
    for row in rows(found, columns, lists=lists, problems=problems, advance=advance):
        source, target = row.values
        yield Pair(source.strip(), target.strip(), row.line, found.path)


def _first(strings: list[str]) -> str:
    return strings[0] if strings else ""


def _line_pairs(
    source: DataFile, target: DataFile, problems: Problems, advance: tuple[Progress, Progress]
) -> Iterator[Pair]:
    """Line n of one file with line n of the other."""
    # A lone return inside a line must not move the lines behind it; it ends lines only where nothing else does.
    left, right = (
        Lines(file, step, translate=file.newline == "\r") for file, step in zip((source, target), advance, strict=True)
    )
    try:
        for ours, theirs in zip_longest(left, right):
            left.recent.clear()
            right.recent.clear()
            if ours is None or theirs is None:  # read on to count the lines
                continue
            if _is_clean(left, ours, problems) and _is_clean(right, theirs, problems):
                yield Pair(ours.strip(), theirs.strip(), left.number, source.path)
    except BadRows as fatal:
        raise problems.fail(fatal) from fatal
    if left.number != right.number:
        short, long = sorted((left, right), key=lambda lines: lines.number)
        counts = f"{left.path.name} has {left.number:,} lines and {right.path.name} {right.number:,}"
        step = "look for a line that is missing, or broken in two"
        what = f"no line {short.number + 1:,} in {short.path.name}: {counts}"
        problems.add(Problem(long.path, short.number + 1, None, what, "as many in both", step))


def _is_clean(lines: Lines, line: str, problems: Problems) -> bool:
    bad = FORBIDDEN.search(line)
    if bad is not None:
        problems.add(forbidden_problem(lines.path, lines.number, bad.start() + 1, bad.group()))
    return bad is None


class _Progress:
    """Adds up how far several files have been read, as a share of all their bytes."""

    def __init__(self, files: Sequence[DataFile], advance: Callable[[float], None] | None) -> None:
        self._total = sum(file.size for file in files)
        self._done = [0] * len(files)
        self._advance = advance

    def of(self, number: int) -> Progress:
        """What the reader of one of the files calls."""

        def step(position: int) -> None:
            self._done[number] = position
            if self._advance is not None:
                self._advance(min(sum(self._done) / self._total, 1.0))

        return step
