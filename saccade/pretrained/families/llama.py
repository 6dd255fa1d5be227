"""Llama and the families that share its architecture: Mistral, Qwen2, Qwen3 and SmolLM3.

https://arxiv.org/abs/2302.13971, https://arxiv.org/abs/2310.06825, https://arxiv.org/abs/2407.10671,
https://arxiv.org/abs/2505.09388
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from saccade.models.text.gpt import GPT, GPTConfig
from saccade.pretrained.families.family import Family, Names, read_gated_activation, write_gated_activation
from saccade.pretrained.families.mapping import WeightMapping
from saccade.pretrained.families.rope import choose_rope, read_rope, write_rope_fields
from saccade.pretrained.processors import generation_config, read_text_processor, write_text_processor

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class DecoderFields:
    """Fields of config.json that all these families have."""

    vocab_size: int
    hidden_size: int = 4096
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int = 11008
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    rope_theta: float | None = None
    rope_parameters: dict[str, Any] | None = None
    rope_scaling: dict[str, Any] | None = None
    partial_rotary_factor: float | None = None
    original_max_position_embeddings: int | None = None
    max_position_embeddings: int = 2048
    attention_dropout: float | None = 0.0
    tie_word_embeddings: bool = False


@dataclass(frozen=True)
class LlamaFields(DecoderFields):
    """Fields of config.json."""

    attention_bias: bool = False
    mlp_bias: bool = False


@dataclass(frozen=True)
class MistralFields(DecoderFields):
    """Fields of config.json."""

    num_key_value_heads: int | None = 8
    intermediate_size: int = 14336
    max_position_embeddings: int = 131072
    sliding_window: int | None = 4096
    layer_types: None = None


@dataclass(frozen=True)
class Qwen2Fields(DecoderFields):
    """Fields of config.json."""

    num_key_value_heads: int | None = 32
    intermediate_size: int = 22016
    max_position_embeddings: int = 32768
    use_sliding_window: bool = False
    sliding_window: int | None = 4096
    max_window_layers: int = 28
    layer_types: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Qwen3Fields(Qwen2Fields):
    """Fields of config.json."""

    head_dim: int | None = 128
    attention_bias: bool = False


@dataclass(frozen=True)
class SmolLM3Fields(LlamaFields):
    """Fields of config.json."""

    hidden_size: int = 2048
    num_hidden_layers: int = 36
    num_attention_heads: int = 16
    num_key_value_heads: int | None = 4
    max_position_embeddings: int = 32768
    rope_theta: float | None = 2000000.0
    tie_word_embeddings: bool = True
    use_sliding_window: bool = False
    sliding_window: int | None = None
    layer_types: tuple[str, ...] | None = None
    no_rope_layers: tuple[int, ...] | None = None
    no_rope_layer_interval: int = 4


def decoder_config(fields: DecoderFields, **variant: Any) -> GPTConfig:
    """Return our config; `variant` has its activation and rotary positions, and in what else it differs from Llama."""
    heads, head_dim = fields.num_attention_heads, fields.head_dim or 0
    values = {
        "dim": fields.hidden_size,
        "depth": fields.num_hidden_layers,
        "heads": heads,
        "head_dim": 0 if head_dim * heads == fields.hidden_size else head_dim,
        "kv_heads": fields.num_key_value_heads or 0,
        "hidden": fields.intermediate_size,
        "max_positions": fields.max_position_embeddings,
        "epsilon": fields.rms_norm_eps,
        "norm": "rms",
        "position": "rotary",
        "score": "scaled_dot",
        "attention_dropout": fields.attention_dropout or 0.0,
        "tie_embeddings": fields.tie_word_embeddings,
        "embedding_norm": False,
    }
    return GPTConfig(**{**values, **variant})


def read_rotary(fields: DecoderFields) -> dict[str, Any]:
    """Return the settings of rotary positions that are the same in all layers."""
    if fields.partial_rotary_factor not in (None, 1):
        raise ValueError(f"partial_rotary_factor must be 1, but is {fields.partial_rotary_factor}")
    base, scaling = read_rope(
        choose_rope(fields.rope_parameters, fields.rope_scaling),
        fields.rope_theta,
        fields.max_position_embeddings,
        fields.original_max_position_embeddings,
    )
    return {"rotary_base": base, "rotary_scaling": scaling}


def _config(fields: DecoderFields, **variant: Any) -> GPTConfig:
    """Return our config of a family with a gated feed-forward layer."""
    activation = read_gated_activation(fields.hidden_act)
    return decoder_config(fields, activation=activation, **read_rotary(fields), **variant)


def read_llama(fields: LlamaFields, _: Names) -> GPTConfig:
    attention = fields.attention_bias
    return _config(fields, qkv_bias=attention, out_bias=attention, feed_bias=fields.mlp_bias)


def read_mistral(fields: MistralFields, _: Names) -> GPTConfig:
    return _config(fields, window=fields.sliding_window or 0)


def read_qwen2(fields: Qwen2Fields, _: Names) -> GPTConfig:
    return _config(fields, qkv_bias=True, **_qwen_windows(fields))


def read_qwen3(fields: Qwen3Fields, _: Names) -> GPTConfig:
    attention = fields.attention_bias
    biases = {"qkv_bias": attention, "out_bias": attention}
    return _config(fields, score="learned_qk_norm", **biases, **_qwen_windows(fields))


def read_smollm3(fields: SmolLM3Fields, _: Names) -> GPTConfig:
    depth, attention = fields.num_hidden_layers, fields.attention_bias
    rotated = fields.no_rope_layers
    if rotated is None:  # its name notwithstanding, 1 marks a layer with rotary positions
        if fields.no_rope_layer_interval < 1:
            raise ValueError(f"no_rope_layer_interval must be at least 1, but is {fields.no_rope_layer_interval}")
        rotated = tuple(int((layer + 1) % fields.no_rope_layer_interval != 0) for layer in range(depth))
    if len(rotated) < depth:
        raise ValueError(f"no_rope_layers must have {depth} entries, one per layer, but has {len(rotated)}")
    kinds = fields.layer_types
    if kinds is None:
        windowed = fields.use_sliding_window and fields.sliding_window is not None
        kinds = tuple(SLIDING if windowed and not rotated[layer] else FULL for layer in range(depth))
    window = fields.sliding_window if fields.use_sliding_window else None
    return _config(
        fields,
        qkv_bias=attention,
        out_bias=attention,
        feed_bias=fields.mlp_bias,
        unrotated_layers=tuple(layer for layer in range(depth) if not rotated[layer]),
        **read_windows(kinds, window, depth),
    )


def _qwen_windows(fields: Qwen2Fields) -> dict[str, Any]:
    depth, window = fields.num_hidden_layers, fields.sliding_window if fields.use_sliding_window else None
    kinds = fields.layer_types
    if kinds is None:
        windowed = range(fields.max_window_layers if window else depth, depth)
        kinds = tuple(SLIDING if layer in windowed else FULL for layer in range(depth))
    return read_windows(kinds, window, depth)


def read_windows(kinds: Sequence[str], window: int | None, depth: int) -> dict[str, Any]:
    """Return the window and the layers without it, from the kind of attention of each layer."""
    if len(kinds) != depth or not {FULL, SLIDING}.issuperset(kinds):
        raise ValueError(f"layer_types must be {depth} times {FULL} or {SLIDING}, but is {str(list(kinds))[:80]}")
    if SLIDING not in kinds:
        return {}
    if not window:
        raise ValueError(f"sliding_window must be at least 1 for layers with {SLIDING}, but is {window}")
    full = tuple(layer for layer, kind in enumerate(kinds) if kind == FULL)
    return {"window": window, "full_layers": full}


def write_windows(config: GPTConfig) -> dict[str, Any]:
    """Return the window and the kind of attention of each layer."""
    full = range(config.depth) if not config.window else config.full_layers
    kinds = [FULL if layer in full else SLIDING for layer in range(config.depth)]
    return {
        "use_sliding_window": bool(config.window),
        "sliding_window": config.window or None,
        "layer_types": kinds,
    }


def write_shape(config: GPTConfig, network: nn.Module) -> dict[str, Any]:
    """Return the fields of config.json that all these families have, except activation and rotary positions."""
    return {
        "vocab_size": network.get_parameter("embedding.weight").shape[0],
        "hidden_size": config.dim,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads or config.heads,
        "head_dim": config.head_width,
        "intermediate_size": config.hidden,
        "rms_norm_eps": 1e-6 if config.epsilon is None else config.epsilon,
        "max_position_embeddings": config.max_positions,
        "attention_dropout": config.attention_dropout,
        "tie_word_embeddings": config.tie_embeddings,
    }


def write_decoder(config: GPTConfig, network: nn.Module) -> dict[str, Any]:
    """Return the fields of config.json that all families with a gated feed-forward layer have."""
    activation = write_gated_activation(config.activation)
    return {**write_shape(config, network), "hidden_act": activation, **write_rope_fields(config)}


def write_llama(config: GPTConfig, network: nn.Module) -> dict[str, Any]:
    return {**write_decoder(config, network), "attention_bias": config.out_bias, "mlp_bias": config.feed_bias}


def write_mistral(config: GPTConfig, network: nn.Module) -> dict[str, Any]:
    return {**write_decoder(config, network), "sliding_window": config.window or None}


def write_qwen2(config: GPTConfig, network: nn.Module) -> dict[str, Any]:
    return {**write_decoder(config, network), **write_windows(config)}


def write_qwen3(config: GPTConfig, network: nn.Module) -> dict[str, Any]:
    return {**write_decoder(config, network), **write_windows(config), "attention_bias": config.out_bias}


def write_smollm3(config: GPTConfig, network: nn.Module) -> dict[str, Any]:
    rotated = [int(layer not in config.unrotated_layers) for layer in range(config.depth)]
    return {**write_llama(config, network), **write_windows(config), "no_rope_layers": rotated}


def build(config: GPTConfig, fields: DecoderFields, _: Names) -> nn.Module:
    return GPT(config, fields.vocab_size)


def body(config: GPTConfig) -> list[WeightMapping]:
    mappings = [
        WeightMapping("embedding.weight", ("embed_tokens.weight",)),
        WeightMapping("decoder.norm.weight", ("norm.weight",)),
    ]
    for layer in range(config.depth):
        ours, theirs = f"decoder.{layer}", f"layers.{layer}"
        mappings += attention_weights(config, f"{ours}.self", f"{theirs}.self_attn")
        for kind in ("weight", "bias"):
            gate_up = tuple(f"{theirs}.mlp.{name}_proj.{kind}" for name in ("gate", "up"))
            mappings += [
                WeightMapping(f"{ours}.feed.up.{kind}", gate_up, rows=(config.hidden,) * 2),
                WeightMapping(f"{ours}.feed.down.{kind}", (f"{theirs}.mlp.down_proj.{kind}",)),
            ]
        mappings += [
            WeightMapping(f"{ours}.self_residual.norm.weight", (f"{theirs}.input_layernorm.weight",)),
            WeightMapping(f"{ours}.feed_residual.norm.weight", (f"{theirs}.post_attention_layernorm.weight",)),
        ]
    return mappings


def attention_weights(
    config: GPTConfig, ours: str, theirs: str, *, backwards: bool = False, offset: float = 0.0
) -> list[WeightMapping]:
    """Map an attention layer: projections, and the gains of queries and keys, which are stored less `offset`."""
    heads, kv_heads, width = config.heads, config.kv_heads or config.heads, config.head_width
    rows, rotary_heads = (heads * width, kv_heads * width, kv_heads * width), (heads, kv_heads, 0)
    mappings = []
    for kind in ("weight", "bias"):
        qkv = tuple(f"{theirs}.{name}_proj.{kind}" for name in "qkv")
        mappings += [
            WeightMapping(f"{ours}.qkv.{kind}", qkv, rows=rows, rotary_heads=rotary_heads, backwards=backwards),
            WeightMapping(f"{ours}.out.{kind}", (f"{theirs}.o_proj.{kind}",)),
        ]
    mappings += [
        WeightMapping(f"{ours}.score.{name}_gain", (f"{theirs}.{name}_norm.weight",), rotary_heads=(1,), offset=offset)
        for name in "qk"
    ]
    return mappings


LLAMA = Family(
    name="llama",
    fields=LlamaFields,
    config=GPTConfig,
    task=lambda _: "language_model",
    read_config=read_llama,
    write_config=write_llama,
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
    copies=(("lm_head.weight", "model.embed_tokens.weight"),),
)


def _variant(name: str, fields: type[Any], read: Any, write: Any, architecture: str) -> Family:
    return replace(
        LLAMA,
        name=name,
        fields=fields,
        read_config=read,
        write_config=write,
        architecture=lambda _: architecture,
    )


MISTRAL = _variant("mistral", MistralFields, read_mistral, write_mistral, "MistralForCausalLM")
QWEN2 = _variant("qwen2", Qwen2Fields, read_qwen2, write_qwen2, "Qwen2ForCausalLM")
QWEN3 = _variant("qwen3", Qwen3Fields, read_qwen3, write_qwen3, "Qwen3ForCausalLM")
SMOLLM3 = _variant("smollm3", SmolLM3Fields, read_smollm3, write_smollm3, "SmolLM3ForCausalLM")
