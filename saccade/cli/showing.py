"""The verb that shows what this is: demo."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from saccade.cli.group import main, report, runs_option
from saccade.cli.printing import show_trained


@main.command()
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=0.9, show_default=True, help="Length.")
@runs_option
def demo(minutes: float, root: str) -> None:
    """Learn to read dates as people write them in some 40 languages, and show which letters were looked at.

    \b
    Examples:
      saccade demo
      saccade demo --minutes 5
    """
    from saccade import api
    from saccade.demo import EXAMPLES, plan_dates, write_dates

    data, valid = write_dates(Path(root) / "dates")
    with report(False) as screen:
        screen.say("The demo learns to turn dates, as people write them, into ISO dates such as 2014-08-12.")
        screen.say(str(plan_dates()))
        words = [f"train.minutes={minutes}", f"data.valid={valid}"]
        trained = api.train(data, words, task="translation", preset="dates", name="", root=root, report=screen)
    show_trained(trained, False)
    opened = api.load(trained.run.folder)
    for found in api.predict_all(opened, EXAMPLES):
        click.echo(f"{found.output}  {found.input}")
    seen = api.look(opened, EXAMPLES[0])
    click.echo(f"\nwhich letters of '{EXAMPLES[0]}' each digit comes from:", err=True)
    click.echo(seen.terminal(shutil.get_terminal_size((100, 24)).columns, colour=False))
    click.echo(f'\nNow try: saccade look {trained.run.folder} "12 August 2014" --out date.html', err=True)
