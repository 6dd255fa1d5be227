"""DistilBERT: BERT of half the depth, without segments and pooler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saccade.models.text.bert import BertConfig
from saccade.pretrained.huggingface import bert
from saccade.pretrained.huggingface.family import Family, Names, activation, backwards
from saccade.pretrained.huggingface.parts import Part, both


@dataclass(frozen=True)
class Schema:
    """What we read of a config.json."""

    vocab_size: int
    dim: int = 768
    n_layers: int = 6
    n_heads: int = 12
    hidden_dim: int = 3072
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    max_position_embeddings: int = 512


def shape(found: Schema, _: Names) -> BertConfig:
    return BertConfig(
        dim=found.dim,
        depth=found.n_layers,
        heads=found.n_heads,
        hidden=found.hidden_dim,
        activation=activation(found.activation),
        dropout=found.dropout,
        embedding_dropout=found.dropout,
        attention_dropout=found.attention_dropout,
        max_positions=found.max_position_embeddings,
        segments=0,
        epsilon=1e-12,
        **bert.PUBLISHED,
    )


def describe(config: BertConfig, vocabulary: int) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "dim": config.dim,
        "n_layers": config.depth,
        "n_heads": config.heads,
        "hidden_dim": config.hidden,
        "activation": backwards(config.activation),
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "max_position_embeddings": config.max_positions,
        "pad_token_id": 0,
    }


def body(config: BertConfig) -> list[Part]:
    found = [
        Part("embedding.weight", ("embeddings.word_embeddings.weight",)),
        Part("position.table.weight", ("embeddings.position_embeddings.weight",)),
        *both("norm", "embeddings.LayerNorm"),
    ]
    for layer in range(config.depth):
        mine, other = f"encoder.{layer}", f"transformer.layer.{layer}"
        asked = tuple(f"{other}.attention.{name}_lin" for name in "qkv")
        found += both(f"{mine}.self.qkv", asked, rows=(config.dim,) * 3)
        found += both(f"{mine}.self.out", f"{other}.attention.out_lin")
        found += both(f"{mine}.self_residual.norm", f"{other}.sa_layer_norm")
        found += both(f"{mine}.feed.up", f"{other}.ffn.lin1")
        found += both(f"{mine}.feed.down", f"{other}.ffn.lin2")
        found += both(f"{mine}.feed_residual.norm", f"{other}.output_layer_norm")
    return found


def architecture(names: Names) -> str:
    return "DistilBertForMaskedLM" if bert.WORDS in names else "DistilBertModel"


FAMILY = Family(
    name="distilbert",
    schema=Schema,
    shape=shape,
    describe=describe,
    build=bert.build,
    body=body,
    head=[
        *both("words.dense", "vocab_transform"),
        *both("words.norm", "vocab_layer_norm"),
        Part("words.head.bias", ("vocab_projector.bias",)),
    ],
    prefix="distilbert.",
    under="bert.",
    architecture=architecture,
    unused=("position_ids", "vocab_projector.weight"),
)
