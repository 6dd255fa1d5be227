"""Graph attention network: each layer is attention along the edges with one projection as q, k and v.

GAT, https://arxiv.org/abs/1710.10903. Shapes: N nodes, F features, D width, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.graph.inputs import GraphInputs
from saccade.nn.ablation import patch_embeddings
from saccade.nn.attention import Dot, Heads, LeakyAdditive
from saccade.nn.kernels import dropout
from saccade.nn.shared_attention import SharedAttention


@dataclass(frozen=True)
class GATConfig:
    """The shape of a graph attention network; the defaults are those published for Cora."""

    depth: int = 2
    """number of layers"""
    heads: int = 8
    """heads of each layer but the last"""
    width: int = 8
    """features of a head"""
    output_heads: int = 1
    """heads of the last layer, of whose outputs the mean is taken"""
    score: Literal["additive", "dot"] = "additive"
    """similarity of two nodes; additive: LeakyReLU(a.q + b.k) as published; dot: their scaled dot product"""
    dropout: float = 0.6
    """dropout probability of the inputs of each layer"""
    attention_dropout: float = 0.6
    """dropout probability of the attention weights"""

    def __post_init__(self) -> None:
        for name in ("depth", "heads", "width", "output_heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, but is {getattr(self, name)}")


class GAT(nn.Module):
    """A stack of layers of attention along edges; the last one gives the output of each node."""

    def __init__(self, config: GATConfig, features: int, outputs: int) -> None:
        super().__init__()
        self.config, self.dim = config, outputs
        for layer in range(config.depth):  # named "0", "1", ...: a map is called encoder.0
            last = layer == config.depth - 1
            heads = Heads(config.output_heads, width=outputs) if last else Heads(config.heads, width=config.width)
            inputs = features if layer == 0 else config.heads * config.width
            score = Dot() if config.score == "dot" else LeakyAdditive(heads.count, heads.width)
            attention = SharedAttention(inputs, heads, score=score, dropout=config.attention_dropout)
            self.add_module(str(layer), attention)

    def forward(self, inputs: GraphInputs, states: list[Tensor] | None = None) -> Tensor:
        """Return the output of each node (1, N, outputs); `states` is filled with it."""
        x = patch_embeddings(inputs.nodes[None].to(self.get_parameter("0.qkv.weight").dtype))  # (1, N, F)
        for layer in range(self.config.depth):
            x = dropout(x, self.config.dropout, self.training)
            x = self.get_submodule(str(layer))(x, mask=inputs.edges)  # (1, N, H E)
            if layer < self.config.depth - 1:
                x = F.elu(x)
        x = x.unflatten(-1, (self.config.output_heads, -1)).mean(-2)  # (1, N, outputs)
        if states is not None:
            states.append(x)
        result: Tensor = x
        return result
