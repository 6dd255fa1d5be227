"""The interactive commands: chat, story."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from saccade.cli.group import checkpoint_option, dtype_option, json_option, log, main, runs_option, task_option
from saccade.errors import UsageError


def writing_option(function: Any) -> Any:
    help = "Option such as temperature=0.5 or max_new_tokens=100; repeatable. /set lists them."
    return click.option("-o", "--option", "options", multiple=True, metavar="KEY=VALUE", help=help)(function)


@main.command()
@click.argument("ref")
@click.option("--system", default="", help="Message of the system, which precedes the conversation.")
@click.option("--load", type=click.Path(path_type=Path), help="Continue a conversation that /save has written.")
@writing_option
@checkpoint_option
@dtype_option
@runs_option
@task_option
@json_option
def chat(ref: str, system: str, load: Path | None, options: tuple[str, ...], as_json: bool, **source: Any) -> None:
    """Chat with a model.

    REF is a pretrained model with a chat template, or a run that was trained on chats. At a terminal /help lists the
    commands, Ctrl-C ends an answer, Ctrl-D leaves. Without a terminal each line of stdin is a message or a command, and
    the answers alone go to stdout. When the context is full, the oldest turns are not sent any more; a message says so.

    \b
    Examples:
      saccade chat smollm2
      saccade chat smollm2 --system "Be brief." -o temperature=0.2
      echo "What is a comet?" | saccade chat smollm2 --json
    """
    from saccade import api
    from saccade.cli.console import Console
    from saccade.interactive.chat import Chat
    from saccade.interactive.writer import Writer, WritingOptions

    model, console = api.load(ref, log=log, **source), Console(as_json=as_json)
    writer = Writer(model.engine(1), WritingOptions())
    writer.set(options)
    shell = Chat(writer, console, system)
    if load is not None:
        shell.do_load(str(load))
    if console.terminal:
        _greet(console, model, writer)
    console.run(shell)


@main.command()
@click.argument("ref")
@click.option("--opening", default="", help="Text that the story begins with; default: a tower in the forest.")
@click.option("--load", type=click.Path(path_type=Path), help="Continue a story that /save has written.")
@click.option(
    "--form",
    type=click.Choice(["auto", "text", "messages"]),
    default="auto",
    show_default=True,
    help="How the model gets the story: as text to continue or as messages; auto: messages if it has a chat template.",
)
@writing_option
@checkpoint_option
@dtype_option
@runs_option
@task_option
@json_option
def story(ref: str, opening: str, load: Path | None, options: tuple[str, ...], as_json: bool, **others: Any) -> None:
    """Tell a story with a language model, in turns.

    REF is any language model: a run, or a pretrained model. What you type is what you do ("open the door" becomes
    "> You open the door."), and the model continues the text; an empty line lets the story go on. Every turn is kept:
    /undo, /retry and /branch leave a branch to which /switch returns. Without a terminal each line of stdin is a turn
    or a command. /save FILE.json keeps all branches, /save FILE.txt the text.

    \b
    Examples:
      saccade story smollm2
      saccade story book-1 --opening "It was a dark night." -o temperature=0.9
      saccade story smollm2 --load tower.json
    """
    from saccade import api
    from saccade.cli.console import Console
    from saccade.interactive.telling import STOPS, StoryTelling
    from saccade.interactive.writer import Writer, WritingOptions

    if opening and load is not None:
        raise UsageError("--opening cannot be combined with --load, which has an opening")
    form = others.pop("form")
    model, console = api.load(ref, log=log, **others), Console(as_json=as_json)
    writer = Writer(model.engine(1), WritingOptions(max_new_tokens=100), STOPS)
    writer.set(options)
    shell = StoryTelling(writer, console, opening, form)
    if console.terminal:
        _greet(console, model, writer)
    shell.open(load)
    console.run(shell)


def _greet(console: Any, model: Any, writer: Any) -> None:
    console.note(
        f"{model.name}: {model.parameters():,} parameters, context of {writer.engine.context:,} tokens; "
        "/help lists the commands"
    )
