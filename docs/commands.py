"""The command blocks of the documentation: read, run and compared with the output that a page shows.

    python docs/commands.py docs/tutorials/translator.md           # run a page as a reader does; print all output
    python docs/commands.py docs/tutorials/translator.md --quick   # with the changes of the tests

All blocks of a page run in order in one empty folder. In a `console` block a line that starts with `$ ` is a command
and the lines below it are its output; in a `bash` block every line is a command. A `python` block with a title is
written to that file; one without is a program, in tutorials only. Comments above a block say how the tests run it:

    <!-- test: --minutes 3 => --steps 5 model.dim=32; 8000 => PORT -->   texts of the commands that are replaced
    <!-- test, all blocks: --minutes 3 => --steps 5 -->                  the same for the whole page
    <!-- files: pairs.tsv, book.txt -->                                  files that the page takes for granted
    <!-- before: saccade train book.txt --steps 3 -->                    a command that the page takes for granted
    <!-- output: not compared, because five steps train no model -->     only the exit code is checked
    <!-- exit code: 3 -->                                                of the last command of the block
    <!-- not run: needs a second machine -->                             with a reason
"""

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

BLOCK = re.compile(
    r"(?P<comments>(?:^<!--(?:(?!-->).)*-->\n\s*)*)^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
COMMENT = re.compile(
    r"<!-- *(?P<key>test, all blocks|test|files|before|output|exit code|not run): *(?P<text>.*?) *-->", re.DOTALL
)
TITLE = re.compile(r'title="([^"]+)"')
PROGRAM = ".block.py"  # file of a block of Python without a title
SHELL = ("console", "bash")
UNLABELLED = re.compile(
    r"^(?:\$ )?(?:saccade|torchrun|make|pip) ", re.MULTILINE
)  # commands in a block without a language
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
PATIENCE = 60.0  # seconds until a program in the background has printed what a page shows


@dataclass(frozen=True)
class Command:
    """A command, the lines that a page shows below it, and its exit code."""

    text: str
    output: tuple[str, ...] = ()
    exit_code: int = 0


@dataclass(frozen=True)
class Block:
    """A code block of a page that is run, or says why not."""

    page: Path
    line: int
    commands: tuple[Command, ...]
    file: str = ""
    """name of the file that the block is written to, instead of commands"""
    content: str = ""
    replacements: tuple[tuple[str, str], ...] = ()
    not_run: str = ""
    """reason"""
    compared: bool = True

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"


@dataclass(frozen=True)
class Result:
    """What a command printed, stdout and stderr as at a terminal."""

    command: str
    exit_code: int
    output: str
    seconds: float


@dataclass
class Shell:
    """Runs commands in a folder; what they leave in the background ends with the shell."""

    folder: Path
    environment: Mapping[str, str]
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, command: Command) -> Result:
        """Run a command; one that ends with & is left running once it has printed what the page shows."""
        started = time.monotonic()
        with tempfile.TemporaryFile() as file:
            process = subprocess.Popen(
                ["bash", "-c", command.text.rstrip("& ")],
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            if command.text.endswith("&"):
                self.running.append(process)
                while missing(command.output, _read(file)) is not None and process.poll() is None:
                    if time.monotonic() - started > PATIENCE:
                        break
                    time.sleep(0.05)
                code = process.poll() or 0
            else:
                code = process.wait()
            text = _read(file)
        return Result(command.text, code, text, time.monotonic() - started)

    def close(self) -> None:
        """End what is still running."""
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(timeout=PATIENCE)


def _read(file: "tempfile._TemporaryFileWrapper[bytes]") -> str:
    return os.pread(file.fileno(), 1 << 24, 0).decode(errors="replace")


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page that are run, in order: shell commands, and files with a title."""
    text = page.read_text(encoding="utf-8")
    general = [pair for entry in COMMENT.finditer(text) if entry["key"] == "test, all blocks" for pair in _pairs(entry)]
    found = []
    for block in BLOCK.finditer(text):
        language = block["info"].split(" ")[0]
        title = TITLE.search(block["info"])
        if not language and UNLABELLED.search(block["body"]):
            line = text.count("\n", 0, block.start("info")) + 1
            raise ValueError(f"{page.name}:{line}: a block with commands must be labelled {' or '.join(SHELL)}")
        if language not in SHELL and title is None and (language != "python" or page.parent.name != "tutorials"):
            continue
        comments = {entry["key"]: entry for entry in COMMENT.finditer(block["comments"])}
        own = _pairs(comments["test"]) if "test" in comments else []
        commands = [] if title else list(_commands(block["body"], language))
        if "exit code" in comments:
            commands[-1] = replace(commands[-1], exit_code=int(comments["exit code"]["text"]))
        before = [Command(comments["before"]["text"])] if "before" in comments else []
        found.append(
            Block(
                page,
                line=text.count("\n", 0, block.start("info")) + 1,
                commands=(*before, *commands),
                file=title[1] if title else PROGRAM if language == "python" else "",
                content=block["body"],
                replacements=(*own, *general),
                not_run=comments["not run"]["text"] if "not run" in comments else "",
                compared="output" not in comments,
            )
        )
    return found


def files(page: Path) -> list[str]:
    """Return the files that a page takes for granted."""
    entries = (entry for entry in COMMENT.finditer(page.read_text(encoding="utf-8")) if entry["key"] == "files")
    return [name.strip() for entry in entries for name in entry["text"].split(",")]


def _pairs(comment: re.Match[str]) -> list[tuple[str, str]]:
    """Return the replacements of a comment, `old => new; old => new`."""
    pairs = []
    for entry in comment["text"].split(";"):
        old, arrow, new = entry.partition("=>")
        if not arrow or not old.strip():
            raise ValueError(f"a replacement must be written 'old => new', but is '{entry.strip()}'")
        pairs.append((old.strip(), new.strip()))
    return pairs


def _commands(body: str, language: str) -> Iterator[Command]:
    """Yield the commands of a block; a backslash at the end, or a heredoc, continues on the next line."""
    if language == "python":
        yield Command(f"python {PROGRAM}")
        return
    lines = iter(body.splitlines())
    command: list[str] = []
    output: list[str] = []
    for line in lines:
        if language == "console" and not line.startswith("$ "):
            output.append(line)
            continue
        if command:
            yield Command("\n".join(command), tuple(output))
        command, output = [], []
        line = line.removeprefix("$ ") if language == "console" else line
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        command.append(line)
        while command[-1].endswith("\\"):
            command.append(next(lines))
        if heredoc := re.search(r"<<'?(\w+)'?", command[0]):
            while command[-1].strip() != heredoc[1]:
                command.append(next(lines))
    if command:
        yield Command("\n".join(command), tuple(output))


def replaced(text: str, replacements: tuple[tuple[str, str], ...], values: Mapping[str, str]) -> str:
    """Return a command with the replacements of the tests; `values` are the words they stand for, such as PORT."""
    for old, new in replacements:
        for name, value in values.items():
            new = new.replace(name, value)
        text = text.replace(old, new)
    return text


def missing(expected: tuple[str, ...], actual: str) -> str | None:
    """Return the first line that a page shows and the output does not have, in that order; None if it has all.

    Numbers are not compared; `...` at the end of a line stands for its rest, and alone for any lines.
    """
    remaining = iter([_plain(line) for line in actual.splitlines()])
    for line in expected:
        plain = _plain(line)
        if plain in ("", "..."):
            continue
        start, dots, _ = plain.partition("...")
        if not any(text.startswith(start) if dots else text == plain for text in remaining):
            return line
    return None


def _plain(line: str) -> str:
    return " ".join(NUMBER.sub("0", line).split())


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def run_page(page: Path, shell: Shell, *, quick: bool) -> Iterator[tuple[Block, Command, Result]]:
    """Run the blocks of a page in order; yield each command with what it printed."""
    values = {"PORT": str(free_port()), "ROOT": str(Path(__file__).parents[1])}
    for block in blocks(page):
        if block.not_run:
            continue
        replacements = block.replacements if quick else ()
        if block.file:
            (shell.folder / block.file).write_text(block.content, encoding="utf-8")
        for command in block.commands:
            output = tuple(replaced(line, replacements, values) for line in command.output) if block.compared else ()
            changed = replace(command, text=replaced(command.text, replacements, values), output=output)
            yield block, changed, shell.run(changed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--quick", action="store_true", help="with the changes of the tests")
    parser.add_argument("--folder", type=Path, help="folder to run in, which is kept")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True, parents=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = Shell(folder, {**os.environ, "PATH": path, "PYTHONPATH": str(Path(__file__).parents[1])})
    try:
        for _, command, result in run_page(given.page, shell, quick=given.quick):
            print(
                f"$ {command.text}\n{result.output.rstrip()}\n[{result.exit_code}, {result.seconds:.1f} s]", flush=True
            )
    finally:
        shell.close()
        if given.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
