"""Alphabets: the tables between characters, bytes and ids that tokenizers use."""

import re

import numpy as np
import numpy.typing as npt

from saccade.errors import DataError

UNKNOWN = "<unk>"
PART = 1 << 16  # characters handed to one thread of the library
BREAK = re.compile(r"(?<=\S\n)(?=\S)")
SPACE_OR_BREAK = re.compile(r"(?<=\S\n)(?=\S)|(?<=\S)(?= \S)")

Ids = npt.NDArray[np.uint32]


def byte_alphabet() -> dict[str, int]:
    """Return the byte of each printable character of a byte-level vocabulary (GPT-2's table, inverted)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


BYTES = byte_alphabet()


def token_bytes(token: str) -> bytes:
    """Return the bytes of a byte-level token."""
    if all(character in BYTES for character in token):
        return bytes(BYTES[character] for character in token)
    return token.encode()


def check_surrogates(text: str) -> None:
    """Raise DataError for half of a surrogate pair, which no encoding can write."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = f"U+{ord(text[error.start]):04X}"
        message = f"the text must be valid Unicode, but character {error.start + 1:,} is the lone surrogate {code}"
        raise DataError(f"{message}; remove it") from error


def split_at_newlines(text: str, spaces: bool = False) -> list[str]:
    """Split a long text after single newlines between two words, where byte-level rules always split.

    With `spaces`, also before single spaces.
    """
    pattern = SPACE_OR_BREAK if spaces else BREAK
    parts, start = [], 0
    while len(text) - start > PART:
        match = pattern.search(text, start + PART)
        if match is None:
            break
        parts.append(text[start : match.start()])
        start = match.start()
    return [*parts, text[start:]]


class UnknownCharacter(DataError):
    """A text has a character that the tokenizer has no token for."""

    def __init__(self, text: str, position: int) -> None:
        self.position = position
        self.what = f"{text[position]!r} (U+{ord(text[position]):04X})"
        self.expected = "one seen when the tokenizer was trained"
        self.next_step = "remove it, or train with data.tokenizer=bpe, which has every character"
        message = f"character {position + 1:,} of the text is {self.what}, expected {self.expected}"
        super().__init__(f"{message}; {self.next_step}")


class CharacterTable:
    """Looks up the ids of characters with one array access for the whole text; the library is slower."""

    def __init__(self, tokens: dict[int, str], specials: dict[str, int]) -> None:
        codes = {ord(token): number for number, token in tokens.items() if len(token) == 1}
        self._unknown = specials.get(UNKNOWN)
        self._missing = np.uint32(0xFFFFFFFF)
        self._table = np.full(max(codes, default=0) + 2, self._missing, dtype=np.uint32)
        self._table[list(codes)] = list(codes.values())

    def encode(self, text: str) -> Ids:
        """Return the ids of a text, or raise an error with the first character that has no token."""
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        ids = self._table[np.minimum(codes, len(self._table) - 1)]
        missing = ids == self._missing
        if not missing.any():
            return ids
        if self._unknown is not None:
            return np.where(missing, np.uint32(self._unknown), ids)
        raise UnknownCharacter(text, int(missing.argmax()))
