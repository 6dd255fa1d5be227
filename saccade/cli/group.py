"""The command group, and code shared by the commands: exit codes, common options, progress, input files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from saccade import __version__
from saccade.errors import DataError, PeerError, SaccadeError, printable

if TYPE_CHECKING:
    from saccade.progress import ProgressBar

EXIT_CODES = """
Exit codes: 0 ok, 1 failure, 2 usage, 3 bad data, 4 bad or untrusted model file, 5 out of resources
(disk, memory, a run in use), 129, 130 or 143 after SIGHUP, SIGINT or SIGTERM with the checkpoint saved.
"""
ORDER = (
    *(
        "train",
        "resume",
        "evaluate",
        "predict",
        "look",
        "heads",
        "chat",
        "story",
        "fewshot",
        "features",
        "compare",
        "check",
    ),
    *("plan", "studio", "serve", "runs", "tasks", "models", "export", "demo", "lectures", "completion"),
)
OUT_OF_MEMORY = "out of memory; lower the batch size or the size of the model, or raise micro_batches"
F = TypeVar("F", bound=Callable[..., Any])


class Commands(click.Group):
    """A group that prints our errors as one message and exits with their code."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the commands in the order in which they are used; others follow."""
        names = super().list_commands(context)
        return [*(name for name in ORDER if name in names), *(name for name in names if name not in ORDER)]

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except PeerError as error:
            context.exit(error.exit_code)
        except click.UsageError as error:  # of every process of torchrun
            if is_main_process():
                raise
            context.exit(error.exit_code)
        except SaccadeError as error:
            log(f"saccade: {error}")
            context.exit(error.exit_code)
        except BrokenPipeError:
            sys.stderr.close()  # the reader closed the pipe: a message would raise again
            context.exit(0)
        except KeyboardInterrupt:
            log("saccade: interrupted")
            context.exit(130)
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
                raise
            log(f"saccade: {OUT_OF_MEMORY}")
            context.exit(5)
        except OSError as error:
            log(f"saccade: {error}")
            context.exit(5)


@click.group(cls=Commands, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Train, run and look inside attention models, on your own data, on your own machine."""
    if "RANK" in os.environ:  # of torchrun: every process would print torch's advice on how to use DDP
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def is_main_process() -> bool:
    """Whether this is the process that prints: of those that torchrun started, the one of rank 0."""
    return os.environ.get("RANK", "0") == "0"


def runs_option(function: F) -> F:
    option = click.option("--runs", "root", default="runs", show_default=True, help="Folder that holds the runs.")
    return option(function)


def task_option(function: F) -> F:
    return click.option(
        "--task", default="", help="Allow this custom task of a run (a module), whose code is executed."
    )(function)


def base_option(function: F) -> F:
    help = "Model of a peft adapter that is given as REF, instead of the one that the adapter names."
    return click.option("--base", default="", metavar="REF", help=help)(function)


class _Checkpoint(click.Choice[str]):
    """A named checkpoint, or the step of one as a number."""

    def __init__(self) -> None:
        click.Choice.__init__(self, ["best", "last", "mean"])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        digits = isinstance(value, str) and value.isascii() and value.isdecimal()
        return int(value) if digits else click.Choice.convert(self, value, param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "[best|last|mean|STEP]"


def checkpoint_option(function: F) -> F:
    help = "Best or last checkpoint, the mean of the weights of all that were kept, or the step of one of them."
    return click.option("--checkpoint", type=_Checkpoint(), default="best", show_default=True, help=help)(function)


def dtype_option(function: F) -> F:
    kinds = click.Choice(["auto", "float32", "float16", "int8", "int4"])
    help = "Type of the weights of a language model; fewer bits are faster and less exact. auto: as they are."
    return click.option("--dtype", type=kinds, default="auto", show_default=True, help=help)(function)


def option_option(function: F) -> F:
    help = "Option of the prediction, such as temperature=0.5; repeatable. `saccade tasks TASK` lists them."
    return click.option("-o", "--option", "options", multiple=True, metavar="KEY=VALUE", help=help)(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def echo(text: str = "") -> None:
    """Print a line to stdout; control characters, which may come from a file, are shown as escapes."""
    click.echo(printable(text))


def log(message: str) -> None:
    """Print a message to stderr; control characters are shown as escapes."""
    click.echo(printable(message), err=True)


def print_json(value: Any) -> None:
    """Print strict JSON to stdout."""
    from saccade.core.serialize import dump_json

    click.echo(dump_json(value))


def progress_bar(*, quiet: bool = False) -> ProgressBar:
    """Return the progress display, imported only when it is needed."""
    from saccade.progress import ProgressBar

    return ProgressBar(quiet)


def read_lines(file: Any) -> Iterator[tuple[str, str]]:
    """Yield the lines of a file of inputs, which must be UTF-8, each with `file:line` for messages."""
    name = getattr(file, "name", "<stdin>")
    for number, line in enumerate(file, start=1):
        try:
            yield f"{name}:{number}", line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            position = f"{name}:{number}:{error.start + 1}"
            raise DataError(
                f"{position}: byte 0x{line[error.start]:02X}, expected UTF-8; convert it with iconv"
            ) from error
