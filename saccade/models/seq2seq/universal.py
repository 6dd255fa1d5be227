"""Universal Transformer: one repeated block, with adaptive steps per token (https://arxiv.org/abs/1807.03819).

Shapes: B rows, S source tokens, T target tokens, D width.
"""

from dataclasses import dataclass

from torch import Tensor

from saccade.models.seq2seq.interface import Memory, Vocabularies
from saccade.models.seq2seq.transformer import Embedded, TranslatorConfig
from saccade.nn.cache import KVCache
from saccade.nn.masks import Causal, Padding
from saccade.nn.universal import Universal


@dataclass(frozen=True)
class UniversalConfig(TranslatorConfig):
    """One block for the encoder and one for the decoder; depth and decoder_depth are the maximum number of steps."""

    depth: int = 4
    """maximum number of steps for a source token"""
    decoder_depth: int = 3
    """maximum number of steps for a target token"""
    threshold: float = 0.99
    """a token stops when its halting probabilities sum to this"""
    ponder: float = 0.01
    """weight of the ponder cost (steps per token) in the loss"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth < 1:
            raise ValueError(f"depth must be at least 1, but is {self.depth}")
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold must be above 0 and below 1, but is {self.threshold}")
        if self.ponder < 0:
            raise ValueError(f"ponder must be 0 or more, but is {self.ponder}")


class UniversalTranslator(Embedded):
    """One shared block per stack: the number of parameters does not depend on the number of steps."""

    def __init__(self, config: UniversalConfig, sizes: Vocabularies) -> None:
        super().__init__(config, sizes)
        self.encoder = Universal(config, config.depth, config.threshold)
        self.decoder = Universal(config, config.decoder_depth, config.threshold, config.dim)
        self.init_weights(sizes)

    def encode(self, source: Tensor, keep: Tensor) -> Memory:
        values, halting = self.encoder(self.embed(self.source, source), mask=Padding(keep))
        return Memory(values, keep, halting=[halting])

    def decode(self, ids: Tensor, memory: Memory, *, cache: KVCache | None = None) -> Tensor:
        x = self.embed(self.target, ids)
        out: Tensor
        out, halting = self.decoder(x, memory.values, mask=Causal(), memory_mask=Padding(memory.keep), cache=cache)
        memory.halting.append(halting)
        return out
