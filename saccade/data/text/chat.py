"""Chats: conversations as tokens, in the format ChatML: <|im_start|>role, a newline, the content, <|im_end|>."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from saccade.data.text.tokenizers import END, Tokenizer

TURN_START, TURN_END = "<|im_start|>", "<|im_end|>"
SPECIALS = (END, TURN_START, TURN_END)
ASSISTANT = "assistant"
# The same format for transformers' apply_chat_template.
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' "
    "+ '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Message:
    """What one side says."""

    role: str
    content: str

    @property
    def text(self) -> str:
        """The text between the special tokens."""
        return f"{self.role}\n{self.content}"


def to_json(messages: Iterable[Message]) -> str:
    """Return a conversation as one text."""
    return json.dumps([astuple(message) for message in messages], ensure_ascii=False)


def from_json(text: str) -> list[Message]:
    """Return the conversation of a text that `to_json` wrote."""
    return [Message(role, content) for role, content in json.loads(text)]


def encode_chat(tokenizer: Tokenizer, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
    """Return the ids of a conversation, and for each whether the assistant says it, the end of its turn included.

    Special tokens written in a message stay text: a user cannot end a turn.
    """
    start, end, newline = tokenizer.specials[TURN_START], tokenizer.specials[TURN_END], tokenizer.encode("\n")
    ids: list[int] = []
    spoken: list[bool] = []
    encodings = tokenizer.encode_with_offsets([message.text for message in messages])
    for message, (turn, offsets) in zip(messages, encodings, strict=True):
        header, assistant = len(message.role) + 1, message.role == ASSISTANT
        ids += [start, *turn, end, *newline]
        spoken += [False, *(assistant and last > header for _, last in offsets), assistant, *(False for _ in newline)]
    return ids, spoken


def encode_question(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """Return the ids of a conversation and of the start of the assistant's answer."""
    ids, _ = encode_chat(tokenizer, messages)
    return [*ids, tokenizer.specials[TURN_START], *tokenizer.encode(f"{ASSISTANT}\n")]


def is_chatml(template: str, tokenizer: Tokenizer) -> bool:
    """Whether a chat template is the one of this module, which needs no rendering."""
    return template == CHATML and tokenizer.specials.keys() >= {TURN_START, TURN_END}
