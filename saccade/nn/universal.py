"""Universal Transformer: one layer applied repeatedly, with a number of steps that each token decides.

Adaptive computation time (https://arxiv.org/abs/1603.08983) as in Universal Transformers
(https://arxiv.org/abs/1807.03819). Shapes: B rows, T tokens, S memory tokens, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.nn.cache import KVCache
from saccade.nn.layers import make_norm
from saccade.nn.masks import Mask, Window, combine
from saccade.nn.positions import Learned, Sinusoidal
from saccade.nn.transformer import Layer, TransformerConfig

STEP_SCALE = 0.1  # scale of the step encoding relative to a token


@dataclass(frozen=True)
class Halting:
    """Computation time of each token."""

    steps: Tensor  # (B, T): applications of the layer before the token halted
    cost: Tensor  # (B, T): steps + remainder, which has a gradient


class Universal(nn.Module):
    """At most `steps` applications of one layer. The output of a token is the mean of its states, weighted by halting.

    A token that has halted keeps its state, and others still attend to it. All steps are always computed: a later
    token may need the keys of every step, and so cached and uncached decoding agree.
    """

    def __init__(
        self, config: TransformerConfig, steps: int, threshold: float = 0.99, memory_dim: int | None = None
    ) -> None:
        super().__init__()
        self.steps, self.threshold = steps, threshold
        self.layer = Layer(config, memory_dim)
        self.window = config.window
        self.position: Sinusoidal | Learned | None = None
        if config.position == "sinusoidal":
            self.position = Sinusoidal(config.dim)
        elif config.position == "learned":
            self.position = Learned(config.max_positions, config.dim)
        self.step_encoding = Sinusoidal(config.dim)  # not learned: steps cost no parameters
        self.halt = nn.Linear(config.dim, 1)
        self.norm: nn.Module = nn.Identity()
        if config.norm_first:
            self.norm = make_norm(config.norm, config.dim, bias=config.bias, epsilon=config.epsilon)

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
        keys = tokens + (cache.longest if cache else 0)
        mask = combine(mask, Window(self.window) if self.window else None)
        lowered = mask.lower(tokens, keys, start, x.device) if mask else None
        lowered_memory = None
        if memory_mask is not None and memory is not None:
            lowered_memory = memory_mask.lower(tokens, memory.shape[1], start, x.device)
        out = torch.zeros_like(x)
        spent = x.new_zeros(x.shape[:2])  # (B, T): halting probability used up
        remainder, count = torch.zeros_like(spent), torch.zeros_like(spent)
        for step in range(self.steps):
            state = x + STEP_SCALE * self.step_encoding(step, 1, x.device).to(x.dtype)
            if self.position is not None:
                state = state + self.position(start, tokens, x.device).to(x.dtype)
            running = (spent < self.threshold).to(x.dtype)  # (B, T)
            halting = torch.sigmoid(self.halt(state)[..., 0])
            last = running * ((spent + halting > self.threshold) | (step == self.steps - 1)).to(x.dtype)
            weight = torch.where(last > 0, 1 - spent, halting) * running
            remainder = remainder + last * (1 - spent)
            count = count + running
            new = self.layer(state, memory, lowered, lowered_memory, cache, f"step{step}")
            x = torch.where(running[..., None] > 0, new, x)
            out = out + weight[..., None] * x
            spent = torch.where(last > 0, torch.ones_like(spent), spent + halting * running)
        if cache is not None:
            cache.advance(tokens)
        return self.norm(out), Halting(count, count + remainder)
