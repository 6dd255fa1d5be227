"""CLIP: images and texts as vectors of one space, trained on pairs (https://arxiv.org/abs/2103.00020).

Shapes: B rows, T tokens, D width, P width of the common space, N images, M texts.
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.text.bert import Bert, pool
from saccade.models.vision.encoder import VisionEncoder
from saccade.models.vision.vit import ViT, ViTConfig
from saccade.nn.ablation import patch_embeddings
from saccade.nn.kernels import dropout, rms_normalize
from saccade.nn.layers import FeedForward, Residual, RMSNorm, initialize_gpt2, initialize_zero_residual, make_norm
from saccade.nn.linear import Linear
from saccade.nn.masks import Causal, Padding, combine
from saccade.nn.transformer import Transformer, TransformerConfig

MAX_SCALE = 100.0  # of the cosines in the loss, as published: a larger one makes training unstable
SIGMOID_SCALE, SIGMOID_BIAS = 10.0, -10.0  # at the start, as published for SigLIP


@dataclass(frozen=True)
class TextConfig(TransformerConfig):
    """The shape of an encoder of texts; the size of its vocabulary comes from the data."""

    max_positions: int = 77
    """longest text in tokens"""
    causal: bool = False
    """a token sees only those before it, as in CLIP"""
    pooling: Literal["mean", "eos", "last"] = "mean"
    """vector of a text; mean: of its tokens; eos: the token that ends it, as in CLIP; last: the last position of a text
    that is padded to max_positions, padding included, as in SigLIP"""
    eos_id: int = -1
    """the token that ends a text; -1: the one with the largest id, as in the first CLIP"""
    pad_id: int = 1
    """the token that fills a text up to max_positions where pooling is last"""
    embedding_norm: bool = True
    """normalize the embeddings"""
    init: Literal["zero_residual", "normal"] = "zero_residual"
    """initial weights; zero_residual: every block starts as the identity; normal: std 0.02, as published"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eos_id < -1 or self.pad_id < 0:
            raise ValueError(f"eos_id and pad_id must be ids of tokens, but are {self.eos_id} and {self.pad_id}")


@dataclass(frozen=True)
class CLIPConfig:
    """Two encoders and what joins them."""

    vision: ViTConfig = field(default_factory=ViTConfig)
    text: TextConfig = field(default_factory=TextConfig)
    projection: int = 512
    """width of the space that images and texts share"""
    project_image: bool = True
    """a linear layer from the image encoder to this space; false: its vector itself"""
    text_bias: bool = False
    """a bias in the linear layer from the text encoder to this space"""
    loss: Literal["softmax", "sigmoid"] = "softmax"
    """softmax: each image must find its text among those of the batch, and each text its image; sigmoid: every pair is
    right or wrong on its own (https://arxiv.org/abs/2303.15343)"""

    def __post_init__(self) -> None:
        if self.projection < 1:
            raise ValueError(f"projection must be at least 1, but is {self.projection}")
        dim = 2 * self.vision.dim if self.vision.pooling == "distilled" else self.vision.dim
        if not self.project_image and dim != self.projection:
            rule = f"projection must be the width of the image vectors ({dim}) without a linear layer to it"
            raise ValueError(f"{rule}, but is {self.projection}")

    @property
    def depth(self) -> int:
        """Number of layers of both encoders."""
        return self.vision.depth + self.text.depth


class TextEncoder(nn.Module, abc.ABC):
    """An encoder of texts: one vector for each."""

    dim: int
    """width of the vectors"""

    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return one vector (B, D) for each text from its ids (B, T) and their padding mask (None: no padding)."""
        return self.pool(self.features(ids, keep), ids, keep)

    @abc.abstractmethod
    def features(self, ids: Tensor, keep: Tensor | None) -> Tensor:
        """Return the vectors (B, T, D) of the tokens."""

    @abc.abstractmethod
    def pool(self, features: Tensor, ids: Tensor, keep: Tensor | None) -> Tensor:
        """Return one vector (B, D) for each text from those of its tokens (B, T, D)."""

    @property
    @abc.abstractmethod
    def stack(self) -> Transformer:
        """The layers over the tokens."""


class TextTransformer(TextEncoder):
    """A Transformer over the tokens of a text."""

    def __init__(self, config: TextConfig, vocabulary: int) -> None:
        super().__init__()
        self.config, self.dim = config, config.dim
        self.embedding = nn.Embedding(vocabulary, config.dim)
        norm = make_norm(config.norm, config.dim, bias=config.bias, epsilon=config.epsilon)
        self.norm = norm if config.embedding_norm else nn.Identity()
        self.encoder = Transformer(config)
        if config.init == "zero_residual":
            initialize_zero_residual(self)
        else:
            initialize_gpt2(self)

    @property
    def stack(self) -> Transformer:
        return self.encoder

    def features(self, ids: Tensor, keep: Tensor | None) -> Tensor:
        if self.config.pooling == "last":
            ids, keep = self._fill(ids, keep), None
        causal = Causal() if self.config.causal else None
        seen = keep if causal is None or self.config.pooling == "mean" else None  # what follows the end is not seen
        mask = combine(causal, None if seen is None else Padding(seen))
        x = dropout(patch_embeddings(self.norm(self.embedding(ids))), self.config.dropout, self.training)
        out: Tensor = self.encoder(x, mask=mask)
        return out

    def pool(self, features: Tensor, ids: Tensor, keep: Tensor | None) -> Tensor:
        if self.config.pooling == "mean":
            return pool(features, keep, "mean")
        if self.config.pooling == "last":
            return features[:, -1]
        tokens = ids if self.config.eos_id < 0 else (ids == self.config.eos_id).int()
        return features[torch.arange(len(features), device=features.device), tokens.argmax(1)]  # the first of them

    def _fill(self, ids: Tensor, keep: Tensor | None) -> Tensor:
        """Return ids (B, max_positions), with the padding token after each text."""
        pad, missing = self.config.pad_id, self.config.max_positions - ids.shape[1]
        ids = ids if keep is None else ids.masked_fill(~keep, pad)
        return F.pad(ids, (0, missing), value=pad) if missing > 0 else ids


class BertText(TextEncoder):
    """A frozen BERT as the encoder of texts, and one feed-forward layer over the mean of its tokens that is trained."""

    def __init__(self, bert: Bert, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.bert, self.dim = bert.requires_grad_(False), bert.config.dim
        self.feed = FeedForward(self.dim, 2 * self.dim, dropout=dropout)
        self.residual = Residual(RMSNorm(self.dim, gain=False), dropout=dropout)
        initialize_zero_residual(self.feed)

    @property
    def stack(self) -> Transformer:
        return self.bert.encoder

    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return one vector for each text; instead of ids, means of its tokens (B, D) that were computed before."""
        return self.refine(ids) if ids.is_floating_point() else super().forward(ids, keep)

    def features(self, ids: Tensor, keep: Tensor | None) -> Tensor:
        out: Tensor = self.bert(ids, keep)
        return out

    def pool(self, features: Tensor, ids: Tensor, keep: Tensor | None) -> Tensor:
        return self.refine(pool(features, keep, "mean"))

    def refine(self, means: Tensor) -> Tensor:
        """Apply the trained layer to the means of tokens (B, D), each scaled to root mean square 1."""
        out: Tensor = self.residual(rms_normalize(means), self.feed)
        return out


