"""Verbs that use a run: evaluate, predict, look."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from saccade.cli.group import json_option, main, read_lines, report, runs_option, say, task_option, weights_option
from saccade.cli.printing import show_prediction, show_scores

AT_ONCE = 256  # inputs of a file that are answered together


@main.command()
@click.argument("run")
@click.option("--data", type=click.Path(path_type=Path), help="Another file; all of it is scored.")
@weights_option
@runs_option
@task_option
@json_option
def evaluate(run: str, data: Path | None, root: str, task: str, which: Any, as_json: bool) -> None:
    """Score a RUN on all its validation data, or on another file.

    \b
    Examples:
      saccade evaluate book-1
      saccade evaluate pairs-1 --data test.tsv --weights mean --json
    """
    from saccade import api

    with report(False) as screen:
        opened = api.load(run, root=root, which=which, task=task, say=screen.say)
        scores = api.evaluate(
            opened,
            data or api.data_of(run, root),
            whole=data is not None,
            advance=lambda share: screen.advance("evaluating", share),
        )
    show_scores(scores, opened.explained, as_json)
    if not as_json:
        click.echo("".join(f"\n{line}" for line in opened.remarks), nl=bool(opened.remarks))


@main.command()
@click.argument("run")
@click.argument("words", nargs=-1, metavar="[TEXT] [OPTIONS]...")
@click.option("--file", "file", type=click.File("rb"), help="One input a line; - is stdin.")
@weights_option
@runs_option
@task_option
@json_option
def predict(run: str, words: tuple[str, ...], file: Any, root: str, task: str, which: Any, as_json: bool) -> None:
    """Let a RUN answer TEXT, or each line of a file.

    OPTIONS are words such as temperature=0.5 or beam=8; `saccade tasks TASK` lists them all.

    \b
    Examples:
      saccade predict book-1 "It was a"
      saccade predict book-1 "It was a" temperature=0 length=50
      saccade predict pairs-1 "Good morning." best=3
      saccade predict pairs-1 --file sentences.txt --json
    """
    from saccade import api

    opened = api.load(run, root=root, which=which, task=task, say=say)
    text, options = _said(opened, words)
    inputs = read_lines(file) if file else [text]
    if as_json or not opened.continues:
        with report(not file) as screen:
            for first in range(0, len(inputs), AT_ONCE):
                # Maps only for those who ask: they cost as much as the answer.
                for found in api.predict_all(opened, inputs[first : first + AT_ONCE], ["maps=false", *options]):
                    show_prediction(found, as_json)
                screen.advance("answering", min(1.0, (first + AT_ONCE) / len(inputs)))
        return
    for line in inputs:
        pieces = api.stream(opened, line, options)
        click.echo(line + next(pieces, ""), nl=False)  # a mistake shows before anything is printed
        for piece in pieces:
            click.echo(piece, nl=False)
            sys.stdout.flush()
        click.echo()


@main.command()
@click.argument("run")
@click.argument("words", nargs=-1, metavar="[TEXT] [OPTIONS]...")
@click.option("--out", type=click.Path(path_type=Path), help="Write a .html, .svg, .png or .json file.")
@click.option("--layer", default="", help="Draw this attention, such as decoder.1.cross; default: the best aligned.")
@click.option("--head", type=click.IntRange(0), help="Draw this head of it; default: the mean of all.")
@click.option("--pieces", is_flag=True, help="Leave words in the pieces that the model sees.")
@weights_option
@runs_option
@task_option
@json_option
def look(
    run: str,
    words: tuple[str, ...],
    out: Path | None,
    layer: str,
    head: int | None,
    pieces: bool,
    which: Any,
    **rest: Any,
) -> None:
    """Show what a RUN looks at while it answers TEXT: which output word comes from which source word.

    \b
    Examples:
      saccade look pairs-1 "Good morning."
      saccade look pairs-1 "Good morning." --out morning.html
      saccade look pairs-1 "Good morning." --layer decoder.1.cross --head 2 --out morning.svg
      saccade look book-1 "It was a" length=20 --json
    """
    from saccade import api

    opened = api.load(run, root=rest["root"], which=which, task=rest["task"], say=say)
    text, options = _said(opened, words)
    seen = api.look(opened, text, options, layer=layer, head=head, pieces=pieces)
    if out is not None:
        seen.write(out)
        say(f"wrote {out}")
    if rest["as_json"]:
        click.echo(json.dumps(seen.as_json()))
        return
    found = seen.prediction
    click.echo(found.input + found.output if opened.continues else found.output)
    if seen.alignment:
        click.echo(seen.alignment)
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    click.echo(seen.terminal(shutil.get_terminal_size((100, 24)).columns, colour=colour))


def _said(opened: Any, words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The text and the options among some words."""
    from saccade import api

    if not words or words[0].partition("=")[0] in api.option_names(opened):
        return "", words
    return words[0], words[1:]
