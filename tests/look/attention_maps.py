"""Small attention maps for tests."""

import torch

from saccade.core import AttentionMap, Role, TokenAxis


def axis(count, words=(), role=Role.TEXT):
    return TokenAxis(role, tuple(f"w{number}" for number in range(count)), tuple(words))


def attention(weights, name="cross", queries=None, keys=None):
    weights = torch.as_tensor(weights, dtype=torch.float32)
    weights = weights if weights.dim() == 3 else weights[None]
    return AttentionMap(name, weights, queries or axis(weights.shape[1]), keys or axis(weights.shape[2]))


def random_attention(heads, rows, columns, **more):
    return attention(torch.rand(heads, rows, columns).softmax(-1), **more)
