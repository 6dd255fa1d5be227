"""BERT, and MiniLM, which has its form: how transformers writes it down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from saccade.models.text.bert import BertConfig, BertForPreTraining
from saccade.pretrained.huggingface.family import Family, Names, activation, backwards
from saccade.pretrained.huggingface.parts import Part, both

PUBLISHED: dict[str, Any] = {
    "norm": "layer",
    "norm_first": False,
    "position": "learned",
    "score": "scaled_dot",
    "bias": True,
    "drop_inside": False,
    "tied": True,
    "begin": "normal",
}
WORDS, NEXT, POOLER = "words.dense.weight", "next.weight", "bert.pooler.weight"


@dataclass(frozen=True)
class Schema:
    """What we read of a config.json; everything else is left aside."""

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    position_embedding_type: Literal["absolute"] = "absolute"
    is_decoder: Literal[False] = False


def shape(found: Schema, names: Names) -> BertConfig:
    return BertConfig(
        dim=found.hidden_size,
        depth=found.num_hidden_layers,
        heads=found.num_attention_heads,
        hidden=found.intermediate_size,
        activation=activation(found.hidden_act),
        dropout=found.hidden_dropout_prob,
        embedding_dropout=found.hidden_dropout_prob,
        attention_dropout=found.attention_probs_dropout_prob,
        max_positions=found.max_position_embeddings,
        segments=found.type_vocab_size,
        epsilon=found.layer_norm_eps,
        pooler=POOLER in names,
        **PUBLISHED,
    )


def describe(config: BertConfig, vocabulary: int) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": config.dim,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "hidden_act": backwards(config.activation),
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": config.max_positions,
        "type_vocab_size": config.segments,
        "layer_norm_eps": config.epsilon or 1e-5,
        "pad_token_id": 0,
    }


def build(config: BertConfig, vocabulary: int, names: Names) -> nn.Module:
    return BertForPreTraining(config, vocabulary, words=WORDS in names, following=NEXT in names)


def body(config: BertConfig) -> list[Part]:
    found = [
        Part("embedding.weight", ("embeddings.word_embeddings.weight",)),
        Part("position.table.weight", ("embeddings.position_embeddings.weight",)),
        Part("segment.weight", ("embeddings.token_type_embeddings.weight",)),
        *both("norm", "embeddings.LayerNorm"),
        *both("pooler", "pooler.dense"),
    ]
    for layer in range(config.depth):
        mine, other = f"encoder.{layer}", f"encoder.layer.{layer}"
        asked = tuple(f"{other}.attention.self.{name}" for name in ("query", "key", "value"))
        found += both(f"{mine}.self.qkv", asked, rows=(config.dim,) * 3)
        found += both(f"{mine}.self.out", f"{other}.attention.output.dense")
        found += both(f"{mine}.self_residual.norm", f"{other}.attention.output.LayerNorm")
        found += both(f"{mine}.feed.up", f"{other}.intermediate.dense")
        found += both(f"{mine}.feed.down", f"{other}.output.dense")
        found += both(f"{mine}.feed_residual.norm", f"{other}.output.LayerNorm")
    return found


def architecture(names: Names) -> str:
    if NEXT in names:
        return "BertForPreTraining"
    return "BertForMaskedLM" if WORDS in names else "BertModel"


FAMILY = Family(
    name="bert",
    schema=Schema,
    shape=shape,
    describe=describe,
    build=build,
    body=body,
    head=[
        *both("words.dense", "cls.predictions.transform.dense"),
        *both("words.norm", "cls.predictions.transform.LayerNorm"),
        Part("words.head.bias", ("cls.predictions.bias",)),
        *both("next", "cls.seq_relationship"),
    ],
    prefix="bert.",
    under="bert.",
    architecture=architecture,
    unused=("position_ids", "predictions.decoder.weight", "predictions.decoder.bias"),
)
