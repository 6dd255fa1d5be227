"""Chats: a conversation with a model that has a chat template; the oldest turns leave a full context whole."""

from __future__ import annotations

from pathlib import Path

from saccade.core.generation import TextEngine
from saccade.errors import UsageError
from saccade.interactive.conversation import Conversation, read_conversation, write_conversation
from saccade.interactive.shell import Output, Shell
from saccade.interactive.writer import Writer


def fit(engine: TextEngine, conversation: Conversation, room: int) -> tuple[list[int], int]:
    """Return the tokens of a conversation, and how many of its oldest turns are dropped to leave room for an answer."""
    count = len(conversation.turns)
    for dropped in range(count):
        ids = engine.encode_chat(conversation.without_oldest(dropped).to_messages())
        if len(ids) + room <= engine.context:
            return ids, dropped
    if len(ids) >= engine.context:
        raise UsageError(
            f"a message, with that of the system, must have fewer tokens than the context of {engine.context:,}, but "
            f"has {len(ids):,}; shorten it"
        )
    return ids, count - 1


class Chat(Shell):
    """A chat with a model."""

    def __init__(self, writer: Writer, output: Output, system: str = "") -> None:
        super().__init__(writer, output)
        self.conversation = Conversation().with_system(system)
        self._dropped = 0  # turns that the last prompt did not have
        writer.engine.encode_chat(self.conversation.ask("").to_messages())  # refuses a model without a template

    def receive(self, line: str) -> None:
        if line.strip():
            self._answer(self.conversation.ask(line))

    def do_retry(self, argument: str) -> None:
        """/retry: answer the last message again"""
        self._answer(self.conversation.unanswer())

    def do_undo(self, argument: str) -> None:
        """/undo: take back the last message and its answer"""
        question, self.conversation = self.conversation.question, self.conversation.undo()
        self.output.note(f"taken back: {_shorten(question)}")

    def do_system(self, argument: str) -> None:
        """/system TEXT: set the message of the system; without a text remove it"""
        changed = self.conversation.with_system(argument)
        self.writer.engine.encode_chat(changed.ask("").to_messages())  # a template may refuse it
        self.conversation = changed
        self.output.note(f"system: {argument}" if argument else "system: none")

    def do_clear(self, argument: str) -> None:
        """/clear: forget the conversation; the message of the system is kept"""
        self.conversation, self._dropped = self.conversation.clear(), 0
        self.output.note("the conversation is empty")

    def do_context(self, argument: str) -> None:
        """/context: show how much of the context is used, and which turns the model sees"""
        turns = self.conversation.turns
        ids, dropped = fit(self.writer.engine, self.conversation, self.writer.room) if turns else ([], 0)
        self.output.note(self._usage(len(ids)))
        for number, turn in enumerate(turns, start=1):
            if dropped and number == dropped + 1:
                self.output.note("---- the model sees only what follows ----")
            self.output.note(f"{number:3} {_shorten(turn[0][1])}")

    def write_file(self, path: Path) -> None:
        write_conversation(self.conversation, path)

    def read_file(self, path: Path) -> None:
        conversation = read_conversation(path)
        if conversation.turns:
            fit(self.writer.engine, conversation, 0)  # a template may refuse it
        self.conversation, self._dropped = conversation, 0
        count = len(conversation.turns)
        self.output.note(f"loaded {path}: {count} turn{'' if count == 1 else 's'}")
        if conversation.unanswered:
            self.output.note("the last message has no answer; /retry answers it")

    def _answer(self, conversation: Conversation) -> None:
        """Answer the last message of a conversation, which becomes the current one."""
        ids, dropped = fit(self.writer.engine, conversation, self.writer.room)
        if dropped > self._dropped:
            oldest = "the oldest turn" if dropped == 1 else f"the {dropped} oldest turns"
            self.output.note(f"(context full: the model no longer sees {oldest} of {len(conversation.turns)})")
        self.conversation, self._dropped = conversation, dropped
        written = self.write(ids, self.output.text)
        if written.text.strip():
            self.conversation = conversation.answer(written.text)
        used = len(ids) + written.tokens
        context = {"used": used, "size": self.writer.engine.context, "dropped_turns": dropped}
        record = {"message": conversation.question, "answer": written.text, "context": context}
        self.finish(written, used, record)
        self.status = self._usage(used)

    def _usage(self, used: int) -> str:
        size = self.writer.engine.context
        return f"context: {used:,} of {size:,} tokens ({used / size:.0%})"


def _shorten(text: str, width: int = 70) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 3]}..."
