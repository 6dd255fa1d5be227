"""The command that serves the pages: studio."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

import click

from saccade.cli.group import log, main, runs_option, task_option


@main.command()
@click.argument("models", nargs=-1)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on this machine; default: a free one.")
@click.option("--browser/--no-browser", default=None, help="Open a browser; default: if this is a terminal.")
@runs_option
@task_option
def studio(models: tuple[str, ...], port: int, browser: bool | None, root: str, task: str) -> None:
    """Watch runs and inspect models in a browser.

    The server accepts connections from this machine only. MODELS are Hugging Face folders, .gguf files or names from
    `saccade models list`, shown in addition to the runs.

    \b
    Examples:
      saccade studio
      saccade studio minilm smollm2 --port 8700
    """
    from saccade.studio.server import serve

    def ready(address: str) -> None:
        log(f"the studio is at {address}")
        log("stop it with Ctrl+C")
        if sys.stdout.isatty() if browser is None else browser:
            webbrowser.open(address)

    serve(Path(root), models, port, ready, task=task)
