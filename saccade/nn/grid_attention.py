"""Self-attention between the cells of a feature map, for use inside a convolutional network.

Self-Attention GAN (https://arxiv.org/abs/1805.08318). Shapes: B rows, C channels, H x W cells.
"""

import torch
from torch import Tensor, nn

from saccade.nn.attention import Attention, Score


class GridAttention(nn.Module):
    """Every cell attends to all cells: x + gain * attention(x), where the gain starts at 0.

    The linear layers of q, k and v act on each cell, as convolutions of size 1 do.
    """

    def __init__(self, channels: int, heads: int = 1, *, score: Score | None = None) -> None:
        super().__init__()
        self.attention = Attention(channels, heads, score=score)
        self.gain = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        cells = x.permute(0, 2, 3, 1)  # (B, H, W, C)
        update = self.attention(cells.flatten(1, 2)).view(cells.shape)
        result: Tensor = x + self.gain * update.permute(0, 3, 1, 2)  # (B, C, H, W)
        return result


def insert_attention(network: nn.Module, after: str, channels: int, heads: int = 1) -> GridAttention:
    """Insert self-attention after a layer of any convolutional network, whose output does not change at first.

    `after` is the dotted name of the layer, `channels` the number of channels it returns.
    """
    layer = network.get_submodule(after)
    attention = GridAttention(channels, heads).to(next(layer.parameters(), torch.empty(0)).device)
    network.set_submodule(after, nn.Sequential(layer, attention))
    return attention
