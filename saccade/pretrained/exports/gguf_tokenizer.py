"""The tokenizer of a GGUF file: byte pairs over bytes, or over characters as in SentencePiece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from saccade.data.text.tokenizers import Tokenizer
from saccade.data.text.vocabularies import PRE_TOKENIZERS, byte_level_bpe
from saccade.errors import ModelFileError, UsageError
from saccade.pretrained.gguf_sentencepiece import (
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    is_sentencepiece,
    sentencepiece_values,
)
from saccade.pretrained.processors import TextProcessor

TEXTS = (
    "The cat sat on the mat, didn't it? It's 1999 and 3.14159!",
    "  two  spaces\n\n\ttabs\r\n and trailing  ",
    "naïve café, Straße, Żółć, 東京, ありがとう, Привет, नमस्ते, 🙂👍🏽",
    "def f(x):\n    return x**2 + 10_000  # {}[]<>|\\\"'`~^",
)


def tokenizer_values(processor: TextProcessor, rows: int) -> dict[str, Any]:
    """Return the keys of a tokenizer with as many tokens as the embedding has rows."""
    tokenizer = processor.tokenizer
    rules = tokenizer.to_json()
    if tokenizer.size > rows:
        raise UsageError(f"the embedding must have a row for each of {tokenizer.size:,} tokens, but has {rows:,}")
    values = (
        sentencepiece_values(rules, rows) if is_sentencepiece(rules) else _byte_level_values(tokenizer, rules, rows)
    )
    values["tokenizer.ggml.add_bos_token"] = _adds_bos(processor)
    ends = dict(zip(("eos", "eot"), processor.eos_ids, strict=False))
    for name, number in {"bos": processor.bos_id, **ends}.items():
        if number is not None:
            values[f"tokenizer.ggml.{name}_token_id"] = number
    if processor.chat_template:
        values["tokenizer.chat_template"] = processor.chat_template
    return values


def _byte_level_values(tokenizer: Tokenizer, rules: dict[str, Any], rows: int) -> dict[str, Any]:
    split, tokens, types = (
        _pre_tokenizer(tokenizer, rules),
        [f"[PAD{number}]" for number in range(rows)],
        [UNUSED] * rows,
    )
    for token, number in rules["model"]["vocab"].items():
        tokens[number], types[number] = token, NORMAL
    for entry in rules["added_tokens"]:
        tokens[entry["id"]] = entry["content"]
        types[entry["id"]] = CONTROL if entry["special"] else USER_DEFINED
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": split,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in _merges(rules)],
    }


def _merges(rules: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in rules["model"]["merges"])
    return [(left, right) for left, right in pairs]


def _pre_tokenizer(tokenizer: Tokenizer, rules: dict[str, Any]) -> str:
    """Return llama.cpp's name for how a tokenizer splits a text into words."""
    model = rules["model"]
    byte_level = (rules["decoder"] or {}).get("type") == "ByteLevel" and not model.get("end_of_word_suffix")
    if model["type"] != "BPE" or not byte_level:
        raise UsageError(
            f"the tokenizer must be byte-level or SentencePiece BPE for GGUF, but is a {model['type']} with the "
            f"decoder {(rules['decoder'] or {}).get('type')}; train a language model with data.tokenizer=bpe, or "
            "export this one with --to hf"
        )
    for name in PRE_TOKENIZERS:
        known = byte_level_bpe(Path(name), model["vocab"], _merges(rules), (), pre_tokenizer=name).to_json()
        same = (_split(rules), bool(model.get("ignore_merges"))) == (_split(known), known["model"]["ignore_merges"])
        if same and rules["normalizer"] == known["normalizer"]:
            return name
    raise UsageError(
        f"llama.cpp must split texts into words as the tokenizer does, which is known of {', '.join(PRE_TOKENIZERS)}, "
        f"but this one splits by {str(_split(rules))[:80]}; export this model with --to hf"
    )


def _split(rules: dict[str, Any]) -> Any:
    """Return the rules that split a text, without what changes offsets only."""

    def without_offsets(value: Any) -> Any:
        if isinstance(value, list):
            return [without_offsets(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {key: without_offsets(item) for key, item in value.items() if key != "trim_offsets"}

    return without_offsets(rules["pre_tokenizer"])


def _adds_bos(processor: TextProcessor) -> bool:
    """Whether every prompt starts with the beginning token; any other token around a prompt is refused."""
    if not processor.parse_special:
        return False
    around = processor.tokenizer.encode_prompt("")
    if around not in ([], [processor.bos_id]):
        raise UsageError(
            f"the tokenizer must put nothing but the beginning token around a prompt for GGUF, but adds {around}; "
            "export this model with --to hf"
        )
    return bool(around)


def check_tokenizer(expected: TextProcessor, actual: TextProcessor) -> int:
    """Compare the tokens of some texts with those of a file that was read back; return how many are equal."""
    count = 0
    for text in TEXTS:
        ids = expected.encode_prompt(text)
        if actual.encode_prompt(text) != ids:
            raise ModelFileError(
                f"the tokenizer of the file must give the tokens of the model, but does not for {text[:40]!r}; nothing "
                "was written: please report this model"
            )
        count += len(ids)
    return count
