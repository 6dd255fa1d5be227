"""Spectral norm: a weight divided by its largest singular value, which bounds how fast a layer can change its output.

Spectral Normalization for GANs (https://arxiv.org/abs/1802.05957). Shapes: O outputs, I inputs of a weight as a matrix.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

WARM_UP = 15  # power iterations on the initial weight
EPSILON = 1e-12
WEIGHTED = (nn.Linear, nn.Conv2d, nn.ConvTranspose2d, nn.Embedding)  # layers with the spectral norm


class SpectralNorm(nn.Module):
    """Weight divided by its largest singular value, estimated by one power iteration a call while training.

    Unlike torch.nn.utils.parametrizations.spectral_norm it keeps the left singular vector alone and uses its direction
    only, so that a moving average of weights and buffers is normalized as exactly as the weights themselves.
    """

    u: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("u", F.normalize(torch.randn(len(weight)), dim=0))  # (O,)
        for _ in range(WARM_UP):
            self._iterate(weight.flatten(1))

    @torch.no_grad()
    def _iterate(self, matrix: Tensor) -> None:
        self.u.copy_(F.normalize(matrix @ self._right(matrix), dim=0, eps=EPSILON))

    @torch.no_grad()
    def _right(self, matrix: Tensor) -> Tensor:
        """Return the right singular vector (I,) that belongs to the left one."""
        return F.normalize(matrix.t() @ self.u.to(matrix.dtype), dim=0, eps=EPSILON)

    def forward(self, weight: Tensor) -> Tensor:
        matrix = weight.flatten(1)  # (O, I)
        if self.training:
            self._iterate(matrix)
        normalized: Tensor = weight / (matrix @ self._right(matrix)).norm().clamp_min(EPSILON)
        return normalized


def normalize_spectrally(network: nn.Module) -> None:
    """Give every linear layer, convolution and embedding of a network the spectral norm."""
    for module in list(network.modules()):
        if isinstance(module, WEIGHTED):
            parametrize.register_parametrization(module, "weight", SpectralNorm(module.weight.detach()))
