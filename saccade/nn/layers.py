"""Position-wise layers: norms, feed-forward, residual connection; and weight initialization.

Shapes: B rows, T tokens, D width, F inner width.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.kernels import dropout, rms_normalize, squared_relu
from saccade.nn.linear import Linear
from saccade.nn.listeners import emit


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU in the tanh form of the GPT-2 release; slower than the exact one on a CPU."""
    return F.gelu(x, approximate="tanh")


def quick_gelu(x: Tensor) -> Tensor:
    """GELU as x sigmoid(1.702 x), as in CLIP (https://arxiv.org/abs/1606.08415)."""
    return F.silu(1.702 * x) / 1.702


Activation = Literal[
    "relu",
    "squared_relu",
    "gelu",
    "gelu_tanh",
    "quick_gelu",
    "silu",
    "swiglu",
    "geglu",
    "geglu_tanh",
    "reglu",
]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "squared_relu": squared_relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


# Gated feed-forward layers (https://arxiv.org/abs/2002.05202): the activation of the gate.
GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": F.silu,
    "geglu": F.gelu,
    "geglu_tanh": gelu_tanh,
    "reglu": F.relu,
}


class RMSNorm(nn.Module):
    """Scale a vector to root mean square 1, with or without a learned gain (https://arxiv.org/abs/1910.07467)."""

    def __init__(self, dim: int, *, gain: bool = True, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(dim)) if gain else None

    def forward(self, x: Tensor) -> Tensor:
        y = rms_normalize(x, self.epsilon)
        return y if self.weight is None else y * self.weight


def make_norm(kind: str, dim: int, *, bias: bool = True, epsilon: float | None = None) -> nn.Module:
    """Return a norm: 'layer' (mean 0, variance 1), 'rms' (root mean square 1) or 'plain_rms' (without a gain)."""
    if kind == "layer":
        return nn.LayerNorm(dim, bias=bias, eps=1e-5 if epsilon is None else epsilon)
    if kind in ("rms", "plain_rms"):
        return RMSNorm(dim, gain=kind == "rms", epsilon=1e-6 if epsilon is None else epsilon)
    raise ValueError(f"norm must be layer, rms or plain_rms, but is '{kind}'")


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, the same for every token.

    A gated one multiplies two linear projections, one of them through the activation.
    """

    def __init__(
        self, dim: int, hidden: int, activation: str = "gelu", *, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.gated = activation in GATES
        self.activation = GATES[activation] if self.gated else ACTIVATIONS[activation]
        self.up = Linear(dim, 2 * hidden if self.gated else hidden, bias=bias)
        self.down = Linear(hidden, dim, bias=bias)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        inner = self.up(x)  # (B, T, F or 2F)
        if self.gated:
            gate, value = inner.chunk(2, dim=-1)
            inner = self.activation(gate) * value  # (B, T, F)
        elif self.activation is F.gelu and not torch.is_grad_enabled():
            inner = torch.ops.aten.gelu_(inner)  # no second buffer of this size
        else:
            inner = self.activation(inner)
        if self.dropout:
            inner = dropout(inner, self.dropout, self.training)
        out: Tensor = self.down(inner)  # (B, T, D)
        return out


class ResidualStep(NamedTuple):
    """What a residual connection did; every tensor is (B, T, D)."""

    x: Tensor  # the residual stream before
    output: Tensor  # of the sub-layer
    update: Tensor  # what is added: the output, normalized where the model does so
    result: Tensor  # the residual stream after: x + update, normalized if the model is post-norm


class Residual(nn.Module):
    """Residual connection: x + f(norm(x)) (pre-norm) or norm(x + f(x)) (post-norm).

    With `update_norm`, f(...) is normalized too before it is added, as in Gemma.
    """

    def __init__(
        self,
        norm: nn.Module,
        *,
        norm_first: bool = True,
        update_norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm, self.norm_first, self.dropout = norm, norm_first, dropout
        self.update_norm = update_norm

    def forward(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the sum (B, T, D); a function that returns only the first tokens leaves only these."""
        output = function(self.norm(x) if self.norm_first else x)
        if output.shape[1] < x.shape[1]:
            x = x[:, : output.shape[1]]
        update = output if self.update_norm is None else self.update_norm(output)
        if self.dropout:
            update = dropout(update, self.dropout, self.training)
        result: Tensor = x + update if self.norm_first else self.norm(x + update)
        emit(self, ResidualStep(x, output, update, result))
        return result


def initialize_zero_residual(model: nn.Module) -> None:
    """Initialize every residual block as the identity and the output as 0, independent of the depth.

    Embeddings have variance 1, matrices 1 / in_features; the output layer (`head`) and the last layer of a residual
    block (`out`, `down`) are 0.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)
        elif isinstance(module, nn.Linear):
            zero = name.rpartition(".")[2] in ("out", "down", "head")
            nn.init.normal_(module.weight, std=0.0 if zero else 1 / math.sqrt(module.in_features))
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def initialize_xavier(model: nn.Module) -> None:
    """Initialize as the Transformer of 2017: Xavier uniform matrices, embeddings with std 1 / sqrt(D)."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def initialize_gpt2(model: nn.Module, depth: int = 0) -> None:
    """Initialize as GPT-2: std 0.02, and 0.02 / sqrt(2 depth) for the last layer of a residual block.

    Without a depth, as BERT: 0.02 everywhere.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            last = depth > 0 and name.rpartition(".")[2] in ("out", "down")
            nn.init.normal_(module.weight, std=0.02 / math.sqrt(2 * depth) if last else 0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
