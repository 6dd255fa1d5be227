"""Printing of predictions and metrics to stdout, as text or as JSON."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from saccade.cli.group import echo, log, print_json
from saccade.errors import printable

if TYPE_CHECKING:
    from saccade.core import Evaluation, Prediction
    from saccade.look.figure import AttentionFigure
    from saccade.model import ModelPrediction
    from saccade.run import Run


def show_prediction(prediction: ModelPrediction, as_json: bool, prefix: str = "") -> None:
    """Print a prediction, or several with their scores, and its notes to stderr; `prefix`: the text it continues."""
    for note in prediction.notes:
        log(note)
    if as_json:
        print_json(prediction.to_json())
    elif prediction.alternatives:
        for candidate in (prediction, *prediction.alternatives):
            show_text(f"{candidate.scores['score']:.4f}\t{prefix}{candidate.text}\n")
    else:
        show_text(f"{prefix}{prediction.text}\n")


def show_text(text: str) -> None:
    """Print the output of a model: as it is to a file or a pipe, without control characters to a terminal."""
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)


def show_figure(figure: AttentionFigure) -> None:
    """Print an attention map as wide as the terminal, in colour where there is one."""
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    click.echo(figure.terminal(shutil.get_terminal_size((100, 24)).columns, colour=colour))


def show_images(prediction: Prediction) -> None:
    """Print generated images as wide as the terminal, in colour where there is one."""
    from saccade.look.sheet import images_of, terminal

    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    click.echo(terminal(images_of(prediction), shutil.get_terminal_size((100, 24)).columns, colour=colour))


def show_episode(episode: Mapping[str, Any], as_json: bool, out: Path | None) -> None:
    """Print an episode of a policy; every step of it to a .json file."""
    from saccade.look.episode import episode_text, write_episode

    if out is not None:
        write_episode(episode, out)
        log(f"wrote {out}")
    if as_json:
        print_json(episode)
        return
    for line in episode_text(episode, shutil.get_terminal_size((100, 24)).columns):
        echo(line)


def show_run(run: Run, as_json: bool) -> None:
    """Print the metrics of a run that was just trained."""
    if as_json:
        print_json({"run": str(run.path), **_metrics(run.evaluation)})
        return
    log(f"run {run.path}; best checkpoint on all validation data:")
    _show_metrics(run.evaluation)


def show_evaluation(evaluation: Evaluation, as_json: bool) -> None:
    """Print metrics with their signatures, then tables and notes; as JSON without tables, and the notes to stderr."""
    if as_json:
        for note in evaluation.notes:
            log(note)
        print_json(_metrics(evaluation))
        return
    _show_metrics(evaluation)
    for table in evaluation.tables:
        for line in ["", table.title, *table.to_markdown()]:
            echo(line)
    for note in evaluation.notes:
        echo(f"\n{note}")


def _metrics(evaluation: Evaluation) -> dict[str, object]:
    signatures = {"signatures": dict(evaluation.signatures)} if evaluation.signatures else {}
    return {**evaluation.values, **signatures}


def _show_metrics(evaluation: Evaluation) -> None:
    width = max([16, *(len(name) + 2 for name in evaluation.values)])
    for name, value in evaluation.values.items():
        number = f"{value:,.4f}" if isinstance(value, float) else f"{value:,}"
        echo(f"{name:{width}}{number:12}{evaluation.signatures.get(name, '')}".rstrip())
