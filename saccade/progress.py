"""Progress of training in a terminal or a notebook: notes, a bar, and metrics and a sample at each evaluation."""

from __future__ import annotations

import html
import importlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from saccade.core import Callback, Callbacks
from saccade.errors import printable

NOT_METRICS = ("step", "elapsed", "best")  # of the record of an evaluation


class Throughput:
    """The line under a progress bar: step, losses, units per second and the time left."""

    def __init__(self) -> None:
        self._first, self._resumed = 0.0, 0.0
        self._units, self._since, self._part = 0, 0.0, ""

    def add(self, record: dict[str, Any], progress: float, now: float) -> None:
        """Count the units of a step; speed is measured anew for each part of a job of several."""
        if not self._first:
            self._first, self._resumed = now, progress
        part = record.get("part", "")
        if not self._since or part != self._part:
            self._units, self._since, self._part = 0, now, part
        else:
            self._units += record[record["unit"]]

    def line(self, record: dict[str, Any], progress: float, total: int | None, now: float) -> str:
        """Describe the step that was just counted."""
        speed = self._units / max(now - self._since, 1e-9)
        done = progress - self._resumed
        left = _clock((now - self._first) * (1 - progress) / done) if done > 0 else "?"
        losses = "  ".join(f"{name} {value:.4f}" for name, value in record.items() if name.startswith("loss"))
        part = f"{self._part}  " if self._part else ""
        step = f"step {record['step']}{f'/{total}' if total else ''}"
        return f"{part}{step}  {losses}  {speed:,.0f} {record['unit']}/s  {left} left"


class Terminal(Console):
    """A console whose reader may close the pipe: training continues without output."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


class ProgressBar(Callback):
    """A progress bar on stderr; without a terminal a plain line every few seconds replaces it."""

    SECONDS_PER_LINE = 10.0  # where there is no terminal

    def __init__(self, quiet: bool = False) -> None:
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
        self._throughput, self._updated = Throughput(), time.monotonic()

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def log(self, message: str) -> None:
        self._console.print(escape(printable(message)))

    def on_progress(self, stage: str, fraction: float) -> None:
        self._update(stage, fraction, "")
        if fraction >= 1:
            self._progress.remove_task(self._bars.pop(stage))

    def on_step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        now = time.monotonic()
        self._throughput.add(record, progress, now)
        if now - self._updated < (0.1 if self._console.is_terminal else self.SECONDS_PER_LINE):
            return
        self._updated = now
        line = self._throughput.line(record, progress, total, now)
        self._update("training", progress, line)
        if not self._console.is_terminal:
            self.log(f"{progress:4.0%}  {line}")

    def on_evaluation(self, record: dict[str, Any], sample: str) -> None:
        self._console.print(f"[bold]step {record['step']}[/]  valid {_metrics(record)}")
        if sample:
            self._console.print(f"[dim]{escape(printable(_first_lines(sample)))}[/]")

    def _update(self, stage: str, fraction: float, note: str) -> None:
        if stage not in self._bars:
            self._bars[stage] = self._progress.add_task(stage, total=1.0, note=note)
        self._progress.update(self._bars[stage], completed=fraction, note=note)


class NotebookProgress(Callback):
    """One output cell of a notebook that is updated in place."""

    SECONDS_PER_UPDATE = 0.5
    SHOWN = 12  # newest notes and evaluations

    def __init__(self) -> None:
        notebook = importlib.import_module("IPython.display")
        self._html = notebook.HTML
        self._handle = notebook.display(self._html(""), display_id=True)
        self._lines: list[str] = []
        self._throughput, self._updated = Throughput(), 0.0

    def log(self, message: str) -> None:
        self._lines.append(html.escape(message))
        self._show("", None)

    def on_progress(self, stage: str, fraction: float) -> None:
        self._show(stage, fraction if fraction < 1 else None)

    def on_step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        now = time.monotonic()
        self._throughput.add(record, progress, now)
        if progress >= 1 or now - self._updated >= self.SECONDS_PER_UPDATE:
            self._show(self._throughput.line(record, progress, total, now), progress)

    def on_evaluation(self, record: dict[str, Any], sample: str) -> None:
        self._lines.append(f"<b>step {record['step']}</b> valid {html.escape(_metrics(record))}")
        if sample:
            self._lines.append(f"<span style='opacity:0.7'>{html.escape(_first_lines(sample))}</span>")
        self._show("", None)

    def _show(self, line: str, fraction: float | None) -> None:
        self._updated = time.monotonic()
        bar = "" if fraction is None else f"<progress value='{fraction:.4f}' max='1'></progress> {html.escape(line)}"
        notes = "\n".join(self._lines[-self.SHOWN :])
        self._handle.update(self._html(f"<pre>{notes}</pre>{bar}"))


@contextmanager
def reporting(callbacks: Sequence[Callback] = (), progress: bool | None = None) -> Iterator[Callback]:
    """Yield all callbacks as one, with the progress display before them.

    `progress` None: shown in a notebook and at a terminal; True: also elsewhere, as plain lines; False: never.
    """
    notebook = progress is not False and in_notebook()
    if notebook:
        yield Callbacks([NotebookProgress(), *callbacks])
    elif progress or (progress is None and sys.stderr is not None and sys.stderr.isatty()):
        with ProgressBar() as bar:
            yield Callbacks([bar, *callbacks])
    else:
        yield Callbacks(callbacks)


def in_notebook() -> bool:
    """Whether this is a cell of a notebook; false if IPython was not even imported."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def _metrics(record: dict[str, Any]) -> str:
    return "  ".join(f"{name} {_number(value)}" for name, value in record.items() if name not in NOT_METRICS)


def _number(value: float) -> str:
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}"


def _first_lines(text: str, lines: int = 4) -> str:
    """Return the first lines of a sample, indented."""
    return "\n".join(f"  {line}" for line in text.strip().splitlines()[:lines])


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
