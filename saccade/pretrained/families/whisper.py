"""Whisper: speech recognition and translation into English (https://arxiv.org/abs/2212.04356)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from saccade.models.seq2seq.transformer import EmbeddedConfig
from saccade.models.speech.whisper import Whisper, WhisperConfig
from saccade.nn.transformer import TransformerConfig
from saccade.pretrained.families.family import Family, Names, read_activation, write_activation
from saccade.pretrained.families.mapping import GetTensor, WeightMapping, weight_and_bias
from saccade.pretrained.speech_processor import generation_config, read_speech_processor, write_speech_processor

# Names of OpenAI's checkpoints, in an order in which none contains an earlier one.
OPENAI_NAMES = (
    (".cross_attn_ln.", ".encoder_attn_layer_norm."),
    (".attn_ln.", ".self_attn_layer_norm."),
    (".mlp_ln.", ".final_layer_norm."),
    (".cross_attn.", ".encoder_attn."),
    (".attn.", ".self_attn."),
    *((f".{theirs}.", f".{name}.") for theirs, name in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"))),
    ("_attn.out.", "_attn.out_proj."),
    (".mlp.0.", ".fc1."),
    (".mlp.2.", ".fc2."),
    ("coder.blocks.", "coder.layers."),
    ("coder.positional_embedding", "coder.embed_positions.weight"),
    ("decoder.token_embedding.", "decoder.embed_tokens."),
    ("encoder.ln_post.", "encoder.layer_norm."),
    ("decoder.ln.", "decoder.layer_norm."),
)


@dataclass(frozen=True)
class WhisperFields:
    """Fields of config.json."""

    vocab_size: int
    num_mel_bins: int = 80
    d_model: int = 384
    encoder_layers: int = 4
    decoder_layers: int = 4
    encoder_attention_heads: int = 6
    decoder_attention_heads: int = 6
    encoder_ffn_dim: int = 1536
    decoder_ffn_dim: int = 1536
    activation_function: str = "gelu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    max_source_positions: int = 1500
    max_target_positions: int = 448
    scale_embedding: Literal[False] = False
    tie_word_embeddings: bool = True
    is_encoder_decoder: Literal[True] = True
    architectures: list[Literal["WhisperForConditionalGeneration", "WhisperModel"]] | None = None


@dataclass(frozen=True)
class BiasWithoutKeys(WeightMapping):
    """The bias of q, k and v, or of k and v, of which the keys have none.

    A bias of the keys adds the same number to all scores of a query: it changes nothing, and is not written.
    """

    dim: int = 0

    def load(self, get: GetTensor) -> Tensor:
        *queries, values = (get(name) for name in self.hf_names)
        return torch.cat((*queries, torch.zeros_like(values), values))

    def store(self, parameter: Tensor) -> dict[str, Tensor]:
        parts = parameter.split(self.dim)
        kept = (*parts[:-2], parts[-1])
        return {name: part.contiguous() for name, part in zip(self.hf_names, kept, strict=True)}


def read_config(fields: WhisperFields, _: Names) -> WhisperConfig:
    shape: dict[str, Any] = {
        "dim": fields.d_model,
        "activation": read_activation(fields.activation_function),
        "norm": "layer",
        "position": "learned",
        "score": "scaled_dot",
        "bias": True,
        "dropout": fields.dropout,
        "inner_dropout": False,
        "attention_dropout": fields.attention_dropout,
    }
    encoder = TransformerConfig(
        depth=fields.encoder_layers,
        heads=fields.encoder_attention_heads,
        hidden=fields.encoder_ffn_dim,
        max_positions=fields.max_source_positions,
        **shape,
    )
    decoder = EmbeddedConfig(
        depth=fields.decoder_layers,
        heads=fields.decoder_attention_heads,
        hidden=fields.decoder_ffn_dim,
        max_positions=fields.max_target_positions,
        embedding_dropout=fields.dropout,
        tie_embeddings=fields.tie_word_embeddings,
        embedding_norm=False,
        init="xavier",
        **shape,
    )
    return WhisperConfig(encoder, decoder, fields.num_mel_bins, fields.vocab_size)


def write_config(config: WhisperConfig, _: nn.Module) -> dict[str, Any]:
    encoder, decoder = config.encoder, config.decoder
    return {
        "vocab_size": config.vocabulary,
        "num_mel_bins": config.mels,
        "d_model": encoder.dim,
        "encoder_layers": encoder.depth,
        "decoder_layers": decoder.depth,
        "encoder_attention_heads": encoder.heads,
        "decoder_attention_heads": decoder.heads,
        "encoder_ffn_dim": encoder.hidden,
        "decoder_ffn_dim": decoder.hidden,
        "activation_function": write_activation(encoder.activation),
        "dropout": encoder.dropout,
        "attention_dropout": encoder.attention_dropout,
        "max_source_positions": encoder.max_positions,
        "max_target_positions": decoder.max_positions,
        "scale_embedding": False,
        "tie_word_embeddings": decoder.tie_embeddings,
        "is_encoder_decoder": True,
    }


def build(config: WhisperConfig, fields: Any, _: Names) -> nn.Module:
    return Whisper(config)


def body(config: WhisperConfig) -> list[WeightMapping]:
    mappings = [
        *weight_and_bias("frames", "encoder.conv1"),
        *weight_and_bias("halve", "encoder.conv2"),
        WeightMapping("target.weight", ("decoder.embed_tokens.weight",)),
    ]
    for stack, shape in (("encoder", config.encoder), ("decoder", config.decoder)):
        mappings.append(WeightMapping(f"{stack}.position.table.weight", (f"{stack}.embed_positions.weight",)))
        mappings += weight_and_bias(f"{stack}.norm", f"{stack}.layer_norm")
        for layer in range(shape.depth):
            mappings += layer_mappings(f"{stack}.{layer}", f"{stack}.layers.{layer}", shape.dim, stack == "decoder")
    return mappings


def layer_mappings(ours: str, theirs: str, dim: int, cross: bool) -> list[WeightMapping]:
    """Map one layer of the encoder or the decoder."""
    names = [f"{theirs}.self_attn.{name}_proj" for name in "qkv"]
    mappings = [
        WeightMapping(f"{ours}.self.qkv.weight", tuple(f"{name}.weight" for name in names), rows=(dim,) * 3),
        BiasWithoutKeys(f"{ours}.self.qkv.bias", tuple(f"{name}.bias" for name in names[::2]), dim=dim),
        *weight_and_bias(f"{ours}.self.out", f"{theirs}.self_attn.out_proj"),
        *weight_and_bias(f"{ours}.self_residual.norm", f"{theirs}.self_attn_layer_norm"),
        *weight_and_bias(f"{ours}.feed.up", f"{theirs}.fc1"),
        *weight_and_bias(f"{ours}.feed.down", f"{theirs}.fc2"),
        *weight_and_bias(f"{ours}.feed_residual.norm", f"{theirs}.final_layer_norm"),
    ]
    if cross:
        kv = tuple(f"{theirs}.encoder_attn.{name}_proj.weight" for name in "kv")
        mappings += [
            *weight_and_bias(f"{ours}.cross.q", f"{theirs}.encoder_attn.q_proj"),
            WeightMapping(f"{ours}.cross.kv.weight", kv, rows=(dim,) * 2),
            BiasWithoutKeys(f"{ours}.cross.kv.bias", (f"{theirs}.encoder_attn.v_proj.bias",), dim=dim),
            *weight_and_bias(f"{ours}.cross.out", f"{theirs}.encoder_attn.out_proj"),
            *weight_and_bias(f"{ours}.cross_residual.norm", f"{theirs}.encoder_attn_layer_norm"),
        ]
    return mappings


FAMILY = Family(
    name="whisper",
    fields=WhisperFields,
    config=WhisperConfig,
    task=lambda _: "speech_recognition",
    read_config=read_config,
    write_config=write_config,
    build=build,
    body=body,
    head=(WeightMapping("head.weight", ("proj_out.weight",)),),
    prefix="model.",
    network_prefix="",
    architecture=lambda _: "WhisperForConditionalGeneration",
    read_processor=read_speech_processor,
    write_processor=write_speech_processor,
    generation_config=generation_config,
    copies=(("proj_out.weight", "model.decoder.embed_tokens.weight"),),
    renames=OPENAI_NAMES,
)
