"""SentencePiece BPE in GGUF files: tokens with scores, from which llama.cpp finds merges itself."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import tokenizers as library
from tokenizers import decoders, models, normalizers

from saccade.data.text.tokenizer_checks import SPACE, call_library
from saccade.data.text.tokenizers import BYTE_PIECE, Tokenizer
from saccade.data.text.vocabularies import surround
from saccade.errors import UsageError
from saccade.pretrained.gguf_header import Header, refusal

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # types of tokens
UNREACHABLE = -1e4  # score of a token that no merge produces
MAX_PIECE = 256  # characters of a token whose parts are tried
Content = Mapping[str, Any]


def read_sentencepiece(header: Header, tokens: list[str], first: str | None) -> Tokenizer:
    """Return the tokenizer of a file, which puts the token `first` before each prompt."""
    scores, types = (header.values.get(f"tokenizer.ggml.{name}") for name in ("scores", "token_type"))
    for name, values in (("scores", scores), ("token_type", types)):
        if not isinstance(values, list) or len(values) != len(tokens) or isinstance(values[0], str):
            raise refusal(header.path, f"tokenizer.ggml.{name} must be a list of {len(tokens):,} numbers, but is not")
    assert isinstance(scores, list) and isinstance(types, list)
    if not all(math.isfinite(score) for score in scores):
        raise refusal(header.path, "tokenizer.ggml.scores must be finite, but one is not")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = next((token for token, kind in zip(tokens, types, strict=True) if kind == UNKNOWN), None)
    spaced = header.values.get("tokenizer.ggml.add_space_prefix") is not False

    def build() -> Tokenizer:
        merges = _find_merges(vocabulary, scores, types)
        inner = library.Tokenizer(models.BPE(vocabulary, merges, fuse_unk=True, byte_fallback=True, unk_token=unknown))
        replace = normalizers.Replace(" ", SPACE)
        inner.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), replace]) if spaced else replace
        steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        inner.decoder = decoders.Sequence([*steps, decoders.Strip(" ", left=1)] if spaced else steps)
        if first is not None:
            inner.post_processor = surround(first)(vocabulary)
        special = [token for token, kind in zip(tokens, types, strict=True) if kind in (CONTROL, UNKNOWN)]
        added = [token for token, kind in zip(tokens, types, strict=True) if kind == USER_DEFINED]
        inner.add_special_tokens([library.AddedToken(token, special=True, normalized=False) for token in special])
        inner.add_tokens([library.AddedToken(token, normalized=False) for token in added])
        return Tokenizer(inner, header.path)

    return call_library(header.path, build)


def _find_merges(vocabulary: Mapping[str, int], scores: list[float], types: list[int]) -> list[tuple[str, str]]:
    """Return every pair of tokens that is a third one, the highest score first."""
    ranked: list[tuple[float, int, int, tuple[str, str]]] = []
    for token, number in vocabulary.items():
        if types[number] != NORMAL or not 1 < len(token) <= MAX_PIECE:
            continue
        for at in range(1, len(token)):
            left, right = vocabulary.get(token[:at]), vocabulary.get(token[at:])
            if left is not None and right is not None:
                ranked.append((-scores[number], left, right, (token[:at], token[at:])))
    return [pair for *_, pair in sorted(ranked)]


def is_sentencepiece(rules: Content) -> bool:
    """Whether a tokenizer.json is BPE over characters with bytes for unknown ones."""
    return rules["model"]["type"] == "BPE" and bool(rules["model"].get("byte_fallback"))


def sentencepiece_values(rules: Content, rows: int) -> dict[str, Any]:
    """Return the keys of a tokenizer with as many tokens as the embedding has rows."""
    vocabulary = {**rules["model"]["vocab"], **{entry["content"]: entry["id"] for entry in rules["added_tokens"]}}
    added, unknown = {entry["content"]: entry for entry in rules["added_tokens"]}, rules["model"].get("unk_token")
    tokens, types, scores = [f"[PAD{number}]" for number in range(rows)], [UNUSED] * rows, [UNREACHABLE] * rows
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(rules["model"]["merges"]):
        ranks.setdefault("".join(merge.split(" ") if isinstance(merge, str) else merge), rank)
    for token, number in vocabulary.items():
        tokens[number], scores[number] = token, -float(ranks[token]) if token in ranks else UNREACHABLE
        if token == unknown:
            types[number] = UNKNOWN
        elif token in added:
            types[number] = CONTROL if added[token]["special"] else USER_DEFINED
        else:
            types[number] = BYTE if BYTE_PIECE.fullmatch(token) else NORMAL
    values = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.add_space_prefix": _adds_space(rules),
    }
    return values if unknown is None else {**values, "tokenizer.ggml.unknown_token_id": vocabulary[unknown]}


def _adds_space(rules: Content) -> bool:
    """Whether a space is put before each text; rules that llama.cpp does not have are refused."""
    normalizer, split = rules["normalizer"] or {}, rules["pre_tokenizer"] or {}
    steps = normalizer.get("normalizers", [normalizer] if normalizer else [])
    kinds = [step["type"] for step in steps]
    if kinds == ["Prepend", "Replace"] and not split:
        return True
    if kinds == ["Replace"] and (not split or split["type"] == "Split"):
        return False
    if not kinds and split.get("type") == "Metaspace" and not split.get("split", True):
        return bool(split["prepend_scheme"] != "never")
    shown = re.sub(r"\s+", " ", str(dict(rules).get("pre_tokenizer")))[:80]
    raise UsageError(
        f"a SentencePiece tokenizer for GGUF must only replace spaces, but has the normalizer {kinds} and splits by "
        f"{shown}; export this model with --to hf"
    )
