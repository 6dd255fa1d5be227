"""The reference pages, written from the program: commands, settings, the Python API, errors and exit codes.

python docs/reference.py           # write docs/reference/*.md
python docs/reference.py --check   # name the pages that are out of date, and fail
"""

import argparse
import ast
import inspect
import json
import os
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

import saccade
from saccade import errors
from saccade.cli import main as program
from saccade.config import settings
from saccade.tasks import load_task, task_names
from saccade.training.settings import TrainConfig

FOLDER = Path(__file__).parent / "reference"
WIDTH = 100  # characters of a help text and of a signature
SHARED = "Of every task; a task may have other defaults, which are named there."
CODES = {errors.Interrupted: "130, 143", errors.PeerError: "that of the other process"}  # which an instance has
NOTE = "<!-- Written by `python docs/reference.py` from the program. -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the pages with the program, write nothing")
    written = parser.parse_args()
    changed = outdated()
    if written.check:
        sys.exit(f"out of date: {', '.join(changed)}; run python docs/reference.py" if changed else 0)
    FOLDER.mkdir(exist_ok=True)
    for name, text in changed.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(FOLDER / name)


def outdated() -> dict[str, str]:
    """Return the pages that differ from what the program says, as they should be."""
    pages = {"cli.md": commands(), "settings.md": all_settings(), "python.md": python(), "errors.md": exit_codes()}
    return {name: text for name, text in pages.items() if not _equals(FOLDER / name, text)}


