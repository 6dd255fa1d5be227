"""RoBERTa: BERT without next sentences, with positions that count from 2 and other names of the head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from saccade.models.text.bert import BertConfig
from saccade.pretrained.huggingface import bert
from saccade.pretrained.huggingface.family import Family, Names
from saccade.pretrained.huggingface.parts import Part, both

UNUSED = 2  # positions count from the id of the padding + 1


@dataclass(frozen=True)
class Schema(bert.Schema):
    """What we read of a config.json."""

    max_position_embeddings: int = 514
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    pad_token_id: int | None = 1


def shape(found: Schema, names: Names) -> BertConfig:
    if found.pad_token_id != UNUSED - 1:
        raise ValueError(f"pad_token_id must be {UNUSED - 1}, but is {found.pad_token_id}")
    return replace(bert.shape(found, names), max_positions=found.max_position_embeddings - UNUSED)


def describe(config: BertConfig, vocabulary: int) -> dict[str, Any]:
    return {
        **bert.describe(config, vocabulary),
        "max_position_embeddings": config.max_positions + UNUSED,
        "pad_token_id": UNUSED - 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }


def body(config: BertConfig) -> list[Part]:
    positions = "position.table.weight"
    return [replace(part, skip=UNUSED) if part.ours == positions else part for part in bert.body(config)]


def architecture(names: Names) -> str:
    return "RobertaForMaskedLM" if bert.WORDS in names else "RobertaModel"


FAMILY = Family(
    name="roberta",
    schema=Schema,
    shape=shape,
    describe=describe,
    build=bert.build,
    body=body,
    head=[
        *both("words.dense", "lm_head.dense"),
        *both("words.norm", "lm_head.layer_norm"),
        Part("words.head.bias", ("lm_head.bias",)),
    ],
    prefix="roberta.",
    under="bert.",
    architecture=architecture,
    unused=("position_ids", "lm_head.decoder.weight", "lm_head.decoder.bias"),
)
