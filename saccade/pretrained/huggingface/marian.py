"""Marian: the translators of the OPUS project, as transformers writes them down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from saccade.models.seq2seq.interface import Vocabularies
from saccade.models.seq2seq.transformer import Translator, TranslatorConfig
from saccade.pretrained.huggingface.family import Family, Names, activation, backwards
from saccade.pretrained.huggingface.parts import Part, both

BIAS = "head.bias"


@dataclass(frozen=True)
class Schema:
    """What we read of a config.json."""

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
    normalize_before: Literal[False] = False
    add_final_layer_norm: Literal[False] = False

    def __post_init__(self) -> None:
        for name in ("attention_heads", "ffn_dim"):
            one, other = getattr(self, f"encoder_{name}"), getattr(self, f"decoder_{name}")
            if one != other:
                raise ValueError(f"decoder_{name} must be encoder_{name} ({one}), but is {other}")


def shape(found: Schema, names: Names) -> TranslatorConfig:
    return TranslatorConfig(
        dim=found.d_model,
        depth=found.encoder_layers,
        decoder_depth=found.decoder_layers,
        heads=found.encoder_attention_heads,
        hidden=found.encoder_ffn_dim,
        activation=activation(found.activation_function),
        dropout=found.dropout,
        embedding_dropout=found.dropout,
        attention_dropout=found.attention_dropout,
        drop_inside=False,
        max_positions=found.max_position_embeddings,
        norm="layer",
        norm_first=False,
        position="sinusoidal",
        score="scaled_dot",
        bias=True,
        tied=True,
        head_bias=BIAS in names,
        embedding_norm=False,
        begin="xavier",
    )


def describe(config: TranslatorConfig, vocabulary: int) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "d_model": config.dim,
        "encoder_layers": config.depth,
        "decoder_layers": config.decoder_depth,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.hidden,
        "decoder_ffn_dim": config.hidden,
        "activation_function": backwards(config.activation),
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "max_position_embeddings": config.max_positions,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
    }


def build(config: TranslatorConfig, vocabulary: int, _: Names) -> nn.Module:
    return Translator(config, Vocabularies(vocabulary, vocabulary, joint=True))


def body(config: TranslatorConfig) -> list[Part]:
    found = [Part("source.weight", ("shared.weight",))]
    for side, depth in (("encoder", config.depth), ("decoder", config.decoder_depth)):
        for layer in range(depth):
            mine, other = f"{side}.{layer}", f"{side}.layers.{layer}"
            asked = tuple(f"{other}.self_attn.{name}_proj" for name in "qkv")
            found += both(f"{mine}.self.qkv", asked, rows=(config.dim,) * 3)
            found += both(f"{mine}.self.out", f"{other}.self_attn.out_proj")
            found += both(f"{mine}.self_residual.norm", f"{other}.self_attn_layer_norm")
            if side == "decoder":
                read = tuple(f"{other}.encoder_attn.{name}_proj" for name in "kv")
                found += both(f"{mine}.cross.q", f"{other}.encoder_attn.q_proj")
                found += both(f"{mine}.cross.kv", read, rows=(config.dim,) * 2)
                found += both(f"{mine}.cross.out", f"{other}.encoder_attn.out_proj")
                found += both(f"{mine}.cross_residual.norm", f"{other}.encoder_attn_layer_norm")
            found += both(f"{mine}.feed.up", f"{other}.fc1")
            found += both(f"{mine}.feed.down", f"{other}.fc2")
            found += both(f"{mine}.feed_residual.norm", f"{other}.final_layer_norm")
    return found


FAMILY = Family(
    name="marian",
    schema=Schema,
    shape=shape,
    describe=describe,
    build=build,
    body=body,
    head=[Part(BIAS, ("final_logits_bias",), row=True)],
    prefix="model.",
    under="",
    architecture=lambda _: "MarianMTModel",
    unused=("embed_positions.weight", "embed_tokens.weight", "lm_head.weight"),
)
