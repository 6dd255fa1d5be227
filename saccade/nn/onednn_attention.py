"""Attention over long rows without a mask by oneDNN's products, where they are faster than the fused kernel's.

The fused kernel of torch multiplies by MKL, which leaves the AVX-512 units of some processors idle (`nn/linear.py`).
Shapes: B rows, H heads, G key/value heads, Q queries, K keys, E head width.
"""

import torch
from torch import Tensor

from saccade.nn.linear import onednn_linear, onednn_pays

MIN_TOKENS = 512  # queries and keys from which it is faster
BLOCK = 256  # queries at once: their scores stay in the cache of a core


def attends_by_onednn(q: Tensor, k: Tensor) -> bool:
    """Whether attention without a mask is computed here: of long rows in float32, without gradients."""
    if min(q.shape[2], k.shape[2]) < MIN_TOKENS or not onednn_pays():
        return False
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu") or torch.is_grad_enabled():
        return False
    return q.dtype == k.dtype == torch.float32 and q.device.type == k.device.type == "cpu"


def onednn_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Return softmax(scale q k) v: (B, H, Q, E); one head at a time, a block of queries after the other."""
    rows, heads, queries, _ = q.shape
    group = heads // k.shape[1]
    out = q.new_empty(rows, queries, heads, v.shape[3])  # so that the heads of a query are one vector
    for row in range(rows):
        for head in range(heads):
            scaled = q[row, head] * scale
            keys, values = k[row, head // group].contiguous(), v[row, head // group].t().contiguous()
            for first in range(0, queries, BLOCK):
                weights = onednn_linear(scaled[first : first + BLOCK], keys, None).softmax(-1)  # (block, K)
                out[row, first : first + BLOCK, head] = onednn_linear(weights, values, None)
    return out.transpose(1, 2)
