"""Graph Transformer: attention along edges with edge features as score bias, a sum over neighbours, and positions.

A Generalization of Transformer Networks to Graphs (https://arxiv.org/abs/2012.09699); the sum over neighbours, which
counts what attention averages, is that of GIN (https://arxiv.org/abs/1810.00826).
Shapes: N nodes, M edges, F features, A edge features, P positions, D width, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.graph.inputs import GraphInputs
from saccade.nn.ablation import patch_embeddings
from saccade.nn.attention import Attention
from saccade.nn.edges import edge_sum
from saccade.nn.kernels import dropout
from saccade.nn.layers import FeedForward, ResidualStep
from saccade.nn.linear import Linear
from saccade.nn.listeners import emit
from saccade.nn.transformer import StackInput, StackOutput


@dataclass(frozen=True)
class GraphTransformerConfig:
    """The shape of a graph Transformer."""

    dim: int = 64
    """width of the residual stream"""
    depth: int = 4
    """number of layers"""
    heads: int = 4
    """attention heads; dim must be a multiple of it"""
    hidden: int = 128
    """inner width of the feed-forward layers"""
    neighbour_sum: bool = True
    """whether each feed-forward layer also reads the sum over the neighbours, which counts them"""
    norm: Literal["batch", "layer"] = "batch"
    """batch: over the nodes of a batch, as in GIN; layer: over the features of a node"""
    position: Literal["none", "random_walk", "laplacian"] = "random_walk"
    """structural positions of the nodes; random_walk: probabilities of return; laplacian: eigenvectors of the graph,
    whatever their sign"""
    positions: int = 8
    """number of steps of the random walk, or of eigenvectors"""
    dropout: float = 0.0
    """dropout probability before each residual connection"""
    attention_dropout: float = 0.0
    """dropout probability of the attention weights"""

    def __post_init__(self) -> None:
        for name, least in (("dim", 1), ("depth", 1), ("heads", 1), ("hidden", 1), ("positions", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        if self.dim % self.heads:
            raise ValueError(f"dim must be a multiple of heads, but {self.dim} is not a multiple of {self.heads}")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, but is {getattr(self, name)}")


class NodeNorm(nn.Module):
    """Batch norm over nodes (1, N, D), or layer norm."""

    def __init__(self, kind: str, dim: int) -> None:
        super().__init__()
        self.norm: nn.Module = nn.BatchNorm1d(dim) if kind == "batch" else nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(x[0])
        return y[None]


class SignInvariant(nn.Module):
    """A function of eigenvectors that is the same for v and -v: f(v) + f(-v) (https://arxiv.org/abs/2202.13013)."""

    WIDTH = 16

    def __init__(self, count: int, dim: int) -> None:
        super().__init__()
        self.first = Linear(1, self.WIDTH)
        self.second = Linear(self.WIDTH, self.WIDTH)
        self.out = Linear(count * self.WIDTH, dim)

    def forward(self, positions: Tensor) -> Tensor:
        v = positions[..., None]  # (N, P, 1)
        both = self.second(F.relu(self.first(v))) + self.second(F.relu(self.first(-v)))  # (N, P, WIDTH)
        result: Tensor = self.out(both.flatten(1))  # (N, D)
        return result


class GraphLayer(nn.Module):
    """Attention along edges, then a feed-forward layer over each node and the sum of its neighbours."""

    def __init__(self, config: GraphTransformerConfig, edge_features: int) -> None:
        super().__init__()
        self.config = config
        self.self = Attention(config.dim, config.heads, dropout=config.attention_dropout)
        self.edge_bias = Linear(edge_features, config.heads, bias=False)
        self.edge_weight = Linear(edge_features, config.heads, bias=False)
        self.self_norm, self.feed_norm = (NodeNorm(config.norm, config.dim) for _ in range(2))
        self.feed = FeedForward(config.dim, config.hidden, "relu")
        nn.init.zeros_(self.edge_bias.weight)
        nn.init.zeros_(self.edge_weight.weight)

    def forward(self, x: Tensor, inputs: GraphInputs) -> Tensor:
        """Return the nodes (1, N, D)."""
        features = inputs.edge_features.to(x.dtype)
        biased = inputs.edges.with_bias(self.edge_bias(features))
        attended = dropout(self.self(self.self_norm(x), mask=biased), self.config.dropout, self.training)
        before, x = x, x + attended
        emit(self.self_norm, ResidualStep(before, attended, attended, x))
        y = self.feed_norm(x)
        if self.config.neighbour_sum:
            weights = 1 + self.edge_weight(features).t()[None]  # (1, H, M)
            heads = y.unflatten(-1, (self.config.heads, -1)).transpose(1, 2)  # (1, H, N, E)
            y = y + edge_sum(weights, heads, inputs.edges).transpose(1, 2).flatten(2)
        fed = dropout(self.feed(y), self.config.dropout, self.training)
        result: Tensor = x + fed
        emit(self.feed_norm, ResidualStep(x, fed, fed, result))
        return result


class GraphTransformer(nn.Module):
    """A stack of layers over the nodes of graphs."""

    def __init__(self, config: GraphTransformerConfig, features: int, edge_features: int) -> None:
        super().__init__()
        self.config, self.dim = config, config.dim
        self.embed = Linear(features, config.dim)
        self.position: nn.Module | None = None
        if config.position == "random_walk":
            self.position = Linear(config.positions, config.dim, bias=False)
        elif config.position == "laplacian":
            self.position = SignInvariant(config.positions, config.dim)
        for layer in range(config.depth):  # a map is called encoder.0.self
            self.add_module(str(layer), GraphLayer(config, edge_features))
        self.norm = NodeNorm(config.norm, config.dim)

    def forward(self, inputs: GraphInputs, states: list[Tensor] | None = None) -> Tensor:
        """Return the nodes (1, N, D); `states` is filled with the output of each layer, the last after the norm."""
        dtype = self.embed.weight.dtype
        x, position = self.embed(inputs.nodes.to(dtype))[None], None  # (1, N, D)
        if self.position is not None:
            position = self.position(inputs.positions.to(dtype))[None]
        emit(self, StackInput(x, position))
        x = patch_embeddings(x if position is None else x + position)
        for layer in range(self.config.depth):
            x = self.get_submodule(str(layer))(x, inputs)
            if states is not None:
                states.append(x)
        result: Tensor = self.norm(x)
        emit(self, StackOutput(result))
        if states is not None:
            states[-1] = result
        return result


def pool_nodes(x: Tensor, offsets: Tensor) -> Tensor:
    """Return mean, maximum and sum of the nodes of each graph, side by side: (1, N, D) -> (G, 3 D)."""
    parts = [torch.segment_reduce(x[0], kind, offsets=offsets, axis=0) for kind in ("mean", "max", "sum")]
    return torch.cat(parts, dim=-1)
