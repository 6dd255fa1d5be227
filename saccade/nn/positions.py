"""Positional encodings: added to the embedding (sinusoidal, learned) or applied to q and k (rotary).

Shapes: B rows, T tokens, D width, H heads, E head width; of a grid: R rows, C columns, E extra positions before it.
`start` is the number of tokens before this call, one for all rows or (B,), so a result is (1, T, ...) or (B, T, ...).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.kernels import rotate_pairs
from saccade.nn.masks import positions
from saccade.nn.rotary_scaling import RotaryScaling


class Sinusoidal(nn.Module):
    """Sinusoidal positional encoding: sines in the left half, cosines in the right.

    Attention Is All You Need, section 3.5 (https://arxiv.org/abs/1706.03762).
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim % 2:
            raise ValueError(f"dim must be even for sinusoidal positions, but is {dim}")
        self.dim = dim

    def forward(self, start: int | Tensor, count: int, device: torch.device) -> Tensor:
        half = self.dim // 2
        steps = torch.arange(half, device=device, dtype=torch.float32)
        angle = positions(start, count, device)[..., None] * torch.exp(steps * (-math.log(10000.0) / half))
        return torch.cat((angle.sin(), angle.cos()), dim=-1)  # (B or 1, T, D)


class Learned(nn.Module):
    """Learned positional embedding: one vector per position."""

    def __init__(self, max_positions: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_positions, dim)

    def forward(self, start: int | Tensor, count: int, device: torch.device) -> Tensor:
        last = count + (start if isinstance(start, int) else int(start.max()))
        if last > self.table.num_embeddings:
            raise ValueError(f"position {last} is beyond the {self.table.num_embeddings} learned ones")
        if isinstance(start, int):  # a slice: its gradient is cheaper than a lookup's
            return self.table.weight[None, start : start + count]  # (1, T, D)
        return self.at(positions(start, count, device))

    def at(self, positions: Tensor) -> Tensor:
        """Return the vectors of any positions: (B, T) -> (B, T, D)."""
        vectors: Tensor = self.table(positions)
        return vectors


class Rotary(nn.Module):
    """Rotary positional embedding: rotates pairs of features of q and k by an angle proportional to the position.

    RoFormer (https://arxiv.org/abs/2104.09864).
    """

    def __init__(self, head_dim: int, base: float = 10000.0, scaling: RotaryScaling | None = None) -> None:
        super().__init__()
        if head_dim % 2:
            raise ValueError(f"the head width must be even for rotary positions, but is {head_dim}")
        self.head_dim, self.base, self.scaling = head_dim, base, scaling or RotaryScaling()
        self._table: Tensor | None = None  # the angles of the positions used so far, (T, 1, E/2)

    def angles(self, start: int | Tensor, count: int, device: torch.device) -> Tensor:
        """Return complex numbers for these positions, broadcastable over heads: (B or 1, T, 1, E/2)."""
        needed = count + (start if isinstance(start, int) else int(start.max()))
        table = self._table  # another thread may replace it at any time
        if self.scaling.depends_on(needed):
            table = self._compute(needed, needed, device)
        elif table is None or table.shape[0] < needed or table.device != device:
            # More positions than needed, for generation.
            table = self._table = self._compute(needed, max(2 * needed, 64), device)
        if isinstance(start, int):
            return table[None, start:needed]
        return table[positions(start, count, device)]

    def _compute(self, length: int, count: int, device: torch.device) -> Tensor:
        """Return the complex numbers of the first `count` positions for a text of this length: (count, 1, E/2)."""
        with torch.inference_mode(False):  # they may be cached, and a later call may need them for a gradient
            frequencies = self.scaling.frequencies(self.head_dim, self.base, length, device)
            angle = torch.arange(count, device=device)[:, None, None] * frequencies
            return torch.polar(torch.full_like(angle, self.scaling.attention_factor), angle)

    def forward(self, x: Tensor, start: int | Tensor) -> Tensor:
        """Rotate x (B, T, H, E) by the positions of its tokens."""
        return rotate_pairs(x, self.angles(start, x.shape[1], x.device))


class SinusoidalGrid(nn.Module):
    """Sinusoidal encoding of a cell of a grid: of its row in the left half, of its column in the right."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim % 4:
            raise ValueError(f"dim must be a multiple of 4 for sinusoidal positions on a grid, but is {dim}")
        self.axis = Sinusoidal(dim // 2)

    def forward(self, rows: int, columns: int, device: torch.device) -> Tensor:
        row, column = (self.axis(0, count, device)[0] for count in (rows, columns))
        cells = (row[:, None].expand(-1, columns, -1), column[None].expand(rows, -1, -1))
        return torch.cat(cells, dim=-1).flatten(0, 1)  # (R C, D)


class LearnedGrid(nn.Module):
    """Learned embedding of the cells of a grid, after those of extra positions; bicubic for grids of another size."""

    def __init__(self, grid: tuple[int, int], dim: int, extra: int = 0) -> None:
        super().__init__()
        self.grid, self.extra = grid, extra
        self.table = nn.Parameter(torch.empty(extra + grid[0] * grid[1], dim).normal_(std=0.02))  # (E + R C, D)

    def forward(self, rows: int, columns: int) -> Tensor:
        if (rows, columns) == self.grid:
            return self.table
        extra, cells = self.table[: self.extra], self.table[self.extra :]
        image = cells.unflatten(0, self.grid).permute(2, 0, 1)[None]  # (1, D, R, C)
        image = F.interpolate(image, size=(rows, columns), mode="bicubic", align_corners=False)
        return torch.cat((extra, image[0].flatten(1).t()))  # (E + R C, D)
