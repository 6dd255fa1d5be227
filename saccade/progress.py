"""Screen: how a run looks in a terminal: what was found, a progress bar, scores and a sample now and then."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Terminal(Console):
    """A console whose reader may go away: the work goes on without a word."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


class Screen:
    """Reports to stderr; without a terminal a plain line every few seconds takes the place of the bar."""

    PLAIN_EVERY = 10.0  # seconds between lines where there is no terminal

    def __init__(self, quiet: bool) -> None:
        quiet = quiet or sys.stderr is None
        self._console = Terminal(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
        )
        self._progress = Progress(
            *columns, console=self._console, transient=True, disable=quiet or not self._console.is_terminal
        )
        self._bars: dict[str, TaskID] = {}
        self._began = self._told = time.monotonic()
        self._first, self._resumed = 0.0, 0.0
        self._tokens, self._since, self._doing = 0, 0.0, ""

    def __enter__(self) -> Screen:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, message: str) -> None:
        self._console.print(escape(message))

    def advance(self, what: str, share: float) -> None:
        self._bar(what, share, "")
        if share >= 1:
            self._progress.remove_task(self._bars.pop(what))

    def step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        now = time.monotonic()
        if not self._first:
            self._first, self._resumed = now, progress
        doing = record.get("doing", "")  # which of several runs, where there are several
        if not self._since or doing != self._doing:
            self._tokens, self._since, self._doing = 0, now, doing
        else:
            self._tokens += record["tokens"]
        if now - self._told < (0.1 if self._console.is_terminal else self.PLAIN_EVERY):
            return
        self._told = now
        speed = self._tokens / max(now - self._since, 1e-9)
        gone = progress - self._resumed
        left = _clock((now - self._first) * (1 - progress) / gone) if gone > 0 else "?"
        losses = "  ".join(f"{name} {value:.4f}" for name, value in record.items() if name.startswith("loss"))
        of = f"/{total}" if total else ""
        note = f"{doing + '  ' if doing else ''}step {record['step']}{of}  {losses}  {speed:,.0f} tokens/s  {left} left"
        self._bar("training", progress, note)
        if not self._console.is_terminal:
            self.say(f"{progress:4.0%}  {note}")

    def evaluated(self, record: dict[str, Any], sample: str) -> None:
        scores = "  ".join(
            f"{name} {value:.4f}" for name, value in record.items() if name not in ("step", "elapsed", "tokens", "best")
        )
        self._console.print(f"[bold]step {record['step']}[/]  valid {scores}")
        if sample:
            self._console.print(f"[dim]{escape(_short(sample))}[/]")

    def _bar(self, what: str, share: float, note: str) -> None:
        if what not in self._bars:
            self._bars[what] = self._progress.add_task(what, total=1.0, note=note)
        self._progress.update(self._bars[what], completed=share, note=note)


def _short(text: str, lines: int = 4) -> str:
    """The first lines of a sample, set in."""
    return "\n".join(f"  {line}" for line in text.strip().splitlines()[:lines])


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
