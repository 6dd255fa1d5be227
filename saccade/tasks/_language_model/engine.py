"""The engine of a language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from saccade.data.shards import separator
from saccade.decode.runner import Runner
from saccade.pretrained.processors import TextProcessor
from saccade.tasks._language_model import chat
from saccade.tasks._token_engine import TokenEngine


class LanguageModelEngine(TokenEngine):
    """A language model with its tokenizer and chat template."""

    def __init__(self, runner: Runner, processor: TextProcessor, context: int, eos_ids: tuple[int, ...]) -> None:
        super().__init__(runner, processor.tokenizer, context, eos_ids)
        self._processor = processor

    def encode(self, text: str) -> list[int]:
        return encode_text(self._processor, self._eos_ids, text)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return chat.encode_messages(self._processor, messages)


def encode_text(processor: TextProcessor, eos_ids: tuple[int, ...], text: str) -> list[int]:
    """Return the ids of a prompt; of an empty one the token that precedes a text."""
    first = eos_ids[:1] if processor.bos_id is None else (processor.bos_id,)
    return processor.encode_prompt(text) or list(first) or separator(processor.tokenizer) or [0]
