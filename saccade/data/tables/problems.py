"""Problems in data files: each names file, line and column, and many are reported in one error."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from saccade.errors import DataError

SHOWN = 20  # beyond this a person fixes the cause, not the rows


@dataclass(frozen=True)
class Problem:
    """One place in a file that breaks a rule, and what stands there instead."""

    file: Path
    line: int | None
    column: int | None
    what: str
    expected: str
    next_step: str = ""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return f"{place}: {self.what}, expected {self.expected}"


class BadRows(DataError):
    """The data error that lists every bad place it knows of, and what to do about them."""

    def __init__(self, problems: Iterable[Problem], more: int = 0) -> None:
        self.problems = list(problems)
        self.more = more
        steps = list(dict.fromkeys(problem.next_step for problem in self.problems if problem.next_step))
        lines = [str(problem) for problem in self.problems]
        if more:
            lines.append(f"... and {more:,} more")
        if len(lines) == 1 and steps:
            lines = [f"{lines[0]}; {steps[0]}"]
        else:
            lines.extend(f"next: {step}" for step in steps[:3])
        super().__init__("\n".join(lines))


class Problems:
    """A bounded list of problems: keeps the first ones, counts the rest, and raises them together."""

    def __init__(self, limit: int = SHOWN) -> None:
        self.limit = limit
        self.kept: list[Problem] = []
        self.count = 0

    def add(self, problem: Problem) -> None:
        """Note one problem, and go on reading."""
        self.count += 1
        if len(self.kept) < self.limit:
            self.kept.append(problem)

    def fail(self, fatal: BadRows) -> BadRows:
        """The error for a problem after which reading cannot go on, with those noted before it."""
        # The fatal problem is always shown: it explains why nothing after it was looked at.
        kept = self.kept[: max(self.limit - len(fatal.problems), 0)]
        return BadRows([*kept, *fatal.problems], self.count - len(kept) + fatal.more)

    def check(self) -> None:
        """Raise all problems noted so far, if there are any."""
        if self.count:
            raise BadRows(self.kept, self.count - len(self.kept))


@dataclass
class Strays:
    """Counts the control characters that are read as spaces, and knows where the first one stands."""

    count: int = 0
    file: Path | None = None
    line: int = 0

    def add(self, file: Path, line: int, count: int) -> None:
        """Note those of one line."""
        if not self.count:
            self.file, self.line = file, line
        self.count += count

    def notes(self) -> list[str]:
        """One line for people, if there were any."""
        if self.file is None:
            return []
        many = f"{self.count:,} control characters read as spaces"
        read = "1 control character read as a space" if self.count == 1 else many
        return [f"{read} (first: {self.file.name}:{self.line})"]
