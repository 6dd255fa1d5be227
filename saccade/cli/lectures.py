"""The command that shows the statements of the lectures by running them: lectures."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from saccade.cli.browser import is_interactive, open_page, page_address, run_studio
from saccade.cli.group import echo, json_option, log, main, print_json, runs_option
from saccade.errors import UsageError, printable

if TYPE_CHECKING:
    from rich.console import Console

    from saccade.lectures._row import Demonstration, Row
    from saccade.lectures._status import Record

STYLES = {"shown": "green", "failed": "bold red", "not run": "dim"}


@main.command()
@click.argument("name", default="")
@click.option("--all", "everything", is_flag=True, help="Run every row.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the demonstration of a row to a .html file.")
@click.option(
    "--open", "opening", is_flag=True, help="Open the page of a row in a browser: the studio where it has one."
)
@json_option
@runs_option
@click.pass_context
def lectures(
    context: click.Context, name: str, everything: bool, out: Path | None, opening: bool, as_json: bool, root: str
) -> None:
    """Show a statement of the lectures on attention by running it.

    Without a NAME the rows are listed with their commands and what the last run of each has shown. A row is computed
    when it is asked for; it is shown only if all of its checks pass, otherwise the exit code is 1.

    \b
    Examples:
      saccade lectures
      saccade lectures R24
      saccade lectures R36 --open
      saccade lectures R11 --out alignment.html
      saccade lectures --all
    """
    from saccade.lectures import find_row, run_row

    if not name and (out is not None or opening):
        raise UsageError("--out and --open need the name of a row, such as R24; `saccade lectures` lists them")
    if name and everything:
        raise UsageError(f"--all runs every row, but '{name}' names one of them; leave out one of the two")
    if everything:
        context.exit(_run_all(as_json))
    if not name:
        _list_rows(as_json)
        return
    row = find_row(name)
    demonstration, record = run_row(row)
    if as_json:
        print_json({**_described(row, record), **_computed(demonstration)})
    else:
        _print_row(row, demonstration, record)
    if record.status == "not run":
        context.exit(5)
    if out is not None:
        from saccade.lectures._page import write_page

        write_page(row, demonstration, out)
        log(f"wrote {out}")
    if opening:
        _open(row, demonstration, root)
    context.exit(0 if record.status == "shown" else 1)


def _console() -> Console:
    """Return a console on stdout; rich respects NO_COLOR and writes no colours to a file or a pipe."""
    from rich.console import Console

    return Console(highlight=False)


def _described(row: Row, record: Record) -> dict[str, Any]:
    return {"id": row.id, "title": row.title, "command": row.command, "needs": list(row.needs), **asdict(record)}


def _computed(demonstration: Demonstration) -> dict[str, Any]:
    """Return the checks and tables of a demonstration as JSON."""
    from saccade.lectures._row import Table

    tables = [asdict(item) for item in demonstration.items if isinstance(item, Table)]
    return {"checks": [asdict(check) for check in demonstration.checks], "tables": tables}


def _list_rows(as_json: bool) -> None:
    from saccade.lectures import list_rows
    from saccade.lectures._status import NOT_RUN, read_records

    records = read_records()
    rows = [(row, records.get(row.id, NOT_RUN)) for row in list_rows()]
    if as_json:
        print_json([_described(row, record) for row, record in rows])
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("row", "title", "command", "status"):
        table.add_column(column, no_wrap=column != "title")
    for row, record in rows:
        table.add_row(row.id, row.title, row.command, Text(record.status, STYLES[record.status]))
    _console().print(table)
    log(f"{_count(rows_by_status(rows))}; saccade lectures --all runs every row")


def rows_by_status(rows: Sequence[tuple[Row, Record]]) -> dict[str, int]:
    """Return how many rows have each status."""
    return {status: sum(record.status == status for _, record in rows) for status in STYLES}


def _count(counts: Mapping[str, int]) -> str:
    others = ", ".join(f"{counts[status]} {status}" for status in ("failed", "not run") if counts[status])
    return f"{counts['shown']} of {sum(counts.values())} rows shown{f' ({others})' if others else ''}"


def _print_row(row: Row, demonstration: Demonstration, record: Record) -> None:
    from rich.text import Text

    from saccade.lectures._text import print_demonstration

    console = _console()
    console.print(Text(f"{row.id}: {row.title}", "bold"))
    console.print()
    if record.status == "not run":
        console.print(Text(f"not run: {printable(record.reason)}"))
        return
    print_demonstration(demonstration, console)
    passed = sum(check.passed for check in demonstration.checks)
    verdict = f"{record.status}: {passed} of {len(demonstration.checks)} checks passed in {record.seconds:.1f} s"
    if record.status == "failed" and passed == len(demonstration.checks):
        verdict += f"; {printable(record.reason)}"  # no check has printed it
    console.print(Text(verdict, STYLES[record.status]))
    if row.page:
        log(f"in the studio: {row.command} --open")
    if row.also:
        log(f"at full size: {row.also}")


def _run_all(as_json: bool) -> int:
    """Run every row, with the time that is left; return the exit code."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from saccade.lectures import list_rows, run_row
    from saccade.lectures._status import read_records

    records = read_records()
    expected = {row.id: records[row.id].seconds if row.id in records else row.seconds for row in list_rows()}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True, highlight=False)
    results: list[tuple[Row, Record]] = []
    with Progress(*columns, TextColumn("{task.fields[left]}"), console=console, transient=True) as progress:
        bar = progress.add_task("lectures", total=len(expected), left="")
        for row in list_rows():
            left = sum(expected[other.id] for other in list_rows()[len(results) :])
            progress.update(bar, description=row.id, left=f"about {left:.0f} s left")
            _, record = run_row(row)
            results.append((row, record))
            reason = f": {printable(record.reason)}" if record.reason else ""
            progress.console.print(f"{row.id} {record.status} ({record.seconds:.1f} s){reason}", markup=False)
            progress.advance(bar)
    counts = rows_by_status(results)
    if as_json:
        print_json({"counts": counts, "rows": [_described(row, record) for row, record in results]})
    else:
        echo(_count(counts))
    return 0 if counts["shown"] == len(results) else 1


def _open(row: Row, demonstration: Demonstration, root: str) -> None:
    """Open the page of the studio, or the written demonstration, in a browser; without a terminal say where it is."""
    if row.page:
        with run_studio(root, row.needs) as address:
            if address:
                page = page_address(address, row.page)
                open_page(page, page)
        return
    from saccade.lectures import page_path
    from saccade.lectures._page import write_page

    path = page_path(row)
    write_page(row, demonstration, path)
    log(f"the page is {path}")
    if is_interactive():
        webbrowser.open(path.as_uri())
