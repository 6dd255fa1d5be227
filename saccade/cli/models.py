"""Verbs for models from elsewhere: list and get those of the catalogue, show one, make an old one safe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from saccade.cli.group import json_option, main, runs_option, say, task_option, weights_option


@main.group()
def models() -> None:
    """Models from elsewhere: list, get, show, convert.

    \b
    Examples:
      saccade models list
      saccade models get minilm
    """


@models.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the models of the catalogue.

    \b
    Examples:
      saccade models list
      saccade models list --json
    """
    from saccade import api

    found = api.list_models()
    if as_json:
        click.echo(json.dumps(found))
        return
    for row in found:
        here = "here" if row["cached"] else "to get"
        click.echo(f"{row['name']:12}{row['bytes'] / 1e6:>7.1f} MB  {row['licence']:12}{here:8}{row['summary']}")


@models.command()
@click.argument("name")
@json_option
def get(name: str, as_json: bool) -> None:
    """Fetch a model of the catalogue, check it and keep it; from then on it needs no network.

    \b
    Examples:
      saccade models get minilm
      saccade models get smollm2 --json
    """
    from saccade import api

    path = api.get_model(name)
    click.echo(json.dumps({"name": name, "path": str(path)}) if as_json else str(path))


@models.command()
@click.argument("model")
@json_option
def show(model: str, as_json: bool) -> None:
    """Read and check a MODEL: a folder, a .gguf file, a name of the catalogue, or owner/name on the hub.

    \b
    Examples:
      saccade models show minilm
      saccade models show ./my-bert --json
    """
    from saccade import api

    found = api.describe_model(model)
    if as_json:
        click.echo(json.dumps(found))
        return
    for name in ("path", "family", "parameters", "vocabulary", "tokenizer"):
        value = found[name]
        click.echo(f"{name:12}{f'{value:,}' if isinstance(value, int) else value}")
    shape = " ".join(f"{name}={found['config'][name]}" for name in ("dim", "depth", "heads", "hidden"))
    click.echo(f"{'shape':12}{shape}")
    if found["unused"]:
        click.echo(f"{'unused':12}{', '.join(map(_plain, found['unused']))}")


@models.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--allow-pickle", is_flag=True, help="Open the pickle; it may build tensors and nothing else.")
def convert(folder: Path, allow_pickle: bool) -> None:
    """Write the pytorch_model.bin of FOLDER as model.safetensors beside it, once.

    \b
    Examples:
      saccade models convert ./old-bert --allow-pickle
    """
    from saccade import api

    say(f"wrote {api.convert_model(folder, allow_pickle=allow_pickle)}")


def _plain(name: str) -> str:
    """A name out of a file, which must not be able to steer the terminal."""
    return name if name.isprintable() else ascii(name)


@main.command()
@click.argument("run")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--to", "form", type=click.Choice(["hf"]), default="hf", help="hf: a folder that transformers opens.")
@weights_option
@runs_option
@task_option
def export(run: str, folder: Path, form: str, root: str, task: str, which: Any) -> None:
    """Write a RUN, or a model from elsewhere, to a new FOLDER for other tools.

    \b
    Examples:
      saccade export book-1 --to hf book-for-transformers
    """
    from saccade import api
    from saccade.pretrained import exporting

    opened = api.load(run, root=root, which=which, task=task, say=say, device="cpu")
    for line in exporting.export(opened, folder):
        say(line)
