"""DistilBERT: BERT with half the layers, without segments and pooler (https://arxiv.org/abs/1910.01108)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import nn

from saccade.models.text.bert import BertConfig
from saccade.pretrained.families import bert
from saccade.pretrained.families.family import Names, read_activation, write_activation
from saccade.pretrained.families.mapping import WeightMapping, weight_and_bias
from saccade.pretrained.processors import write_text_processor


@dataclass(frozen=True)
class DistilBertFields:
    """Fields of config.json."""

    vocab_size: int
    dim: int = 768
    n_layers: int = 6
    n_heads: int = 12
    hidden_dim: int = 3072
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    max_position_embeddings: int = 512
    tie_word_embeddings: bool = True


def read_config(fields: DistilBertFields, names: Names) -> BertConfig:
    bert.check_tied(fields.tie_word_embeddings, names)
    return BertConfig(
        dim=fields.dim,
        depth=fields.n_layers,
        heads=fields.n_heads,
        hidden=fields.hidden_dim,
        activation=read_activation(fields.activation),
        dropout=fields.dropout,
        embedding_dropout=fields.dropout,
        attention_dropout=fields.attention_dropout,
        max_positions=fields.max_position_embeddings,
        segments=0,
        epsilon=1e-12,
        **bert.PUBLISHED,
    )


def write_config(config: BertConfig, network: nn.Module) -> dict[str, Any]:
    return {
        "vocab_size": bert.vocabulary_size(network),
        "dim": config.dim,
        "n_layers": config.depth,
        "n_heads": config.heads,
        "hidden_dim": config.hidden,
        "activation": write_activation(config.activation),
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "max_position_embeddings": config.max_positions,
        "pad_token_id": 0,
    }


def body(config: BertConfig) -> list[WeightMapping]:
    mappings = [
        WeightMapping("embedding.weight", ("embeddings.word_embeddings.weight",)),
        WeightMapping("position.table.weight", ("embeddings.position_embeddings.weight",)),
        *weight_and_bias("norm", "embeddings.LayerNorm"),
    ]
    for layer in range(config.depth):
        ours, theirs = f"encoder.{layer}", f"transformer.layer.{layer}"
        qkv = [f"{theirs}.attention.{name}_lin" for name in "qkv"]
        mappings += weight_and_bias(f"{ours}.self.qkv", qkv, rows=(config.dim,) * 3)
        mappings += weight_and_bias(f"{ours}.self.out", f"{theirs}.attention.out_lin")
        mappings += weight_and_bias(f"{ours}.self_residual.norm", f"{theirs}.sa_layer_norm")
        mappings += weight_and_bias(f"{ours}.feed.up", f"{theirs}.ffn.lin1")
        mappings += weight_and_bias(f"{ours}.feed.down", f"{theirs}.ffn.lin2")
        mappings += weight_and_bias(f"{ours}.feed_residual.norm", f"{theirs}.output_layer_norm")
    return mappings


def architecture(names: Names) -> str:
    return "DistilBertForMaskedLM" if bert.MLM_HEAD in names else "DistilBertModel"


FAMILY = replace(
    bert.FAMILY,
    name="distilbert",
    fields=DistilBertFields,
    read_config=read_config,
    write_config=write_config,
    body=body,
    head=bert.mlm_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
    prefix="distilbert.",
    architecture=architecture,
    write_processor=partial(write_text_processor, token_types=False),
    copies=(("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),),
)
