"""Specifications of CTranslate2, filled with our weights; its rotary pairs can be interleaved, as ours are.

Shapes: D width, E head width.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from saccade.errors import UsageError
from saccade.models.seq2seq.transformer import Translator
from saccade.models.speech.whisper import FrameConvolution, Whisper
from saccade.models.text.gpt import GPT
from saccade.nn.attention import Attention, Cosine, Dot, QKNorm
from saccade.nn.layers import FeedForward, RMSNorm
from saccade.nn.positions import Learned, Rotary
from saccade.nn.rotary_scaling import RotaryScaling
from saccade.nn.transformer import Layer, Transformer, TransformerConfig

ACTIVATIONS = {
    **{"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "quick_gelu": "GELUSigmoid", "silu": "SWISH"},
    **{"swiglu": "SWISH", "geglu": "GELU", "geglu_tanh": "GELUTanh", "reglu": "RELU"},
}
GATED = ("swiglu", "geglu", "geglu_tanh", "reglu")
MIN_POSITIONS = 1024  # rows of the table of positions that are computed


def ctranslate2_library() -> Any:
    """Return the package ctranslate2, or say how to install it."""
    try:
        import ctranslate2
    except ImportError as error:
        raise UsageError(
            "an export to CTranslate2 needs the package ctranslate2; install it with `pip install saccade[export]`"
        ) from error
    return ctranslate2


def check_config(config: TransformerConfig, *, max_positions: int) -> None:
    """Refuse what CTranslate2 does not compute."""
    if config.activation not in ACTIVATIONS:
        raise _refusal("activation", f"one of {', '.join(ACTIVATIONS)}", config.activation)
    if config.window and config.window < max_positions:
        raise _refusal("window", "0", config.window)
    scaling = getattr(config, "rotary_scaling", RotaryScaling())
    if scaling.kind == "dynamic":
        raise _refusal("rotary_scaling.kind", "none, linear, yarn or llama3", scaling.kind)
    score_epsilon = 1e-6 if config.score == "cosine" or config.epsilon is None else config.epsilon
    if config.score != "scaled_dot" and score_epsilon != norm_epsilon(config):
        raise _refusal("epsilon", f"that of the score ({score_epsilon})", norm_epsilon(config))


def _refusal(name: str, rule: str, value: Any) -> UsageError:
    return UsageError(f"{name} must be {rule} for CTranslate2, but is {value}; export with --to hf or --to onnx")


def norm_epsilon(config: TransformerConfig) -> float:
    """Return the epsilon of the norms of a config."""
    if config.epsilon is not None:
        return config.epsilon
    return 1e-5 if config.norm == "layer" else 1e-6


def decoder_model_spec(network: GPT) -> Any:
    """Return the specification of a language model."""
    config, specs = network.config, ctranslate2_library().specs
    check_config(config, max_positions=config.max_positions)
    spec = specs.TransformerDecoderModelSpec(
        specs.TransformerDecoderSpec(
            config.depth, config.heads, with_encoder_attention=False, **_stack_options(config, config.update_norm)
        )
    )
    spec.decoder.embeddings.weight = _embeddings(network.embedding, network.norm, config.scale_embedding)
    spec.decoder.projection.weight = _array(network.head.weight)
    if config.logit_softcap:
        spec.decoder.final_logit_softcapping = np.float32(config.logit_softcap)
    _set_stack(spec.decoder, network.decoder)
    return spec


def translator_spec(network: Translator) -> Any:
    """Return the specification of an encoder and a decoder of text."""
    config, specs = network.config, ctranslate2_library().specs
    check_config(config, max_positions=config.max_positions)
    if config.score != "scaled_dot":  # its cross-attention normalizes neither queries nor keys
        raise _refusal("score", "scaled_dot", config.score)
    options = _stack_options(config)
    encoder = specs.TransformerEncoderSpec(config.depth, config.heads, **options)
    decoder = specs.TransformerDecoderSpec(network.decoder.depth, config.heads, **options)
    norm: nn.Module = network.norm if config.embedding_norm else nn.Identity()
    for stack, table in ((encoder, network.source), (decoder, network.target)):
        weight = _embeddings(table, norm, not config.embedding_norm)
        (stack.embeddings[0] if isinstance(stack.embeddings, list) else stack.embeddings).weight = weight
    _set_linear(decoder.projection, network.head)
    _set_stack(encoder, network.encoder)
    _set_stack(decoder, network.decoder)
    return specs.TransformerSpec(encoder, decoder)


def whisper_spec(network: Whisper) -> Any:
    """Return the specification of a Whisper."""
    shape, specs = network.shape, ctranslate2_library().specs
    for config in (shape.encoder, shape.decoder):
        check_config(config, max_positions=config.max_positions)
        if (config.activation, config.norm, config.norm_first) != ("gelu", "layer", True):
            raise _refusal("activation, norm and norm_first", "those of Whisper", (config.activation, config.norm))
    spec = specs.WhisperSpec(shape.encoder.depth, shape.encoder.heads, network.decoder.depth, shape.decoder.heads)
    for name, convolution in (("conv1", network.frames), ("conv2", network.halve)):
        _set_convolution(getattr(spec.encoder, name), convolution)
    spec.decoder.embeddings.weight = _array(network.target.weight)
    _set_linear(spec.decoder.projection, network.head)
    _set_stack(spec.encoder, network.encoder)
    _set_stack(spec.decoder, network.decoder)
    return spec


def _stack_options(config: TransformerConfig, update_norm: bool = False) -> dict[str, Any]:
    """Return the settings of a stack."""
    library = ctranslate2_library()
    kv_heads = config.kv_heads or config.heads
    options: dict[str, Any] = {
        "pre_norm": config.norm_first,
        "activation": getattr(library.specs.Activation, ACTIVATIONS[config.activation]),
        "ffn_glu": config.activation in GATED,
        "rms_norm": config.norm != "layer",
        "num_heads_kv": None if kv_heads == config.heads else kv_heads,
        "head_dim": None if config.head_width * config.heads == config.dim else config.head_width,
        "qk_norm": config.score != "scaled_dot",
        "pre_post_layer_norm": update_norm,
    }
    if config.position == "rotary":
        options |= {"rotary_dim": 0, "rotary_interleave": True, "rotary_base": config.rotary_base}
    if getattr(config, "rotary_scaling", RotaryScaling()).kind != "none":
        # The only scaling with factors of its own; equal lengths leave the scores as they are.
        options["rotary_scaling_type"] = library.specs.attention_spec.RotaryScalingType.Su
        options |= {"original_max_position_embeddings": MIN_POSITIONS, "max_position_embeddings": MIN_POSITIONS}
    return options


def _set_stack(spec: Any, stack: Transformer) -> None:
    """Fill the layers, the positions and the final norm of an encoder or a decoder."""
    if hasattr(spec, "scale_embeddings"):
        spec.scale_embeddings = False  # it is part of the embeddings
    if stack.config.position != "rotary":
        spec.position_encodings.encodings = _positions(stack)
    elif hasattr(spec, "position_encodings"):
        del spec.position_encodings
    if stack.config.norm_first:
        _set_norm(spec.layer_norm, stack.norm, stack.config.dim)
    layers = [layer for layer in stack.children() if isinstance(layer, Layer)]
    for target, layer in zip(spec.layer, layers, strict=True):
        _set_layer(target, layer, stack.config.dim)


def _set_layer(spec: Any, layer: Layer, dim: int) -> None:
    _set_attention(spec.self_attention, layer.self)
    if layer.cross is not None:
        _set_attention(spec.attention, layer.cross)
        _set_norm(spec.attention.layer_norm, layer.cross_residual.norm, dim)
    _set_feed(spec.ffn, layer.feed)
    names = {
        "input_layer_norm": "post_attention_layer_norm",
        "pre_feedforward_layer_norm": "post_feedforward_layer_norm",
    }
    for (before, after), inner, residual in zip(
        names.items(), (spec.self_attention, spec.ffn), (layer.self_residual, layer.feed_residual), strict=True
    ):
        if residual.update_norm is None:
            _set_norm(inner.layer_norm, residual.norm, dim)
        else:
            _set_norm(getattr(spec, before), residual.norm, dim)
            _set_norm(getattr(spec, after), residual.update_norm, dim)


def _set_attention(spec: Any, attention: Attention) -> None:
    projections = (attention.q, attention.kv) if attention.cross else (attention.qkv,)
    for target, projection in zip(spec.linear, (*projections, attention.out), strict=True):
        _set_linear(target, projection)
    score, rotary = attention.score, attention.rotate
    assert isinstance(score, Dot)  # check_config
    scale = score.factor(attention.head_dim)
    if isinstance(rotary, Rotary):
        scale *= rotary.scaling.attention_factor**2  # of queries and of keys
        _set_rotary(spec, rotary)
    elif not attention.cross and hasattr(spec, "rotary_dim"):  # a layer without positions
        for name in ("rotary_dim", "rotary_interleave", "rotary_base"):
            delattr(spec, name)
    if scale != 1 / math.sqrt(attention.head_dim):
        spec.queries_scale = np.float32(scale)
    if isinstance(score, QKNorm | Cosine):
        gains = (getattr(score, "q_gain", None), getattr(score, "k_gain", None))
        for target, gain in zip((spec.q_norm, spec.k_norm), gains, strict=True):
            target.gamma = np.ones(attention.head_dim, np.float32) if gain is None else _array(gain)


def _set_rotary(spec: Any, rotary: Rotary) -> None:
    """Set base and scaling; scaled frequencies are given as factors, of short and of long texts alike."""
    spec.rotary_base = np.float32(rotary.base)
    if rotary.scaling.kind == "none":
        return
    device = torch.device("cpu")
    plain, scaled = (
        scaling.frequencies(rotary.head_dim, rotary.base, 0, device) for scaling in (RotaryScaling(), rotary.scaling)
    )
    spec.rotary_scaling_long_factor = spec.rotary_scaling_short_factor = _array(plain / scaled)


def _set_feed(spec: Any, feed: FeedForward) -> None:
    gate, up = spec.linear_0, feed.up
    if feed.gated:
        weights, biases = up.weight.chunk(2), (None, None) if up.bias is None else up.bias.chunk(2)
        for target, weight, bias in zip((gate, spec.linear_0_noact), weights, biases, strict=True):
            target.weight = _array(weight)
            if bias is not None:
                target.bias = _array(bias)
    else:
        _set_linear(gate, up)
    _set_linear(spec.linear_1, feed.down)


def _set_linear(spec: Any, layer: nn.Module) -> None:
    assert isinstance(layer, nn.Linear)
    spec.weight = _array(layer.weight)
    if layer.bias is not None:
        spec.bias = _array(layer.bias)


def _set_convolution(spec: Any, layer: FrameConvolution) -> None:
    spec.weight = _array(layer.weight)
    if layer.bias is not None:
        spec.bias = _array(layer.bias)


def _set_norm(spec: Any, norm: nn.Module, dim: int) -> None:
    """Set the gain and, of a LayerNorm, the bias; a norm without them multiplies by 1 and adds 0."""
    assert isinstance(norm, RMSNorm | nn.LayerNorm)
    spec.gamma = np.ones(dim, np.float32) if norm.weight is None else _array(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = np.zeros(dim, np.float32) if norm.bias is None else _array(norm.bias)


def _embeddings(table: nn.Embedding, norm: nn.Module, scaled: bool) -> Any:
    """Return the vectors that enter the first layer: multiplied by sqrt(D), normalized, or as they are."""
    weight = table.weight.detach() * (math.sqrt(table.embedding_dim) if scaled else 1.0)
    return _array(norm(weight))


def _positions(stack: Transformer) -> Any:
    """Return the table of positions that are added to the embeddings: zeros where there are none."""
    position, config = stack.position, stack.config
    if isinstance(position, Learned):
        return _array(position.table.weight)
    count = max(config.max_positions, MIN_POSITIONS)
    if position is None:
        return np.zeros((count, config.dim), np.float32)
    return _array(position(0, count, torch.device("cpu"))[0])


def _array(tensor: Tensor) -> Any:
    return np.ascontiguousarray(tensor.detach().float().cpu().numpy())
