"""The command that serves models over HTTP: serve."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from saccade.cli.group import dtype_option, log, main, runs_option, task_option


@main.command()
@click.argument("refs", nargs=-1, required=True, metavar="REF...")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; others than loopback need a key."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; 0: a free one.")
@click.option(
    "--rows", type=click.IntRange(1, 4096), help="Texts generated at once; default: 16, or as many as fit into memory."
)
@click.option("--queue", type=click.IntRange(0, 1 << 16), default=64, show_default=True, help="Texts that may wait.")
@click.option("--name", "names", multiple=True, help="Name of a model, in the order of REF; repeatable.")
@click.option("--api-key-file", type=click.Path(path_type=Path), help="File with API keys, one per line.")
@click.option("--allow-origin", "origins", multiple=True, help="Site whose pages may send requests; repeatable.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
@dtype_option
@runs_option
@task_option
def serve(
    refs: tuple[str, ...], root: str, task: str, api_key_file: Path | None, origins: tuple[str, ...], **how: Any
) -> None:
    """Serve models over HTTP, in the form of OpenAI's API.

    REF is a run, a name from `saccade models list`, a folder or a .gguf file. Clients need the key of --api-key-file or
    of the environment variable SACCADE_API_KEY, if there is one.

    \b
    Examples:
      saccade serve smollm2 minilm
      saccade serve runs/pairs-1 --name dates --port 8700
      saccade serve smollm2 --host 0.0.0.0 --api-key-file key.txt
    """
    from saccade.serve.server import serve
    from saccade.serve.settings import Settings, check_origins, read_keys

    keys = read_keys(api_key_file, os.environ.get("SACCADE_API_KEY", ""))
    settings = Settings(
        refs,
        root=Path(root),
        task=task,
        keys=keys,
        origins=check_origins(origins),
        **how,
    )
    serve(settings, lambda address: log(f"serving {', '.join(refs)} at {address}"), log)