class CLIP(nn.Module):
    """An image encoder and a text encoder with linear layers to one space and a learned temperature."""

    def __init__(self, vision: VisionEncoder, text: TextEncoder, config: CLIPConfig) -> None:
        """Join two encoders; of the config only what joins them is used."""
        super().__init__()
        self.config, self.vision, self.text = config, vision, text
        width = config.projection
        self.image_projection = Linear(vision.pooled_dim, width, bias=False) if config.project_image else None
        self.text_projection = Linear(text.dim, width, bias=config.text_bias)
        for layer in (self.image_projection, self.text_projection):
            if layer is not None:
                nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
        sigmoid = config.loss == "sigmoid"
        scale = SIGMOID_SCALE if sigmoid else 1 / 0.07  # as published
        self.logit_scale = nn.Parameter(torch.tensor(math.log(scale)))
        self.logit_bias = nn.Parameter(torch.tensor(SIGMOID_BIAS)) if sigmoid else None

    @classmethod
    def from_config(cls, config: CLIPConfig, vocabulary: int) -> CLIP:
        """Return a network with random weights."""
        return cls(ViT(config.vision), TextTransformer(config.text, vocabulary), config)

    def image_vectors(self, pixels: Tensor) -> Tensor:
        """Return the vectors of length 1 of images: uint8 (N, 3, H, W) -> (N, P)."""
        return self.project_image(self.vision.vectors(pixels))

    def project_image(self, vectors: Tensor) -> Tensor:
        """Return the vectors of length 1 of images from those of the image encoder: (N, D) -> (N, P)."""
        return F.normalize(vectors if self.image_projection is None else self.image_projection(vectors), dim=-1)

    def text_vectors(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return the vectors of length 1 of texts: ids and padding mask (M, T) -> (M, P)."""
        return self.project_text(self.text(ids, keep))

    def project_text(self, vectors: Tensor) -> Tensor:
        """Return the vectors of length 1 of texts from those of the text encoder: (M, D) -> (M, P)."""
        return F.normalize(self.text_projection(vectors), dim=-1)

    def logits(self, images: Tensor, texts: Tensor) -> Tensor:
        """Return the logits (N, M) of pairs from the vectors (N, P) of images and (M, P) of texts."""
        logits = self.logit_scale.exp() * images @ texts.t()
        return logits if self.logit_bias is None else logits + self.logit_bias

    def forward(
        self, pixels: Tensor, ids: Tensor, keep: Tensor | None = None, *, matches: Tensor | None = None
    ) -> Tensor:
        """Return the loss of pairs of images (B, 3, H, W) and texts (B, T).

        `matches` (B, B) is True where a text belongs to an image, such as another caption of it; None: only to its own.
        """
        images, texts = self.image_vectors(pixels), self.text_vectors(ids, keep)
        scale = self.logit_scale.exp().clamp(max=MAX_SCALE)
        logits = (scale * images @ texts.t()).float()  # (B, B)
        if matches is None:
            matches = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
        if self.logit_bias is not None:
            signs = torch.where(matches, 1.0, -1.0)
            return -F.logsigmoid(signs * (logits + self.logit_bias)).sum() / len(logits)
        of_images, of_texts = (table / table.sum(1, keepdim=True) for table in (matches, matches.t()))
        return (F.cross_entropy(logits, of_images) + F.cross_entropy(logits.t(), of_texts)) / 2
