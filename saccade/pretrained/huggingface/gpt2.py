"""GPT-2: how transformers writes it down; its matrices stand the other way round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from saccade.models.text.gpt import GPT, GPTConfig
from saccade.pretrained.huggingface.family import Family, Names, activation, backwards
from saccade.pretrained.huggingface.parts import Part, both


@dataclass(frozen=True)
class Schema:
    """What we read of a config.json."""

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


def shape(found: Schema, _: Names) -> GPTConfig:
    return GPTConfig(
        dim=found.n_embd,
        depth=found.n_layer,
        heads=found.n_head,
        hidden=found.n_inner or 4 * found.n_embd,
        activation=activation(found.activation_function),
        dropout=found.resid_pdrop,
        attention_dropout=found.attn_pdrop,
        drop_inside=False,
        max_positions=found.n_positions,
        epsilon=found.layer_norm_epsilon,
        norm="layer",
        position="learned",
        score="scaled_dot",
        bias=True,
        tied=True,
        embedding_norm=False,
        begin="gpt2",
    )


def describe(config: GPTConfig, vocabulary: int) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "n_embd": config.dim,
        "n_layer": config.depth,
        "n_head": config.heads,
        "n_inner": config.hidden,
        "n_positions": config.max_positions,
        "activation_function": backwards(config.activation),
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "layer_norm_epsilon": config.epsilon or 1e-5,
        "tie_word_embeddings": config.tied,
    }


def build(config: GPTConfig, vocabulary: int, _: Names) -> nn.Module:
    return GPT(config, vocabulary)


def body(config: GPTConfig) -> list[Part]:
    found = [
        Part("embedding.weight", ("wte.weight",)),
        Part("decoder.position.table.weight", ("wpe.weight",)),
        *both("decoder.norm", "ln_f"),
    ]
    for layer in range(config.depth):
        mine, other = f"decoder.{layer}", f"h.{layer}"
        found += both(f"{mine}.self.qkv", f"{other}.attn.c_attn", turned=True)
        found += both(f"{mine}.self.out", f"{other}.attn.c_proj", turned=True)
        found += both(f"{mine}.self_residual.norm", f"{other}.ln_1")
        found += both(f"{mine}.feed.up", f"{other}.mlp.c_fc", turned=True)
        found += both(f"{mine}.feed.down", f"{other}.mlp.c_proj", turned=True)
        found += both(f"{mine}.feed_residual.norm", f"{other}.ln_2")
    return found


FAMILY = Family(
    name="gpt2",
    schema=Schema,
    shape=shape,
    describe=describe,
    build=build,
    body=body,
    head=[],
    prefix="transformer.",
    under="",
    architecture=lambda _: "GPT2LMHeadModel",
    unused=("attn.bias", "attn.masked_bias", "lm_head.weight"),
)
