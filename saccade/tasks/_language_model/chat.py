"""Chat models: a language model whose texts are conversations, and whose prompt is a message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from saccade.data.formats.chats import ROLE
from saccade.data.formats.corpus import Corpus
from saccade.data.splitting import Part
from saccade.data.text.chat import (
    ASSISTANT,
    CHATML,
    TURN_END,
    Message,
    encode_question,
    from_json,
    is_chatml,
)
from saccade.data.text.chat_templates import encode_with_template
from saccade.data.text.tokenizers import END, Tokenizer
from saccade.errors import UsageError
from saccade.pretrained.processors import CHAT_TEMPLATE, TextProcessor

TOKENIZER = "tokenizer.json"
ROLES = f"{ASSISTANT}\nuser\nsystem\n"  # of which every tokenizer must have the letters


def texts(corpus: Corpus, part: Part | None = None) -> Iterator[str]:
    """Yield the texts of a corpus that a tokenizer is trained on: of chats the messages with their roles."""
    for text in corpus.texts(part):
        if not corpus.layout:
            yield text
            continue
        yield ROLES
        for message in from_json(text):
            yield message.text


def first_question(corpus: Corpus) -> str:
    """Return what the first conversation of the validation data asks."""
    messages = from_json(next(corpus.texts("valid")))
    return next((message.content for message in messages if message.role != ASSISTANT), "")


def open_processor(assets: Path) -> TextProcessor:
    """Return the processor of a run; a chat model has a template beside its tokenizer."""
    tokenizer, template = Tokenizer.load(assets / TOKENIZER), assets / CHAT_TEMPLATE
    if not template.exists():
        return TextProcessor(tokenizer)
    end = tokenizer.specials[END]
    return TextProcessor(
        tokenizer,
        bos_id=end,
        eos_ids=(tokenizer.specials[TURN_END], end),
        chat_template=template.read_text(encoding="utf-8"),
    )


def save_template(assets: Path) -> None:
    """Keep the template with the run."""
    (assets / CHAT_TEMPLATE).write_text(CHATML, encoding="utf-8")


def is_chat_model(processor: TextProcessor) -> bool:
    """Whether a model was trained here on chats: it is asked, and does not continue."""
    return not processor.parse_special and is_chatml(processor.chat_template, processor.tokenizer)


def encode_messages(processor: TextProcessor, messages: Sequence[Mapping[str, str]]) -> list[int]:
    """Return the ids of a conversation, and of the start of the answer."""
    for message in messages:
        if not ROLE.fullmatch(message["role"]):
            raise UsageError(f"a role must be a word such as user or assistant, but is {message['role']!r:.80}")
    if is_chatml(processor.chat_template, processor.tokenizer):
        return encode_question(processor.tokenizer, [Message(item["role"], item["content"]) for item in messages])
    if not processor.chat_template:
        raise UsageError(
            "a conversation needs a model with a chat template, but this one has none; continue a text with "
            "`saccade predict` or `saccade story`, or train a chat model on conversations (docs/language-models.md)"
        )
    return encode_with_template(processor.tokenizer, processor.chat_template, messages, processor.special_tokens)
