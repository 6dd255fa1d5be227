"""Processors: the tokenizers and special ids that belong to a text network, read from and written to its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.processors import TemplateProcessing

from saccade.atomic_io import write_json
from saccade.data.text.auto_tokenizer import special_tokens
from saccade.data.text.sentencepiece import is_marian, read_sides
from saccade.data.text.tokenizer_checks import check_fits, parse_json, read_text
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.text.vocabularies import read_tokenizer
from saccade.errors import ModelFileError, UsageError

TOKENIZER, TOKENIZER_CONFIG, GENERATION_CONFIG = "tokenizer.json", "tokenizer_config.json", "generation_config.json"
CHAT_TEMPLATE, CONFIG = "chat_template.jinja", "config.json"
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
    """what the continuation of an empty text starts from; None: the end of the text before it"""
    eos_ids: tuple[int, ...] = ()
    """tokens that end a text: generation stops at any of them"""
    decoder_start_id: int | None = None
    """the token a decoder starts with"""
    chat_template: str = ""
    """Jinja template of a conversation; it is rendered in a sandbox only"""
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    """special tokens by role, such as bos_token, that a template can name"""
    max_length: int | None = None
    """number of tokens to which an encoder's texts are truncated; None: as many as the network has positions"""
    parse_special: bool = False
    """a prompt is encoded as transformers does, with the special tokens written in it and those of the post-processor;
    without it a text can never have special tokens, as in training"""
    cleans_up_spaces: bool = False
    """transformers changes the spaces of a text that is generated, which is not supported"""

    def encode_prompt(self, text: str) -> list[int]:
        """Return the ids of a prompt."""
        return self.tokenizer.encode_prompt(text) if self.parse_special else self.tokenizer.encode(text)

    def describe(self) -> dict[str, Any]:
        """Return a summary as JSON."""
        return {"tokenizer": self.tokenizer.kind, "vocabulary_size": self.tokenizer.size}


def read_text_processor(folder: Path, config: Mapping[str, Any]) -> TextProcessor:
    """Read the processor of a folder whose config.json is `config`."""
    return _processor(folder, config, read_tokenizer(folder, config))


def read_marian_processor(folder: Path, config: Mapping[str, Any]) -> TextProcessor:
    """Read the processor of a folder with SentencePiece models of source and target, or with one tokenizer."""
    if not is_marian(folder):
        return read_text_processor(folder, config)
    return _processor(folder, config, *read_sides(folder))


def _processor(
    folder: Path, config: Mapping[str, Any], tokenizer: Tokenizer, target_tokenizer: Tokenizer | None = None
) -> TextProcessor:
    vocabulary_size = config["vocab_size"]
    check_fits(folder, max(tokenizer.size, 1 + max(tokenizer.encode_prompt(""), default=-1)), config)
    settings, path = _read(folder / TOKENIZER_CONFIG), folder / GENERATION_CONFIG
    generation = _read(path) if path.exists() else config
    bos_ids, eos_ids, start_ids = (
        token_ids(source.get(f"{name}_token_id"), vocabulary_size)
        for name, source in (("bos", generation), ("eos", generation), ("decoder_start", {**config, **generation}))
    )
    template = _chat_template(folder, settings)
    return TextProcessor(
        tokenizer=tokenizer,
        target_tokenizer=target_tokenizer,
        bos_id=bos_ids[0] if bos_ids else None,
        eos_ids=eos_ids,
        decoder_start_id=start_ids[0] if start_ids else None,
        chat_template=template,
        special_tokens=special_tokens(folder, config) if template else {},
        max_length=_max_length(folder / TOKENIZER_CONFIG, settings.get("model_max_length")),
        parse_special=True,
        cleans_up_spaces=settings.get("clean_up_tokenization_spaces") is True and tokenizer.kind != "bpe",
    )


def _read(path: Path) -> dict[str, Any]:
    return parse_json(path, read_text(path)) if path.exists() else {}


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str:
    """Return the chat template of a folder: that of a file of its own comes first, as in transformers."""
    path = folder / CHAT_TEMPLATE
    if path.exists():
        return read_text(path)
    template = settings.get("chat_template")
    if isinstance(template, list):  # several with names
        named = {row.get("name"): row.get("template") for row in template if isinstance(row, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else ""


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
    settings |= {role: token for role, token in processor.special_tokens.items() if token in tokenizer.specials}
    if is_bert:
        inputs = ["input_ids", "token_type_ids", "attention_mask"] if token_types else ["input_ids", "attention_mask"]
        settings["model_input_names"] = inputs
    if is_bert and not json.loads(path.read_text(encoding="utf-8")).get("post_processor"):
        _add_bert_template(tokenizer, path)
    names = {number: name for name, number in tokenizer.specials.items()}
    ends = {"bos_token": processor.bos_id, "eos_token": processor.eos_ids[0] if processor.eos_ids else None}
    settings |= {role: names[number] for role, number in ends.items() if number in names and role not in settings}
    if processor.max_length is not None:
        settings["model_max_length"] = processor.max_length
    if processor.chat_template:
        settings["chat_template"] = processor.chat_template
    write_json(folder / TOKENIZER_CONFIG, settings)
    config = _read(folder / CONFIG)
    if config and not read_tokenizer(folder, config).same_rules(tokenizer):
        name = config.get("model_type")
        raise UsageError(
            f"transformers opens every {name} with the rules of its own tokenizer, but this model has others; "
            "train one of the presets gpt2-... or llama-..., whose tokenizer it takes as it is"
        )


def _add_bert_template(tokenizer: Tokenizer, path: Path) -> None:
    """Let transformers' tokenizer put [CLS] and [SEP] around a text or a pair of texts."""
    library_tokenizer = tokenizers.Tokenizer.from_file(str(path))
    library_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.specials[token]) for token in ("[CLS]", "[SEP]")],
    )
    library_tokenizer.save(str(path))
