"""FLOPs: a multiplication and an addition are two. Operators are counted one by one, Transformers also by formula.

Symbols: T tokens of a row (S of its source), d width, h inner width of the feed-forward layers, V vocabulary, L layers.
"""

from __future__ import annotations

from typing import Any

from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from saccade.planning.shapes import Architecture

BACKWARD = 2  # products of the backward pass for each one of the forward pass: for the input and for the weight
ONEDNN_LINEAR = "mkldnn._linear_pointwise"
CPU_ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu"


def operator_flops(operator: Any, args: tuple[Any, ...], kwargs: Any, result: Any) -> int:
    """Return the FLOPs of one call of an operator: those of products and convolutions.

    Element-wise operators count 0, as in `torch.utils.flop_counter`, whose formulas are used; operators of a CPU that
    it does not know are added here.
    """
    packet = operator.overloadpacket
    name = str(packet)
    if name == ONEDNN_LINEAR:  # x (..., I), weight (O, I)
        return 2 * int(args[0].numel()) * int(args[1].shape[0])
    if name == CPU_ATTENTION:
        q, k, v = (tuple(tensor.shape) for tensor in args[:3])
        return int(sdpa_flop_count(q, _repeat(k, q), _repeat(v, q)))
    if name == f"{CPU_ATTENTION}_backward":
        grad, q, k, v = (tuple(tensor.shape) for tensor in args[:4])
        return int(sdpa_backward_flop_count(grad, q, _repeat(k, q), _repeat(v, q)))
    if packet in flop_registry:
        return int(flop_registry[packet](*args, **dict(kwargs), out_val=result))
    return 0


def _repeat(shape: tuple[int, ...], queries: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of keys or values (B, G, K, E) with a head for each head of the queries."""
    return (shape[0], queries[1], *shape[2:])


def forward_flops(architecture: Architecture, tokens: int = 0) -> int:
    """Return the FLOPs of one forward pass of a row; `tokens` on each side, default: the context of the training.

    All pairs of tokens count, as kernels without a causal shortcut compute them.
    """
    length, dim = tokens or architecture.context, architecture.dim
    feed = 2 * 2 * length * dim * architecture.feed_forward  # into the inner width and back
    attend = _attention_flops(length, length, dim)
    layer = attend + feed
    if architecture.relative:  # the projection of the positions, and a second score of each pair (Transformer-XL)
        layer += 2 * length * dim**2 + 2 * length * length * dim
    total = architecture.depth * layer
    if architecture.kind == "seq2seq":  # a decoder layer attends to the source too
        total += architecture.depth * (layer + attend)
    if architecture.kind != "encoder":
        total += 2 * length * dim * architecture.vocabulary
    return total


def _attention_flops(queries: int, keys: int, dim: int) -> int:
    """q and output of the queries, k and v of the keys: 2 d^2 each; scores and weighted mean: 2 d for each pair."""
    return 2 * (2 * queries + 2 * keys) * dim**2 + 2 * 2 * queries * keys * dim


def training_flops(architecture: Architecture, tokens: int = 0) -> int:
    """Return the FLOPs of forward and backward pass of one row."""
    return (1 + BACKWARD) * forward_flops(architecture, tokens)


def total_flops(architecture: Architecture, tokens: float = 0.0) -> float:
    """Return the FLOPs of a whole training run on so many tokens; default: those of the published run."""
    length = architecture.context * (2 if architecture.kind == "seq2seq" else 1)
    return training_flops(architecture) * (tokens or architecture.tokens) / length
