"""The command that shows statements of the lectures by running them: lectures."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from saccade.cli.group import echo, log, main


@main.command()
@click.argument("name", default="")
@click.option("--out", type=click.Path(path_type=Path), help="Write the maps side by side to a .html file.")
def lectures(name: str, out: Path | None) -> None:
    """Show a statement of the lectures by running it.

    Without a NAME the statements are listed.

    \b
    Examples:
      saccade lectures
      saccade lectures R68
      saccade lectures R68 --out r68.html
    """
    from saccade.lectures import lecture_names, load_lecture

    if not name:
        for row in lecture_names():
            echo(f"{row}: {load_lecture(row).statement}")
        return
    from saccade.look.draw import terminal

    lecture = load_lecture(name)
    shown = lecture.run()
    if out is not None:
        lecture.write(shown, out)
        log(f"wrote {out}")
        return
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    width = shutil.get_terminal_size((100, 24)).columns
    echo(lecture.statement)
    for item in shown:
        echo(f"\n{item.name}: {item.about}")
        click.echo(terminal(item.attention, width=width, colour=colour, style=item.style))
