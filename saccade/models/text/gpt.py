"""GPT: a decoder-only language model (Radford et al. 2019, https://cdn.openai.com/better-language-models/).

Shapes: B rows, T tokens, D width, V vocabulary.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.ablation import patch_embeddings
from saccade.nn.attention import Attention, Heads
from saccade.nn.cache import KVCache
from saccade.nn.layers import FeedForward, Residual, RMSNorm, initialize_gpt2, initialize_zero_residual, make_norm
from saccade.nn.linear import Linear
from saccade.nn.masks import Causal
from saccade.nn.positions import Rotary
from saccade.nn.rotary_scaling import RotaryScaling
from saccade.nn.transformer import Layer, Score, Transformer, TransformerConfig, make_residual, make_score


@dataclass(frozen=True)
class GPTConfig(TransformerConfig):
    """Shape of a language model; the vocabulary size comes from the data."""

    heads: int = 2
    """query heads; dim must be a multiple of it"""
    score: Score = "qk_norm"
    """similarity of query and key; cosine: 10 times their cosine; qk_norm: scaled dot product of normalized queries
    and keys; learned_qk_norm: the same with learned gains"""
    attention_scale: float = 0.0
    """factor of the scores; 0: that of `score`"""
    rotary_scaling: RotaryScaling = field(default_factory=RotaryScaling)
    unrotated_layers: tuple[int, ...] = ()
    """layers without positions, counted from 0 (NoPE, https://arxiv.org/abs/2305.19466)"""
    full_layers: tuple[int, ...] = ()
    """layers that see all tokens where the others have a window, counted from 0"""
    window_rotary_base: float = 0.0
    """rotary base, without scaling, of the layers with a window; 0: as the other layers"""
    qkv_bias: bool = False
    """biases in the projections to queries, keys and values, where other layers have none"""
    out_bias: bool = False
    """biases in the output projections of attention, where other layers have none"""
    feed_bias: bool = False
    """biases in the feed-forward layers, where other layers have none"""
    update_norm: bool = False
    """normalize also what is added at each residual connection, as in Gemma"""
    tie_embeddings: bool = False
    """share one matrix between the embedding and the output layer"""
    embedding_norm: bool = True
    """normalize every embedding to root mean square 1"""
    scale_embedding: bool = False
    """multiply the embeddings by sqrt(dim)"""
    logit_softcap: float = 0.0
    """limit the logits to (-c, c) by c tanh(logit / c); 0: no limit"""
    init: Literal["zero_residual", "gpt2"] = "zero_residual"
    """initial weights; zero_residual: every block starts as the identity; gpt2: normal, std 0.02, scaled by depth"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("attention_scale", "logit_softcap"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, but is {getattr(self, name)}")
        if self.rotary_scaling.kind == "dynamic" and self.head_width < 4:
            raise ValueError(f"head_dim must be at least 4 for dynamic rotary scaling, but is {self.head_width}")
        if self.window_rotary_base and self.window_rotary_base <= 1:
            raise ValueError(f"window_rotary_base must be 0 or above 1, but is {self.window_rotary_base}")
        for name in ("unrotated_layers", "full_layers"):
            outside = [layer for layer in getattr(self, name) if not 0 <= layer < self.depth]
            if outside:
                raise ValueError(f"{name} must be from 0 to {self.depth - 1}, but one is {outside[0]}")


class DecoderLayer(Layer):
    """A layer of a language model: self-attention and feed-forward, with the variations of published models."""

    def __init__(self, config: GPTConfig, index: int) -> None:
        nn.Module.__init__(self)
        self.window = 0 if index in config.full_layers else config.window
        self.self = self._self_attention(config, index)
        self.self_residual = self._residual(config)
        self.cross = None
        inner, bias = config.dropout if config.inner_dropout else 0.0, config.bias or config.feed_bias
        self.feed = FeedForward(config.dim, config.hidden, config.activation, bias=bias, dropout=inner)
        self.feed_residual = self._residual(config)

    def _self_attention(self, config: GPTConfig, index: int) -> Attention:
        rotary = config.position == "rotary" and index not in config.unrotated_layers
        attention = Attention(
            config.dim,
            Heads(config.heads, config.kv_heads, config.head_width),
            score=make_score(config, config.attention_scale or None),
            rotate=self._rotary(config) if rotary else None,
            bias=config.bias or config.qkv_bias or config.out_bias,
            dropout=config.attention_dropout,
        )
        for layer, wanted in ((attention.qkv, config.qkv_bias), (attention.out, config.out_bias)):
            if not (config.bias or wanted):
                layer.register_parameter("bias", None)
        return attention

    def _rotary(self, config: GPTConfig) -> Rotary:
        if self.window and config.window_rotary_base:
            return Rotary(config.head_width, config.window_rotary_base)
        return Rotary(config.head_width, config.rotary_base, config.rotary_scaling)

    @staticmethod
    def _residual(config: GPTConfig) -> Residual:
        residual = make_residual(config)
        if config.update_norm:
            residual.update_norm = make_norm(config.norm, config.dim, bias=config.bias, epsilon=config.epsilon)
        return residual


class GPT(nn.Module):
    """Decoder-only Transformer that predicts the next token at every position."""

    def __init__(self, config: GPTConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.dim)
        epsilon = 1e-6 if config.epsilon is None else config.epsilon
        self.norm = RMSNorm(config.dim, gain=False, epsilon=epsilon) if config.embedding_norm else nn.Identity()
        self.decoder = Transformer(config, make_layer=lambda index: DecoderLayer(config, index))
        self.head = Linear(config.dim, vocabulary, bias=False)
        if config.init == "gpt2" or config.tie_embeddings:  # a tied output layer must start small
            initialize_gpt2(self, config.depth)
        else:
            initialize_zero_residual(self)
        if config.tie_embeddings:
            self.head.weight = self.embedding.weight

    def forward(
        self,
        ids: Tensor,
        labels: Tensor | None = None,
        *,
        cache: KVCache | None = None,
        count: Tensor | None = None,
    ) -> Tensor:
        """Return logits (B, T, V), or with labels (B, T; -1 ignored) the mean loss.

        `count` (B,) is the number of real tokens of each row in this call, where cached rows differ in length.
        """
        logits = self.logits(self.features(ids, cache=cache, count=count))
        if labels is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)

    def features(self, ids: Tensor, *, cache: KVCache | None = None, count: Tensor | None = None) -> Tensor:
        """Return the output of the stack (B, T, D), which `logits` turns into logits."""
        x = self.norm(self.embed(ids))  # (B, T, D)
        features: Tensor = self.decoder(patch_embeddings(x), mask=Causal(), cache=cache, count=count)
        return features

    def embed(self, ids: Tensor) -> Tensor:
        """Return the embeddings of tokens (..., D)."""
        x: Tensor = self.embedding(ids)
        return x * math.sqrt(self.config.dim) if self.config.scale_embedding else x

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits (..., V) of the output of the stack (..., D)."""
        logits: Tensor = self.head(features)
        if limit := self.config.logit_softcap:
            logits = limit * torch.tanh(logits / limit)
        return logits
