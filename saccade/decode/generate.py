"""Generation: token after token from any model that reads ids through a cache.

Shapes: B rows, T tokens, V vocabulary.
"""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from saccade.decode.sampling import Sampling, choose
from saccade.nn.cache import KVCache


class Reads(Protocol):
    """A model that says what may come next after the ids (B, T) of this call: logits (B, T, V)."""

    def __call__(self, ids: Tensor, *, cache: KVCache | None = None) -> Tensor: ...


@torch.no_grad()
def generate(model: Reads, ids: Tensor, context: int, sampling: Sampling, seed: int) -> Iterator[Tensor]:
    """Endless next tokens (B,) after the prompt (B, T); the caller stops.

    When the context is full the older half is dropped and the rest is read again.
    """
    generator = torch.Generator().manual_seed(seed)
    used, unread, cache = ids, ids[:, -context:], KVCache(context)
    while True:
        if cache.longest + unread.shape[1] > context:
            cache, unread = KVCache(context), used[:, -max(1, context // 2) :]
        logits = model(unread, cache=cache)[:, -1]  # (B, V)
        chosen = choose(logits, used, sampling, generator)  # (B,)
        yield chosen
        unread = chosen[:, None]
        used = torch.cat((used, unread), dim=1)
