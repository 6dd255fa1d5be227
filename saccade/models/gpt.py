"""GPT: a decoder-only language model (https://cdn.openai.com/better-language-models/, Radford et al. 2019).

Shapes: B rows, T tokens, D width, V vocabulary.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from saccade.nn.cache import KVCache
from saccade.nn.layers import initialise
from saccade.nn.masks import Causal
from saccade.nn.transformer import Transformer, TransformerConfig


@dataclass(frozen=True)
class GPTConfig(TransformerConfig):
    """The shape of a language model; the vocabulary comes from the data."""

    tied: bool = False
    """the output layer re-uses the embedding"""
    begin: str = "zero"
    """zero: outputs of blocks start at 0, so depth does not matter at first; gpt2: normal, scaled by depth"""


class GPT(nn.Module):
    """Reads ids and says, at every position, how likely each token is to come next."""

    def __init__(self, config: GPTConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.dim)
        self.decoder = Transformer(config)
        self.head = nn.Linear(config.dim, vocabulary, bias=False)
        initialise(self, config.depth)
        if config.tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor, *, cache: KVCache | None = None, count: Tensor | None = None) -> Tensor:
        x = self.embedding(ids)  # (B, T, D)
        x = self.decoder(x, mask=Causal(), cache=cache, count=count)
        logits: Tensor = self.head(x)  # (B, T, V)
        return logits
