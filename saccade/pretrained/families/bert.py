"""BERT, and MiniLM, which has the same architecture (https://arxiv.org/abs/1810.04805)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from saccade.models.text.bert import BertConfig, BertForPreTraining
from saccade.pretrained.families.family import Family, Names, read_activation, write_activation
from saccade.pretrained.families.mapping import WeightMapping, weight_and_bias
from saccade.pretrained.processors import read_text_processor, write_text_processor

PUBLISHED: dict[str, Any] = {
    "norm": "layer",
    "norm_first": False,
    "position": "learned",
    "score": "scaled_dot",
    "bias": True,
    "inner_dropout": False,
    "tie_embeddings": True,
    "init": "normal",
}
MLM_HEAD, NEXT_SENTENCE_HEAD, POOLER = "mlm.dense.weight", "next_sentence.weight", "bert.pooler.weight"


@dataclass(frozen=True)
class BertFields:
    """Fields of config.json."""

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
    tie_word_embeddings: bool = True


def read_config(fields: BertFields, names: Names) -> BertConfig:
    check_tied(fields.tie_word_embeddings, names)
    return BertConfig(
        dim=fields.hidden_size,
        depth=fields.num_hidden_layers,
        heads=fields.num_attention_heads,
        hidden=fields.intermediate_size,
        activation=read_activation(fields.hidden_act),
        dropout=fields.hidden_dropout_prob,
        embedding_dropout=fields.hidden_dropout_prob,
        attention_dropout=fields.attention_probs_dropout_prob,
        max_positions=fields.max_position_embeddings,
        segments=fields.type_vocab_size,
        epsilon=fields.layer_norm_eps,
        pooler=POOLER in names,
        **PUBLISHED,
    )


def check_tied(tied: bool, names: Names) -> None:
    """Refuse an MLM head with an output matrix of its own."""
    if MLM_HEAD in names and not tied:
        raise ValueError("tie_word_embeddings must be true for a masked language model, but is false")


def write_config(config: BertConfig, network: nn.Module) -> dict[str, Any]:
    if not config.segments:  # transformers' BERT always looks up a segment
        raise ValueError("segments must be at least 1 for a BERT, but is 0")
    return {
        "vocab_size": vocabulary_size(network),
        "hidden_size": config.dim,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "hidden_act": write_activation(config.activation),
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": config.max_positions,
        "type_vocab_size": config.segments,
        "layer_norm_eps": 1e-5 if config.epsilon is None else config.epsilon,
        "pad_token_id": 0,
    }


def vocabulary_size(network: nn.Module) -> int:
    """Return the number of rows of the token embedding."""
    return network.get_parameter("bert.embedding.weight").shape[0]


def build(config: BertConfig, fields: Any, names: Names) -> nn.Module:
    heads = {"mlm": MLM_HEAD in names, "next_sentence": NEXT_SENTENCE_HEAD in names}
    return BertForPreTraining(config, fields.vocab_size, **heads)


def task(names: Names) -> str:
    return "masked_language_model" if MLM_HEAD in names else "sentence_vectors"


def body(config: BertConfig) -> list[WeightMapping]:
    mappings = [
        WeightMapping("embedding.weight", ("embeddings.word_embeddings.weight",)),
        WeightMapping("position.table.weight", ("embeddings.position_embeddings.weight",)),
        WeightMapping("segment.weight", ("embeddings.token_type_embeddings.weight",)),
        *weight_and_bias("norm", "embeddings.LayerNorm"),
        *weight_and_bias("pooler", "pooler.dense"),
    ]
    for layer in range(config.depth):
        ours, theirs = f"encoder.{layer}", f"encoder.layer.{layer}"
        qkv = [f"{theirs}.attention.self.{name}" for name in ("query", "key", "value")]
        mappings += weight_and_bias(f"{ours}.self.qkv", qkv, rows=(config.dim,) * 3)
        mappings += weight_and_bias(f"{ours}.self.out", f"{theirs}.attention.output.dense")
        mappings += weight_and_bias(f"{ours}.self_residual.norm", f"{theirs}.attention.output.LayerNorm")
        mappings += weight_and_bias(f"{ours}.feed.up", f"{theirs}.intermediate.dense")
        mappings += weight_and_bias(f"{ours}.feed.down", f"{theirs}.output.dense")
        mappings += weight_and_bias(f"{ours}.feed_residual.norm", f"{theirs}.output.LayerNorm")
    return mappings


def mlm_head(dense: str, norm: str, bias: str) -> tuple[WeightMapping, ...]:
    """Map the masked-language-model head, whose output matrix is the token embedding."""
    return (
        *weight_and_bias("mlm.dense", dense),
        *weight_and_bias("mlm.norm", norm),
        WeightMapping("mlm.head.bias", (bias,)),
    )


def architecture(names: Names) -> str:
    if NEXT_SENTENCE_HEAD in names:
        return "BertForPreTraining"
    return "BertForMaskedLM" if MLM_HEAD in names else "BertModel"


FAMILY = Family(
    name="bert",
    fields=BertFields,
    config=BertConfig,
    task=task,
    read_config=read_config,
    write_config=write_config,
    build=build,
    body=body,
    head=(
        *mlm_head("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"),
        *weight_and_bias("next_sentence", "cls.seq_relationship"),
    ),
    prefix="bert.",
    network_prefix="bert.",
    architecture=architecture,
    read_processor=read_text_processor,
    write_processor=write_text_processor,
    ignored=("position_ids",),
    copies=(
        ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ),
)
