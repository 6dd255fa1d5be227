"""Pages in a browser: the studio in a process of its own, and what to do where there is no terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from saccade.cli.group import log


def is_interactive() -> bool:
    """Whether a person sits at a terminal, for whom a browser can be opened."""
    return sys.stdout.isatty() and os.environ.get("CI", "") not in ("true", "1")


@contextmanager
def run_studio(root: str, models: Sequence[str] = ()) -> Iterator[str]:
    """Run the studio in its own process, so that it takes no time from training; yield its address, or ''."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the studio ends too
    command = [sys.executable, "-m", "saccade", "studio", *models, "--runs", root, "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline() if process.stderr else ""
            address = re.search(r"http://\S+", line)
            if address is None:
                log(f"no studio: {line.strip()}")
            yield address[0] if address else ""
        finally:
            process.terminate()


def page_address(address: str, path: str) -> str:
    """Return the address of a page, key included."""
    return address.replace("/?", f"/{path}{'&' if '?' in path else '?'}")


def open_page(page: str, shown: str) -> None:
    """Open a page in a browser and wait for a key; without a terminal check that the page responds.

    `shown` is its address for the terminal, which a file would fill.
    """
    if not is_interactive():
        from urllib.request import HTTPCookieProcessor, build_opener  # takes longer to import than everything else

        with build_opener(HTTPCookieProcessor()).open(page, timeout=60) as response:
            title = re.search(r"<title>(.*?)</title>", response.read().decode())
        log(f"studio: the page '{title[1] if title else ''}' responds; at a terminal it opens in a browser")
        return
    log(f"the studio is at {shown}")
    webbrowser.open(page)
    click.pause("press any key to stop")
