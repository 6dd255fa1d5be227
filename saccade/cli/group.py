"""The group of verbs and what they share: exit codes, common options, the report on the screen."""

from __future__ import annotations

import sys
from collections.abc import Callable
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


def runs_option(function: F) -> F:
    where = click.option("--runs", "root", default="runs", show_default=True, help="Folder of the runs.")
    return where(function)


def task_option(function: F) -> F:
    return click.option("--task", default="", help="Allow this task that is not built in: it runs code.")(function)


def weights_option(function: F) -> F:
    kinds = click.Choice(["best", "last", "mean"])
    help = "Which weights: of the best or the last checkpoint, or the mean of all that were kept."
    return click.option("--weights", "which", type=kinds, default="best", show_default=True, help=help)(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def say(message: str) -> None:
    click.echo(message, err=True)


def report(quiet: bool) -> Any:
    from saccade.progress import Screen

    return Screen(quiet)


def read_lines(file: Any) -> list[str]:
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
