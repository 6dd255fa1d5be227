"""Ablations and patches: change heads, single attention weights or embeddings while a block runs.

Shapes: B rows, H heads, G key/value heads, Q queries, K keys, E head width, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from saccade.nn.context import ContextValue
from saccade.nn.listeners import is_listening
from saccade.nn.masks import KernelMask, of_heads
from saccade.nn.packed import original
from saccade.nn.probe import SupportsWeights, is_recording

Patch = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Ablation:
    """A head whose output is set to zero; with a query and a key only that one connection is masked."""

    attention: str
    head: int
    query: int | None = None
    key: int | None = None


@dataclass(frozen=True)
class Ablations:
    """The ablations of one block, by the id of their attention layer."""

    by_layer: Mapping[int, tuple[Ablation, ...]] = field(default_factory=dict)
    queries: dict[int, int] = field(default_factory=dict)
    """number of queries so far, for layers that are called with one query at a time (recurrent decoders)"""


_ablations = ContextValue[Ablations | None]("ablations", None)
_patch = ContextValue[Patch | None]("embedding patch", None)


def ablated(model: nn.Module, ablations: Sequence[Ablation]) -> AbstractContextManager[None]:
    """Run the model without some of its heads or connections while the block runs; unknown ones raise immediately.

    Within another such block, such as that of a second network, the ablations of both hold.
    """
    outer = _ablations.get()
    by_layer: dict[int, tuple[Ablation, ...]] = {} if outer is None else dict(outer.by_layer)
    modules = dict(model.named_modules())
    for ablation in ablations:
        module = modules.get(ablation.attention)
        heads = getattr(module, "heads", 0)
        if module is None or not heads:
            names = [name for name, module in modules.items() if hasattr(module, "heads")]
            raise ValueError(f"no attention '{ablation.attention}' that can be ablated; there are: {', '.join(names)}")
        if not 0 <= ablation.head < heads:
            raise ValueError(f"head must be 0 to {heads - 1} in '{ablation.attention}', but is {ablation.head}")
        key = id(original(module))
        by_layer[key] = (*by_layer.get(key, ()), ablation)
    return _ablations.set(Ablations(by_layer))


def patched_embeddings(patch: Patch) -> AbstractContextManager[None]:
    """Replace the embeddings (B, T, D) of every sequence that enters a network by `patch(embeddings)`."""
    return _patch.set(patch)


def patch_embeddings(x: Tensor) -> Tensor:
    """Apply the patch of this context, if there is one; called by every model for each sequence of embeddings."""
    patch = _patch.get()
    return x if patch is None else patch(x)


def is_observed() -> bool:
    """Whether this context reads or changes what happens inside a network: then every position is computed."""
    return is_recording() or is_listening() or _ablations.get() is not None


def apply_ablations(
    attention: SupportsWeights, q: Tensor, k: Tensor, v: Tensor, mask: KernelMask | None, y: Tensor
) -> Tensor:
    """Return the outputs of all heads (B, H, Q, E) with the ablations of this context; called by the layer itself."""
    active = _ablations.get()
    if active is None:
        return y
    layer = id(original(attention))
    ablations = active.by_layer.get(layer, ())
    if not ablations:
        return y
    y, first = y.clone(), 0
    if y.shape[2] == 1:
        first = active.queries.get(layer, 0)
        active.queries[layer] = first + 1
    for head in {ablation.head for ablation in ablations if ablation.query is None}:
        y[:, head] = 0.0
    masked: dict[tuple[int, int], list[int]] = {}  # (head, query) -> keys
    for ablation in ablations:
        query, key = ablation.query, ablation.key
        if query is not None and key is not None and 0 <= query - first < y.shape[2]:
            masked.setdefault((ablation.head, query - first), []).append(key)
    for (head, query), keys in masked.items():
        y[:, head, query] = _without_keys(attention, (q, k, v), mask, (head, query), keys)
    return y


def _without_keys(
    attention: SupportsWeights,
    qkv: tuple[Tensor, Tensor, Tensor],
    mask: KernelMask | None,
    at: tuple[int, int],
    keys: Sequence[int],
) -> Tensor:
    """Return the output (B, E) of one head for one query that may not see some keys."""
    (head, query), (q, k, v) = at, qkv
    group = head // attention.queries_per_kv_head
    q, k, v = q[:, head : head + 1, query : query + 1], k[:, group : group + 1], v[:, group : group + 1]
    allowed = torch.ones(1, 1, 1, k.shape[2], dtype=torch.bool, device=k.device)
    if mask is not None:
        row = of_heads(mask.allowed(query, query + 1), slice(head, head + 1))
        allowed = allowed & row if row.dtype == torch.bool else row
    hidden = False if allowed.dtype == torch.bool else -math.inf
    allowed = allowed.clone()
    allowed[..., [key for key in keys if 0 <= key < k.shape[2]]] = hidden
    y: Tensor = attention.weights(q, k, allowed) @ v  # (B, 1, 1, E)
    return y[:, 0, 0]
