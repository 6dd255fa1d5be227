"""The command for a first try without data: demo."""

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

import click

from saccade.cli.group import log, main, progress_bar, runs_option
from saccade.cli.printing import show_run


@main.command()
@click.option(
    "--minutes", type=click.FloatRange(0, min_open=True), default=0.9, show_default=True, help="Minutes of training."
)
@click.option("--steps", type=click.IntRange(1), help="Steps of training, instead of minutes.")
@runs_option
def demo(minutes: float, steps: int | None, root: str) -> None:
    """Train a small model on generated dates and show it.

    The model converts dates as they are written in some 40 languages to ISO dates, character by character.

    \b
    Examples:
      saccade demo
      saccade demo --minutes 5
    """
    from saccade import api
    from saccade.demo.dates import EXAMPLES, plan_dates, write_dates

    data, valid = write_dates(Path(root) / "dates")
    name = api.free_name(root, "dates")
    interactive = sys.stdout.isatty() and os.environ.get("CI", "") not in ("true", "1")
    with _studio(root) as address:
        with progress_bar() as bar:
            bar.log("The demo learns to convert dates, as people write them, to ISO dates such as 2014-08-12.")
            bar.log(str(plan_dates()))
            if address and interactive:
                bar.log(f"Watch it learn: {_page(address, f'watch/{name}')}")
                webbrowser.open(_page(address, f"watch/{name}"))
            run = api.train(
                data,
                task="translation",
                preset="dates",
                name=name,
                root=root,
                callbacks=[bar],
                progress=False,
                **({"steps": steps} if steps else {"minutes": minutes}),
                valid=valid,
            )
        show_run(run, False)
        model = api.load(run)
        for prediction in model(list(EXAMPLES)):
            click.echo(f"{prediction.text}  {prediction.inputs['source']}")
        log(f"\nattention of each digit to the letters of '{EXAMPLES[0]}':")
        width = shutil.get_terminal_size((100, 24)).columns
        click.echo(model.attention(EXAMPLES[0]).terminal(width, colour=False))
        log(f'\nNow try: saccade look {run.path} "12 August 2014" --out date.html')
        if address:
            _open_look(_page(address, f"look?model={name}&source={quote(EXAMPLES[0])}"), interactive)


@contextmanager
def _studio(root: str) -> Iterator[str]:
    """Run the studio in its own process, so that it takes no time from training; yield its address, or ''."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the studio ends too
    command = [sys.executable, "-m", "saccade", "studio", "--runs", root, "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline() if process.stderr else ""
            address = re.search(r"http://\S+", line)
            if address is None:
                log(f"no studio: {line.strip()}")
            yield address[0] if address else ""
        finally:
            process.terminate()


def _page(address: str, path: str) -> str:
    """Return the address of a page, key included."""
    return address.replace("/?", f"/{path}{'&' if '?' in path else '?'}")


def _open_look(page: str, interactive: bool) -> None:
    """Open the attention page in a browser and wait for a key; without a terminal check that the page responds."""
    if not interactive:
        from urllib.request import HTTPCookieProcessor, build_opener  # takes longer to import than everything else

        with build_opener(HTTPCookieProcessor()).open(page, timeout=60) as response:
            title = re.search(r"<title>(.*?)</title>", response.read().decode())
        log(f"studio: the page '{title[1] if title else ''}' responds; at a terminal it opens in a browser")
        return
    log(f"the attention is shown at {page}")
    webbrowser.open(page)
    click.pause("press any key to stop")
