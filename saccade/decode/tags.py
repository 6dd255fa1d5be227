"""Viterbi decoding: the best sequence of tags with allowed transitions.

Shapes: T words, N tags.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def viterbi(scores: Tensor, transitions: Tensor) -> Tensor:
    """Return the allowed sequence of tags (T,) with the largest sum of scores (T, N).

    transitions (N + 1, N + 1): whether a tag may follow another; the last row is the start, the last column the end.
    """
    greedy = scores.argmax(-1)
    padded = F.pad(greedy, (1, 1), value=len(transitions) - 1)
    if bool(transitions[padded[:-1], padded[1:]].all()):
        return greedy
    penalty = torch.zeros_like(transitions, dtype=scores.dtype).masked_fill(~transitions, -math.inf)
    best, previous = scores[0] + penalty[-1, :-1], list[Tensor]()  # score of the best sequence that ends in each tag
    for row in scores[1:]:
        best, chosen = (best[:, None] + penalty[:-1, :-1]).max(0)
        best = best + row
        previous.append(chosen)
    path = [(best + penalty[:-1, -1]).argmax()]
    for chosen in reversed(previous):
        path.append(chosen[path[-1]])
    return torch.stack(path[::-1])
