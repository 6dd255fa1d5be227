"""The command line: thin verbs that parse, call the api and print. Data goes to stdout, the rest to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from saccade import __version__
from saccade.errors import DataError, SaccadeError

EXIT_CODES = """
Exit codes: 0 ok, 1 failure, 2 usage, 3 bad data, 4 bad or untrusted model file, 5 out of resources
(disk, memory, a run in use), 130 or 143 after SIGINT or SIGTERM with the checkpoint saved.
"""
F = TypeVar("F", bound=Callable[..., Any])


class Verbs(click.Group):
    """A group that turns our errors into one clear message and their exit code."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except SaccadeError as error:
            click.echo(f"saccade: {error}", err=True)
            context.exit(error.exit_code)
        except BrokenPipeError:
            sys.stderr.close()  # the reader has gone: nothing more to say
            context.exit(0)
        except KeyboardInterrupt:
            click.echo("saccade: interrupted", err=True)
            context.exit(130)
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
                raise
            click.echo("saccade: out of memory; lower batch or the size of the model, or raise parts", err=True)
            context.exit(5)
        except OSError as error:
            click.echo(f"saccade: {error}", err=True)
            context.exit(5)


@click.group(cls=Verbs, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Train, run and look inside attention models, on your own data, on your own machine."""


def _runs(function: F) -> F:
    where = click.option("--runs", "root", default="runs", show_default=True, help="Folder of the runs.")
    return where(function)


def _task(function: F) -> F:
    return click.option("--task", default="", help="Allow this task that is not built in: it runs code.")(function)


def _json(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


@main.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.argument("settings", nargs=-1)
@click.option("--task", default="language_model", show_default=True, help="What to learn; see `saccade tasks`.")
@click.option("--preset", default="", help="A named shape; see `saccade tasks TASK`.")
@click.option("--name", default="", help="Name of the run; default: from the file.")
@click.option("--steps", type=click.IntRange(1), help="Length in steps.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Length in minutes (default 5).")
@click.option("--epochs", type=click.FloatRange(0, min_open=True), help="Length in passes over the data.")
@click.option("--seed", type=int, help="Source of all randomness.")
@click.option("--device", help="auto, cpu, cuda, mps.")
@click.option("--valid", type=click.Path(), help="File of validation data; default: a tenth is held back.")
@click.option("--encoding", help="Encoding of the files, where it is not UTF-8.")
@click.option("--column", help="Column of a table that holds the text.")
@click.option("--quiet", is_flag=True, help="No progress, only the result.")
@_runs
@_json
def train(
    data: Path,
    settings: tuple[str, ...],
    task: str,
    preset: str,
    name: str,
    root: str,
    quiet: bool,
    as_json: bool,
    **shortcuts: Any,
) -> None:
    """Train a model on a file or folder DATA.

    SETTINGS are words such as model.dim=256; `saccade tasks language_model` lists them all.

    \b
    Examples:
      saccade train book.txt
      saccade train book.txt --minutes 10 --preset small
      saccade train reviews.csv --column text model.dim=256 train.optim.kind=adamw
      saccade train texts/ --valid held.txt --steps 1000 --name texts
    """
    from saccade import api

    words = [*settings, *(f"{SHORTCUTS[key]}={value}" for key, value in shortcuts.items() if value is not None)]
    with _report(quiet) as report:
        trained = api.train(data, words, task=task, preset=preset, name=name, root=root, report=report)
    _show_trained(trained, as_json)


SHORTCUTS = {
    "steps": "train.steps",
    "minutes": "train.minutes",
    "epochs": "train.epochs",
    "seed": "train.seed",
    "device": "train.device",
    "valid": "data.valid",
    "encoding": "data.encoding",
    "column": "data.column",
}


@main.command()
@click.argument("run")
@click.option("--quiet", is_flag=True, help="No progress, only the result.")
@_runs
@_task
@_json
def resume(run: str, root: str, quiet: bool, task: str, as_json: bool) -> None:
    """Go on with a RUN that was stopped or killed, exactly where it was.

    \b
    Examples:
      saccade resume book-1
      saccade resume runs/book-1 --quiet
    """
    from saccade import api

    with _report(quiet) as report:
        trained = api.resume(run, root=root, report=report, task=task)
    _show_trained(trained, as_json)


@main.command()
@click.argument("run")
@click.option("--data", type=click.Path(path_type=Path), help="Another file; all of it is scored.")
@_runs
@_task
@_json
def evaluate(run: str, data: Path | None, root: str, task: str, as_json: bool) -> None:
    """Score the best checkpoint of a RUN on all its validation data.

    \b
    Examples:
      saccade evaluate book-1
      saccade evaluate book-1 --json
    """
    from saccade import api

    with _report(False) as report:
        opened = api.load(run, root=root, task=task, say=report.say)
        scores = api.evaluate(
            opened,
            data or api.data_of(run, root),
            whole=data is not None,
            advance=lambda share: report.advance("evaluating", share),
        )
    _print(scores, as_json)


@main.command()
@click.argument("run")
@click.argument("words", nargs=-1, metavar="[TEXT] [OPTIONS]...")
@click.option("--file", "file", type=click.File("rb"), help="One input a line; - is stdin.")
@_runs
@_task
@_json
def predict(run: str, words: tuple[str, ...], file: Any, root: str, task: str, as_json: bool) -> None:
    """Let a RUN answer TEXT, or each line of a file.

    OPTIONS are words such as temperature=0.5; `saccade tasks language_model` lists them all.

    \b
    Examples:
      saccade predict book-1 "It was a"
      saccade predict book-1 "It was a" temperature=0 length=50
      saccade predict book-1 --file prompts.txt --json
    """
    from saccade import api

    opened = api.load(run, root=root, task=task, say=lambda message: click.echo(message, err=True))
    first = 0 if file or not words or words[0].partition("=")[0] in api.option_names(opened) else 1
    inputs, options = _lines(file) if file else [*words[:first], ""][:1], words[first:]
    for line in inputs:
        if as_json:
            found = api.predict(opened, line, options)
            click.echo(json.dumps({"input": found.input, "output": found.output, "scores": found.scores}))
            continue
        pieces = api.stream(opened, line, options)
        click.echo(line + next(pieces, ""), nl=False)  # a mistake shows before anything is printed
        for piece in pieces:
            click.echo(piece, nl=False)
            sys.stdout.flush()
        click.echo()


@main.command()
@click.argument("name", default="")
@_json
def tasks(name: str, as_json: bool) -> None:
    """List the tasks, or everything that can be set for one.

    \b
    Examples:
      saccade tasks
      saccade tasks language_model
    """
    from saccade import api

    if not name:
        found = api.list_tasks()
        if as_json:
            click.echo(json.dumps(found))
        for row in [] if as_json else found:
            click.echo(f"{row['name']:20}{row['summary']}")
        return
    described = api.describe_task(name)
    if as_json:
        click.echo(json.dumps(described))
        return
    click.echo(f"{described['name']}: {described['summary']}\npresets: {', '.join(described['presets'])}")
    for title, rows in (("settings of train", described["settings"]), ("options of predict", described["options"])):
        click.echo(f"\n{title}:")
        for row in rows:
            click.echo(f"  {row['name'] + '=' + str(row['default']):36}{row['help']} ({row['type']})")


@main.command()
@_runs
@_json
def runs(root: str, as_json: bool) -> None:
    """List the runs with their step and best score.

    \b
    Examples:
      saccade runs
      saccade runs --json
    """
    from saccade import api

    found = api.list_runs(root)
    if as_json:
        click.echo(json.dumps(found))
        return
    if not found:
        click.echo(f"no runs in {root}; train one with `saccade train FILE`", err=True)
    for run in found:
        if "error" in run:
            click.echo(f"{run['name']:24}{run['error']}")
            continue
        best = f"{run['best']:.4f}" if isinstance(run["best"], float) else ""
        state = "training now" if run["running"] else ""
        click.echo(f"{run['name']:24}{run['task']:18}step {run['step']:<9}loss {best:10}{run['created']}  {state}")


@main.command()
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=0.9, show_default=True, help="Length.")
@_runs
def demo(minutes: float, root: str) -> None:
    """Train a small model on text that every Python carries, and let it write.

    \b
    Examples:
      saccade demo
      saccade demo --minutes 5
    """
    from saccade import api
    from saccade.demo import write_text

    data = write_text(Path(root) / "demo.txt")
    with _report(False) as report:
        report.say("The demo learns to write like Python's language reference, character by character.")
        trained = api.train(data, [f"train.minutes={minutes}"], preset="demo", root=root, report=report)
    _show_trained(trained, False)
    opened = api.load(trained.run.folder)
    for prompt in ('The "for" statement', "An object", "Changed in version 3."):
        click.echo(f"\n--- {prompt}", err=True)
        click.echo(prompt + "".join(api.stream(opened, prompt, ["length=240", "temperature=0.5"])))
    click.echo(f'\nNow try: saccade predict {trained.run.folder} "A class"', err=True)


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      eval "$(saccade completion bash)"
      saccade completion fish > ~/.config/fish/completions/saccade.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "saccade", "_SACCADE_COMPLETE").source())


def _lines(file: Any) -> list[str]:
    """The lines of a file of inputs, which must be UTF-8."""
    found = []
    for number, line in enumerate(file, start=1):
        try:
            found.append(line.decode().rstrip("\r\n"))
        except UnicodeDecodeError as error:
            place = f"{file.name}:{number}:{error.start + 1}"
            raise DataError(
                f"{place}: byte 0x{line[error.start]:02X}, expected UTF-8; convert it with iconv"
            ) from error
    return found


def _report(quiet: bool) -> Any:
    from saccade.screen import Screen

    return Screen(quiet)


def _show_trained(trained: Any, as_json: bool) -> None:
    if not as_json:
        click.echo(f"run {trained.run.folder}; the best checkpoint on all validation data:", err=True)
    _print({"run": str(trained.run.folder), **trained.scores} if as_json else trained.scores, as_json)


def _print(scores: dict[str, Any], as_json: bool) -> None:
    """Scores as JSON, or a line each."""
    if as_json:
        click.echo(json.dumps(scores))
        return
    for name, value in scores.items():
        click.echo(f"{name:16}{value:,.4f}" if isinstance(value, float) else f"{name:16}{value:,}")
