"""The commands for pretrained models: list and get those of the catalogue, show one, convert one, export."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from saccade.cli.group import (
    base_option,
    checkpoint_option,
    echo,
    json_option,
    log,
    main,
    print_json,
    runs_option,
    task_option,
)


@main.group()
def models() -> None:
    """Pretrained models: list, get, show, convert.

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

    rows = api.list_models()
    if as_json:
        print_json(rows)
        return
    for row in rows:
        state = "cached" if row["cached"] else ""
        echo(f"{row['name']:12}{row['bytes'] / 1e6:>7.1f} MB  {row['licence']:12}{state:8}{row['summary']}")


@models.command()
@click.argument("name")
@json_option
def get(name: str, as_json: bool) -> None:
    """Download a model of the catalogue to the cache.

    The files are verified; afterwards the model needs no network.

    \b
    Examples:
      saccade models get minilm
      saccade models get smollm2 --json
    """
    from saccade import api

    path = api.get_model(name)
    if as_json:
        print_json({"name": name, "path": str(path)})
    else:
        click.echo(str(path))


@models.command()
@click.argument("ref")
@json_option
def show(ref: str, as_json: bool) -> None:
    """Check a pretrained model and describe it.

    REF is a folder, a .gguf file, a name of the catalogue, or owner/name on the hub.

    \b
    Examples:
      saccade models show minilm
      saccade models show ./my-bert --json
    """
    from saccade import api

    description = api.describe_model(ref)
    if as_json:
        print_json(description)
        return
    for name in ("path", "family", "task", "parameters", "vocabulary_size", "tokenizer"):
        if name in description:  # an image encoder has no texts
            value = description[name]
            echo(f"{name:16}{f'{value:,}' if isinstance(value, int) else value}")
    _echo_shape("", description["config"])
    if description["unused"]:
        echo(f"{'unused':16}{', '.join(name if name.isprintable() else ascii(name) for name in description['unused'])}")


def _echo_shape(part: str, config: Mapping[str, Any]) -> None:
    """Print the shape of a network, or of each of its parts."""
    shape = " ".join(f"{name}={config[name]}" for name in ("dim", "depth", "heads", "hidden") if name in config)
    if shape:
        echo(f"{f'shape {part}':16}{shape}")
    for name, value in config.items():
        if isinstance(value, Mapping):
            _echo_shape(name, value)


@models.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--allow-pickle", is_flag=True, help="Open the pickle; it may build tensors and nothing else.")
def convert(folder: Path, allow_pickle: bool) -> None:
    """Convert pytorch_model.bin to model.safetensors.

    FOLDER holds the pytorch_model.bin; the new file is written next to it.

    \b
    Examples:
      saccade models convert ./old-bert --allow-pickle
    """
    from saccade import api

    log(f"wrote {api.convert_model(folder, allow_pickle=allow_pickle)}")


@main.command()
@click.argument("ref")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "format",
    type=click.Choice(["hf", "onnx", "gguf", "ctranslate2", "peft"]),
    default="hf",
    show_default=True,
    help="hf: a folder that transformers opens. onnx: a folder with model.onnx for onnxruntime. gguf: a file for "
    "llama.cpp. ctranslate2: a folder for CTranslate2. peft: the LoRA adapters alone.",
)
@click.option("--dtype", type=click.Choice(["f32", "f16", "q8_0"]), help="Type of the weights in gguf.  [default: f16]")
@checkpoint_option
@runs_option
@task_option
@base_option
def export(ref: str, path: Path, format: str, dtype: str | None, **source: Any) -> None:
    """Export a model to a new folder or file PATH for other tools.

    REF is a run or a pretrained model. The outputs of what was written are compared with those of the model; the
    largest difference is printed, and one that is more than rounding is refused.

    \b
    Examples:
      saccade export book-1 book-for-transformers
      saccade export smollm2 smollm2.gguf --to gguf --dtype q8_0
      saccade export minilm minilm-onnx --to onnx
      saccade export pairs-1 pairs-ct2 --to ctranslate2
      saccade export reviews-1 reviews-adapter --to peft
    """
    from saccade import api

    for line in api.load(ref, device="cpu", log=log, **source).export(path, format, dtype=dtype or ""):
        log(line)
