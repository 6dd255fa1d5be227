"""Gemma 3, the text models: norms before and after each sub-layer, windows in most layers.

https://arxiv.org/abs/2503.19786
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import nn

from saccade.models.text.gpt import GPTConfig
from saccade.nn.rotary_scaling import RotaryScaling
from saccade.pretrained.families.family import Names, read_gated_activation, write_gated_activation
from saccade.pretrained.families.llama import (
    FULL,
    LLAMA,
    SLIDING,
    DecoderFields,
    attention_weights,
    decoder_config,
    read_windows,
    write_shape,
    write_windows,
)
from saccade.pretrained.families.mapping import WeightMapping
from saccade.pretrained.families.rope import Rope, read_rope, write_rope

GLOBAL_BASE, LOCAL_BASE = 1_000_000.0, 10_000.0
DEFAULT_WINDOW = 4096
GAIN_OFFSET = 1.0  # norms multiply by 1 + weight


@dataclass(frozen=True)
class Gemma3Fields(DecoderFields):
    """Fields of config.json."""

    hidden_size: int = 2304
    num_hidden_layers: int = 26
    num_attention_heads: int = 8
    num_key_value_heads: int | None = 4
    head_dim: int | None = 256
    intermediate_size: int = 9216
    hidden_act: str = "gelu_pytorch_tanh"
    hidden_activation: str | None = "gelu_pytorch_tanh"
    max_position_embeddings: int = 131072
    rope_local_base_freq: float | None = None
    attention_bias: bool = False
    query_pre_attn_scalar: float = 256
    sliding_window: int | None = DEFAULT_WINDOW
    sliding_window_pattern: int = 6
    layer_types: tuple[str, ...] | None = None
    final_logit_softcapping: float | None = None
    attn_logit_softcapping: None = None
    use_bidirectional_attention: Literal[False] | None = False
    tie_word_embeddings: bool = True


def read_config(fields: Gemma3Fields, _: Names) -> GPTConfig:
    depth, kinds = fields.num_hidden_layers, fields.layer_types
    if fields.query_pre_attn_scalar <= 0 or fields.sliding_window_pattern < 1:
        raise ValueError(
            "query_pre_attn_scalar must be above 0 and sliding_window_pattern at least 1, but they are "
            f"{fields.query_pre_attn_scalar} and {fields.sliding_window_pattern}"
        )
    if kinds is None:
        pattern = fields.sliding_window_pattern
        kinds = tuple(SLIDING if (layer + 1) % pattern else FULL for layer in range(depth))
    (base, scaling), local_base = _read_ropes(fields)
    windows = read_windows(kinds, fields.sliding_window, depth)
    return decoder_config(
        fields,
        activation=read_gated_activation(fields.hidden_activation or "gelu_pytorch_tanh"),
        score="learned_qk_norm",
        attention_scale=fields.query_pre_attn_scalar**-0.5,
        rotary_base=base,
        rotary_scaling=scaling,
        window_rotary_base=local_base if windows else 0.0,
        qkv_bias=fields.attention_bias,
        out_bias=fields.attention_bias,
        update_norm=True,
        scale_embedding=True,
        logit_softcap=fields.final_logit_softcapping or 0.0,
        **windows,
    )


def _read_ropes(fields: Gemma3Fields) -> tuple[Rope, float]:
    """Return base and scaling of the layers that see all tokens, and the base of those with a window."""
    parameters = fields.rope_parameters or {}
    unknown = next((key for key in parameters if key not in (FULL, SLIDING)), None)
    if unknown is not None:
        raise ValueError(f"rope_parameters must have {FULL} and {SLIDING}, but has {unknown[:80]!r}")
    full, sliding = (_group(parameters, kind) for kind in (FULL, SLIDING))
    theta = fields.rope_theta or GLOBAL_BASE
    base, scaling = read_rope({**full, **(fields.rope_scaling or {})}, theta, fields.max_position_embeddings)
    local_base, local_scaling = read_rope(
        sliding, fields.rope_local_base_freq or LOCAL_BASE, fields.max_position_embeddings
    )
    if local_scaling.kind != "none":
        raise ValueError(f"rope_type of {SLIDING} must be default, but is {local_scaling.kind}")
    return (base, scaling), local_base


def _group(parameters: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    group = parameters.get(kind) or {}
    if not isinstance(group, Mapping):
        raise ValueError(f"rope_parameters.{kind} must be an object, but is {str(group)[:80]!r}")
    return group


def write_config(config: GPTConfig, network: nn.Module) -> dict[str, Any]:
    windows = write_windows(config)
    return {
        **write_shape(config, network),
        "hidden_activation": write_gated_activation(config.activation),
        "rope_parameters": {
            FULL: write_rope(config.rotary_base, config.rotary_scaling),
            SLIDING: write_rope(config.window_rotary_base or LOCAL_BASE, RotaryScaling()),
        },
        "query_pre_attn_scalar": round(config.attention_scale**-2) if config.attention_scale else config.head_width,
        "sliding_window": windows["sliding_window"] or DEFAULT_WINDOW,
        "layer_types": windows["layer_types"],
        "attention_bias": config.out_bias,
        "final_logit_softcapping": config.logit_softcap or None,
    }


def body(config: GPTConfig) -> list[WeightMapping]:
    mappings = [
        WeightMapping("embedding.weight", ("embed_tokens.weight",)),
        _gain("decoder.norm", "norm"),
    ]
    for layer in range(config.depth):
        ours, theirs = f"decoder.{layer}", f"layers.{layer}"
        mappings += attention_weights(config, f"{ours}.self", f"{theirs}.self_attn", offset=GAIN_OFFSET)
        gate_up = tuple(f"{theirs}.mlp.{name}_proj.weight" for name in ("gate", "up"))
        mappings += [
            WeightMapping(f"{ours}.feed.up.weight", gate_up, rows=(config.hidden,) * 2),
            WeightMapping(f"{ours}.feed.down.weight", (f"{theirs}.mlp.down_proj.weight",)),
            _gain(f"{ours}.self_residual.norm", f"{theirs}.input_layernorm"),
            _gain(f"{ours}.self_residual.update_norm", f"{theirs}.post_attention_layernorm"),
            _gain(f"{ours}.feed_residual.norm", f"{theirs}.pre_feedforward_layernorm"),
            _gain(f"{ours}.feed_residual.update_norm", f"{theirs}.post_feedforward_layernorm"),
        ]
    return mappings


def _gain(ours: str, theirs: str) -> WeightMapping:
    return WeightMapping(f"{ours}.weight", (f"{theirs}.weight",), offset=GAIN_OFFSET)


FAMILY = replace(
    LLAMA,
    name="gemma3_text",
    fields=Gemma3Fields,
    read_config=read_config,
    write_config=write_config,
    body=body,
    architecture=lambda _: "Gemma3ForCausalLM",
)
