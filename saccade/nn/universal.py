"""Universal Transformer: one layer applied repeatedly, with an adaptive number of steps per token.

Adaptive computation time (https://arxiv.org/abs/1603.08983) as in Universal Transformers
(https://arxiv.org/abs/1807.03819). Shapes: B rows, T tokens, S memory tokens, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.nn.cache import KVCache
from saccade.nn.linear import Linear
from saccade.nn.masks import Mask
from saccade.nn.positions import Sinusoidal
from saccade.nn.transformer import Layer, TransformerConfig, additive_position, final_norm, lower_masks

STEP_SCALE = 0.1  # scale of the step encoding relative to a token


@dataclass(frozen=True)
class Halting:
    """Computation time of each token."""

    steps: Tensor  # (B, T): applications of the layer before the token halted
    cost: Tensor  # (B, T): steps + remainder, which has a gradient


class Universal(nn.Module):
    """At most `steps` applications of one layer; the output of a token is the halting-weighted mean of its states.

    A token that has halted keeps its state, and others still attend to it. All steps are always computed: a later
    token may need the keys of every step, so that cached and uncached decoding agree.
    """

    def __init__(
        self, config: TransformerConfig, steps: int, threshold: float = 0.99, memory_dim: int | None = None
    ) -> None:
        super().__init__()
        self.steps, self.threshold = steps, threshold
        self.layer = Layer(config, memory_dim)
        self.position = additive_position(config)
        self.step_encoding = Sinusoidal(config.dim)  # not learned: steps cost no parameters
        self.halt = Linear(config.dim, 1)
        self.norm = final_norm(config)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        cache: KVCache | None = None,
    ) -> tuple[Tensor, Halting]:
        start, tokens = cache.start if cache else 0, x.shape[1]
        lowered, lowered_memory = lower_masks(x, memory, mask, memory_mask, cache, [self.layer])
        out = torch.zeros_like(x)
        cumulative = x.new_zeros(x.shape[:2])  # (B, T): sum of the halting probabilities so far
        remainder, count = torch.zeros_like(cumulative), torch.zeros_like(cumulative)
        for step in range(self.steps):
            state = x + STEP_SCALE * self.step_encoding(step, 1, x.device).to(x.dtype)
            if self.position is not None:
                state = state + self.position(start, tokens, x.device).to(x.dtype)
            running = (cumulative < self.threshold).to(x.dtype)  # (B, T)
            halting = torch.sigmoid(self.halt(state)[..., 0])
            last = running * ((cumulative + halting > self.threshold) | (step == self.steps - 1)).to(x.dtype)
            weight = torch.where(last > 0, 1 - cumulative, halting) * running
            remainder = remainder + last * (1 - cumulative)
            count = count + running
            new = self.layer(state, memory, lowered[self.layer.window], lowered_memory, cache, f"step{step}")
            x = torch.where(running[..., None] > 0, new, x)
            out = out + weight[..., None] * x
            cumulative = torch.where(last > 0, torch.ones_like(cumulative), cumulative + halting * running)
        if cache is not None:
            cache.advance(tokens)
        return self.norm(out), Halting(count, count + remainder)
