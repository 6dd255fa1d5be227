"""EfficientNet-Lite: a small convolutional encoder without squeeze-and-excitation (https://arxiv.org/abs/1905.11946).

Its batch norms are part of the convolutions, as in a trained network that only runs. Shapes: B rows, H height, W width,
R grid rows, C grid columns, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.vision.encoder import VisionEncoder
from saccade.nn.ablation import patch_embeddings

LITE_MEAN, LITE_STD = (127 / 255,) * 3, (128 / 255,) * 3


class Stage(NamedTuple):
    """Blocks of equal shape; the first of them changes the resolution and the number of channels."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    channels: int


LITE0 = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


@dataclass(frozen=True)
class EfficientNetConfig:
    """Shape of an EfficientNet-Lite; the defaults are those of lite0."""

    stages: tuple[tuple[int, ...], ...] = LITE0
    """of each stage: blocks, kernel size, stride, expansion, channels"""
    stem: int = 32
    """channels of the first convolution"""
    dim: int = 1280
    """width of the output vectors"""

    def __post_init__(self) -> None:
        wrong = next((stage for stage in self.stages if len(stage) != 5 or min(stage) < 1), None)
        if wrong is not None or not self.stages:
            raise ValueError(f"a stage must be 5 numbers from 1, but is {list(wrong or ())}")

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return sum(stage[0] for stage in self.stages)


class SameConvolution(nn.Conv2d):
    """A convolution whose output has the size of its input divided by the stride, rounded up.

    Where the padding is odd, one more row and column are added at the end, as in TensorFlow.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, *, bias: bool = True
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        missing = [max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in input.shape[-2:]]
        top, left = missing[0] // 2, missing[1] // 2
        if missing[0] % 2 or missing[1] % 2:
            input, top, left = F.pad(input, (left, missing[1] - left, top, missing[0] - top)), 0, 0
        return F.conv2d(input, self.weight, self.bias, self.stride, (top, left), groups=self.groups)


class Block(nn.Module):
    """Inverted residual: expand the channels, convolve each of them alone, project (https://arxiv.org/abs/1801.04381)."""

    def __init__(self, inputs: int, stage: Stage, stride: int) -> None:
        super().__init__()
        inner = inputs * stage.expansion
        self.expand = nn.Conv2d(inputs, inner, 1) if stage.expansion > 1 else None
        self.depthwise = SameConvolution(inner, inner, stage.kernel, stride, groups=inner)
        self.project = nn.Conv2d(inner, stage.channels, 1)
        self.residual = stride == 1 and inputs == stage.channels

    def forward(self, x: Tensor) -> Tensor:
        inner = x if self.expand is None else F.relu6(self.expand(x))
        out: Tensor = self.project(F.relu6(self.depthwise(inner)))
        return x + out if self.residual else out


class EfficientNet(VisionEncoder):
    """The encoder: pixels to one vector for each 32 x 32 pixels."""

    name = "efficientnet"

    def __init__(
        self, config: EfficientNetConfig, mean: Sequence[float] = LITE_MEAN, std: Sequence[float] = LITE_STD
    ) -> None:
        super().__init__(mean, std)
        self.config, self.dim = config, config.dim
        self.stem = SameConvolution(3, config.stem, 3, stride=2)
        self.blocks, channels = nn.Sequential(), config.stem
        for stage in map(Stage._make, config.stages):
            for number in range(stage.blocks):
                self.blocks.append(Block(channels, stage, stage.stride if number == 0 else 1))
                channels = stage.channels
        self.head = nn.Conv2d(channels, config.dim, 1)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def grid(self, height: int, width: int) -> tuple[int, int]:
        for stride in (2, *(stage[2] for stage in self.config.stages)):
            height, width = -(-height // stride), -(-width // stride)
        return height, width

    def forward(self, pixels: Tensor, *, states: list[Tensor] | None = None) -> Tensor:
        x = self.normalize(pixels).contiguous(memory_format=torch.channels_last)
        x = F.relu6(self.head(self.blocks(F.relu6(self.stem(x)))))  # (B, D, R, C)
        cells: Tensor = patch_embeddings(x.permute(0, 2, 3, 1).flatten(1, 2))  # (B, R C, D)
        return cells
