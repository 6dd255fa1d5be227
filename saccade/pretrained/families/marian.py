"""Marian: the translation models of the OPUS-MT project (https://aclanthology.org/P18-4020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from saccade.models.seq2seq.interface import Vocabularies
from saccade.models.seq2seq.transformer import Translator, TranslatorConfig
from saccade.pretrained.families.family import Family, Names, read_activation, write_activation
from saccade.pretrained.families.mapping import WeightMapping, weight_and_bias
from saccade.pretrained.processors import read_marian_processor

HEAD_BIAS = "head.bias"


@dataclass(frozen=True)
class MarianFields:
    """Fields of config.json."""

    vocab_size: int
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048
    activation_function: str = "swish"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    max_position_embeddings: int = 512
    scale_embedding: Literal[True] = True
    static_position_embeddings: Literal[True] = True
    share_encoder_decoder_embeddings: Literal[True] = True
    tie_word_embeddings: Literal[True] = True
    normalize_before: Literal[False] = False
    add_final_layer_norm: Literal[False] = False

    def __post_init__(self) -> None:
        for name in ("attention_heads", "ffn_dim"):
            encoder, decoder = getattr(self, f"encoder_{name}"), getattr(self, f"decoder_{name}")
            if encoder != decoder:
                raise ValueError(f"decoder_{name} must be encoder_{name} ({encoder}), but is {decoder}")


def read_config(fields: MarianFields, names: Names) -> TranslatorConfig:
    return TranslatorConfig(
        dim=fields.d_model,
        depth=fields.encoder_layers,
        decoder_depth=fields.decoder_layers,
        heads=fields.encoder_attention_heads,
        hidden=fields.encoder_ffn_dim,
        activation=read_activation(fields.activation_function),
        dropout=fields.dropout,
        embedding_dropout=fields.dropout,
        attention_dropout=fields.attention_dropout,
        inner_dropout=False,
        max_positions=fields.max_position_embeddings,
        norm="layer",
        norm_first=False,
        position="sinusoidal",
        score="scaled_dot",
        bias=True,
        tie_embeddings=True,
        head_bias=HEAD_BIAS in names,
        embedding_norm=False,
        init="xavier",
    )


def write_config(config: TranslatorConfig, network: nn.Module) -> dict[str, Any]:
    return {
        "vocab_size": network.get_parameter("source.weight").shape[0],
        "d_model": config.dim,
        "encoder_layers": config.depth,
        "decoder_layers": config.decoder_depth,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.hidden,
        "decoder_ffn_dim": config.hidden,
        "activation_function": write_activation(config.activation),
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "max_position_embeddings": config.max_positions,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
    }


def build(config: TranslatorConfig, fields: MarianFields, _: Names) -> nn.Module:
    return Translator(config, Vocabularies(fields.vocab_size, fields.vocab_size, joint=True))


def body(config: TranslatorConfig) -> list[WeightMapping]:
    mappings = [WeightMapping("source.weight", ("shared.weight",))]
    for stack, depth in (("encoder", config.depth), ("decoder", config.decoder_depth)):
        for layer in range(depth):
            ours, theirs = f"{stack}.{layer}", f"{stack}.layers.{layer}"
            qkv = [f"{theirs}.self_attn.{name}_proj" for name in "qkv"]
            mappings += weight_and_bias(f"{ours}.self.qkv", qkv, rows=(config.dim,) * 3)
            mappings += weight_and_bias(f"{ours}.self.out", f"{theirs}.self_attn.out_proj")
            mappings += weight_and_bias(f"{ours}.self_residual.norm", f"{theirs}.self_attn_layer_norm")
            if stack == "decoder":
                mappings += cross_attention(ours, theirs, config.dim)
            mappings += weight_and_bias(f"{ours}.feed.up", f"{theirs}.fc1")
            mappings += weight_and_bias(f"{ours}.feed.down", f"{theirs}.fc2")
            mappings += weight_and_bias(f"{ours}.feed_residual.norm", f"{theirs}.final_layer_norm")
    return mappings


def cross_attention(ours: str, theirs: str, dim: int) -> list[WeightMapping]:
    """Map the cross-attention of a decoder layer."""
    kv = [f"{theirs}.encoder_attn.{name}_proj" for name in "kv"]
    return [
        *weight_and_bias(f"{ours}.cross.q", f"{theirs}.encoder_attn.q_proj"),
        *weight_and_bias(f"{ours}.cross.kv", kv, rows=(dim,) * 2),
        *weight_and_bias(f"{ours}.cross.out", f"{theirs}.encoder_attn.out_proj"),
        *weight_and_bias(f"{ours}.cross_residual.norm", f"{theirs}.encoder_attn_layer_norm"),
    ]


FAMILY = Family(
    name="marian",
    fields=MarianFields,
    config=TranslatorConfig,
    task=lambda _: "translation",
    read_config=read_config,
    write_config=write_config,
    build=build,
    body=body,
    head=(WeightMapping(HEAD_BIAS, ("final_logits_bias",), squeeze=True),),
    prefix="model.",
    network_prefix="",
    architecture=lambda _: "MarianMTModel",
    read_processor=read_marian_processor,
    write_processor=None,
    ignored=("embed_positions.weight",),
    copies=tuple(
        (copy, "model.shared.weight")
        for copy in ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    ),
)
