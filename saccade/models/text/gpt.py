"""GPT: a decoder-only language model (Radford et al. 2019, https://cdn.openai.com/better-language-models/).

Shapes: B rows, T tokens, D width, V vocabulary.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from saccade.nn.ablation import patch_embeddings
from saccade.nn.cache import KVCache
from saccade.nn.layers import RMSNorm, initialise, initialise_gpt2
from saccade.nn.masks import Causal
from saccade.nn.transformer import Transformer, TransformerConfig


@dataclass(frozen=True)
class GPTConfig(TransformerConfig):
    """The shape of a language model; the vocabulary comes from the data."""

    tied: bool = False
    """the output layer re-uses the embedding"""
    embedding_norm: bool = True
    """bring every embedding to root mean square 1"""
    begin: Literal["silent", "gpt2"] = "silent"
    """first weights; silent: every block begins as the identity; gpt2: small normal numbers, scaled by depth"""


class GPT(nn.Module):
    """Reads ids and says, at every position, how likely each token is to come next."""

    def __init__(self, config: GPTConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.dim)
        self.norm = RMSNorm(config.dim, gain=False) if config.embedding_norm else nn.Identity()
        self.decoder = Transformer(config)
        self.head = nn.Linear(config.dim, vocabulary, bias=False)
        if config.begin == "gpt2" or config.tied:  # a tied output layer must be small from the start
            initialise_gpt2(self, config.depth)
        else:
            initialise(self)
        if config.tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor, *, cache: KVCache | None = None, count: Tensor | None = None) -> Tensor:
        x = patch_embeddings(self.norm(self.embedding(ids)))  # (B, T, D)
        x = self.decoder(x, mask=Causal(), cache=cache, count=count)
        logits: Tensor = self.head(x)  # (B, T, V)
        return logits
