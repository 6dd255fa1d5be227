"""GPT: a decoder-only language model (Radford et al. 2019, https://cdn.openai.com/better-language-models/).

Shapes: B rows, T tokens, D width, V vocabulary.
"""

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.ablation import patch_embeddings
from saccade.nn.cache import KVCache
from saccade.nn.layers import RMSNorm, initialize_gpt2, initialize_zero_residual
from saccade.nn.masks import Causal
from saccade.nn.transformer import Transformer, TransformerConfig


@dataclass(frozen=True)
class GPTConfig(TransformerConfig):
    """Shape of a language model; the vocabulary size comes from the data."""

    tie_embeddings: bool = False
    """share one matrix between the embedding and the output layer"""
    embedding_norm: bool = True
    """normalize every embedding to root mean square 1"""
    init: Literal["zero_residual", "gpt2"] = "zero_residual"
    """initial weights; zero_residual: every block starts as the identity; gpt2: normal, std 0.02, scaled by depth"""


class GPT(nn.Module):
    """Decoder-only Transformer that predicts the next token at every position."""

    def __init__(self, config: GPTConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.dim)
        self.norm = RMSNorm(config.dim, gain=False) if config.embedding_norm else nn.Identity()
        self.decoder = Transformer(config)
        self.head = nn.Linear(config.dim, vocabulary, bias=False)
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
        x = patch_embeddings(self.norm(self.embedding(ids)))  # (B, T, D)
        x = self.decoder(x, mask=Causal(), cache=cache, count=count)
        logits: Tensor = self.head(x)  # (B, T, V)
        if labels is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)
