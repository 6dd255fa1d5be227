"""Stories: an opening and a tree of turns, of which the path to the current one is told."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from saccade.errors import DataError, UsageError
from saccade.interactive.conversation import read_object, write_file

FORMAT = 1
OPENING = "You are a traveller. At night you come to an old stone tower in the forest. Its wooden door is half open."
MARKER = "> "
QUOTES = "\"'“‘«"
ENDS = (".", "!", "?", "…", '"', "'", "”", "’", "»")


@dataclass(frozen=True)
class Turn:
    """What the player does, and how the story goes on."""

    parent: int
    """number of the turn before it; 0: the opening"""
    action: str
    """such as `You open the door.`; empty: the story goes on by itself"""
    text: str


@dataclass(frozen=True)
class Story:
    """The turns of all branches, numbered from 1, and the current one; every method returns another story."""

    opening: str
    turns: tuple[Turn, ...] = ()
    current: int = 0

    @property
    def path(self) -> list[int]:
        """Numbers of the turns from the opening to the current one."""
        path: list[int] = []
        number = self.current
        while number:
            path.append(number)
            number = self.turns[number - 1].parent
        return path[::-1]

    @property
    def told(self) -> list[Turn]:
        """The turns from the opening to the current one."""
        return [self.turns[number - 1] for number in self.path]

    @property
    def branches(self) -> list[int]:
        """Numbers of the last turns of all branches, in the order in which they were begun."""
        parents = {turn.parent for turn in self.turns}
        ends = [number for number in range(1, len(self.turns) + 1) if number not in parents]
        return ends or [0]

    def add(self, action: str, text: str) -> Story:
        """Add a turn after the current one."""
        return Story(self.opening, (*self.turns, Turn(self.current, action, text)), len(self.turns) + 1)

    def undo(self) -> Story:
        """Go back by a turn, which is kept as a branch."""
        if not self.current:
            raise UsageError("there is nothing to undo: the story is at its opening")
        return replace(self, current=self.turns[self.current - 1].parent)

    def back_to(self, count: int) -> Story:
        """Go back to the first `count` turns of the path; what follows them is kept as a branch."""
        path = self.path
        if not 0 <= count <= len(path):
            raise UsageError(f"a turn must be from 0 (the opening) to {len(path)}, but is {count}")
        return replace(self, current=path[count - 1] if count else 0)

    def switch(self, number: int) -> Story:
        """Go to the end of a branch, numbered from 1 as in `branches`."""
        branches = self.branches
        if not 1 <= number <= len(branches):
            raise UsageError(f"a branch must be from 1 to {len(branches)}, but is {number}; /branches lists them")
        return replace(self, current=branches[number - 1])

    def text(self, turns: Sequence[Turn] | None = None, marker: str = MARKER) -> str:
        """Return the story as text: the opening, and the turns of the path or some of them."""
        text = self.opening
        for turn in self.told if turns is None else turns:
            text = begin(text, turn.action, marker) + (turn.text.lstrip() if turn.action else turn.text)
        return text


def begin(text: str, action: str, marker: str = MARKER) -> str:
    """Return the text before the continuation of a turn; `marker` precedes the action."""
    return f"{text.rstrip()}\n\n{marker}{action}\n\n" if action else text


def as_action(line: str) -> str:
    """Return a line of the player as an action: `open the door` becomes `You open the door.`"""
    text = line.strip().removeprefix(">").strip()
    if not text:
        return ""
    if text[0] in QUOTES:
        text = f"You say {text}"
    elif re.match(r"I\b", text):
        text = f"You{text[1:]}"
    elif not re.match(r"you\b", text, re.IGNORECASE):
        text = f"You {text[0].lower()}{text[1:]}"
    text = f"Y{text[1:]}"
    return text if text.endswith(ENDS) else f"{text}."


def write_story(story: Story, path: Path) -> None:
    """Write the story with all branches as JSON, or what is told of it as text if the name ends with .txt or .md."""
    if path.suffix.lower() in (".txt", ".md"):
        write_file(path, story.text().rstrip() + "\n")
        return
    turns = [{"parent": turn.parent, "action": turn.action, "text": turn.text} for turn in story.turns]
    value = {"story": FORMAT, "opening": story.opening, "turns": turns, "current": story.current}
    write_file(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_story(path: Path) -> Story:
    """Read a story that was written as JSON; what is wrong with it is named."""
    value = read_object(path)
    if value.get("story") != FORMAT:
        raise DataError(f"{path}: no story of format {FORMAT}, expected a JSON file that /save has written")
    opening, turns, current = (value.get(name) for name in ("opening", "turns", "current"))
    if not isinstance(opening, str) or not opening.strip() or not isinstance(turns, list):
        raise DataError(f"{path}: no opening or no turns, expected a text and a list; name another file")
    told = tuple(_turn(path, number, item) for number, item in enumerate(turns, start=1))
    if not isinstance(current, int) or isinstance(current, bool) or not 0 <= current <= len(told):
        raise DataError(f"{path}: 'current' is {str(current)[:40]!r}, expected a number from 0 to {len(told)}")
    return Story(opening, told, current)


def _turn(path: Path, number: int, item: Any) -> Turn:
    values: dict[str, Any] = item if isinstance(item, dict) else {}
    parent, action, text = (values.get(name) for name in ("parent", "action", "text"))
    earlier = parent if isinstance(parent, int) and not isinstance(parent, bool) and 0 <= parent < number else None
    if earlier is None or not isinstance(action, str) or not isinstance(text, str):
        raise DataError(
            f"{path}: turn {number} is {str(item)[:80]!r}, expected parent (an earlier turn), action and text"
        )
    return Turn(earlier, action, text)
