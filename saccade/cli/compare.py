"""The verb that compares architectures: compare."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from saccade.cli.group import json_option, main, report, runs_option, say
from saccade.cli.training import SHORTCUTS

MODELS = "rnn,rnn+attention,convolution,transformer,universal"


@main.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.argument("settings", nargs=-1)
@click.option("--models", default=MODELS, show_default=True, help="Architectures, separated by commas.")
@click.option(
    "--minutes", type=click.FloatRange(0, min_open=True), default=5.0, show_default=True, help="For each model."
)
@click.option(
    "--probe-minutes", type=click.FloatRange(0), help="Copying and reversing; default two fifths of minutes; 0: none."
)
@click.option("--sentence", default="", help="Show the alignment of this text; default: a validation sentence.")
@click.option(
    "--name", default="", help="Name of the comparison; one that was stopped goes on. Default: from the file."
)
@click.option("--valid", type=click.Path(), help="File of validation data; default: a tenth is held back.")
@click.option("--encoding", help="SentenceEncoder of the files, where it is not UTF-8.")
@click.option("--source", help="Column of a table that holds the source of a pair.")
@click.option("--target", help="Column of the target; for a file of lines the second file, or the part of its name.")
@click.option("--seed", type=int, help="Source of all randomness.")
@click.option("--device", help="auto, cpu, cuda, mps.")
@click.option("--quiet", is_flag=True, help="No progress, only the result.")
@runs_option
@json_option
def compare(
    data: Path,
    settings: tuple[str, ...],
    models: str,
    name: str,
    root: str,
    quiet: bool,
    as_json: bool,
    **rest: Any,
) -> None:
    """Train several architectures on a file DATA of pairs, for the same time each, and report how they differ.

    The report is one HTML file: quality by length, learning curves, speed, memory, alignments, and whether each kind of
    model can carry 1,000 symbols. SETTINGS are words such as model.rnn.state=512; train.steps=... wins over --minutes.
    After an interruption or a kill the same command with the same --name goes on; what is finished is not done again.
    Where a model crashes the others are reported, and the exit code is 1.

    \b
    Examples:
      saccade compare pairs.tsv
      saccade compare pairs.tsv --models rnn,rnn+attention --minutes 10 --name bottleneck
      saccade compare train.en --target de --valid val.en --json
    """
    from saccade.comparison import job, summary

    shortcuts = {key: value for key, value in rest.items() if key in SHORTCUTS and key != "minutes"}
    words = [*settings, *(f"{SHORTCUTS[key]}={value}" for key, value in shortcuts.items() if value is not None)]
    chosen = tuple(part.strip() for part in models.split(",") if part.strip())
    trial = job.Trial(chosen, rest["minutes"], rest["probe_minutes"], rest["sentence"])
    command = shlex.join(["saccade", *sys.argv[1:]])
    with report(quiet) as screen:
        found = job.compare(data, words, trial, name=name, root=root, report=screen, command=command)
    if as_json:
        click.echo(json.dumps(found.result))
    else:
        for line in summary.listed(found.result):
            click.echo(line)
    say(f"report: {found.page}")
    if any("failed" in model for model in found.result["models"]):
        click.get_current_context().exit(1)
