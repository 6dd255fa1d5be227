"""The command that looks for silent bugs in a model: check."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from saccade.cli.group import echo, json_option, main, print_json, progress_bar, runs_option, task_option
from saccade.errors import UsageError, printable

if TYPE_CHECKING:
    from saccade.checks import CheckReport

COLOURS = {"passed": "green", "warning": "yellow", "failed": "bold red", "skipped": "dim"}


@main.command()
@click.argument("ref", default="")
@click.option("--only", multiple=True, metavar="NAME", help="Check this invariant only; repeatable.")
@click.option("--resume", is_flag=True, help="Also kill a copy of the run at random points and compare every byte.")
@click.option("--list", "list_all", is_flag=True, help="List the invariants.")
@click.option("--quiet", is_flag=True, help="Print the result only, no progress.")
@task_option
@runs_option
@json_option
def check(
    ref: str,
    only: tuple[str, ...],
    resume: bool,
    list_all: bool,
    quiet: bool,
    task: str,
    root: str,
    as_json: bool,
) -> None:
    """Check a run or a pretrained model for silent bugs.

    Checks invariants that every sound model has: a batch gives what each example gets alone, padding changes nothing,
    decoding with a cache equals decoding without one, no position sees a later one, and so on. A failure shows the
    smallest example and the module to look at. REF is a run, a folder, or a name from `saccade models list`. The exit
    code is 1 if an invariant does not hold.

    \b
    Examples:
      saccade check pairs-1
      saccade check pairs-1 --resume
      saccade check smollm2 --only cache --only padding --json
      saccade check --list
    """
    from saccade import checks

    if list_all:
        rows = checks.list_invariants()
        if as_json:
            print_json(rows)
            return
        for row in rows:
            echo(f"{row['name']:14} {row['summary']}")
        return
    if not ref:
        raise UsageError("REF must be given, a run or a model; `saccade runs` and `saccade models list` name them")
    with progress_bar(quiet=quiet) as bar:
        report = checks.check(
            ref,
            only=only,
            root=root,
            task=task,
            resume=resume,
            on_start=lambda name, number, total: bar.on_progress(f"checking {name}", number / total),
        )
    if as_json:
        print_json(report.to_json())
    else:
        show(report)
    click.get_current_context().exit(report.exit_code)


def show(report: CheckReport) -> None:
    """Print a report as a table; colours at a terminal only."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False, no_color="NO_COLOR" in os.environ)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for result in report.results:
        lines = [result.message]
        lines += [f"example: {result.example}"] if result.example else []
        lines += [f"look at: {result.where}"] if result.where else []
        colour = COLOURS[result.status]
        table.add_row(Text(result.status, style=colour), result.name, Text(printable("\n".join(lines))))
    console.print(table)
    console.print(Text(printable(report.summary())))
