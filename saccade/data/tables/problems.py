"""Problems in data files: each names file, line and column; all are reported in one error."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.errors import DataError, suggest

SHOWN = 20  # beyond this, a user fixes the cause instead of single rows
LONGEST = 600  # characters of each part of a problem
STOP = 1000  # problems after which reading stops: the file is something else than it seems


@dataclass(frozen=True)
class Problem:
    """A line of a file that breaks a rule: what is there, what was expected, and what to do."""

    file: Path
    line: int | None
    column: int | None
    what: str
    expected: str
    next_step: str = ""

    def __str__(self) -> str:
        position = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return f"{position}: {_shortened(self.what)}, expected {_shortened(self.expected)}"


def _shortened(text: str) -> str:
    """Return a text without the middle of a value that fills the screen."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


class BadRows(DataError):
    """The data error that lists all problems, and what to do about them."""

    stopped = False
    """whether there were so many problems that reading stopped"""

    def __init__(self, problems: Iterable[Problem], more: int = 0) -> None:
        self.problems = list(problems)
        self.more = more
        steps = list(dict.fromkeys(problem.next_step for problem in self.problems if problem.next_step))
        lines = [str(problem) for problem in self.problems]
        if more:
            lines.append(f"... and {more:,} more" + (", where reading stopped" if self.stopped else ""))
        if len(lines) == 1 and steps:
            lines = [f"{lines[0]}; {steps[0]}"]
        else:
            lines.extend(f"next: {step}" for step in steps[:3])
        super().__init__("\n".join(lines))


class TooManyProblems(BadRows):
    """So many problems that reading stopped."""

    stopped = True


class Problems:
    """A bounded list of problems: keeps the first ones, counts the others, and raises them together.

    After `stop` problems they are raised at once, so that a file of another kind is not read to its end.
    """

    def __init__(self, limit: int = SHOWN, stop: int = STOP) -> None:
        self.limit, self.stop = limit, stop
        self.kept: list[Problem] = []
        self.count = 0

    def add(self, problem: Problem) -> None:
        """Add a problem; reading continues, unless there are too many."""
        self.count += 1
        if len(self.kept) < self.limit:
            self.kept.append(problem)
        if self.count >= self.stop:
            raise TooManyProblems(self.kept, self.count - len(self.kept))

    def fail(self, fatal: BadRows) -> BadRows:
        """Return the error for a problem after which reading cannot continue, with the earlier ones."""
        if not self.count or isinstance(fatal, TooManyProblems):
            return fatal
        # The fatal problem is always shown: it explains why nothing after it was read.
        kept = self.kept[: max(self.limit - len(fatal.problems), 0)]
        return BadRows([*kept, *fatal.problems], self.count - len(kept) + fatal.more)

    def check(self) -> None:
        """Raise all problems so far, if there are any."""
        if self.count:
            raise BadRows(self.kept, self.count - len(self.kept))


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return the similar name as a hint for an error message; empty if no name is similar."""
    hint = suggest(name, list(names))
    return hint if "did you mean" in hint else ""


@dataclass
class ControlCharacters:
    """Counts the control characters that are read as spaces, and keeps the line of the first one."""

    count: int = 0
    file: Path | None = None
    line: int = 0

    def add(self, file: Path, line: int, count: int) -> None:
        """Add those of one line."""
        if not self.count:
            self.file, self.line = file, line
        self.count += count

    def notes(self) -> list[str]:
        """Return a note for the user if there were any."""
        if self.file is None:
            return []
        several = f"{self.count:,} control characters read as spaces"
        what = "1 control character read as a space" if self.count == 1 else several
        return [f"{what} (first: {self.file.name}:{self.line})"]
