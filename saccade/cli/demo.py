"""The verb that shows what this is: demo."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from urllib.request import HTTPCookieProcessor, build_opener

import click

from saccade.cli.group import main, report, runs_option, say
from saccade.cli.printing import show_trained


@main.command()
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=0.9, show_default=True, help="Length.")
@runs_option
def demo(minutes: float, root: str) -> None:
    """Learn to read dates as people write them in some 40 languages, and show which letters were looked at.

    \b
    Examples:
      saccade demo
      saccade demo --minutes 5
    """
    from saccade import api
    from saccade.demo.dates import EXAMPLES, plan_dates, write_dates

    data, valid = write_dates(Path(root) / "dates")
    name = api.free_name(root, "dates")
    shown = sys.stdout.isatty() and os.environ.get("CI", "") not in ("true", "1")
    with _studio(root) as address:
        with report(False) as screen:
            screen.say("The demo learns to turn dates, as people write them, into ISO dates such as 2014-08-12.")
            screen.say(str(plan_dates()))
            if address and shown:
                screen.say(f"Watch it learn: {_page(address, f'watch/{name}')}")
                webbrowser.open(_page(address, f"watch/{name}"))
            words = [f"train.minutes={minutes}", f"data.valid={valid}"]
            trained = api.train(data, words, task="translation", preset="dates", name=name, root=root, report=screen)
        show_trained(trained, False)
        opened = api.load(trained.run.folder)
        for found in api.predict_all(opened, EXAMPLES):
            click.echo(f"{found.output}  {found.input}")
        seen = api.look(opened, EXAMPLES[0])
        say(f"\nwhich letters of '{EXAMPLES[0]}' each digit comes from:")
        click.echo(seen.terminal(shutil.get_terminal_size((100, 24)).columns, colour=False))
        say(f'\nNow try: saccade look {trained.run.folder} "12 August 2014" --out date.html')
        if address:
            _look(_page(address, f"look?model={name}&text={quote(EXAMPLES[0])}"), shown)


@contextmanager
def _studio(root: str) -> Iterator[str]:
    """The address of a studio in a process of its own, so that it takes no time from the training; empty if none is."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the studio ends too
    words = [sys.executable, "-m", "saccade", "studio", "--runs", root, "--no-browser"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline() if process.stderr else ""
            found = re.search(r"http://\S+", line)
            if found is None:
                say(f"no studio: {line.strip()}")
            yield found[0] if found else ""
        finally:
            process.terminate()


def _page(address: str, path: str) -> str:
    """The address of a page, key included."""
    return address.replace("/?", f"/{path}{'&' if '?' in path else '?'}")


def _look(page: str, shown: bool) -> None:
    """Show the alignment in a browser until somebody has seen enough; without a terminal see that the page answers."""
    if not shown:
        with build_opener(HTTPCookieProcessor()).open(page, timeout=60) as answer:
            title = re.search(r"<title>(.*?)</title>", answer.read().decode())
        say(f"studio: the page '{title[1] if title else ''}' answers; a terminal would open it in a browser")
        return
    say(f"the alignment is at {page}")
    webbrowser.open(page)
    click.pause("press any key to end")
