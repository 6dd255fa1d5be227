"""Chat logs: jsonl files of conversations, as lists of messages or as pairs of a prompt and its answer."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from saccade.data.formats.documents import Document
from saccade.data.tables.problems import Problem, Problems
from saccade.data.tables.progress import BytesRead
from saccade.data.tables.rows import FORBIDDEN, forbidden_problem, json_objects
from saccade.data.tables.sniffing import DataFile
from saccade.data.text.chat import ASSISTANT, Message, to_json

LISTS = ("messages", "conversations", "conversation")
PAIRS = (("instruction", "output"), ("instruction", "response"), ("prompt", "completion"), ("prompt", "response"))
KEYS = (("role", "content"), ("from", "value"))  # of a message; the second as in ShareGPT
ROLES = {"human": "user", "gpt": ASSISTANT, "bot": ASSISTANT, "model": ASSISTANT}
ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
CALLS = ("tool_calls", "function_call")


def chat_layout(file: DataFile) -> str:
    """Return the key that holds the conversations of a file, or the first of a pair; empty: it has none."""
    if file.format != "jsonl":
        return ""
    _, first = next(json_objects(file, Problems()), (0, {}))
    for name in LISTS:
        items = first.get(name)
        if isinstance(items, list) and all(isinstance(item, dict) for item in items):
            return name
    for prompt, answer in PAIRS:
        if isinstance(first.get(prompt), str) and isinstance(first.get(answer), str):
            return prompt
    return ""


def is_chat_log(file: DataFile) -> bool:
    """Whether a file can be nothing but chats: conversations, or instructions with answers."""
    return chat_layout(file) in (*LISTS, "instruction")


def conversations(file: DataFile, layout: str, *, on_bytes: BytesRead | None = None) -> Iterator[Document]:
    """Yield the conversations of a file as JSON; bad rows are raised together at the end, with their lines."""
    problems, count = Problems(), 0
    for line, row in json_objects(file, problems, on_bytes):
        count += 1
        messages = _messages(row, layout)
        if isinstance(messages, str):
            expected = "messages with a role and a content, one of them of the assistant"
            problems.add(Problem(file.path, line, None, messages, expected, "correct the row or delete it"))
        elif bad := next((match for message in messages if (match := FORBIDDEN.search(message.text))), None):
            problems.add(forbidden_problem(file.path, line, None, bad.group()))
        else:
            yield Document(to_json(messages), line, file.path)
    if not count and not problems.count:
        problems.add(Problem(file.path, 1, None, "no rows", "at least one conversation", "name a file with data in it"))
    problems.check()


def _messages(row: Mapping[str, Any], layout: str) -> list[Message] | str:
    """Return the messages of a row, or what is wrong with it."""
    if layout in LISTS:
        items = row.get(layout)
        if not isinstance(items, list) or not items:
            return f"'{layout}' is {'an empty list' if items == [] else 'missing or no list'}"
        messages = [_message(item, number) for number, item in enumerate(items, start=1)]
    else:
        messages = _pair(row, layout)
    wrong = next((message for message in messages if isinstance(message, str)), None)
    if wrong is not None:
        return wrong
    found = [message for message in messages if isinstance(message, Message)]
    return found if any(message.role == ASSISTANT for message in found) else "no message of the assistant"


def _message(item: Any, number: int) -> Message | str:
    """Return a message of a list, or what is wrong with it."""
    if not isinstance(item, dict):
        return f"message {number} is no object"
    keys = next((pair for pair in KEYS if pair[0] in item), None)
    if keys is None:
        return f"message {number} has no role (keys: {', '.join(map(str, item))[:80]})"
    role, content = (item.get(key) for key in keys)
    if call := next((key for key in CALLS if item.get(key)), None):
        return f"message {number} has {call}, which cannot be learned"
    if not isinstance(role, str) or not ROLE.fullmatch(role):
        return f"the role of message {number} is {str(role)[:40]!r}"
    if not isinstance(content, str) or not content.strip():
        return f"the content of message {number} is {'empty' if isinstance(content, str) else 'no text'}"
    return Message(ROLES.get(role, role), content)


def _pair(row: Mapping[str, Any], layout: str) -> list[Message | str]:
    """Return the two messages of a prompt and its answer; an instruction may have an input."""
    answer = next((key for prompt, key in PAIRS if prompt == layout and key in row), "answer")
    values = {key: row.get(key) for key in (layout, answer)}
    wrong = next((key for key, value in values.items() if not isinstance(value, str) or not value.strip()), None)
    if wrong is not None:
        return [f"'{wrong}' is missing, empty or no text"]
    extra = row.get("input") if layout == "instruction" else None
    question = f"{values[layout]}\n\n{extra}" if isinstance(extra, str) and extra.strip() else str(values[layout])
    return [Message("user", question), Message(ASSISTANT, str(values[answer]))]
