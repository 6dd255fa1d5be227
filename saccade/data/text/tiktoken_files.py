"""Vocabularies of tiktoken: lines of a token in base64 and its rank, from which the merges of byte pairs follow."""

from __future__ import annotations

import base64
import binascii
from itertools import pairwise
from pathlib import Path

from saccade.data.text.alphabets import BYTES
from saccade.data.text.tokenizer_checks import MAX_TOKEN, MAX_VOCABULARY, read_text
from saccade.errors import ModelFileError

CHARACTERS = {byte: character for character, byte in BYTES.items()}


def read_tiktoken(path: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the byte-level vocabulary and the merges of a file, in order."""
    ranks = _ranks(path)
    vocabulary = {_text(token): rank for token, rank in ranks.items()}
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda entry: entry[1]):
        if len(token) > 1:
            parts = _split(token, ranks, rank)
            if len(parts) != 2:
                raise ModelFileError(
                    f"{path}:{rank + 1}: a token must be two tokens of a lower rank, but {token[:80]!r} is "
                    f"{len(parts)}; download the file again"
                )
            merges.append((_text(parts[0]), _text(parts[1])))
    return vocabulary, merges


def _ranks(path: Path) -> dict[bytes, int]:
    """Return the rank of each token; ranks are the line numbers from 0."""
    ranks: dict[bytes, int] = {}
    lines = read_text(path).splitlines()
    for number, line in enumerate(lines[: MAX_VOCABULARY + 1]):
        code, _, rank = line.partition(" ")
        try:
            token = base64.b64decode(code, validate=True)
        except (binascii.Error, ValueError):
            token = b""
        if rank != str(number) or not 0 < len(token) <= MAX_TOKEN or token in ranks or number >= MAX_VOCABULARY:
            rule = f"a line must be a new token in base64 and its rank {number}"
            raise ModelFileError(f"{path}:{number + 1}: {rule}, but is {line[:80]!r}; download the file again")
        ranks[token] = number
    missing = next((byte for byte in range(256) if bytes([byte]) not in ranks), None)
    if missing is not None:
        raise ModelFileError(
            f"{path} must hold each of the 256 bytes, but 0x{missing:02X} is missing; download the file again"
        )
    return ranks


def _split(token: bytes, ranks: dict[bytes, int], limit: int) -> list[bytes]:
    """Return the parts of a token after all merges of ranks below the limit, the lowest first."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        pairs = [ranks.get(left + right, limit) for left, right in pairwise(parts)]
        lowest = min(pairs)
        if lowest >= limit:
            break
        at = pairs.index(lowest)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _text(token: bytes) -> str:
    """Return the bytes of a token as the characters of a byte-level vocabulary."""
    return "".join(CHARACTERS[byte] for byte in token)
