"""Tags: the best row of tags, of those whose neighbours may stand together.

Shapes: T words, N tags.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def best_tags(scores: Tensor, joins: Tensor) -> Tensor:
    """The tags (T,) with the largest sum of scores (T, N).

    joins (N + 1, N + 1): whether a tag may come after another; the last row is the beginning, the last column the end.
    """
    free = scores.argmax(-1)
    around = F.pad(free, (1, 1), value=len(joins) - 1)
    if bool(joins[around[:-1], around[1:]].all()):
        return free
    step = torch.zeros_like(joins, dtype=scores.dtype).masked_fill(~joins, -math.inf)
    best, before = scores[0] + step[-1, :-1], list[Tensor]()  # Viterbi: the best row that ends in each tag
    for row in scores[1:]:
        best, chosen = (best[:, None] + step[:-1, :-1]).max(0)
        best = best + row
        before.append(chosen)
    path = [(best + step[:-1, -1]).argmax()]
    for chosen in reversed(before):
        path.append(chosen[path[-1]])
    return torch.stack(path[::-1])
