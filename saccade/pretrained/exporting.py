"""Exporting: a trained task -> a folder that transformers opens, with tokenizer, generation settings and a card."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.processors import TemplateProcessing
from torch import nn

from saccade.atomic_io import write_json
from saccade.config import from_json
from saccade.core.task import Task
from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import UsageError
from saccade.models.text.bert import BertConfig
from saccade.models.text.gpt import GPTConfig
from saccade.pretrained import lora
from saccade.pretrained.huggingface import FAMILIES, write
from saccade.pretrained.huggingface.family import Family
from saccade.tasks import language_model, masked_language_model
from saccade.tasks._encoder.task import EncoderTask

FREE = {
    "dropout": 0.0,
    "embedding_dropout": 0.0,
    "attention_dropout": 0.0,
    "drop_inside": None,
    "begin": None,
    "pooler": None,
}
BERT = {
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
}
ROBERTA = {
    **{"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"},
    **{"mask_token": "<mask>", "pad_token": "<pad>", "unk_token": "<unk>"},
}


def export(opened: Task, folder: Path) -> list[str]:
    """Write a task for transformers; says what was written and what has no place there."""
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} must be a new or an empty folder, but holds something; name another one")
    if isinstance(opened, language_model.Task):
        family = _write(opened.model, opened.config.model, opened.tokenizer, folder, _ends(opened))
        write_json(folder / "generation_config.json", _ends(opened))
    elif isinstance(opened, EncoderTask):
        whole = isinstance(opened, masked_language_model.Task)
        model: nn.Module = opened.model if whole else opened.model.bert
        lora.merge(model)
        family = _write(model if whole else _under(model), opened.model.bert.config, opened.tokenizer, folder, {})
    else:
        raise UsageError("only language models and encoders can be written for transformers so far")
    _write_tokenizer(opened.tokenizer, folder)
    card = f"# {folder.name}\n\nA model of the {family.name} family, written by Saccade. Open it with transformers.\n"
    (folder / "README.md").write_text(card, encoding="utf-8")
    left = isinstance(opened, EncoderTask) and not isinstance(opened, masked_language_model.Task)
    rest = ["the layer on top of the encoder has no place in transformers' classes and is left out"]
    return [f"{folder}: a {family.name} for transformers", *(rest if left and hasattr(opened.model, "head") else [])]


def _write(model: nn.Module, config: Any, tokenizer: Tokenizer, folder: Path, extra: dict[str, Any]) -> Family:
    vocabulary = model.get_parameter(
        "embedding.weight" if isinstance(config, GPTConfig) else "bert.embedding.weight"
    ).shape[0]
    names = frozenset(name for name, _ in model.named_parameters())
    family = family_of(config, vocabulary, names)
    write(model, config, vocabulary, family, folder, extra)
    return family


def _under(bert: nn.Module) -> nn.Module:
    """An encoder under the name that it has in every model."""
    return nn.ModuleDict({"bert": bert})


def family_of(config: GPTConfig | BertConfig, vocabulary: int, names: frozenset[str]) -> Family:
    """The family that can hold a model exactly: its config goes there and comes back the same."""
    for family in FAMILIES.values():
        try:
            known = {field.name for field in fields(family.schema)}
            described = family.describe(config, vocabulary)
            schema = from_json(family.schema, {name: value for name, value in described.items() if name in known})
            if _essence(family.shape(schema, names)) == _essence(config):
                return family
        except (ValueError, AttributeError, UsageError):  # another kind of config
            continue
    raise UsageError(
        "transformers has no class for this shape; train one of the presets gpt2-..., llama-... or bert-..., "
        "which have published forms"
    )


def _essence(config: Any) -> Any:
    """A config without what does not change the answers of a trained model."""
    free = {name: value for name, value in FREE.items() if hasattr(config, name)}
    same = replace(config, **free)
    if isinstance(config, GPTConfig) and config.kv_heads in (0, config.heads):
        same = replace(same, kv_heads=0)
    return replace(same, epsilon=config.epsilon or (1e-5 if config.norm == "layer" else 1e-6))


def _ends(opened: language_model.Task) -> dict[str, Any]:
    return {} if opened.end is None else {"eos_token_id": opened.end, "bos_token_id": opened.begin or opened.end}


def _write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """tokenizer.json, with the marks of an encoder put around a text, and who the special tokens are."""
    path = folder / "tokenizer.json"
    tokenizer.save(path)
    roles = BERT if "[CLS]" in tokenizer.specials else ROBERTA if "<mask>" in tokenizer.specials else {}
    found: dict[str, Any] = {name: mark for name, mark in roles.items() if mark in tokenizer.specials}
    if "[CLS]" in tokenizer.specials:
        found["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    if "[CLS]" in tokenizer.specials and not json.loads(path.read_text(encoding="utf-8")).get("post_processor"):
        inner = tokenizers.Tokenizer.from_file(str(path))
        inner.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(mark, tokenizer.specials[mark]) for mark in ("[CLS]", "[SEP]")],
        )
        inner.save(str(path))
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **found})
