"""The calls of every attention layer of ours while a prediction is recomputed: inputs, eager weights, outputs of heads.

Shapes: B rows, H heads, Q queries, K keys, E head width, D width.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saccade.checks.subject import Subject
from saccade.nn.attention import Attention, repeat_heads
from saccade.nn.compressed import CompressedAttention
from saccade.nn.listeners import listening
from saccade.nn.location import LocationAttention
from saccade.nn.masks import KernelMask, Mask, visible

Special = (LocationAttention, CompressedAttention)
"""layers with a forward of their own, which cannot be called apart from their network"""


@dataclass(frozen=True)
class AttentionCall:
    """One call of one attention layer."""

    name: str
    layer: Attention
    x: Tensor  # (B, Q, D)
    memory: Tensor | None  # (B, K, its width)
    mask: Any

    def again(self) -> Tensor:
        """Call the layer again: (B, Q, D)."""
        out: Tensor = self.layer(self.x, self.memory, mask=self.mask)
        return out

    def eager(self) -> tuple[Tensor, Tensor]:
        """Return weights (B, H, Q, K) and outputs of the heads (B, H, Q, E), by a plain softmax in float64."""
        layer = self.layer
        if self.memory is None:
            q, k, v = layer._project_self(self.x, 0)
        else:
            q, (k, v) = layer._project_queries(self.x, 0), layer._project_memory(self.memory)
        beams = len(q) // len(k)
        k, v = (repeat_heads(part, layer.heads).repeat_interleave(beams, 0) for part in (k, v))
        scores = layer.score(q, k).double()  # (B, H, Q, K)
        if self.mask is not None:
            lowered = self.mask
            if isinstance(lowered, Mask):
                lowered = lowered.lower(q.shape[2], k.shape[2], 0, self.x.device)
            assert isinstance(lowered, KernelMask)
            allowed = lowered.allowed(0, q.shape[2])
            allowed = allowed.repeat_interleave(len(q) // len(allowed), 0) if len(allowed) > 1 else allowed
            seen = visible(allowed)
            if allowed.dtype != torch.bool:
                scores = scores + allowed.double().masked_fill(~seen, 0.0)
            scores = scores.masked_fill(~seen, -torch.inf)
        weights = scores.softmax(-1).nan_to_num(0.0)  # a query that sees no key
        return weights, weights @ v.double()


@torch.no_grad()
def attention_calls(subject: Subject, prediction: Any) -> list[AttentionCall]:
    """Return the first call of every attention layer while a prediction is recomputed, in the order of the model."""
    assert subject.task is not None
    calls: dict[str, AttentionCall] = {}

    def listener(name: str, layer: Attention) -> Any:
        def keep(x: Tensor, memory: Tensor | None, mask: Any) -> None:
            calls.setdefault(name, AttentionCall(name, layer, x.detach(), memory, mask))

        return keep

    with ExitStack() as stack:
        for name, layer in subject.attentions():
            stack.enter_context(listening([layer], listener(name, layer)))
        subject.task.rerun(prediction)
    return [calls[name] for name, _ in subject.attentions() if name in calls]
