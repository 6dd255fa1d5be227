"""SentencePiece: the tokenizers of Marian and SigLIP, read field by field: pieces, their scores and a character map."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers as library

from saccade.data.text.tokenizer_checks import (
    MAX_VOCABULARY,
    PUNCTUATION,
    SPACE,
    call_library,
    check_tokenizer,
    check_vocabulary,
    parse_json,
    read_text,
    refusal,
)
from saccade.data.text.tokenizers import Tokenizer

MAX_BYTES = 1 << 25  # bytes of a file
SOURCE, TARGET, VOCABULARY = "source.spm", "target.spm", "vocab.json"
SIGLIP = "spiece.model"
OTHER = "\U000f0000"  # starts the name of a piece of the other side, which no text of this side is split into
NORMAL = 1  # the type of pieces that texts are split into
FIXED_SIZES = {1: 8, 5: 4}  # bytes of fields by their wire type


@dataclass(frozen=True)
class Pieces:
    """The content of a file: the log-probability of each piece, and how characters are normalized."""

    scores: dict[str, float]
    """of the pieces that texts are split into"""
    charsmap: bytes
    names: tuple[str, ...]
    """of all pieces, in the order of their ids"""


def is_marian(folder: Path) -> bool:
    """Whether a folder has a tokenizer for each side and one vocabulary for both."""
    return all((folder / name).is_file() for name in (SOURCE, TARGET, VOCABULARY))


def read_sides(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """Return the tokenizers of source and target, which share their ids."""
    path = folder / VOCABULARY
    vocabulary = parse_json(path, read_text(path))
    check_vocabulary(path, vocabulary)
    if "<unk>" not in vocabulary or "</s>" not in vocabulary:
        raise refusal(path, "the vocabulary must have <unk> and </s>, but does not")
    source, target = (_tokenizer(folder / name, vocabulary) for name in (SOURCE, TARGET))
    return source, target


def read_siglip(folder: Path) -> Tokenizer:
    """Return the tokenizer of a SigLIP: lower case, no punctuation, and the end of a text after it."""
    path = folder / SIGLIP
    pieces = read_pieces(path)
    vocabulary = {name: number for number, name in enumerate(pieces.names)}
    if len(vocabulary) < len(pieces.names) or not {"<unk>", "</s>"} <= vocabulary.keys():
        raise refusal(path, "pieces must be unique, with <unk> and </s> among them, but are not")
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"Regex": PUNCTUATION}, "content": ""},
    ]
    added = {**ADDED_TOKEN, "lstrip": True, "rstrip": True}
    content = _content(pieces, list(pieces.names), ("</s>", "<unk>"), added)
    content["normalizer"]["normalizers"] = [*steps, *content["normalizer"]["normalizers"]]
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"</s>": {"id": "</s>", "ids": [vocabulary["</s>"]], "tokens": ["</s>"]}},
    }
    return _parse(path, content)


def _tokenizer(path: Path, vocabulary: dict[str, Any]) -> Tokenizer:
    """Return the tokenizer with the pieces of a file and the ids of the vocabulary."""
    pieces = read_pieces(path)
    names = sorted(vocabulary, key=lambda name: int(vocabulary[name]))
    if [vocabulary[name] for name in names] != list(range(len(names))):
        raise refusal(path.parent / VOCABULARY, "token ids must be 0, 1, 2, ... without a gap, but are not")
    specials = tuple(name for name in ("<pad>", "</s>", "<unk>") if name in vocabulary)
    return _parse(path, _content(pieces, names, specials, ADDED_TOKEN))


def _content(pieces: Pieces, names: list[str], specials: tuple[str, ...], added: dict[str, bool]) -> dict[str, Any]:
    """Return a tokenizer.json with the scores of pieces and the ids that are the order of the names."""
    lowest = min(pieces.scores.values())  # unknown characters score 10 below the lowest, so no piece may be lower
    steps: list[dict[str, Any]] = [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    if pieces.charsmap:
        steps.insert(0, {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(pieces.charsmap).decode()})
    space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    own = {*pieces.scores, *specials}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": names.index(name), "content": name, "special": True, **added} for name in specials],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": space,
        "post_processor": None,
        "decoder": space,
        "model": {
            "type": "Unigram",
            "unk_id": names.index("<unk>"),
            "vocab": [
                [name if name in own else f"{OTHER}{number}", pieces.scores.get(name, lowest)]
                for number, name in enumerate(names)
            ],
            "byte_fallback": False,
        },
    }


def _parse(path: Path, content: dict[str, Any]) -> Tokenizer:
    text = json.dumps(content)
    check_tokenizer(path, text)
    return call_library(path, lambda: Tokenizer(library.Tokenizer.from_str(text), path))


ADDED_TOKEN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def read_pieces(path: Path) -> Pieces:
    """Read the pieces of a SentencePiece file and validate them."""
    if path.stat().st_size > MAX_BYTES:
        raise refusal(path, f"must have at most {MAX_BYTES:,} bytes, but has {path.stat().st_size:,}")
    scores: dict[str, float] = {}
    names: list[str] = []
    charsmap = b""
    for number, value in _fields(path, path.read_bytes()):
        if number == 1 and isinstance(value, bytes):
            piece, score, kind = _piece(path, value)
            names.append(piece)
            if kind == NORMAL:
                scores[piece] = score
            if len(names) > MAX_VOCABULARY:
                raise refusal(path, f"must have at most {MAX_VOCABULARY:,} pieces, but has more")
        elif number == 3 and isinstance(value, bytes):
            inner = _fields(path, value)
            charsmap = next((data for field, data in inner if field == 2 and isinstance(data, bytes)), b"")
    if not scores:
        raise refusal(path, "must have pieces of SentencePiece, but has none")
    return Pieces(scores, charsmap, tuple(names))


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
        raise refusal(path, f"the score of a piece must be a finite number, but is {score}")
    return text, float(score), kind


def _fields(path: Path, data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: their numbers, and their values as integers or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(path, data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(path, data, at)
            yield key >> 3, value
            continue
        size = FIXED_SIZES.get(wire, -1)
        if wire == 2:
            size, at = _varint(path, data, at)
        if size < 0 or at + size > len(data):
            raise refusal(path, "must be a complete SentencePiece file, but is truncated or damaged")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(path: Path, data: bytes, at: int) -> tuple[int, int]:
    """Return an integer of seven bits a byte, and where it ends."""
    value = 0
    for index in range(10):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, at
    raise refusal(path, "must be a complete SentencePiece file, but is truncated or damaged")
