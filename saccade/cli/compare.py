"""The command that compares architectures: compare."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from saccade.cli.group import echo, json_option, log, main, print_json, progress_bar, runs_option
from saccade.comparison import MODELS

TRIAL = ("minutes", "probe_minutes", "sentence")


@main.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--models", default=",".join(MODELS), show_default=True, help="Architectures, separated by commas.")
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    default=5.0,
    show_default=True,
    help="Minutes of training per model.",
)
@click.option(
    "--probe-minutes",
    type=click.FloatRange(0),
    help="Minutes per model for the copy and reversal probes; default: 0.4 x --minutes; 0: skip them.",
)
@click.option("--sentence", default="", help="Source text whose alignment is shown; default: a validation sentence.")
@click.option("--name", default="", help="Name of the comparison; an unfinished one continues. Default: from the file.")
@click.option("--valid", type=click.Path(), help="Validation data file; default: a tenth of the data.")
@click.option("--encoding", help="Character encoding of the files, if not UTF-8.")
@click.option("--header", type=click.Choice(["yes", "no"]), help="Whether the first row of a table names its columns.")
@click.option("--source", help="Column of a table that holds the source text.")
@click.option("--target", help="Column of the target text; for a file of lines the second file, or its suffix.")
@click.option("--seed", type=int, help="Random seed.")
@click.option("--device", help="auto, cpu, cuda or mps.")
@click.option("--quiet", is_flag=True, help="Print the result only, no progress.")
@runs_option
@json_option
def compare(data: Path, overrides: tuple[str, ...], models: str, quiet: bool, as_json: bool, **others: Any) -> None:
    """Train several architectures on pairs and compare them.

    DATA is a file of pairs; every architecture is trained for the same time. The report is one HTML file: quality
    by length, learning curves, speed, memory, alignments, and whether each architecture can memorise 1,000 symbols.
    Settings are key=value overrides such as model.rnn.hidden=512; train.steps takes precedence over --minutes.
    After an interruption the same command with the same --name continues; finished parts are not repeated. If a
    model fails, the others are reported and the exit code is 1.

    \b
    Examples:
      saccade compare pairs.tsv
      saccade compare pairs.tsv --models rnn,rnn+attention --minutes 10 --name bottleneck
      saccade compare train.en --target de --valid val.en --json
    """
    from saccade import api
    from saccade.comparison import job, summary

    chosen = tuple(part.strip() for part in models.split(",") if part.strip())
    trial = job.Trial(chosen, *(others.pop(name) for name in TRIAL))
    name, root = others.pop("name"), others.pop("root")
    given = api.to_overrides({key: value for key, value in others.items() if value is not None})
    command = shlex.join(["saccade", *sys.argv[1:]])
    with progress_bar(quiet=quiet) as bar:
        comparison = job.compare(
            data, trial, overrides=[*overrides, *given], name=name, root=root, callback=bar, command=command
        )
    if as_json:
        print_json(comparison.result)
    else:
        for line in summary.text_table(comparison.result):
            echo(line)
    log(f"report: {comparison.page}")
    if any("failed" in model for model in comparison.result["models"]):
        click.get_current_context().exit(1)
