"""Pairs: a source text and its target text, from two columns of a table or two files of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress, ignore_progress
from saccade.data.cache import EntryWriter, Record, cached, file_key
from saccade.data.formats.pair_files import PairFiles
from saccade.data.origins import RowOrigins
from saccade.data.splitting import content_hash
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.progress import BytesRead, FileProgress
from saccade.data.tables.rows import FORBIDDEN, Lines, forbidden_problem, rows
from saccade.data.tables.sniffing import DataFile
from saccade.data.texts import NumberWriter, Texts, TextWriter


@dataclass(frozen=True)
class Pair:
    """A source text and its target, and where the source starts."""

    source: str
    target: str
    line: int
    file: Path


@dataclass(frozen=True)
class Skipped:
    """How many rows were skipped, and the first of them."""

    count: int = 0
    file: Path | None = None
    line: int = 0

    def plus(self, count: int, file: Path | None, line: int) -> Skipped:
        """Return the sum with rows that come later."""
        if not self.count:
            return Skipped(count, file if count else None, line)
        return replace(self, count=self.count + count)

    def note(self, noun: str, what: str) -> list[str]:
        """Return a note for the user if anything was skipped."""
        if self.file is None:
            return []
        return [f"{self.count:,} {noun}{'' if self.count == 1 else 's'} {what} (first: {self.file.name}:{self.line})"]


@dataclass(frozen=True, eq=False)
class Pairs(Sequence[Pair]):
    """Pairs of files, read from the cache on demand."""

    sources: Texts
    targets: Texts
    origins: RowOrigins
    source_hashes: NDArray[np.uint64]
    """hash of each source, which decides what is held out"""
    empty: Skipped
    """pairs that were skipped because a side is empty"""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, row: int) -> Pair: ...
    @overload
    def __getitem__(self, row: slice) -> Pairs: ...
    def __getitem__(self, row: int | slice) -> Pair | Pairs:
        if isinstance(row, slice):
            return self.take(np.arange(len(self))[row])
        return Pair(self.sources[row], self.targets[row], int(self.origins.lines[row]), self.origins.file(row))

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> Pairs:
        """Return some of the pairs; no text is copied."""
        chosen = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            sources=self.sources.take(chosen),
            targets=self.targets.take(chosen),
            origins=self.origins.take(chosen),
            source_hashes=self.source_hashes[chosen],
        )


def empty_note(empty: Skipped) -> list[str]:
    """Return a note for the user on pairs with an empty side."""
    return empty.note("pair", "with an empty side skipped")


def read_pairs(files: PairFiles, *, progress: Progress = ignore_progress) -> Pairs:
    """Return all pairs without white space around the sides; bad rows are raised together.

    The files are parsed once; later calls read the cache.
    """

    def build(writer: EntryWriter) -> Record:
        sources, targets = TextWriter(writer, "sources"), TextWriter(writer, "targets")
        lines, numbers = NumberWriter(writer, "lines"), NumberWriter(writer, "files", "int32")
        hashes = NumberWriter(writer, "hashes", "uint64")
        empty = [0, 0, 0]  # count; file and line of the first
        for number, pair in parse_pairs(files, progress):
            if not pair.source or not pair.target:
                empty = [empty[0] + 1, *(empty[1:] if empty[0] else (number, pair.line))]
                continue
            sources.add(pair.source)
            targets.add(pair.target)
            lines.add(pair.line)
            numbers.add(number)
            hashes.add(content_hash(pair.source))
        for column in (sources, targets, lines, numbers, hashes):
            column.flush()
        return {"empty": empty}

    key = [[file_key(file) for file in files.sources], [file_key(file) for file in files.targets], list(files.columns)]
    entry = cached("pairs", key, build, [*files.sources, *files.targets])
    paths = tuple(file.path for file in files.sources)
    count, number, line = entry.record["empty"]
    return Pairs(
        sources=Texts.open(entry, "sources"),
        targets=Texts.open(entry, "targets"),
        origins=RowOrigins(paths, entry.arrays["files"], entry.arrays["lines"]),
        source_hashes=entry.arrays["hashes"],
        empty=Skipped(count, paths[number] if count else None, line),
        notes=entry.notes,
    )


def parse_pairs(files: PairFiles, progress: Progress = ignore_progress) -> Iterator[tuple[int, Pair]]:
    """Yield the number of the file and every pair, those with an empty side too; bad rows are raised at the end."""
    problems, total = Problems(), FileProgress([*files.sources, *files.targets], progress)
    complete = 0
    for number, source in enumerate(files.sources):
        if files.targets:
            reports = (total.of(number), total.of(len(files.sources) + number))
            pairs = _line_pairs(source, files.targets[number], problems, reports)
        else:
            pairs = _table_pairs(source, files.columns, problems, total.of(number))
        for pair in pairs:
            complete += bool(pair.source and pair.target)
            yield number, pair
    if not complete and not problems.count:
        file = files.sources[0].path
        what = "an empty side in every pair"
        problems.add(
            Problem(file, 1, None, what, "at least one complete pair", "fill in the sides, or name another file")
        )
    problems.check()


def _table_pairs(file: DataFile, columns: tuple[str, str], problems: Problems, on_bytes: BytesRead) -> Iterator[Pair]:
    lists: dict[str, Callable[[list[str]], str]] = {columns[0]: " ".join, columns[1]: _first}
    for row in rows(file, columns, lists=lists, problems=problems, on_bytes=on_bytes):
        source, target = row.values
        yield Pair(source.strip(), target.strip(), row.line, file.path)


def _first(strings: list[str]) -> str:
    return strings[0] if strings else ""


def _line_pairs(
    source: DataFile, target: DataFile, problems: Problems, on_bytes: tuple[BytesRead, BytesRead]
) -> Iterator[Pair]:
    """Yield line n of one file with line n of the other."""
    # A lone carriage return inside a line must not shift the following lines; it ends lines only if nothing else does.
    left, right = (
        Lines(file, report, translate=file.newline == "\r")
        for file, report in zip((source, target), on_bytes, strict=True)
    )
    try:
        for source_line, target_line in zip_longest(left, right):
            left.recent.clear()
            right.recent.clear()
            if source_line is None or target_line is None:  # keep reading to count the lines
                continue
            if _is_clean(left, source_line, problems) and _is_clean(right, target_line, problems):
                yield Pair(source_line.strip(), target_line.strip(), left.number, source.path)
    except BadRows as fatal:
        raise problems.fail(fatal) from fatal
    if left.number != right.number:
        short, long = sorted((left, right), key=lambda lines: lines.number)
        counts = f"{left.path.name} has {left.number:,} lines and {right.path.name} {right.number:,}"
        step = "look for a line that is missing, or split in two"
        what = f"no line {short.number + 1:,} in {short.path.name}: {counts}"
        problems.add(Problem(long.path, short.number + 1, None, what, "as many in both", step))


def _is_clean(lines: Lines, line: str, problems: Problems) -> bool:
    bad = FORBIDDEN.search(line)
    if bad is not None:
        problems.add(forbidden_problem(lines.path, lines.number, bad.start() + 1, bad.group()))
    return bad is None
