"""The commands that train: train, resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from saccade.cli.group import is_main_process, json_option, main, progress_bar, runs_option, task_option
from saccade.cli.printing import show_run


@main.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--task", default="", help="Task, one of `saccade tasks`; default: chosen by the data.")
@click.option("--preset", default="", help="Named set of settings; `saccade tasks TASK` lists them.")
@click.option(
    "--from",
    "base",
    help="Pretrained model to fine-tune: a run, a folder, a name from `saccade models list`, owner/name.",
)
@click.option("--name", default="", help="Name of the run; default: from the file.")
@click.option("--steps", type=click.IntRange(1), help="Length of the run in steps.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Length in minutes (default 5).")
@click.option("--epochs", type=click.FloatRange(0, min_open=True), help="Length in passes over the data.")
@click.option("--seed", type=int, help="Random seed.")
@click.option("--device", help="auto, cpu, cuda or mps.")
@click.option("--valid", type=click.Path(), help="Validation data file; default: a tenth of the data.")
@click.option("--encoding", help="Character encoding of the files, if not UTF-8.")
@click.option("--header", type=click.Choice(["yes", "no"]), help="Whether the first row of a table names its columns.")
@click.option("--text-column", help="Column of a table that holds the text.")
@click.option("--second-column", help="Column of a table that holds the second text of a pair.")
@click.option("--label-column", help="Column of a table that holds the label or the number.")
@click.option("--source", help="Column of a table that holds the source text.")
@click.option("--target", help="Column of the target text; for a file of lines the second file, or its suffix.")
@click.option("--environment", help="Environment of gymnasium in which a policy acts, such as CartPole-v1.")
@click.option("--quiet", is_flag=True, help="Print the result only, no progress.")
@runs_option
@json_option
def train(data: Path, quiet: bool, as_json: bool, **settings: Any) -> None:
    """Train a model on a file or folder DATA.

    Settings are key=value overrides such as model.dim=256; `saccade tasks TASK` lists them all.

    \b
    Examples:
      saccade train book.txt
      saccade train pairs.tsv
      saccade train train.en --target de --valid val.en model.architecture=rnn+attention
      saccade train book.txt --minutes 10 --preset small
      saccade train reviews.csv --text-column text model.dim=256 train.optim.kind=adamw
      saccade train texts/ --valid valid.txt --steps 1000 --name texts
      saccade train mails.csv --task text_classification --from minilm
      saccade train episodes.csv --environment CartPole-v1
    """
    from saccade import api

    given = {name: value for name, value in settings.items() if value is not None}
    with progress_bar(quiet=quiet or not is_main_process()) as bar:
        run = api.train(data, callbacks=[bar], progress=False, **given)
    if is_main_process():
        show_run(run, as_json)


@main.command()
@click.argument("run")
@click.option("--quiet", is_flag=True, help="Print the result only, no progress.")
@runs_option
@task_option
@json_option
def resume(run: str, root: str, quiet: bool, task: str, as_json: bool) -> None:
    """Continue a stopped or killed RUN exactly.

    The result is the same as if the run had never stopped.

    \b
    Examples:
      saccade resume book-1
      saccade resume runs/book-1 --quiet
    """
    from saccade import api

    with progress_bar(quiet=quiet or not is_main_process()) as bar:
        resumed = api.resume(run, root=root, task=task, callbacks=[bar], progress=False)
    if is_main_process():
        show_run(resumed, as_json)
