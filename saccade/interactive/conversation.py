"""Conversations: messages of a system, a user and an assistant, as they are sent to a model and saved."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.atomic_io import new_file, open_file, save_error
from saccade.errors import DataError, ModelFileError, UsageError

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
MAX_FILE = 64 << 20  # bytes

Message = tuple[str, str]
"""role and content"""


@dataclass(frozen=True)
class Conversation:
    """Messages in order; every method returns another conversation."""

    messages: tuple[Message, ...] = ()

    @property
    def system(self) -> str:
        """The message of the system at the beginning; empty: none."""
        return self.messages[0][1] if self.messages and self.messages[0][0] == SYSTEM else ""

    @property
    def turns(self) -> list[tuple[Message, ...]]:
        """The messages after that of the system, each turn from a message of the user to the next one."""
        turns: list[list[Message]] = []
        for message in self._spoken:
            if message[0] == USER or not turns:
                turns.append([])
            turns[-1].append(message)
        return [tuple(turn) for turn in turns]

    @property
    def question(self) -> str:
        """The last message of the user; empty: none."""
        return next((content for role, content in reversed(self.messages) if role == USER), "")

    @property
    def unanswered(self) -> bool:
        """Whether the last message is one of the user."""
        return bool(self.messages) and self.messages[-1][0] == USER

    def with_system(self, text: str) -> Conversation:
        """Set the message of the system; an empty one removes it."""
        return Conversation((*([(SYSTEM, text)] if text else []), *self._spoken))

    def ask(self, text: str) -> Conversation:
        """Add a message of the user; one without an answer is replaced."""
        messages = self.messages[:-1] if self.unanswered else self.messages
        return Conversation((*messages, (USER, text)))

    def answer(self, text: str) -> Conversation:
        """Add a message of the assistant."""
        return Conversation((*self.messages, (ASSISTANT, text)))

    def undo(self) -> Conversation:
        """Remove the last message of the user and what follows it."""
        turns = self.turns
        if not turns:
            raise UsageError("there is nothing to undo: the conversation is empty")
        return self._with(turns[:-1])

    def unanswer(self) -> Conversation:
        """Remove what follows the last message of the user."""
        last = next((at for at in reversed(range(len(self.messages))) if self.messages[at][0] == USER), None)
        if last is None:
            raise UsageError("there is nothing to answer again: the user has not written yet")
        return Conversation(self.messages[: last + 1])

    def clear(self) -> Conversation:
        """Remove all turns."""
        return self._with([])

    def without_oldest(self, count: int) -> Conversation:
        """Remove the oldest turns, whole ones."""
        return self._with(self.turns[count:])

    def to_messages(self) -> list[dict[str, str]]:
        """Return the messages with `role` and `content`."""
        return [{"role": role, "content": content} for role, content in self.messages]

    @property
    def _spoken(self) -> tuple[Message, ...]:
        return self.messages[1:] if self.messages and self.messages[0][0] == SYSTEM else self.messages

    def _with(self, turns: Iterable[tuple[Message, ...]]) -> Conversation:
        first = self.messages[: len(self.messages) - len(self._spoken)]
        return Conversation((*first, *(message for turn in turns for message in turn)))


def write_conversation(conversation: Conversation, path: Path) -> None:
    """Write a conversation as a line of JSON with the key `messages`, which `saccade train` reads."""
    line = json.dumps({"messages": conversation.to_messages()}, ensure_ascii=False) + "\n"
    write_file(path, line)


def read_conversation(path: Path) -> Conversation:
    """Read a file with one conversation; what is wrong with it is named."""
    messages = read_object(path).get("messages")
    if not isinstance(messages, list):
        raise DataError(f"{path}: no list 'messages', expected a conversation; name a file that /save has written")
    return Conversation(tuple(_message(path, number, item) for number, item in enumerate(messages, start=1)))


def _message(path: Path, number: int, item: Any) -> Message:
    role, content = (item.get("role"), item.get("content")) if isinstance(item, Mapping) else (None, None)
    if not isinstance(role, str) or not ROLE.fullmatch(role) or not isinstance(content, str):
        raise DataError(f"{path}: message {number} is {str(item)[:80]!r}, expected an object with role and content")
    return role, content


def write_file(path: Path, text: str) -> None:
    """Write a text file, all of it or nothing."""
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent} for {path.name}; create it, or name another one")
    try:
        with new_file(path) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise save_error(path, error) from error


def read_object(path: Path) -> dict[str, Any]:
    """Read a file with one JSON object."""
    try:
        with open_file(path) as file:
            data = file.read(MAX_FILE + 1)
    except (OSError, ModelFileError) as error:
        raise DataError(f"{error}; name a file that /save has written") from error
    if len(data) > MAX_FILE:
        raise DataError(f"{path}: more than {MAX_FILE >> 20} MB, expected a saved file")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: invalid JSON ({error}), expected one JSON object") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: no JSON object, expected one that was saved before")
    return value
