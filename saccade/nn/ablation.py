"""Alter: while a block runs, heads are silent, looks are forbidden or inputs are replaced, to see what depends on them.

Shapes: B rows, H heads, G key/value heads, Q queries, K keys, E head width, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock

import torch
from torch import Tensor, nn

from saccade.nn.masks import Lowered
from saccade.nn.packed import original
from saccade.nn.probe import SupportsWeights


@dataclass(frozen=True)
class Ablation:
    """A head of an attention that says nothing; with a query and a key only that one look is forbidden."""

    attention: str
    head: int
    query: int | None = None
    key: int | None = None


@dataclass(frozen=True)
class Changes:
    """What is other than usual: looks and heads by the id of their attention, and what becomes of inputs."""

    offs: Mapping[int, tuple[Ablation, ...]] = field(default_factory=dict)
    enter: Callable[[Tensor], Tensor] | None = None
    turns: dict[int, int] = field(default_factory=dict)
    """queries so far of an attention that is called for one at a time, as recurrent decoders do"""


NONE = Changes()
# A ContextVar, so that two requests served by one model never change each other's answers.
_changes: ContextVar[Changes] = ContextVar("changes", default=NONE)
_open = 0  # changes open in any context
_counting = Lock()


@contextmanager
def _changed(changes: Changes) -> Iterator[None]:
    global _open
    token = _changes.set(changes)
    with _counting:
        _open += 1
    try:
        yield
    finally:
        _changes.reset(token)
        with _counting:
            _open -= 1


def ablated(model: nn.Module, offs: Sequence[Ablation]) -> AbstractContextManager[None]:
    """Run the model without some of its heads or looks; what cannot be switched off is refused at once."""
    found: dict[int, tuple[Ablation, ...]] = {}
    modules = dict(model.named_modules())
    for off in offs:
        module = modules.get(off.attention)
        heads = getattr(module, "heads", 0)
        if module is None or not heads:
            known = [name for name, one in modules.items() if hasattr(one, "heads")]
            raise ValueError(f"no attention '{off.attention}' that can be switched off; there are: {', '.join(known)}")
        if not 0 <= off.head < heads:
            raise ValueError(f"head must be 0 to {heads - 1} in '{off.attention}', but is {off.head}")
        key = id(original(module))
        found[key] = (*found.get(key, ()), off)
    return _changed(Changes(found, _changes.get().enter))


def patched_embeddings(change: Callable[[Tensor], Tensor]) -> AbstractContextManager[None]:
    """Let `change` see and replace the vectors (B, T, D) of every text that enters a network."""
    return _changed(Changes(_changes.get().offs, change))


def patch_embeddings(x: Tensor) -> Tensor:
    """The vectors of a text on their way into a network; called by every model for each text it reads."""
    if not _open:  # a plain number: torch.compile can see through it
        return x
    change = _changes.get().enter
    return x if change is None else change(x)


def apply_ablations(
    attention: SupportsWeights, q: Tensor, k: Tensor, v: Tensor, mask: Lowered | None, y: Tensor
) -> Tensor:
    """What the heads say (B, H, Q, E) without what is switched off; called by the attention itself."""
    if not _open:
        return y
    changes = _changes.get()
    key = id(original(attention))
    offs = changes.offs.get(key, ())
    if not offs:
        return y
    y, first = y.clone(), 0
    if y.shape[2] == 1:
        first = changes.turns.get(key, 0)
        changes.turns[key] = first + 1
    for head in {off.head for off in offs if off.query is None}:
        y[:, head] = 0.0
    looks: dict[tuple[int, int], list[int]] = {}
    for off in offs:
        if off.query is not None and off.key is not None and 0 <= off.query - first < y.shape[2]:
            looks.setdefault((off.head, off.query - first), []).append(off.key)
    for (head, query), keys in looks.items():
        y[:, head, query] = _without(attention, q, k, v, mask, (head, query), keys)
    return y


def _without(
    attention: SupportsWeights,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Lowered | None,
    place: tuple[int, int],
    keys: Sequence[int],
) -> Tensor:
    """What one head says to one query (B, E) if it may not look at some keys."""
    head, query = place
    group = head // attention.queries_per_kv_head
    one, known, values = q[:, head : head + 1, query : query + 1], k[:, group : group + 1], v[:, group : group + 1]
    allowed = torch.ones(1, 1, 1, k.shape[2], dtype=torch.bool, device=k.device)
    if mask is not None:
        allowed = allowed & mask.allowed(query, query + 1)
    allowed = allowed.clone()
    allowed[..., [key for key in keys if 0 <= key < k.shape[2]]] = False
    mixed: Tensor = attention.weights(one, known, allowed) @ values  # (B, 1, 1, E)
    return mixed[:, 0, 0]
