"""Processors: the tokenizers and special ids that belong to a text network, read from and written to its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.processors import TemplateProcessing

from saccade.atomic_io import write_json
from saccade.data.text.sentencepiece import is_marian, read_sides
from saccade.data.text.tokenizer_checks import parse_json, read_text
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.text.vocabularies import read_tokenizer
from saccade.errors import ModelFileError

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
NO_MAX_LENGTH = 1 << 40
BERT_SPECIAL_TOKENS = {
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
}
ROBERTA_SPECIAL_TOKENS = {
    **{"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"},
    **{"mask_token": "<mask>", "pad_token": "<pad>", "unk_token": "<unk>"},
}


@dataclass(frozen=True)
class TextProcessor:
    """Tokenizers and special ids of a text network."""

    tokenizer: Tokenizer
    """of the input; of the output too, unless there is a `target_tokenizer`"""
    target_tokenizer: Tokenizer | None = None
    bos_id: int | None = None
    """the token put before every text; None: no such token"""
    eos_ids: tuple[int, ...] = ()
    """tokens that end a text: generation stops at any of them"""
    decoder_start_id: int | None = None
    """the token a decoder starts with"""
    chat_template: str = ""
    """Jinja template of a conversation, as text: it is never run"""
    max_length: int | None = None
    """number of tokens to which an encoder's texts are truncated; None: as many as the network has positions"""

    def describe(self) -> dict[str, Any]:
        """Return a summary as JSON."""
        return {"tokenizer": self.tokenizer.kind, "vocabulary_size": self.tokenizer.size}


def read_text_processor(folder: Path, config: Mapping[str, Any]) -> TextProcessor:
    """Read the processor of a folder whose config.json is `config`."""
    return _processor(folder, config, read_tokenizer(folder))


def read_marian_processor(folder: Path, config: Mapping[str, Any]) -> TextProcessor:
    """Read the processor of a folder with SentencePiece models of source and target, or with one tokenizer."""
    if not is_marian(folder):
        return read_text_processor(folder, config)
    return _processor(folder, config, *read_sides(folder))


def _processor(
    folder: Path, config: Mapping[str, Any], tokenizer: Tokenizer, target_tokenizer: Tokenizer | None = None
) -> TextProcessor:
    vocabulary_size = config["vocab_size"]
    if tokenizer.size > vocabulary_size:
        raise ModelFileError(
            f"{folder}: the tokenizer must have at most {vocabulary_size:,} tokens (vocab_size in config.json), "
            f"but has {tokenizer.size:,}; download both from the same model"
        )
    path = folder / TOKENIZER_CONFIG
    settings = parse_json(path, read_text(path)) if path.exists() else {}
    bos_ids = token_ids(config.get("bos_token_id"), vocabulary_size)
    start_ids = token_ids(config.get("decoder_start_token_id"), vocabulary_size)
    template = settings.get("chat_template")
    return TextProcessor(
        tokenizer=tokenizer,
        target_tokenizer=target_tokenizer,
        bos_id=bos_ids[0] if bos_ids and settings.get("add_bos_token") is True else None,
        eos_ids=token_ids(config.get("eos_token_id"), vocabulary_size),
        decoder_start_id=start_ids[0] if start_ids else None,
        chat_template=template if isinstance(template, str) else "",
        max_length=_max_length(path, settings.get("model_max_length")),
    )


def _max_length(path: Path, value: Any) -> int | None:
    """Return the number of tokens to which transformers truncates; a huge number means that it does not."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= NO_MAX_LENGTH):
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelFileError(
            f"{path}: model_max_length must be at least 1, but is {str(value)[:80]!r}; such a value is not supported"
        )
    return value


def token_ids(value: Any, vocabulary_size: int) -> tuple[int, ...]:
    """Return the ids of a field that is an id or a list of ids; values outside the vocabulary are dropped."""
    values = value if isinstance(value, list) else [value]
    return tuple(
        item for item in values if isinstance(item, int) and not isinstance(item, bool) and 0 <= item < vocabulary_size
    )


def generation_config(processor: TextProcessor) -> dict[str, Any]:
    """Return the special ids that transformers needs to generate text."""
    if not processor.eos_ids:
        return {}
    first = processor.eos_ids[0]
    eos: int | list[int] = first if len(processor.eos_ids) == 1 else list(processor.eos_ids)
    return {"eos_token_id": eos, "bos_token_id": first if processor.bos_id is None else processor.bos_id}


def write_text_processor(processor: TextProcessor, folder: Path, *, token_types: bool = True) -> None:
    """Write tokenizer.json, with the special tokens of an encoder added around a text, and tokenizer_config.json.

    token_types: whether the network of a tokenizer with [CLS] reads them.
    """
    tokenizer, path = processor.tokenizer, folder / TOKENIZER
    tokenizer.save(path)
    is_bert = "[CLS]" in tokenizer.specials
    roles = BERT_SPECIAL_TOKENS if is_bert else ROBERTA_SPECIAL_TOKENS if "<mask>" in tokenizer.specials else {}
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings |= {role: token for role, token in roles.items() if token in tokenizer.specials}
    if is_bert:
        names = ["input_ids", "token_type_ids", "attention_mask"] if token_types else ["input_ids", "attention_mask"]
        settings["model_input_names"] = names
    if is_bert and not json.loads(path.read_text(encoding="utf-8")).get("post_processor"):
        _add_bert_template(tokenizer, path)
    if processor.bos_id is not None:
        settings["add_bos_token"] = True
    if processor.max_length is not None:
        settings["model_max_length"] = processor.max_length
    if processor.chat_template:
        settings["chat_template"] = processor.chat_template
    write_json(folder / TOKENIZER_CONFIG, settings)


def _add_bert_template(tokenizer: Tokenizer, path: Path) -> None:
    """Let transformers' tokenizer put [CLS] and [SEP] around a text or a pair of texts."""
    library_tokenizer = tokenizers.Tokenizer.from_file(str(path))
    library_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.specials[token]) for token in ("[CLS]", "[SEP]")],
    )
    library_tokenizer.save(str(path))
