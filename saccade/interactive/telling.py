"""Telling a story with a language model: turns of the player that begin with `> You`, and their continuations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from saccade.core.generation import TextEngine
from saccade.errors import DataError, UsageError
from saccade.interactive.shell import Output, Shell
from saccade.interactive.story import MARKER, OPENING, Story, Turn, as_action, begin, read_story, write_story
from saccade.interactive.writer import Writer

Form = Literal["auto", "text", "messages"]
REQUEST = (
    "Tell me an adventure story in the second person, a few sentences at a time. After each part I write what I do, "
    "such as: > You open the door. Begin."
)
GO_ON = "Go on."
STOPS = ("\n>", "> You")  # the model does not write turns of the player


@dataclass(frozen=True)
class Prompt:
    """How a story is given to an engine: as text to continue, or as messages to a model with a chat template."""

    engine: TextEngine
    as_messages: bool = False
    marker: str = MARKER
    """what precedes an action; a tokenizer of characters may not have it"""

    @classmethod
    def of(cls, engine: TextEngine, form: Form) -> Prompt:
        """Return the form of prompt; auto: messages if the model has a chat template."""
        if form != "text":
            try:
                engine.encode_chat([{"role": "user", "content": ""}])
                return cls(engine, as_messages=True)
            except UsageError:
                if form == "messages":
                    raise
        try:
            engine.encode(MARKER)
        except DataError:
            return cls(engine, marker="")
        return cls(engine)

    def encode(self, story: Story, turns: Sequence[Turn], action: str) -> list[int]:
        """Return the tokens of some turns of a story and of an action, up to its continuation."""
        if not self.as_messages:
            return self.engine.encode(begin(story.text(turns, self.marker), action, self.marker))
        messages = [("user", REQUEST), ("assistant", story.opening)]
        for turn in (*turns, Turn(0, action, "")):
            messages += [("user", f"> {turn.action}" if turn.action else GO_ON), ("assistant", turn.text.strip())]
        return self.engine.encode_chat([{"role": role, "content": content} for role, content in messages[:-1]])

    def fit(self, story: Story, action: str, room: int) -> tuple[list[int], int]:
        """Return the tokens of a story and an action, and how many of its oldest turns are dropped to leave room.

        The opening is never dropped.
        """
        told, context = story.told, self.engine.context
        for dropped in range(len(told) + 1):
            ids = self.encode(story, told[dropped:], action)
            if len(ids) + room <= context:
                return ids, dropped
        if len(ids) >= context:
            raise UsageError(
                f"the opening and the action must have fewer tokens than the context of {context:,}, but have "
                f"{len(ids):,}; shorten them"
            )
        return ids, len(told)


class StoryTelling(Shell):
    """A story that a player and a model tell in turns."""

    def __init__(self, writer: Writer, output: Output, opening: str = "", form: Form = "auto") -> None:
        super().__init__(writer, output)
        self.story = Story(opening or OPENING)
        self._dropped = 0  # turns that the last prompt did not have
        self._empty: str | None = None  # the last action, if the model has written nothing after it
        self.prompt = Prompt.of(writer.engine, form)
        if not self.prompt.marker:
            output.note(f"(the tokenizer of the model has no '{MARKER.strip()}': it gets the turns without it)")

    def open(self, path: Path | None = None) -> None:
        """Show the opening, or a story that was saved, and refuse one that is too long."""
        if path is not None:
            self.do_load(str(path))
            return
        self.prompt.fit(self.story, "", 1)
        self.output.text(self.story.opening)
        self.output.end({"opening": self.story.opening})

    def receive(self, line: str) -> None:
        self._tell(self.story, as_action(line))

    def do_retry(self, argument: str) -> None:
        """/retry: tell the last turn again; the other continuation is kept as a branch"""
        if self._empty is not None:
            self._tell(self.story, self._empty)
            return
        if not self.story.current:
            raise UsageError("there is nothing to tell again: the story is at its opening")
        self._tell(self.story.undo(), self.story.told[-1].action)

    def do_undo(self, argument: str) -> None:
        """/undo: go back by a turn, which is kept as a branch"""
        self._go_to(self.story.undo())

    def do_branch(self, argument: str) -> None:
        """/branch [TURN]: go back to the end of a turn, 0 is the opening, and tell another branch; default: one turn"""
        count = _number(argument, "/branch 3") if argument else len(self.story.told) - 1
        self._go_to(self.story.back_to(count))

    def do_branches(self, argument: str) -> None:
        """/branches: list the branches; * is the one that is told"""
        path = set(self.story.path)
        for number, end in enumerate(self.story.branches, start=1):
            branch = self.story.switch(number) if end else self.story
            mark = "*" if end in path or not self.story.turns else " "
            last = branch.told[-1] if branch.told else Turn(0, "", self.story.opening)
            length = len(branch.told)
            summary = f"> {last.action} {last.text}" if last.action else last.text
            self.output.note(
                f"{mark}{number:3}  {length} turn{'' if length == 1 else 's'}  {' '.join(summary.split())[:70]}"
            )

    def do_switch(self, argument: str) -> None:
        """/switch BRANCH: go to the end of a branch"""
        self._go_to(self.story.switch(_number(argument, "/switch 2")))

    def do_context(self, argument: str) -> None:
        """/context: show the story, how much of the context is used, and what the model sees"""
        ids, dropped = self.prompt.fit(self.story, "", self.writer.room)
        self.output.note(f"{self._usage(len(ids), dropped)}\n\n{self.story.opening}")
        for number, turn in enumerate(self.story.told):
            if dropped and not number:
                self.output.note("---- the model does not see this part ----")
            if dropped and number == dropped:
                self.output.note("---- the model sees the opening and what follows ----")
            self.output.note(
                f"{number + 1:3} {f'> {turn.action} ' if turn.action else ''}{' '.join(turn.text.split())}"
            )

    def write_file(self, path: Path) -> None:
        write_story(self.story, path)

    def read_file(self, path: Path) -> None:
        story = read_story(path)
        self.prompt.fit(story, "", 1)
        self.story, self._dropped, self._empty = story, 0, None
        self.output.text(story.text())
        self.output.end({"story": story.text()})

    def _tell(self, story: Story, action: str) -> None:
        """Add a turn after the current one of a story."""
        ids, dropped = self.prompt.fit(story, action, self.writer.room)
        if dropped > self._dropped:
            turns = "turn 1" if dropped == 1 else f"turns 1 to {dropped}"
            self.output.note(f"(context full: the model no longer sees {turns} of {len(story.told)})")
        self._dropped = dropped
        if action and not self.output.shows_input:
            self.output.text(f"\n> {action}\n\n")
        shown: list[str] = []

        def show(text: str) -> None:
            text = text if shown or not (action or self.prompt.as_messages) else text.lstrip()
            if text:
                shown.append(text)
                self.output.text(text)

        written = self.write(ids, show)
        text = written.text.rstrip() if written.finish == "stop" else written.text
        if self.prompt.as_messages and not action:  # an answer is a new paragraph, not the rest of a sentence
            text = f"\n\n{text.lstrip()}"
        self._empty = None if text.strip() else action
        if text.strip():
            self.story = story.add(action, text)
        used = len(ids) + written.tokens
        context = {"used": used, "size": self.writer.engine.context, "dropped_turns": dropped}
        record = {"action": action, "text": text, "turn": len(self.story.told), "context": context}
        self.finish(written, used, record)
        self.status = self._usage(used, dropped)

    def _go_to(self, story: Story) -> None:
        """Go to another place of the story, and show its end."""
        self.story, self._empty = story, None
        ids, dropped = self.prompt.fit(story, "", self.writer.room)
        self.status = self._usage(len(ids), dropped)
        told = story.told
        last = f"> {told[-1].action} {told[-1].text}" if told and told[-1].action else self.story.text()
        self.output.note(f"turn {len(told)}: ...{' '.join(last.split())[-200:]}")

    def _usage(self, used: int, dropped: int) -> str:
        size, told = self.writer.engine.context, len(self.story.told)
        turns = f"turns {dropped + 1} to {told} of {told}" if dropped < told else f"none of the {told} turns"
        seen = f"; the model sees the opening and {turns}" if dropped else ""
        return f"turn {told}; context: {used:,} of {size:,} tokens ({used / size:.0%}){seen}"


def _number(argument: str, example: str) -> int:
    if not argument.isdecimal() or len(argument) > 9:
        raise UsageError(f"a number is needed, such as {example}, but it is '{argument}'")
    return int(argument)
