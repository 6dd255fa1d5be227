"""Image policy: a learned query attends to the grid over a frame, several times, and chooses an action.

Shapes: B frames, N cells of a grid, D width, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.vision.encoder import VisionEncoder
from saccade.nn.attention import Attention, Cosine
from saccade.nn.kernels import dropout
from saccade.nn.layers import FeedForward, RMSNorm, initialize_zero_residual
from saccade.nn.linear import Linear
from saccade.nn.positions import SinusoidalGrid


@dataclass(frozen=True)
class ImagePolicyConfig:
    """Shape of what decides by a frame."""

    dim: int = 96
    """width of cells and query"""
    heads: int = 4
    """heads of the attention to the cells; each may look at another place"""
    hops: int = 2
    """how often the frame is attended to before an action"""
    hidden: int = 256
    """inner width of the feed-forward layer after each hop"""
    dropout: float = 0.0
    """dropout probability before the output layer"""

    def __post_init__(self) -> None:
        for name in ("dim", "heads", "hops", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if self.dim % 4 or self.dim % self.heads:
            raise ValueError(f"dim must be a multiple of 4 and of heads ({self.heads}), but is {self.dim}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, but is {self.dropout}")


class ImagePolicy(nn.Module):
    """Logits of the actions: u_k = u_k-1 + attention(u_k-1, cells) (hop1, hop2, ...), then a feed-forward layer."""

    def __init__(self, encoder: VisionEncoder, config: ImagePolicyConfig, actions: int) -> None:
        super().__init__()
        self.config, self.encoder = config, encoder
        self.project = Linear(encoder.dim, config.dim)
        self.norm = RMSNorm(config.dim, gain=False)
        self.position = SinusoidalGrid(config.dim)
        for hop in range(1, config.hops + 1):
            attention = Attention(config.dim, config.heads, memory_dim=config.dim, score=Cosine())
            self.add_module(f"hop{hop}", attention)
            self.add_module(f"feed{hop}", FeedForward(config.dim, config.hidden))
        self.head = Linear(config.dim, actions)
        for name, module in self.named_children():
            if name == "head":  # its own name does not say that it is one
                nn.init.zeros_(self.head.weight)
                nn.init.zeros_(self.head.bias)
            elif name != "encoder":
                initialize_zero_residual(module)
        self.query = nn.Parameter(torch.randn(config.dim))

    def cells(self, frames: Tensor) -> Tensor:
        """Return the vectors (B, N, D) of the cells of uint8 frames (B, 3, H, W), with their positions."""
        rows, columns = self.encoder.grid(frames.shape[-2], frames.shape[-1])
        vectors = self.encoder(frames)[:, len(self.encoder.extra) :].to(self.project.weight.dtype)
        cells: Tensor = self.norm(self.project(vectors))
        place: Tensor = self.position(rows, columns, cells.device)
        return cells + place.to(cells.dtype)

    def forward(self, frames: Tensor, targets: Tensor | None = None, *, states: list[Tensor] | None = None) -> Tensor:
        """Return the logits (B, A) of uint8 frames (B, 3, H, W), or the mean loss of the actions `targets` (B,).

        `states` is filled with the query after each hop.
        """
        cells = self.cells(frames)
        u = self.query.to(cells.dtype).expand(len(cells), 1, -1)  # (B, 1, D)
        for hop in range(1, self.config.hops + 1):
            u = u + self.get_submodule(f"hop{hop}")(self.norm(u), cells)
            u = u + self.get_submodule(f"feed{hop}")(self.norm(u))
            if states is not None:
                states.append(u[:, 0])
        logits = self.logits(u[:, 0])
        return logits if targets is None else F.cross_entropy(logits.float(), targets)

    def logits(self, query: Tensor) -> Tensor:
        """Return the logits (B, A) of queries after a hop (B, D)."""
        logits: Tensor = self.head(dropout(self.norm(query), self.config.dropout, self.training))
        return logits
