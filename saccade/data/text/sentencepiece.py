"""SentencePiece: the tokenizers of Marian's folders, read field by field: pieces, their scores and a table of signs."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers as library

from saccade.data.text import guard
from saccade.data.text.guard import LARGEST_VOCABULARY, check_vocabulary, guarded, refusal
from saccade.data.text.tokenizers import Tokenizer

LARGEST = 1 << 25  # bytes of a file
SOURCE, TARGET, TABLE = "source.spm", "target.spm", "vocab.json"
OTHER = "\U000f0000"  # stands for a piece of the other side, which no text of this one may be cut into
NORMAL = 1  # the kind of pieces that texts are cut into
FIXED = {1: 8, 5: 4}  # bytes of fields by their wire type


@dataclass(frozen=True)
class Pieces:
    """What a file holds: how likely each piece is, and how signs are written before texts are cut."""

    scores: dict[str, float]
    table: bytes


def is_marian(folder: Path) -> bool:
    """Whether a folder has a tokenizer for each side and one vocabulary for both."""
    return all((folder / name).is_file() for name in (SOURCE, TARGET, TABLE))


def read_sides(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of source and target, which share their numbers."""
    path = folder / TABLE
    vocabulary = guard.parse(path, guard.read_text(path))
    check_vocabulary(path, vocabulary)
    if "<unk>" not in vocabulary or "</s>" not in vocabulary:
        raise refusal(path, "the vocabulary must have <unk> and </s>, but has not")
    source, target = (_tokenizer(folder / name, vocabulary) for name in (SOURCE, TARGET))
    return source, target


def _tokenizer(path: Path, vocabulary: dict[str, Any]) -> Tokenizer:
    """A tokenizer that cuts as the file says and numbers as the vocabulary does."""
    found = read_pieces(path)
    least = min(found.scores.values())  # a sign in no piece costs ten more than the least, so nothing may lie below
    names = sorted(vocabulary, key=lambda name: int(vocabulary[name]))
    if [vocabulary[name] for name in names] != list(range(len(names))):
        raise refusal(path.parent / TABLE, "token numbers must be 0, 1, 2, ... without a gap, but are not")
    steps: list[dict[str, Any]] = [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    if found.table:
        steps.insert(0, {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(found.table).decode()})
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    marks = [name for name in ("<pad>", "</s>", "<unk>") if name in vocabulary]
    known = {*found.scores, *marks}
    added = [{"id": vocabulary[name], "content": name, "special": True, **PLAIN} for name in marks]
    text = json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": {"type": "Sequence", "normalizers": steps},
            "pre_tokenizer": space,
            "post_processor": None,
            "decoder": space,
            "model": {
                "type": "Unigram",
                "unk_id": vocabulary["<unk>"],
                "vocab": [
                    [name if name in known else f"{OTHER}{number}", found.scores.get(name, least)]
                    for number, name in enumerate(names)
                ],
                "byte_fallback": False,
            },
        }
    )
    guard.check_tokenizer_text(path, text)
    return guarded(path, lambda: Tokenizer(library.Tokenizer.from_str(text), path))


PLAIN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def read_pieces(path: Path) -> Pieces:
    """The pieces of a file of SentencePiece, with nothing taken on trust."""
    if path.stat().st_size > LARGEST:
        raise refusal(path, f"must have at most {LARGEST:,} bytes, but has {path.stat().st_size:,}")
    scores: dict[str, float] = {}
    table = b""
    for number, value in _fields(path, path.read_bytes()):
        if number == 1 and isinstance(value, bytes):
            piece, score, kind = _piece(path, value)
            if kind == NORMAL:
                scores[piece] = score
            if len(scores) > LARGEST_VOCABULARY:
                raise refusal(path, f"must have at most {LARGEST_VOCABULARY:,} pieces, but has more")
        elif number == 3 and isinstance(value, bytes):
            table = next((one for at, one in _fields(path, value) if at == 2 and isinstance(one, bytes)), b"")
    if not scores:
        raise refusal(path, "must hold pieces of SentencePiece, but holds none")
    return Pieces(scores, table)


def _piece(path: Path, data: bytes) -> tuple[str, float, int]:
    text, score, kind = "", 0.0, NORMAL
    for number, value in _fields(path, data):
        if number == 1 and isinstance(value, bytes):
            try:
                text = value.decode()
            except UnicodeDecodeError as error:
                raise refusal(path, f"a piece must be UTF-8, but is {value[:20]!r}") from error
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            (score,) = struct.unpack("<f", value)
        elif number == 3 and isinstance(value, int):
            kind = value
    if not -1e6 < score < 1e6:
        raise refusal(path, f"the score of a piece must be a usual number, but is {score}")
    return text, float(score), kind


def _fields(path: Path, data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: their numbers, and their values as whole numbers or bytes."""
    at = 0
    while at < len(data):
        key, at = _number(path, data, at)
        wire = key & 7
        if wire == 0:
            value, at = _number(path, data, at)
            yield key >> 3, value
            continue
        size = FIXED.get(wire, -1)
        if wire == 2:
            size, at = _number(path, data, at)
        if size < 0 or at + size > len(data):
            raise refusal(path, "must be a whole file of SentencePiece, but is cut or damaged")
        yield key >> 3, data[at : at + size]
        at += size


def _number(path: Path, data: bytes, at: int) -> tuple[int, int]:
    """A whole number of seven bits a byte, and where it ends."""
    value = 0
    for turn in range(10):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << (7 * turn)
        if byte < 128:
            return value, at
    raise refusal(path, "must be a whole file of SentencePiece, but is cut or damaged")
