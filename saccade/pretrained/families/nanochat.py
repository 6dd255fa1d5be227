"""nanochat, the architecture of our own default: RMS norms without gains, QK-norm, squared ReLU.

https://github.com/karpathy/nanochat
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from saccade.models.text.gpt import GPTConfig
from saccade.pretrained.families.family import Names, read_activation, write_activation
from saccade.pretrained.families.llama import (
    LLAMA,
    DecoderFields,
    attention_weights,
    decoder_config,
    read_rotary,
    write_shape,
)
from saccade.pretrained.families.mapping import WeightMapping
from saccade.pretrained.families.rope import write_rope_fields


@dataclass(frozen=True)
class NanoChatFields(DecoderFields):
    """Fields of config.json."""

    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 6
    intermediate_size: int = 8192
    hidden_act: str = "relu2"
    attention_bias: bool = False
    final_logit_softcapping: float | None = 15.0


def read_config(fields: NanoChatFields, _: Names) -> GPTConfig:
    rotary = read_rotary(fields)
    # The norm after the rotation removes a factor of q and k.
    rotary["rotary_scaling"] = replace(rotary["rotary_scaling"], attention_factor=1.0)
    return decoder_config(
        fields,
        activation=read_activation(fields.hidden_act),
        norm="plain_rms",
        score="qk_norm",
        qkv_bias=fields.attention_bias,
        out_bias=fields.attention_bias,
        embedding_norm=True,
        logit_softcap=fields.final_logit_softcapping or 0.0,
        **rotary,
    )


def write_config(config: GPTConfig, network: nn.Module) -> dict[str, Any]:
    return {
        **write_shape(config, network),
        **write_rope_fields(config),
        "hidden_act": write_activation(config.activation),
        "attention_bias": config.out_bias,
        "final_logit_softcapping": config.logit_softcap or None,
    }


def body(config: GPTConfig) -> list[WeightMapping]:
    mappings = [WeightMapping("embedding.weight", ("embed_tokens.weight",))]
    for layer in range(config.depth):
        ours, theirs = f"decoder.{layer}", f"layers.{layer}"
        mappings += attention_weights(config, f"{ours}.self", f"{theirs}.self_attn", backwards=True)
        mappings += [
            WeightMapping(f"{ours}.feed.up.weight", (f"{theirs}.mlp.fc1.weight",)),
            WeightMapping(f"{ours}.feed.down.weight", (f"{theirs}.mlp.fc2.weight",)),
        ]
    return mappings


FAMILY = replace(
    LLAMA,
    name="nanochat",
    fields=NanoChatFields,
    read_config=read_config,
    write_config=write_config,
    body=body,
    architecture=lambda _: "NanoChatForCausalLM",
)
