"""Words: which sub-word pieces make up a word, so that attention can be shown by word."""

import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

Kind = Literal["space", "letter", "symbol", "unspaced", "combining"]

APOSTROPHES = "'\u2019"
HYPHENS = "-\u2010\u2011"
ELISION = 2  # letters; what follows an apostrophe and is longer is another word: L' accord, but didn't
# First and last code of scripts that put no spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, kana and Han.
UNSPACED = (
    (0x0E00, 0x109F),
    (0x1780, 0x17FF),
    (0x3005, 0x3007),
    (0x3040, 0x312F),
    (0x31A0, 0x31FF),
    (0x3400, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),
    (0x1B000, 0x1B16F),
    (0x20000, 0x3FFFF),
)


def word_numbers(pieces: Sequence[bytes]) -> list[int]:
    """Return the number of the word that each piece belongs to; the pieces join to the bytes of a text.

    A word starts with white space, and with a run of punctuation and after it: `1992` `.`. A hyphen between letters is
    part of the word, and so is an apostrophe: `didn't`; but more than two letters after one are the next word: `L'`
    `accord`. Where a script has no spaces each piece is a word. Pieces that are parts of one character stay together,
    and an empty piece (a special token) is a word by itself.
    """
    text = b"".join(pieces).decode("utf-8", "surrogateescape")
    widths = accumulate((_width(character) for character in text), initial=0)
    at_byte = {offset: number for number, offset in enumerate(widths)}  # number of a character by its first byte
    offsets = [0, *accumulate(len(piece) for piece in pieces)]
    edges = {at_byte[offset] for offset in offsets if offset in at_byte}
    starts, spaces = _starts(text), _spaces(text)
    numbers: list[int] = []
    for index, piece in enumerate(pieces):
        position = at_byte.get(offsets[index])  # None: inside a character
        new = not numbers or not piece or not pieces[index - 1]
        if not new and position is not None:
            # White space that starts inside a piece does not belong to the next one.
            new = starts[position] or (spaces[position] < position and spaces[position] not in edges)
        numbers.append((numbers[-1] if numbers else -1) + new)
    return numbers


def _width(character: str) -> int:
    """Return the bytes of a character; a byte that is not part of one counts as one."""
    return 1 if unicodedata.category(character) == "Cs" else len(character.encode())


def _spaces(text: str) -> list[int]:
    """Return where the white space before each character starts; at the character itself if there is none."""
    spaces = [0]
    for at, character in enumerate(text, 1):
        spaces.append(spaces[-1] if character.isspace() else at)
    return spaces


def _starts(text: str) -> list[bool]:
    """Whether a word may start at each character."""
    kinds: list[Kind] = []
    starts: list[bool] = []
    for at, character in enumerate(text):
        kind, before = _kind(character), kinds[-1] if kinds else "combining"
        if kind == "combining" or before == "space":
            starts.append(not at)
        else:
            starts.append(kind != before or kind == "unspaced")
        kinds.append(before if kind == "combining" and before != "space" else kind)
    letters = [kind == "letter" and not text[at].isnumeric() for at, kind in enumerate(kinds)]
    for at in range(1, len(text) - 1):
        if text[at] in APOSTROPHES + HYPHENS and letters[at - 1] and letters[at + 1]:
            starts[at] = False
            starts[at + 1] = text[at] in APOSTROPHES and sum(letters[at + 1 : at + 2 + ELISION]) > ELISION
    return starts


def _kind(character: str) -> Kind:
    category = unicodedata.category(character)
    if character.isspace():
        return "space"
    if category[0] == "M" or category == "Cf":
        return "combining"  # an accent, a vowel sign, a joiner: belongs to the character before it
    if category[0] in "PS":
        return "symbol"
    script = bisect_right(UNSPACED, (ord(character), 0x110000)) - 1
    return "unspaced" if script >= 0 and ord(character) <= UNSPACED[script][1] else "letter"
