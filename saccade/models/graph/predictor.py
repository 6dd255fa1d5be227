"""Predictors over graphs: an encoder of the nodes and an output for each node, or for each graph.

Shapes: N nodes, G graphs, D width, V outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.graph.gat import GAT, GATConfig
from saccade.models.graph.inputs import GraphInputs
from saccade.models.graph.transformer import GraphTransformer, GraphTransformerConfig, pool_nodes
from saccade.nn.linear import Linear


@dataclass(frozen=True)
class GraphModelConfig:
    """Which network reads the graphs."""

    architecture: Literal["gat", "transformer"] = "transformer"
    """gat: graph attention network; transformer: graph Transformer with structural positions"""
    gat: GATConfig = field(default_factory=GATConfig)
    transformer: GraphTransformerConfig = field(default_factory=GraphTransformerConfig)

    @property
    def positions(self) -> tuple[str, int]:
        """Kind and number of the structural positions of a node."""
        if self.architecture == "gat":
            return "none", 0
        return self.transformer.position, self.transformer.positions if self.transformer.position != "none" else 0


class GraphPredictor(nn.Module):
    """An encoder with outputs for each node or each graph: logits, or one standardized number."""

    def __init__(
        self,
        config: GraphModelConfig,
        features: int,
        edge_features: int,
        outputs: int,
        *,
        pooled: bool,
        l2: float = 0.0,
    ) -> None:
        super().__init__()
        self.config, self.pooled, self.l2 = config, pooled, l2
        direct = config.architecture == "gat" and not pooled  # its last layer gives the logits
        if config.architecture == "gat":
            width = outputs if direct else config.gat.heads * config.gat.width
            self.encoder: GAT | GraphTransformer = GAT(config.gat, features, width)
        else:
            self.encoder = GraphTransformer(config.transformer, features, edge_features)
        parts = 3 if pooled else 1
        self.norm = nn.LayerNorm(parts * self.encoder.dim) if pooled else nn.Identity()
        self.head: nn.Module = nn.Identity() if direct else Linear(parts * self.encoder.dim, outputs)

    def forward(self, inputs: GraphInputs, targets: Tensor | None = None, nodes: Tensor | None = None) -> Tensor:
        """Return the outputs (N or G, V), or with targets the mean loss, of some nodes only where `nodes` are given."""
        outputs = self.outputs(self.encoder(inputs), inputs.offsets)
        if targets is None:
            return outputs
        if nodes is not None:
            outputs = outputs[nodes]
        if targets.is_floating_point():
            return F.mse_loss(outputs[:, 0], targets)
        loss = F.cross_entropy(outputs, targets)
        if self.l2:
            loss = loss + self.l2 / 2 * torch.stack([weight.square().sum() for weight in self.parameters()]).sum()
        return loss

    def outputs(self, x: Tensor, offsets: Tensor) -> Tensor:
        """Return the outputs (N or G, V) of encoded nodes (1, N, D)."""
        result: Tensor = self.head(self.norm(pool_nodes(x, offsets) if self.pooled else x[0]))
        return result

    def by_layer(self, inputs: GraphInputs) -> list[tuple[str, Tensor]]:
        """Return the outputs that each layer of the encoder would give (logit lens); the last are those returned."""
        states: list[Tensor] = []
        self.encoder(inputs, states)
        depth = self.encoder.config.depth
        layers = [self.encoder.norm(x) for x in states[:-1]] if isinstance(self.encoder, GraphTransformer) else []
        named = zip(range(depth - len(states), depth), [*layers, states[-1]], strict=True)
        return [(f"encoder.{number}", self.outputs(x, inputs.offsets)) for number, x in named]
