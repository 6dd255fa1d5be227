"""Llama, and SmolLM2 and Qwen2, which share its architecture (https://arxiv.org/abs/2302.13971)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import nn

from saccade.models.text.gpt import GPT, GPTConfig
from saccade.pretrained.families.family import Family, Names
from saccade.pretrained.families.mapping import WeightMapping
from saccade.pretrained.processors import generation_config, read_text_processor, write_text_processor


@dataclass(frozen=True)
class RopeParameters:
    """Rotary position embedding; scaled variants are not supported."""

    rope_theta: float = 10000.0
    rope_type: Literal["default"] = "default"
    partial_rotary_factor: float = 1.0

    def __post_init__(self) -> None:
        if self.partial_rotary_factor != 1:
            raise ValueError(f"partial_rotary_factor must be 1, but is {self.partial_rotary_factor}")


@dataclass(frozen=True)
class LlamaFields:
    """Fields of config.json."""

    vocab_size: int
    hidden_size: int = 4096
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    intermediate_size: int = 11008
    hidden_act: Literal["silu"] = "silu"
    rms_norm_eps: float = 1e-6
    rope_theta: float | None = None
    rope_parameters: RopeParameters = field(default_factory=RopeParameters)
    rope_scaling: None = None
    head_dim: int | None = None
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False
    attention_bias: Literal[False] = False
    mlp_bias: Literal[False] = False
    use_sliding_window: Literal[False] = False

    def __post_init__(self) -> None:
        if self.head_dim and self.head_dim * self.num_attention_heads != self.hidden_size:
            raise ValueError(
                f"head_dim x num_attention_heads must be hidden_size ({self.hidden_size}), "
                f"but is {self.head_dim * self.num_attention_heads}"
            )


def read_config(fields: LlamaFields, names: Names) -> GPTConfig:
    return GPTConfig(
        dim=fields.hidden_size,
        depth=fields.num_hidden_layers,
        heads=fields.num_attention_heads,
        kv_heads=fields.num_key_value_heads or 0,
        hidden=fields.intermediate_size,
        activation="swiglu",
        max_positions=fields.max_position_embeddings,
        epsilon=fields.rms_norm_eps,
        norm="rms",
        position="rotary",
        rotary_base=fields.rope_theta or fields.rope_parameters.rope_theta,
        score="scaled_dot",
        qkv_bias="decoder.0.self.qkv.bias" in names,
        tie_embeddings=fields.tie_word_embeddings,
        embedding_norm=False,
    )


def write_config(config: GPTConfig, network: nn.Module) -> dict[str, Any]:
    return {
        "vocab_size": network.get_parameter("embedding.weight").shape[0],
        "hidden_size": config.dim,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads or config.heads,
        "intermediate_size": config.hidden,
        "hidden_act": "silu",
        "rms_norm_eps": config.epsilon or 1e-6,
        "rope_theta": config.rotary_base,
        "rope_parameters": {"rope_theta": config.rotary_base, "rope_type": "default"},
        "max_position_embeddings": config.max_positions,
        "tie_word_embeddings": config.tie_embeddings,
    }


def write_llama_config(config: GPTConfig, network: nn.Module) -> dict[str, Any]:
    if config.qkv_bias:
        raise ValueError("qkv_bias must be false for a llama, but is true")
    return write_config(config, network)


def write_qwen2_config(config: GPTConfig, network: nn.Module) -> dict[str, Any]:
    if not config.qkv_bias:
        raise ValueError("qkv_bias must be true for a qwen2, but is false")
    return write_config(config, network)


def build(config: GPTConfig, fields: LlamaFields, _: Names) -> nn.Module:
    return GPT(config, fields.vocab_size)


def body(config: GPTConfig) -> list[WeightMapping]:
    mappings = [
        WeightMapping("embedding.weight", ("embed_tokens.weight",)),
        WeightMapping("decoder.norm.weight", ("norm.weight",)),
    ]
    heads, kv_heads = config.heads, config.kv_heads or config.heads
    head_dim = config.dim // heads
    qkv_rows, rotary_heads = (heads * head_dim, kv_heads * head_dim, kv_heads * head_dim), (heads, kv_heads, 0)
    for layer in range(config.depth):
        ours, theirs = f"decoder.{layer}", f"layers.{layer}"
        for kind in ("weight", "bias"):
            qkv = tuple(f"{theirs}.self_attn.{name}_proj.{kind}" for name in "qkv")
            mappings.append(WeightMapping(f"{ours}.self.qkv.{kind}", qkv, rows=qkv_rows, rotary_heads=rotary_heads))
        gate_up = tuple(f"{theirs}.mlp.{name}_proj.weight" for name in ("gate", "up"))
        mappings += [
            WeightMapping(f"{ours}.self.out.weight", (f"{theirs}.self_attn.o_proj.weight",)),
            WeightMapping(f"{ours}.self_residual.norm.weight", (f"{theirs}.input_layernorm.weight",)),
            WeightMapping(f"{ours}.feed.up.weight", gate_up, rows=(config.hidden,) * 2),
            WeightMapping(f"{ours}.feed.down.weight", (f"{theirs}.mlp.down_proj.weight",)),
            WeightMapping(f"{ours}.feed_residual.norm.weight", (f"{theirs}.post_attention_layernorm.weight",)),
        ]
    return mappings


LLAMA = Family(
    name="llama",
    fields=LlamaFields,
    config=GPTConfig,
    task=lambda _: "language_model",
    read_config=read_config,
    write_config=write_llama_config,
    build=build,
    body=body,
    head=(WeightMapping("head.weight", ("lm_head.weight",)),),
    prefix="model.",
    network_prefix="",
    architecture=lambda _: "LlamaForCausalLM",
    read_processor=read_text_processor,
    write_processor=write_text_processor,
    generation_config=generation_config,
    ignored=("rotary_emb.inv_freq",),
)
QWEN2 = replace(LLAMA, name="qwen2", write_config=write_qwen2_config, architecture=lambda _: "Qwen2ForCausalLM")
