"""Shells: what a user types is a text for the model, or a command that begins with a slash."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from saccade.config import settings
from saccade.errors import UsageError, suggest
from saccade.interactive.writer import Writer, WritingOptions, Written


class Output(Protocol):
    """Where a shell writes: a terminal, or a pipe."""

    shows_input: bool
    """whether the user sees what was typed"""

    def text(self, text: str) -> None:
        """Show a piece of generated text."""

    def end(self, record: Mapping[str, Any]) -> None:
        """End a generated text; `record` describes it as JSON."""

    def note(self, message: str) -> None:
        """Show a message that is not part of a text."""

    def interruptible(self) -> Callable[[], bool]:
        """Return a function that says whether the user has interrupted, from now on."""


class Shell(abc.ABC):
    """A dialogue with a writer; the commands are the methods `do_...`, whose docstrings are their help."""

    def __init__(self, writer: Writer, output: Output) -> None:
        self.writer, self.output = writer, output
        self.status = ""
        """how much of the context the last text has used"""
        self._running = True
        self._files: set[Path] = set()  # that were read or written, and may be replaced

    def handle(self, line: str) -> bool:
        """Do what a line says; returns False if it ends the dialogue. A line that begins with // is a text."""
        if not line.startswith("/") or line.startswith("//"):
            self.receive(line[1:] if line.startswith("//") else line)
            return True
        name, _, argument = line[1:].partition(" ")
        commands = self.commands()
        if name not in commands:
            known = suggest(f"/{name}", [f"/{command}" for command in commands])
            raise UsageError(f"no command '/{name}'{known} (a text that begins with a slash is written with //)")
        commands[name](argument.strip())
        return self._running

    @abc.abstractmethod
    def receive(self, line: str) -> None:
        """Continue after a text of the user."""

    @abc.abstractmethod
    def write_file(self, path: Path) -> None:
        """Save everything."""

    @abc.abstractmethod
    def read_file(self, path: Path) -> None:
        """Replace everything by what was saved."""

    @classmethod
    def command_names(cls) -> list[str]:
        """Return the names of the commands."""
        return [name.removeprefix("do_") for name in dir(cls) if name.startswith("do_")]

    def commands(self) -> dict[str, Callable[[str], None]]:
        """Return the commands by name."""
        return {name: getattr(self, f"do_{name}") for name in self.command_names()}

    def do_help(self, argument: str) -> None:
        """/help: list the commands"""
        lines = [(method.__doc__ or "").partition(": ") for method in self.commands().values()]
        width = max(len(usage) for usage, _, _ in lines)
        self.output.note("\n".join(f"{usage:{width}}  {help}" for usage, _, help in lines))

    def do_exit(self, argument: str) -> None:
        """/exit: leave; so does Ctrl-D"""
        self._running = False

    def do_set(self, argument: str) -> None:
        """/set KEY=VALUE: set an option, such as temperature=0.5; without KEY=VALUE list them"""
        if not argument:
            options = self.writer.options
            values = [(f"{row.name}={getattr(options, row.name)}", row.help) for row in settings(WritingOptions)]
            width = max(len(value) for value, _ in values)
            self.output.note("\n".join(f"{value:{width}}  {help}" for value, help in values))
            return
        self.writer.set([argument])
        name = argument.partition("=")[0]
        self.output.note(f"{name}={getattr(self.writer.options, name)}")

    def do_save(self, argument: str) -> None:
        """/save FILE: save to a file"""
        path = _path(argument, "save")
        if path.exists() and path.resolve() not in self._files:
            raise UsageError(f"{path} exists, and was not loaded or saved here; name another file")
        self.write_file(path)
        self._files.add(path.resolve())
        self.output.note(f"saved {path}")

    def do_load(self, argument: str) -> None:
        """/load FILE: continue what was saved"""
        path = _path(argument, "load")
        self.read_file(path)
        self._files.add(path.resolve())

    def write(self, ids: list[int], show: Callable[[str], None]) -> Written:
        """Generate a text; `finish` must follow."""
        return self.writer.write(ids, show, self.output.interruptible())

    def finish(self, written: Written, used: int, record: Mapping[str, Any]) -> None:
        """End a generated text, and say why it ended early; `used`: tokens of the context."""
        self.output.end({**record, "tokens": written.tokens, "finish": written.finish or "interrupted"})
        if not written.finish:
            self.output.note("(interrupted)")
        elif not written.text.strip():
            self.output.note("(the model has written nothing; /retry asks again)")
        elif written.finish == "length":
            full = used >= self.writer.engine.context
            limit = "the context is full" if full else f"max_new_tokens={self.writer.options.max_new_tokens}"
            self.output.note(f"(ended early: {limit})")


def _path(argument: str, command: str) -> Path:
    if not argument:
        raise UsageError(f"/{command} needs the name of a file, such as /{command} evening.jsonl")
    return Path(argument).expanduser()
