"""Vision Transformer: an image as a sequence of patches (ViT, https://arxiv.org/abs/2010.11929).

Shapes: B rows, H height, W width, P patch size, R grid rows, C grid columns, E extra positions, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from saccade.models.vision.encoder import IMAGENET_MEAN, IMAGENET_STD, VisionEncoder
from saccade.nn.ablation import is_observed, patch_embeddings
from saccade.nn.attention import Attention
from saccade.nn.kernels import dropout
from saccade.nn.layers import FeedForward, initialize_gpt2, initialize_zero_residual, make_norm
from saccade.nn.linear import Linear
from saccade.nn.positions import LearnedGrid, SinusoidalGrid
from saccade.nn.transformer import Layer, Transformer, TransformerConfig

ImagePooling = Literal["mean", "class", "distilled", "attention"]


@dataclass(frozen=True)
class ViTConfig(TransformerConfig):
    """The shape of an encoder of images."""

    position: Literal["learned", "sinusoidal", "none"] = "learned"
    """positional encoding of a patch: learned, or sines and cosines of its row and its column"""
    image_size: int = 32
    """height of the pictures in training; learned positions are interpolated for other sizes"""
    image_width: int = 0
    """their width; 0: as the height"""
    patch: int = 4
    """height and width of a patch in pixels"""
    stem: Literal["patches", "convolution"] = "patches"
    """patches: one linear layer over the pixels of a patch; convolution: 3x3 convolutions of stride 2 and a norm each,
    which help small models (https://arxiv.org/abs/2106.14881)"""
    class_token: bool = False
    """a learned token before the patches, whose output stands for the image"""
    distillation_token: bool = False
    """a second such token, which learns from a teacher (DeiT, https://arxiv.org/abs/2012.12877)"""
    pooling: ImagePooling = "mean"
    """vector of an image; mean: of the patches; class: the class token; distilled: the class and the distillation
    token; attention: a learned query over the patches, as in SigLIP"""
    embedding_norm: bool = True
    """normalize the embeddings of patches and positions"""
    embedding_dropout: float = 0.0
    """dropout probability after the embedding"""
    patch_bias: bool = True
    """a bias in the embedding of patches"""
    qkv_bias: bool = True
    """biases in the projections to queries, keys and values, where the other layers have them"""
    init: Literal["zero_residual", "normal"] = "zero_residual"
    """initial weights; zero_residual: every block starts as the identity; normal: std 0.02, as published"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patch < 1 or self.image_width < 0 or min(self.image_size, self.width) < self.patch:
            sizes = f"{self.image_size} x {self.width}"
            raise ValueError(f"patch must be from 1 to the image size, but is {self.patch} for images of {sizes}")
        if self.stem == "convolution" and self.patch & (self.patch - 1):
            raise ValueError(f"patch must be a power of 2 for convolutions of stride 2, but is {self.patch}")
        if self.position == "sinusoidal" and self.dim % 4:
            raise ValueError(f"dim must be a multiple of 4 for sinusoidal positions on a grid, but is {self.dim}")
        for name, pooling in (("class_token", "class"), ("distillation_token", "distilled")):
            if self.pooling == pooling and not getattr(self, name):
                raise ValueError(f"{name} must be true for the pooling {pooling}, but is false")
        if self.distillation_token and not self.class_token:
            raise ValueError("class_token must be true for a distillation token, but is false")
        if not 0 <= self.embedding_dropout < 1:
            raise ValueError(f"embedding_dropout must be at least 0 and below 1, but is {self.embedding_dropout}")

    @property
    def width(self) -> int:
        """Width of the pictures in training."""
        return self.image_width or self.image_size

    @property
    def extra(self) -> tuple[str, ...]:
        """Names of the positions before the patches."""
        wanted = (self.class_token, self.distillation_token)
        return tuple(name for name, present in zip(("class", "distillation"), wanted, strict=True) if present)


class ConvolutionStem(nn.Sequential):
    """Convolutions of stride 2, each with a norm and ReLU, to a vector for each patch: (B, 3, H, W) -> (B, R C, D)."""

    def __init__(self, patch: int, dim: int) -> None:
        steps = patch.bit_length() - 1
        widths = [3, *(max(dim >> (steps - step), 8) for step in range(1, steps)), dim] if steps else [3]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs)]
            layers.append(nn.ReLU())
        super().__init__(*layers, nn.Conv2d(widths[-1], dim, 1))

    def forward(self, input: Tensor) -> Tensor:
        for layer in self:
            input = layer(input)
        return input.flatten(2).transpose(1, 2)


class AttentionPool(nn.Module):
    """One vector for each image: a learned query attends to the patches (https://arxiv.org/abs/2303.15343)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(1, config.dim).normal_(std=config.dim**-0.5))
        self.cross = Attention(config.dim, config.heads, memory_dim=config.dim, bias=config.bias)
        self.norm = make_norm(config.norm, config.dim, bias=config.bias, epsilon=config.epsilon)
        self.feed = FeedForward(config.dim, config.hidden, config.activation, bias=config.bias)

    def forward(self, features: Tensor) -> Tensor:
        x = self.cross(self.query.expand(len(features), -1, -1), features)  # (B, 1, D)
        out: Tensor = x + self.feed(self.norm(x))
        return out[:, 0]


class ViT(VisionEncoder):
    """The encoder: pixels to one vector for each extra token and each patch."""

    name = "vit"

    def __init__(
        self, config: ViTConfig, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD
    ) -> None:
        super().__init__(mean, std)
        self.config, self.dim, self.extra = config, config.dim, config.extra
        convolution, pixels = config.stem == "convolution", 3 * config.patch**2
        self.patch: nn.Module = (
            ConvolutionStem(config.patch, config.dim)
            if convolution
            else Linear(pixels, config.dim, bias=config.patch_bias)
        )
        extra = len(self.extra)
        self.tokens = nn.Parameter(torch.empty(extra, config.dim).normal_(std=0.02)) if extra else None
        grid = self.grid(config.image_size, config.width)
        self.position = LearnedGrid(grid, config.dim, extra) if config.position == "learned" else None
        self.sinusoidal = SinusoidalGrid(config.dim) if config.position == "sinusoidal" else None
        norm = make_norm(config.norm, config.dim, bias=config.bias, epsilon=config.epsilon)
        self.norm = norm if config.embedding_norm else nn.Identity()
        self.encoder = Transformer(replace(config, position="none"), make_layer=lambda _: make_layer(config))
        self.attention_pool = AttentionPool(config) if config.pooling == "attention" else None
        if config.init == "zero_residual":
            initialize_zero_residual(self)
        else:
            initialize_gpt2(self)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return the rows and columns of patches; what is left over at the right and at the bottom is not seen."""
        patch = self.config.patch
        if min(height, width) < patch:
            raise ValueError(f"an image must be at least {patch} x {patch} pixels, but is {height} x {width}")
        return height // patch, width // patch

    def forward(self, pixels: Tensor, *, states: list[Tensor] | None = None, outputs: int | None = None) -> Tensor:
        """Return the vectors (B, E + R C, D) of uint8 pixels (B, 3, H, W), the extra tokens first.

        `states` is filled with the embeddings and the output of each layer; `outputs`: only the first tokens.
        """
        rows, columns = self.grid(pixels.shape[-2], pixels.shape[-1])
        patch, convolution = self.config.patch, self.config.stem == "convolution"
        x = self.normalize(pixels[..., : rows * patch, : columns * patch])
        x = self.patch(x if convolution else split_patches(x, patch))  # (B, R C, D)
        if self.sinusoidal is not None:
            x = x + self.sinusoidal(rows, columns, x.device).to(x.dtype)
        if self.tokens is not None:
            x = torch.cat((self.tokens.to(x.dtype).expand(len(x), -1, -1), x), dim=1)  # (B, E + R C, D)
        if self.position is not None:
            x = x + self.position(rows, columns)
        x = dropout(patch_embeddings(self.norm(x)), self.config.embedding_dropout, self.training)
        out: Tensor = self.encoder(x, states=states, outputs=outputs)
        return out

    def vectors(self, pixels: Tensor, *, states: list[Tensor] | None = None) -> Tensor:
        """Return one vector for each image; the last layer computes only the tokens that the pooling reads."""
        tokens = {"class": 1, "distilled": 2}.get(self.config.pooling)
        return self.pool(self(pixels, states=states, outputs=None if states is not None or is_observed() else tokens))

    @property
    def pooled_dim(self) -> int:
        """Width of the vector of a whole image."""
        return 2 * self.dim if self.config.pooling == "distilled" else self.dim

    def pool(self, features: Tensor) -> Tensor:
        """Return one vector for each image: (B, E + R C, D) -> (B, pooled_dim)."""
        if self.attention_pool is not None:
            vectors: Tensor = self.attention_pool(features[:, len(self.extra) :])
            return vectors
        if self.config.pooling == "mean":
            return features[:, len(self.extra) :].mean(1)
        return features[:, 0] if self.config.pooling == "class" else features[:, :2].flatten(1)


def split_patches(x: Tensor, patch: int) -> Tensor:
    """Return the pixels of each patch as a vector: (B, 3, R P, C P) -> (B, R C, 3 P P)."""
    cells = x.unflatten(3, (-1, patch)).unflatten(2, (-1, patch))  # (B, 3, R, P, C, P)
    patches: Tensor = cells.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
    return patches


def make_layer(config: ViTConfig) -> Layer:
    """Return a layer of the encoder."""
    layer = Layer(replace(config, position="none"))
    if not config.qkv_bias:
        layer.self.qkv.register_parameter("bias", None)
    return layer
