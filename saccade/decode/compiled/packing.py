"""Packed matrices: weights in the layout that the compiled products read.

Shapes: O outputs, I inputs; a block is 16 outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from saccade.decode.compiled.emitter import LANES
from saccade.decode.compiled.products import KINDS
from saccade.nn.quantized import QuantizedLinear

PADDING = 32  # inputs are a multiple of this


@dataclass(frozen=True)
class Packed:
    """A matrix for `products.product`; it owns the memory whose addresses `fields` has."""

    kind: str
    data: NDArray[Any]
    scales: NDArray[Any]
    inputs: int
    blocks: int

    @property
    def fields(self) -> list[int]:
        """Kind, addresses of weights and scales, inputs, blocks, and the bytes of a block of weights, scales and y."""
        sizes = (self.data.nbytes // self.blocks, self.scales.nbytes // self.blocks)
        addresses = (self.data.ctypes.data, self.scales.ctypes.data)
        return [KINDS.index(self.kind), *addresses, self.inputs, self.blocks, *sizes, 4 * self.block]

    @property
    def block(self) -> int:
        """Outputs of a block; float32 weights stay as a linear layer has them, so that they need no second copy."""
        return 1 if self.kind == "float32" else LANES

    @property
    def outputs(self) -> int:
        """Number of outputs, padding included."""
        return self.blocks * self.block

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.scales.nbytes


def pack(layer: Any) -> Packed:
    """Return the matrix of a linear layer, quantized or not; float32 weights are used where they are if they can be."""
    if not isinstance(layer, QuantizedLinear):
        data = layer.weight.detach().contiguous()
        if layer.in_features % LANES:
            data = F.pad(data, (0, -layer.in_features % LANES))
        return Packed("float32", data.numpy(), np.zeros(len(data), np.float32), data.shape[1], len(data))
    rows = -layer.out_features % LANES
    padded = F.pad(layer.weight, (0, -layer.in_features % PADDING, 0, rows))
    blocks, inputs = len(padded) // LANES, padded.shape[1]
    if layer.kind == "float16":
        data, scales = padded.unflatten(0, (blocks, LANES)).transpose(1, 2), torch.zeros(blocks)
    elif layer.kind == "int8":
        data, scales = padded.view(blocks, LANES, inputs // 2, 2).transpose(1, 2), F.pad(layer.scales, (0, rows))
    else:
        data = _pack_int4(padded, blocks)
        halves = F.pad(layer.scales, (0, 0, 0, 0, 0, rows)).view(torch.int32) >> 16  # bfloat16: the lower half is 0
        scales = halves.to(torch.int16).unflatten(0, (blocks, LANES)).permute(0, 2, 3, 1)  # (blocks, groups, 2, 16)
    return Packed(layer.kind, data.contiguous().numpy(), scales.contiguous().numpy(), inputs, blocks)


def _pack_int4(weight: Tensor, blocks: int) -> Tensor:
    """Return weights (O, I) as (blocks, I / 8, 16, 2) of 16 bits: four inputs of one parity in 4 bits each."""
    octets = weight.to(torch.int32).view(blocks, LANES, -1, 4, 2)
    words = sum(octets[..., pair, :] << 4 * pair for pair in range(4))
    assert isinstance(words, Tensor)
    return words.to(torch.int16).transpose(1, 2)
