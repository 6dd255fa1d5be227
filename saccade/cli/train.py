"""Verbs that train: train, resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from saccade.cli.group import json_option, main, report, runs_option, task_option
from saccade.cli.printing import show_trained


@main.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.argument("settings", nargs=-1)
@click.option("--task", default="", help="What to learn; see `saccade tasks`; default: by the file.")
@click.option("--preset", default="", help="A named shape; see `saccade tasks TASK`.")
@click.option(
    "--from", "base", help="A pretrained encoder: a run, a folder, a name of `saccade models list`, owner/name."
)
@click.option("--name", default="", help="Name of the run; default: from the file.")
@click.option("--steps", type=click.IntRange(1), help="Length in steps.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Length in minutes (default 5).")
@click.option("--epochs", type=click.FloatRange(0, min_open=True), help="Length in passes over the data.")
@click.option("--seed", type=int, help="Source of all randomness.")
@click.option("--device", help="auto, cpu, cuda, mps.")
@click.option("--valid", type=click.Path(), help="File of validation data; default: a tenth is held back.")
@click.option("--encoding", help="SentenceEncoder of the files, where it is not UTF-8.")
@click.option("--column", help="Column of a table that holds the text.")
@click.option("--source", help="Column of a table that holds the source of a pair.")
@click.option("--target", help="Column of the target; for a file of lines the second file, or the part of its name.")
@click.option("--second", help="Column of a table that holds the second text of a pair.")
@click.option("--label", help="Column of a table that holds the label or the number.")
@click.option("--quiet", is_flag=True, help="No progress, only the result.")
@runs_option
@json_option
def train(
    data: Path,
    settings: tuple[str, ...],
    task: str,
    preset: str,
    name: str,
    root: str,
    quiet: bool,
    as_json: bool,
    **shortcuts: Any,
) -> None:
    """Train a model on a file or folder DATA.

    SETTINGS are words such as model.dim=256; `saccade tasks TASK` lists them all.

    \b
    Examples:
      saccade train book.txt
      saccade train pairs.tsv
      saccade train train.en --target de --valid val.en model.architecture=rnn+attention
      saccade train book.txt --minutes 10 --preset small
      saccade train reviews.csv --column text model.dim=256 train.optim.kind=adamw
      saccade train texts/ --valid held.txt --steps 1000 --name texts
      saccade train mails.csv --task text_classification --from minilm
    """
    from saccade import api

    words = [*settings, *(f"{SHORTCUTS[key]}={value}" for key, value in shortcuts.items() if value is not None)]
    with report(quiet) as screen:
        trained = api.train(data, words, task=task, preset=preset, name=name, root=root, report=screen)
    show_trained(trained, as_json)


SHORTCUTS = {
    "steps": "train.steps",
    "minutes": "train.minutes",
    "epochs": "train.epochs",
    "seed": "train.seed",
    "device": "train.device",
    "valid": "data.valid",
    "encoding": "data.encoding",
    "column": "data.column",
    "source": "data.source",
    "target": "data.target",
    "second": "data.second",
    "label": "data.label",
    "base": "base",
}


@main.command()
@click.argument("run")
@click.option("--quiet", is_flag=True, help="No progress, only the result.")
@runs_option
@task_option
@json_option
def resume(run: str, root: str, quiet: bool, task: str, as_json: bool) -> None:
    """Go on with a RUN that was stopped or killed, exactly where it was.

    \b
    Examples:
      saccade resume book-1
      saccade resume runs/book-1 --quiet
    """
    from saccade import api

    with report(quiet) as screen:
        trained = api.resume(run, root=root, report=screen, task=task)
    show_trained(trained, as_json)
