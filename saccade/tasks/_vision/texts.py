"""Texts of image tasks: questions and captions as tokens."""

from __future__ import annotations

import re
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
from saccade.data.token_rows import TokenRows
from saccade.data.tokenization import tokenize
from saccade.models.text.bert import EncoderInputs
from saccade.tasks._encoder.inputs import EncodedText, pad_texts, shorten
from saccade.tasks._texts import require_tokens

TOKENIZER = "tokenizer.json"
SIDES = re.compile(r"\b(left|right)\b", re.IGNORECASE)
MANY_SIDES = 0.02  # fraction of the texts that say left or right, from which mirrored images would be wrong


@dataclass(frozen=True, eq=False)
class TextReader:
    """A tokenizer and the special tokens around a text."""

    tokenizer: Tokenizer
    before: tuple[int, ...]
    after: tuple[int, ...]
    max_length: int
    """maximum number of tokens of a text, special tokens included"""

    @classmethod
    def of(cls, tokenizer: Tokenizer, max_length: int) -> TextReader:
        """Return the reader of a tokenizer that adds special tokens, or of one that has those of BERT."""
        layout = tokenizer.special_layout()
        if layout is not None:
            return cls(tokenizer, layout[0], layout[2], max_length)
        template = InputTemplate.of(tokenizer, max_length)
        return cls(tokenizer, (template.cls_id,), (template.sep_id,), max_length)

    @classmethod
    def open(cls, assets: Path, max_length: int) -> TextReader:
        """Read the tokenizer in the assets of a run."""
        return cls.of(Tokenizer.load(assets / TOKENIZER), max_length)

    @property
    def special_count(self) -> int:
        """Number of special tokens around a text."""
        return len(self.before) + len(self.after)

    def build(self, ids: Sequence[int], note: str = "") -> EncodedText:
        """Return the tokens of a text with special tokens; one that is too long is truncated."""
        row = [*self.before, *ids[: self.max_length - self.special_count], *self.after]
        return EncodedText(row, len(row), note)

    def encode(self, name: str, texts: Sequence[str]) -> list[EncodedText]:
        """Encode the texts of one input, whose name is that of a note on a truncated text."""
        return [self._encode(name, *pair) for pair in zip(texts, self.tokenizer.encode_batch(texts), strict=True)]

    def _encode(self, name: str, text: str, ids: Sequence[int]) -> EncodedText:
        require_tokens(name, text, ids)
        total = len(ids) + self.special_count
        cut = f"cut to {self.max_length} of {total} tokens: {name} {shorten(text)!r}"
        return self.build(ids, cut if total > self.max_length else "")

    def encode_column(self, texts: Texts) -> EncodedColumn:
        """Encode a column of the data, whose tokens are in the cache."""
        return EncodedColumn(self, tokenize(texts, self.tokenizer))

    def length(self, name: str, text: str) -> InputLength:
        """Return the length of a text, special tokens included."""
        return InputLength(name, len(self.tokenizer.encode(text)) + self.special_count, self.max_length)

    def axis(self, text: EncodedText) -> TokenAxis:
        """Return the tokens of a text as an axis of attention maps."""
        return token_axis(Role.TEXT, self.tokenizer, text.ids)


@dataclass(frozen=True, eq=False)
class EncodedColumn:
    """Tokenized texts; special tokens are added on access."""

    reader: TextReader
    tokens: TokenRows

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, row: int) -> EncodedText:
        return self.reader.build(self.tokens[row].tolist())

    def pad(self, rows: Iterable[int]) -> EncoderInputs:
        """Return some of the texts as one batch, padded to the longest one."""
        return pad_texts([self[row] for row in rows])


def write_tokenizer(texts: Iterable[str], size: int, assets: Path) -> list[str]:
    """Train word pieces that ignore case on texts and write them to the assets; returns a note for the user."""
    tokenizer = train_tokenizer("wordpiece", texts, size, lowercase=True)
    tokenizer.save(assets / TOKENIZER)
    return [f"vocabulary: {tokenizer.size:,} word pieces"]


def may_mirror(wanted: bool, texts: Sequence[str]) -> tuple[bool, list[str]]:
    """Return whether training images can be mirrored, where it is wanted, and a note for the user if not."""
    sides = sum(1 for text in texts if SIDES.search(text)) / len(texts)
    if not wanted or sides < MANY_SIDES:
        return wanted, []
    return False, [f"{sides:.0%} of the texts say left or right: images are not mirrored in training"]
