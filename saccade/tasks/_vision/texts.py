"""Texts of image tasks: questions and captions as tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.core.axes import Role, TokenAxis
from saccade.core.task import InputLength
from saccade.data.text.axes import token_axis
from saccade.data.text.templates import InputTemplate
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.texts import Texts
from saccade.data.tokenization import tokenize
from saccade.tasks._encoder.inputs import EncodedText, EncodedTexts, encode_texts

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, eq=False)
class TextReader:
    """A tokenizer and the special tokens it puts around a text."""

    tokenizer: Tokenizer
    template: InputTemplate

    @classmethod
    def open(cls, assets: Path, max_length: int) -> TextReader:
        """Read the tokenizer in the assets of a run."""
        tokenizer = Tokenizer.load(assets / TOKENIZER)
        return cls(tokenizer, InputTemplate.of(tokenizer, max_length))

    def encode(self, name: str, texts: Sequence[str]) -> list[EncodedText]:
        """Encode the texts of one input, whose name is that of a note on a truncated text."""
        rows = self.tokenizer.encode_batch(texts)
        return [encode_texts(self.template, {name: text}, [ids]) for text, ids in zip(texts, rows, strict=True)]

    def encode_column(self, texts: Texts) -> EncodedTexts:
        """Encode a column of the data; its tokens are in the cache."""
        return EncodedTexts(self.template, tokenize(texts, self.tokenizer))

    def length(self, name: str, text: str) -> InputLength:
        """Return the length of a text, special tokens included."""
        tokens = len(self.tokenizer.encode(text)) + self.template.special_count(1)
        return InputLength(name, tokens, self.template.max_length)

    def axis(self, text: EncodedText) -> TokenAxis:
        """Return the tokens of a text as an axis of attention maps."""
        return token_axis(Role.TEXT, self.tokenizer, text.ids)


def write_tokenizer(texts: Iterable[str], size: int, assets: Path) -> list[str]:
    """Train word pieces that ignore case on texts and write them to the assets; returns a note for the user."""
    tokenizer = train_tokenizer("wordpiece", texts, size, lowercase=True)
    tokenizer.save(assets / TOKENIZER)
    return [f"vocabulary: {tokenizer.size:,} word pieces"]
