"""The command that computes vectors: features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from saccade.cli.group import json_option, main, print_json, progress_bar, read_lines, runs_option
from saccade.errors import UsageError

PER, POOL = click.Choice(["text", "token"]), click.Choice(["mean", "first"])


@main.command()
@click.argument("ref")
@click.argument("texts", nargs=-1)
@click.option("--file", "file", type=click.File("rb"), help="One text per line; - is stdin.")
@click.option(
    "--layers", default="last", show_default=True, help="first, last, second_to_last, sum, sum_last_4 or concat_last_4."
)
@click.option("--per", type=PER, default=PER.choices[0], show_default=True, help="One vector per text or token.")
@click.option("--pool", type=POOL, help="Pooling of a text's tokens; default: that of the model, the mean for most.")
@click.option("--int8", is_flag=True, help="Compute with 8-bit weights: faster, slightly less exact.")
@click.option("--output", type=click.Path(path_type=Path), help="Write to this .npy or .jsonl file.")
@click.option("--word", default="", help="Print the cosine similarity of this word's vectors in two TEXTS.")
@click.option(
    "--compare",
    "data",
    type=click.Path(path_type=Path),
    help="Train a linear probe per choice of layers on this labelled file and print the scores.",
)
@click.option("--task", default="", help="tagging or text_classification, for --compare; default: chosen by the file.")
@runs_option
@json_option
def features(ref: str, texts: tuple[str, ...], root: str, as_json: bool, **how: Any) -> None:
    """Compute vectors of TEXTS with an encoder.

    REF is a run, a name from `saccade models list`, or a folder.

    \b
    Examples:
      saccade features minilm "A cat sat." "A dog ran."
      saccade features minilm --file lines.txt --output lines.npy --layers sum_last_4
      saccade features minilm "He sat by the bank." "The bank lent money." --word bank
      saccade features minilm --compare tags.conll
    """
    from saccade import api
    from saccade.look import features

    with progress_bar() as bar:
        encoder = features.encoder_of(api.load(ref, root=root, log=bar.log).task)
        if how["data"] is not None:
            progress = partial(bar.on_progress, "comparing layers")
            _show_layers(features.compare_layers(encoder, how["data"], how["task"], progress=progress), as_json)
        elif how["word"]:
            if len(texts) != 2:
                raise UsageError(f"--word needs two texts, but there are {len(texts)}")
            cosine = features.word_similarity(encoder, (texts[0], texts[1]), how["word"], how["layers"])
            if as_json:
                print_json({"word": how["word"], "cosine": cosine})
            else:
                click.echo(f"{cosine:.4f}")
        else:
            lines = [*texts, *(line for _, line in read_lines(how["file"] or ()))]
            if not lines:
                raise UsageError("no text was given; pass one, or a --file with one text per line")
            options = {name: how[name] for name in ("layers", "per", "pool", "int8")}
            vectors = _with_progress(features.vectors(encoder, lines, **options), len(lines), bar)
            for line in features.write(vectors, how["output"]):
                click.echo(line)


def _with_progress(vectors: Iterable[Any], total: int, bar: Any) -> Iterator[Any]:
    """Yield the vectors and report how many are computed, and which texts were truncated."""
    for number, vector in enumerate(vectors, 1):
        for note in vector.notes:
            bar.log(note)
        yield vector
        bar.on_progress("encoding", number / total)


def _show_layers(results: list[Any], as_json: bool) -> None:
    """Print the score of each choice of layers, and the narrowest within half a point of the best."""
    if as_json:
        print_json([vars(result) for result in results])
        return
    for result in results:
        click.echo(f"{result.layers:16} {result.score:7.2f}   {result.width} wide")
    best = results[0]
    good = [result for result in results if result.score > best.score - 0.5]
    narrowest = min(good, key=lambda result: result.width)
    click.echo(f"use {narrowest.layers}" + ("" if narrowest is best else f": as good as {best.layers}, and smaller"))
