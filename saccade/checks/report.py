"""Results of checks: what held, what failed, and with which smallest example; as a table, as JSON, as an exit code."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["passed", "warning", "failed", "skipped"]
STATUSES: tuple[Status, ...] = ("passed", "warning", "failed", "skipped")


@dataclass(frozen=True)
class Outcome:
    """What an invariant returns."""

    status: Status
    message: str
    """passed: what was compared, and how far it may differ; skipped: why; else what is wrong"""
    example: str = ""
    """the smallest input that shows a failure"""
    where: str = ""
    """the module or the file to look at"""


def passed(message: str) -> Outcome:
    return Outcome("passed", message)


def skipped(reason: str) -> Outcome:
    return Outcome("skipped", reason)


@dataclass(frozen=True)
class Result(Outcome):
    """The outcome of one invariant for one model."""

    name: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        record = {"name": self.name, "status": self.status, "message": self.message}
        return record | {"example": self.example, "where": self.where, "seconds": round(self.seconds, 3)}


@dataclass(frozen=True)
class CheckReport:
    """The results of all invariants for one model; a notebook shows them as a table."""

    subject: str
    """what was checked"""
    results: Sequence[Result]

    @property
    def passed(self) -> bool:
        """Whether nothing failed; a warning is no failure."""
        return not self.failed

    @property
    def failed(self) -> list[Result]:
        return [result for result in self.results if result.status == "failed"]

    @property
    def exit_code(self) -> int:
        return 0 if self.passed else 1

    def __getitem__(self, name: str) -> Result:
        for result in self.results:
            if result.name == name:
                return result
        raise KeyError(f"no invariant '{name}' in this report; there are: {', '.join(r.name for r in self.results)}")

    def summary(self) -> str:
        """Return the counts in one line."""
        counts = {status: sum(result.status == status for result in self.results) for status in STATUSES}
        shown = [f"{counts['passed']} passed"]
        shown += [f"{counts['warning']} warning{'s' if counts['warning'] > 1 else ''}"] if counts["warning"] else []
        shown += [f"{counts[status]} {status}" for status in ("failed", "skipped")]
        return f"{self.subject}: {', '.join(shown)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "passed": self.passed,
            "results": [result.to_json() for result in self.results],
        }

    def __str__(self) -> str:
        lines = [self.summary()]
        for result in self.results:
            lines.append(f"{result.status:8} {result.name:14} {result.message}")
            lines += [f"{'':24}example: {result.example}"] if result.example else []
            lines += [f"{'':24}look at: {result.where}"] if result.where else []
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(r.name)}</td><td>{r.status}</td><td>{html.escape(r.message)}"
            + "".join(
                f"<br><small>{label}: {html.escape(text)}</small>"
                for label, text in (("example", r.example), ("look at", r.where))
                if text
            )
            + "</td></tr>"
            for r in self.results
        )
        return f"<p>{html.escape(self.summary())}</p><table>{rows}</table>"
