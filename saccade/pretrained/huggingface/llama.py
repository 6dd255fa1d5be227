"""Llama and its kin (SmolLM2, Qwen2): how transformers writes them down; rotary pairs are halves of a head there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from saccade.models.text.gpt import GPT, GPTConfig
from saccade.pretrained.huggingface.family import Family, Names
from saccade.pretrained.huggingface.parts import Part


@dataclass(frozen=True)
class Rotation:
    """How positions turn; other kinds stretch the context in ways that are not here."""

    rope_theta: float = 10000.0
    rope_type: Literal["default"] = "default"


@dataclass(frozen=True)
class Schema:
    """What we read of a config.json."""

    vocab_size: int
    hidden_size: int = 4096
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    intermediate_size: int = 11008
    hidden_act: Literal["silu"] = "silu"
    rms_norm_eps: float = 1e-6
    rope_theta: float | None = None
    rope_parameters: Rotation = field(default_factory=Rotation)
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


def shape(found: Schema, names: Names) -> GPTConfig:
    return GPTConfig(
        dim=found.hidden_size,
        depth=found.num_hidden_layers,
        heads=found.num_attention_heads,
        kv_heads=found.num_key_value_heads or 0,
        hidden=found.intermediate_size,
        activation="swiglu",
        max_positions=found.max_position_embeddings,
        epsilon=found.rms_norm_eps,
        norm="rms",
        position="rotary",
        rotary_base=found.rope_theta or found.rope_parameters.rope_theta,
        score="scaled_dot",
        qkv_bias="decoder.0.self.qkv.bias" in names,
        tied=found.tie_word_embeddings,
        embedding_norm=False,
    )


def describe(config: GPTConfig, vocabulary: int) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
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
        "tie_word_embeddings": config.tied,
    }


def build(config: GPTConfig, vocabulary: int, _: Names) -> nn.Module:
    return GPT(config, vocabulary)


def body(config: GPTConfig) -> list[Part]:
    found = [
        Part("embedding.weight", ("embed_tokens.weight",)),
        Part("decoder.norm.weight", ("norm.weight",)),
    ]
    heads, shared = config.heads, config.kv_heads or config.heads
    width = config.dim // heads
    rows, halves = (heads * width, shared * width, shared * width), (heads, shared, 0)
    for layer in range(config.depth):
        mine, other = f"decoder.{layer}", f"layers.{layer}"
        for kind in ("weight", "bias"):
            asked = tuple(f"{other}.self_attn.{name}_proj.{kind}" for name in "qkv")
            found.append(Part(f"{mine}.self.qkv.{kind}", asked, rows=rows, halves=halves))
        gated = tuple(f"{other}.mlp.{name}_proj.weight" for name in ("gate", "up"))
        found += [
            Part(f"{mine}.self.out.weight", (f"{other}.self_attn.o_proj.weight",)),
            Part(f"{mine}.self_residual.norm.weight", (f"{other}.input_layernorm.weight",)),
            Part(f"{mine}.feed.up.weight", gated, rows=(config.hidden,) * 2),
            Part(f"{mine}.feed.down.weight", (f"{other}.mlp.down_proj.weight",)),
            Part(f"{mine}.feed_residual.norm.weight", (f"{other}.post_attention_layernorm.weight",)),
        ]
    return found


LLAMA = Family(
    name="llama",
    schema=Schema,
    shape=shape,
    describe=describe,
    build=build,
    body=body,
    head=[Part("head.weight", ("lm_head.weight",))],
    prefix="model.",
    under="",
    architecture=lambda _: "LlamaForCausalLM",
    unused=("rotary_emb.inv_freq",),
)
QWEN2 = Family(**{**vars(LLAMA), "name": "qwen2", "architecture": lambda _: "Qwen2ForCausalLM"})
