"""GPT-2, whose checkpoints store linear layers as (inputs, outputs) (Radford et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from saccade.models.text.gpt import GPT, GPTConfig
from saccade.pretrained.families.family import Family, Names, read_activation, write_activation
from saccade.pretrained.families.mapping import WeightMapping, weight_and_bias
from saccade.pretrained.processors import generation_config, read_text_processor, write_text_processor


@dataclass(frozen=True)
class GPT2Fields:
    """Fields of config.json."""

    vocab_size: int
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    n_positions: int = 1024
    activation_function: str = "gelu_new"
    resid_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    tie_word_embeddings: Literal[True] = True
    scale_attn_weights: Literal[True] = True
    scale_attn_by_inverse_layer_idx: Literal[False] = False
    add_cross_attention: Literal[False] = False


def read_config(fields: GPT2Fields, _: Names) -> GPTConfig:
    return GPTConfig(
        dim=fields.n_embd,
        depth=fields.n_layer,
        heads=fields.n_head,
        hidden=fields.n_inner or 4 * fields.n_embd,
        activation=read_activation(fields.activation_function),
        dropout=fields.resid_pdrop,
        attention_dropout=fields.attn_pdrop,
        inner_dropout=False,
        max_positions=fields.n_positions,
        epsilon=fields.layer_norm_epsilon,
        norm="layer",
        position="learned",
        score="scaled_dot",
        bias=True,
        tie_embeddings=True,
        embedding_norm=False,
        init="gpt2",
    )


def write_config(config: GPTConfig, network: nn.Module) -> dict[str, Any]:
    return {
        "vocab_size": network.get_parameter("embedding.weight").shape[0],
        "n_embd": config.dim,
        "n_layer": config.depth,
        "n_head": config.heads,
        "n_inner": config.hidden,
        "n_positions": config.max_positions,
        "activation_function": write_activation(config.activation),
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "layer_norm_epsilon": 1e-5 if config.epsilon is None else config.epsilon,
        "tie_word_embeddings": config.tie_embeddings,
    }


def build(config: GPTConfig, fields: GPT2Fields, _: Names) -> nn.Module:
    return GPT(config, fields.vocab_size)


def body(config: GPTConfig) -> list[WeightMapping]:
    mappings = [
        WeightMapping("embedding.weight", ("wte.weight",)),
        WeightMapping("decoder.position.table.weight", ("wpe.weight",)),
        *weight_and_bias("decoder.norm", "ln_f"),
    ]
    for layer in range(config.depth):
        ours, theirs = f"decoder.{layer}", f"h.{layer}"
        mappings += weight_and_bias(f"{ours}.self.qkv", f"{theirs}.attn.c_attn", transpose=True)
        mappings += weight_and_bias(f"{ours}.self.out", f"{theirs}.attn.c_proj", transpose=True)
        mappings += weight_and_bias(f"{ours}.self_residual.norm", f"{theirs}.ln_1")
        mappings += weight_and_bias(f"{ours}.feed.up", f"{theirs}.mlp.c_fc", transpose=True)
        mappings += weight_and_bias(f"{ours}.feed.down", f"{theirs}.mlp.c_proj", transpose=True)
        mappings += weight_and_bias(f"{ours}.feed_residual.norm", f"{theirs}.ln_2")
    return mappings


FAMILY = Family(
    name="gpt2",
    fields=GPT2Fields,
    config=GPTConfig,
    task=lambda _: "language_model",
    read_config=read_config,
    write_config=write_config,
    build=build,
    body=body,
    head=(),
    prefix="transformer.",
    network_prefix="",
    architecture=lambda _: "GPT2LMHeadModel",
    read_processor=read_text_processor,
    write_processor=write_text_processor,
    generation_config=generation_config,
    ignored=("attn.bias", "attn.masked_bias"),
    copies=(("lm_head.weight", "transformer.wte.weight"),),
)
