"""The command that compares architectures: compare."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from saccade.cli.group import echo, json_option, log, main, print_json, progress_bar, runs_option
from saccade.comparison import IMAGE_MODELS, MODELS, OPTIONS

ARCHITECTURES = f"{','.join(MODELS)} for pairs, {','.join(IMAGE_MODELS)} for images"


@main.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--task", default="", help="translation or image_classification; default: chosen by the data.")
@click.option("--models", help=f"Architectures, separated by commas; default: {ARCHITECTURES}.")
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
    help="Pairs: minutes per model for the copy and reversal probes; default: 0.4 x --minutes; 0: skip them.",
)
@click.option(
    "--sentence", default="", help="Pairs: source text whose alignment is shown; default: a validation sentence."
)
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="FILE",
    help="Images: picture whose attention is shown; repeatable; default: four validation images.",
)
@click.option("--name", default="", help="Name of the comparison; an unfinished one continues. Default: from the file.")
@click.option("--valid", type=click.Path(), help="Validation data; default: a tenth of the data.")
@click.option("--encoding", help="Character encoding of the files, if not UTF-8.")
@click.option("--header", type=click.Choice(["yes", "no"]), help="Whether the first row of a table names its columns.")
@click.option("--source", help="Column of a table that holds the source text.")
@click.option("--target", help="Column of the target text; for a file of lines the second file, or its suffix.")
@click.option("--label-column", help="Column of a table of images that holds the label.")
@click.option("--seed", type=int, help="Random seed.")
@click.option("--device", help="auto, cpu, cuda or mps.")
@click.option("--quiet", is_flag=True, help="Print the result only, no progress.")
@runs_option
@json_option
def compare(
    data: Path, overrides: tuple[str, ...], models: str | None, quiet: bool, as_json: bool, **others: Any
) -> None:
    """Train several architectures on the same data and compare them.

    DATA is a file of pairs, or images with labels such as a folder of classes; every architecture is trained from
    scratch for the same time. The report is one HTML file. Pairs: quality by length, learning curves, speed, memory,
    alignments, and whether each architecture can memorise 1,000 symbols. Images: accuracy with its interval, learning
    curves, speed, accuracy by label, and where each model looks.
    Settings are key=value overrides such as model.rnn.hidden=512; train.steps takes precedence over --minutes.
    After an interruption the same command with the same --name continues; finished parts are not repeated. If a
    model fails, the others are reported and the exit code is 1.

    \b
    Examples:
      saccade compare pairs.tsv
      saccade compare pairs.tsv --models rnn,rnn+attention --minutes 10 --name bottleneck
      saccade compare train.en --target de --valid val.en --json
      saccade compare photos/ --models cnn,vit --image cat.jpg
    """
    from saccade import api
    from saccade.comparison import job
    from saccade.comparison.trial import Trial

    chosen = None if models is None else tuple(part.strip() for part in models.split(",") if part.strip())
    trial = Trial(chosen, **{option: others.pop(option) for option in ("minutes", "task", *OPTIONS)})
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
        for line in comparison.text_table():
            echo(line)
    log(f"report: {comparison.page}")
    if any("failed" in model for model in comparison.result["models"]):
        click.get_current_context().exit(1)
