"""The commands that list: tasks, runs, completion."""

from __future__ import annotations

import json
from typing import Any

import click

from saccade.cli.group import echo, json_option, log, main, print_json, runs_option


@main.command()
@click.argument("name", default="")
@json_option
def tasks(name: str, as_json: bool) -> None:
    """List the tasks, or the settings and options of one.

    \b
    Examples:
      saccade tasks
      saccade tasks language_model
    """
    from saccade import api

    if not name:
        summaries = api.list_tasks()
        if as_json:
            print_json(summaries)
            return
        for row in summaries:
            click.echo(f"{row['name']:24}{row['summary']}")
        return
    description = api.describe_task(name)
    if as_json:
        print_json(description)
        return
    click.echo(f"{description['name']}: {description['summary']}")
    click.echo(f"presets: {', '.join(description['presets']) or 'none'}")
    _show_settings("settings for train, as KEY=VALUE", description["settings"])
    _show_settings("options for predict and look, as -o KEY=VALUE", description["options"])


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _show_settings(title: str, settings: list[dict[str, Any]]) -> None:
    """Print settings with default, as it is written on a command line, help and type, aligned in two columns."""
    names = [f"{setting['name']}={_written(setting['default'])}" for setting in settings]
    width = max(map(len, names), default=0) + 2
    click.echo(f"\n{title}:")
    for name, setting in zip(names, settings, strict=True):
        click.echo(f"  {name:{width}}{setting['help']} ({setting['type']})")


@main.command()
@runs_option
@json_option
def runs(root: str, as_json: bool) -> None:
    """List the runs with their step and best score.

    \b
    Examples:
      saccade runs
      saccade runs --json
    """
    from saccade import api

    summaries = api.list_runs(root)
    if as_json:
        print_json(summaries)
        return
    if not summaries:
        log(f"no runs in {root}; train one with `saccade train FILE`")
    for run in summaries:
        if "error" in run:
            echo(f"{run['name']:24}damaged: {run['error']}")
            continue
        best = f"{run['best']:.4f}" if isinstance(run["best"], float) else ""
        state = "training now" if run["running"] else "" if run["finished"] else "stopped"
        echo(f"{run['name']:24}{run['task']:24}step {run['step']:<9}best {best:10}{run['created']}  {state}")


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      eval "$(saccade completion bash)"
      saccade completion fish > ~/.config/fish/completions/saccade.fish
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(main, {}, "saccade", "_SACCADE_COMPLETE").source())
