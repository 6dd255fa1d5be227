"""The command that measures heads over many rows: heads."""

from __future__ import annotations

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
    progress_bar,
    runs_option,
    task_option,
)


@main.command()
@click.argument("ref")
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Text file with an example on each line; default: the validation rows of the run.",
)
@click.option("--rows", default=1000, show_default=True, help="Most rows, at most 1000; of more an even sample.")
@click.option("--ablations", default=24, show_default=True, help="Rows on which each head is removed; 0: none.")
@click.option("--layer", default="", help="Measure one head, of this attention, and remove it in every row.")
@click.option("--head", type=click.IntRange(0), default=0, help="Number of that head.")
@checkpoint_option
@runs_option
@task_option
@base_option
@json_option
def heads(ref: str, data: Path | None, as_json: bool, **others: Any) -> None:
    """Measure every head over many rows.

    REF is a run or a pretrained model. Of up to 1,000 rows: what each head attends to, and what the answers lose
    without it. The result is kept in the cache.

    \b
    Examples:
      saccade heads mails-1
      saccade heads minilm --data sentences.txt --rows 200 --json
      saccade heads mails-1 --layer bert.encoder.1.self --head 2
    """
    from saccade import api
    from saccade.look.head_survey import SurveySettings

    settings = SurveySettings(*(others.pop(name) for name in ("rows", "ablations", "layer", "head")))
    with progress_bar() as bar:
        model = api.load(ref, log=bar.log, **others)
        report = model.survey_heads(
            data, settings, progress=lambda fraction: bar.on_progress("measuring heads", fraction)
        )
    for note in report.notes:
        log(note)
    if as_json:
        print_json(report.to_json())
        return
    for line in report.lines():
        echo(line)
    log(f"{report.rows:,} rows, {report.rows_per_second:.1f} rows/s")