def _equals(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def page(title: str, *parts: str) -> str:
    """Return a page of paragraphs, tables and code."""
    return "\n\n".join([f"# {title}", NOTE, *(part.strip("\n") for part in parts)]) + "\n"


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table of Markdown."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def code(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.strip()}\n```"


def commands() -> str:
    """Return the page of the commands: the help text of each."""
    parts = ["What `saccade COMMAND --help` prints.", code(_help(program, None, "saccade"))]
    for name, command, context in _walk(program, click.Context(program, info_name="saccade")):
        parts += [f"{'##' if name.count(' ') == 1 else '###'} {name}", code(_help(command, context, name.split()[-1]))]
    return page("Commands", *parts)


def _walk(group: click.Group, context: click.Context, prefix: str = "saccade") -> Iterator[tuple[str, Any, Any]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{prefix} {name}", command, context
        if isinstance(command, click.Group):
            yield from _walk(command, click.Context(command, context, name), f"{prefix} {name}")


def _help(command: click.Command, parent: click.Context | None, name: str) -> str:
    context = click.Context(command, parent, name, terminal_width=WIDTH, help_option_names=["-h", "--help"])
    return command.get_help(context)


def all_settings() -> str:
    """Return the page of the settings: those of training, then those of each task with its options of prediction."""
    common = (
        "Settings of `saccade train` are `KEY=VALUE` overrides, in Python keywords and nested mappings; options of "
        "`saccade predict` and `look` are `-o KEY=VALUE`. `saccade tasks TASK` prints the same."
    )
    names = ", ".join(f"[{name}](#{name})" for name in task_names())
    parts = [
        common,
        f"Tasks: {names}.",
        "## Training",
        SHARED,
    ]
    parts.append(_settings(settings(TrainConfig, "train.")))
    for name in task_names():
        parts += _task(name)
    return page("Settings", *parts)


def _task(name: str) -> list[str]:
    task = load_task(name)
    facts = [f"{task.summary[0].upper()}{task.summary[1:].rstrip('.')}."]
    inputs = getattr(task, "inputs", ())  # of some tasks they depend on the settings
    if isinstance(inputs, tuple) and inputs:
        facts.append(f"Inputs: {', '.join(f'`{field.name}` ({field.kind})' for field in inputs)}.")
    if task.presets:
        facts.append(f"Presets: {', '.join(f'`{preset}`' for preset in task.presets)}.")
    if defaults := task.train_defaults(task.Config()):
        facts.append(f"Defaults of training: {', '.join(f'`{entry}`' for entry in defaults)}.")
    parts = [f"## {name}", " ".join(facts), _settings(settings(task.Config))]
    if options := settings(task.Options):
        parts += [f"**Options of prediction** of `{name}`:", _settings(options)]
    return parts


def _settings(entries: list[Any]) -> str:
    rows = [
        (f"`{entry.name}`", _value(entry.default), entry.type.replace(" | ", ", "), entry.help) for entry in entries
    ]
    return table(("setting", "default", "type", "meaning"), rows)


def _value(default: Any) -> str:
    text = default if isinstance(default, str) else json.dumps(default)
    return f"`{text}`" if text else ""


def python() -> str:
    """Return the page of the public names: signatures and docstrings of `saccade.__all__`."""
    parts = ["Everything that `import saccade` offers. [Errors](errors.md) have their own page."]
    for name in sorted(saccade.__all__, key=lambda name: (not _is_function(name), name.lower())):
        value = getattr(saccade, name)
        if inspect.isfunction(value):
            parts += [f"## saccade.{name}", *_function(value)]
        elif inspect.isclass(value):
            parts += [f"## saccade.{name}", *_class(value)]
    return page("Python", *parts)


def _is_function(name: str) -> bool:
    return inspect.isfunction(getattr(saccade, name))


def _class(value: type[Any]) -> list[str]:
    parts = [_docstring(value)]
    node = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    assert isinstance(node, ast.ClassDef)
    fields = [
        (f"`{field.target.id}`", f"`{ast.unparse(field.annotation)}`", _under(node, field))
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id[0] != "_"
    ]
    if fields:
        parts.append(table(("field", "type", "meaning"), fields))
    for name, member in vars(value).items():
        if isinstance(member, property) and name[0] != "_":
            parts += [f"### {value.__name__}.{name}", _docstring(member)]
        function = member.__func__ if isinstance(member, classmethod) else member
        if inspect.isfunction(function) and (name[0] != "_" or name == "__call__") and function.__doc__:
            parts += [f"### {value.__name__}.{name}", *_function(function)]
    return [part for part in parts if part]


def _under(node: ast.ClassDef, field: ast.AnnAssign) -> str:
    """Return the string under a field."""
    following = node.body[node.body.index(field) + 1 :][:1]
    for line in following:
        if isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str):
            return " ".join(line.value.value.split())
    return ""


def _function(value: Any) -> list[str]:
    node = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    assert isinstance(node, ast.FunctionDef)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    arguments = [entry for entry in _arguments(node.args) if entry != "self"]
    line = f"{node.name}({', '.join(arguments)}){returns}"
    if len(line) > WIDTH:
        lines = "".join(f"    {entry},\n" for entry in arguments)
        line = f"{node.name}(\n{lines}){returns}"
    return [code(line, "python"), _docstring(value)]


def _arguments(node: ast.arguments) -> list[str]:
    """Return each argument of a function as it is written."""
    positional = [*node.posonlyargs, *node.args]
    defaults = [None] * (len(positional) - len(node.defaults)) + list(node.defaults)
    entries = [_argument(entry, default) for entry, default in zip(positional, defaults, strict=True)]
    if node.posonlyargs:
        entries.insert(len(node.posonlyargs), "/")
    if node.vararg:
        entries.append(f"*{_argument(node.vararg)}")
    elif node.kwonlyargs:
        entries.append("*")
    entries += [_argument(entry, default) for entry, default in zip(node.kwonlyargs, node.kw_defaults, strict=True)]
    return [*entries, *([f"**{_argument(node.kwarg)}"] if node.kwarg else [])]


def _argument(node: ast.arg, default: ast.expr | None = None) -> str:
    kind = f": {ast.unparse(node.annotation)}" if node.annotation else ""
    value = f"{' = ' if kind else '='}{ast.unparse(default)}" if default is not None else ""
    return f"{node.arg}{kind}{value}"


def _docstring(value: Any) -> str:
    """Return a docstring as Markdown: an indented example becomes code."""
    blocks = (inspect.getdoc(value) or "").split("\n\n")
    return "\n\n".join(
        code(textwrap.dedent(block), "python") if block.startswith("    ") else block for block in blocks if block
    )


def exit_codes() -> str:
    """Return the page of the errors: classes, exit codes, and the messages of a few mistakes, which are made here."""
    classes = [
        kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.SaccadeError)
    ]
    rows = [("0", "", "success")]
    for kind in classes:
        number = CODES.get(kind, str(kind.exit_code))
        rows.append((number, f"`saccade.errors.{kind.__name__}`", (inspect.getdoc(kind) or "").splitlines()[0]))
    intro = (
        "A mistake that a user can mend raises one of these exceptions. The command line prints its message on one "
        "line to stderr and exits with its code; a message names the value, the rule and the next step. SIGINT "
        "exits with 130, SIGTERM with 143."
    )
    examples = "\n\n".join(f"$ saccade {' '.join(command)}\n{_message(command)}" for command in MISTAKES)
    return page(
        "Errors and exit codes",
        intro,
        table(("exit code", "exception", "meaning"), rows),
        "## Examples",
        code(examples, "console"),
    )


FILES = {
    "pairs.tsv": "source\ttarget\n" + "".join(f"word {number}\tWort {number}\n" for number in range(40)),
    "broken.jsonl": '{"text": "one"}\n{"text": "two"}\n{"text": "t" "h"}\n',
    "empty.txt": "",
}
MISTAKES: tuple[tuple[str, ...], ...] = (
    ("train", "pairs.tsv", "model.transformer.dmi=256"),
    ("train", "pairs.tsv", "train.optim.lr=fast"),
    ("train", "pairs.tsv", "--task", "translate"),
    ("train", "missing.tsv"),
    ("train", "broken.jsonl"),
    ("train", "empty.txt"),
    ("predict", "pairs-1", "one"),
)


def _message(command: tuple[str, ...]) -> str:
    """Return what a mistaken command prints in a folder with the files above."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name, text in FILES.items():
                Path(name).write_text(text, encoding="utf-8")
            result = CliRunner().invoke(program, list(command))
        finally:
            os.chdir(before)
    if result.exit_code == 0:
        raise AssertionError(f"saccade {' '.join(command)} is no mistake any more: {result.output}")
    lines = [line for line in result.stderr.splitlines() if line.startswith("saccade: ")]
    return "\n".join(lines or result.stderr.splitlines())


if __name__ == "__main__":
    main()
