"""The verb that gives vectors: features."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from saccade.cli.group import json_option, main, read_lines, report, runs_option
from saccade.errors import UsageError


@main.command()
@click.argument("model")
@click.argument("texts", nargs=-1)
@click.option("--file", "file", type=click.File("rb"), help="One text a line; - is stdin.")
@click.option("--layers", default="last", help="first, last, second_to_last, sum, sum_last_4 or concat_last_4.")
@click.option("--per", type=click.Choice(["text", "token"]), default="text", help="One vector for each.")
@click.option("--pool", type=click.Choice(["mean", "first"]), default="mean", help="What stands for a text.")
@click.option("--int8", is_flag=True, help="Compute in 8 bits: faster, a little less exact.")
@click.option("--output", type=click.Path(path_type=Path), help="Write to this .npy or .jsonl file.")
@click.option("--word", default="", help="How alike is this word in the two TEXTS?")
@click.option("--compare", "data", type=click.Path(path_type=Path), help="Which layers suit this labelled file?")
@click.option("--task", default="", help="tagging or text_classification, for --compare; default: by the file.")
@runs_option
@json_option
def features(model: str, texts: tuple[str, ...], root: str, as_json: bool, **how: Any) -> None:
    """Give the vectors of TEXTS by an encoder MODEL: a run, a name of `saccade models list`, a folder.

    \b
    Examples:
      saccade features minilm "A cat sat." "A dog ran."
      saccade features minilm --file lines.txt --output lines.npy --layers sum_last_4
      saccade features minilm "He sat by the bank." "The bank lent money." --word bank
      saccade features minilm --compare tags.conll
    """
    from saccade import api
    from saccade.look import features

    with report(False) as screen:
        opened = features.encoder_of(api.load(model, root=root, say=screen.say))
        if how["data"] is not None:
            seen = partial(screen.advance, "comparing layers")
            _show(features.compare_layers(opened, how["data"], how["task"], advance=seen), as_json)
        elif how["word"]:
            if len(texts) != 2:
                raise UsageError(f"--word needs two texts, but there are {len(texts)}")
            alike = features.word_distance(opened, (texts[0], texts[1]), how["word"], how["layers"])
            click.echo(json.dumps({"word": how["word"], "cosine": alike}) if as_json else f"{alike:.4f}")
        else:
            lines = [*texts, *(read_lines(how["file"]) if how["file"] else [])]
            if not lines:
                raise UsageError("no text was given; write one, or name a --file with one text a line")
            options = {name: how[name] for name in ("layers", "per", "pool", "int8")}
            found = features.vectors(opened, lines, **options)
            for line in features.write(_counted(found, len(lines), screen), how["output"]):
                click.echo(line)


def _counted(found: Iterable[Any], total: int, screen: Any) -> Iterator[Any]:
    """The same, and the screen is told how far it is."""
    for number, one in enumerate(found, 1):
        yield one
        screen.advance("reading", number / total)


def _show(found: list[Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([vars(choice) for choice in found]))
        return
    for choice in found:
        click.echo(f"{choice.layers:16} {choice.score:7.2f}   {choice.width} wide")
    best = found[0]
    near = [choice for choice in found if choice.score > best.score - 0.5]
    small = min(near, key=lambda choice: choice.width)
    click.echo(f"use {small.layers}" + ("" if small is best else f": as good as {best.layers}, and smaller"))
