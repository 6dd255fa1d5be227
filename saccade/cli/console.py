"""The console of a dialogue: a terminal with a prompt, or lines from a pipe; generated text alone goes to stdout."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import click

from saccade.cli.group import log, print_json, read_lines
from saccade.cli.printing import show_text
from saccade.errors import SaccadeError, UsageError, printable
from saccade.interactive.shell import Shell

PROMPT = "> "


class Console:
    """Reads lines from stdin and writes generated text to stdout, messages to stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.terminal = self.shows_input = sys.stdin.isatty()
        self._interrupted = False

    def text(self, text: str) -> None:
        if not self.as_json:
            show_text(text)
            sys.stdout.flush()

    def end(self, record: Mapping[str, Any]) -> None:
        if self.as_json:
            print_json(record)
        else:
            click.echo()
        sys.stdout.flush()

    def note(self, message: str) -> None:
        if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
            click.secho(printable(message), err=True, dim=True)
        else:
            log(message)

    def interruptible(self) -> Callable[[], bool]:
        self._interrupted = False
        return lambda: self._interrupted

    def run(self, shell: Shell) -> None:
        """Give lines to a shell until one of them ends it, or until there are no more."""
        if not self.terminal:
            for position, text in read_lines(sys.stdin.buffer):
                if not self._handle_piped(shell, text, position):
                    return
            return
        while (line := self._read()) is not None:
            with self._interrupts():
                try:
                    if not shell.handle(line):
                        return
                    if shell.status:
                        self.note(shell.status)
                        shell.status = ""
                except SaccadeError as error:
                    self.note(str(error))

    def _handle_piped(self, shell: Shell, line: str, position: str) -> bool:
        """Handle a line of a pipe; a mistake ends the program with the place of the line."""
        try:
            return shell.handle(line)
        except SaccadeError as error:
            error.args = (f"{position}: {error}",)
            raise

    def _read(self) -> str | None:
        """Read a line at the terminal; None: Ctrl-D. Ctrl-C discards what was typed."""
        while True:
            try:
                return self._checked(self._input())
            except EOFError:
                click.echo(err=True)
                return None
            except KeyboardInterrupt:
                click.echo(err=True)
                self.note("(Ctrl-D or /exit leaves)")
            except UsageError as error:
                self.note(str(error))

    def _input(self) -> str:
        if sys.stdout.isatty():
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401 - input() then has editing and a history

            return input(PROMPT)
        click.echo(PROMPT, nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def _checked(self, line: str) -> str:
        try:
            line.encode()
        except UnicodeEncodeError as error:
            raise UsageError("a line must be UTF-8, but has other bytes; set the terminal to UTF-8") from error
        return line

    @contextlib.contextmanager
    def _interrupts(self) -> Iterator[None]:
        """Let the first Ctrl-C end the text that is generated, and a second one the program."""
        previous = signal.getsignal(signal.SIGINT)

        def interrupt(number: int, frame: FrameType | None) -> None:
            self._interrupted = True
            signal.signal(signal.SIGINT, previous)

        signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)
