"""Printing: answers and scores on stdout, as lines for people or as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click


def show_prediction(found: Any, as_json: bool) -> None:
    """An answer, with its score where there are several."""
    if as_json:
        rest: Any = [{"output": one.output, "scores": one.scores} for one in found.others]
        others = {"others": rest} if rest else {}
        if found.alignment is not None:
            from saccade import api

            others["alignment"] = api.alignment(found)
        click.echo(json.dumps({"input": found.input, "output": found.output, "scores": found.scores, **others}))
        return
    for one in (found, *found.others):
        click.echo(f"{one.scores['score']:.4f}\t{one.output}" if found.others else one.output)


def show_trained(trained: Any, as_json: bool) -> None:
    if not as_json:
        click.echo(f"run {trained.run.folder}; the best checkpoint on all validation data:", err=True)
    scores = {"run": str(trained.run.folder), **trained.scores} if as_json else trained.scores
    show_scores(scores, trained.explained, as_json)


def show_scores(scores: dict[str, Any], explained: Mapping[str, str], as_json: bool) -> None:
    """Scores as JSON, or a line each with how it was computed."""
    if as_json:
        click.echo(json.dumps({**scores, **({"signatures": dict(explained)} if explained else {})}))
        return
    for name, value in scores.items():
        shown = f"{value:,.4f}" if isinstance(value, float) else f"{value:,}"
        click.echo(f"{name:16}{shown:12}{explained.get(name, '')}".rstrip())
