"""RoBERTa: BERT without next sentence prediction, with positions from 2 and other head names.

https://arxiv.org/abs/1907.11692
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from saccade.errors import ModelFileError
from saccade.models.text.bert import BertConfig
from saccade.pretrained.families import bert
from saccade.pretrained.families.family import Names
from saccade.pretrained.families.mapping import WeightMapping
from saccade.pretrained.processors import TextProcessor, read_text_processor

PAD_ID = 1
FIRST_POSITION = PAD_ID + 1


@dataclass(frozen=True)
class RobertaFields(bert.BertFields):
    """Fields of config.json."""

    max_position_embeddings: int = 514
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    pad_token_id: int | None = PAD_ID


def read_config(fields: RobertaFields, names: Names) -> BertConfig:
    if fields.pad_token_id != PAD_ID:
        raise ValueError(f"pad_token_id must be {PAD_ID}, but is {fields.pad_token_id}")
    config = bert.read_config(fields, names)
    mlm_activation: Literal["", "gelu"] = "gelu" if bert.MLM_HEAD in names and config.activation != "gelu" else ""
    positions = fields.max_position_embeddings - FIRST_POSITION
    # RoBERTa's tokenizer gives both texts of a pair the token type 0.
    return replace(config, max_positions=positions, segments=1, mlm_activation=mlm_activation)


def write_config(config: BertConfig, network: nn.Module) -> dict[str, Any]:
    return {
        **bert.write_config(config, network),
        "max_position_embeddings": config.max_positions + FIRST_POSITION,
        "pad_token_id": PAD_ID,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }


def body(config: BertConfig) -> list[WeightMapping]:
    skip, only = {"position.table.weight": FIRST_POSITION}, {"segment.weight": 1}
    return [
        replace(mapping, skip_rows=skip.get(mapping.name, 0), only_rows=only.get(mapping.name, 0))
        for mapping in bert.body(config)
    ]


def read_processor(folder: Path, values: Mapping[str, Any]) -> TextProcessor:
    """Read the processor of a folder; with several token types the tokenizer must be one that uses the first alone."""
    processor, types = read_text_processor(folder, values), values.get("type_vocab_size", 1)
    if types != 1 and "<s>" not in processor.tokenizer.specials:
        raise ModelFileError(
            f"{folder}: type_vocab_size must be 1 for a roberta whose tokenizer has no <s>, but is {types}; this "
            "variant of roberta is not supported"
        )
    return processor


def architecture(names: Names) -> str:
    return "RobertaForMaskedLM" if bert.MLM_HEAD in names else "RobertaModel"


FAMILY = replace(
    bert.FAMILY,
    name="roberta",
    fields=RobertaFields,
    read_config=read_config,
    write_config=write_config,
    body=body,
    head=bert.mlm_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    prefix="roberta.",
    read_processor=read_processor,
    architecture=architecture,
    copies=(
        ("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
        ("lm_head.decoder.bias", "lm_head.bias"),
    ),
)
