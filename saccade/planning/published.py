"""Plan of a published architecture: parameters, FLOPs, memory with its variants, splits, time and cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from saccade.config import override
from saccade.errors import UsageError
from saccade.models.seq2seq.transformer import Translator
from saccade.models.text.bert import Bert
from saccade.models.text.gpt import GPT
from saccade.planning import splits
from saccade.planning.cost import Cluster
from saccade.planning.counting import build, count, usual_count
from saccade.planning.flops import forward_flops, total_flops, training_flops
from saccade.planning.hardware import DEVICES
from saccade.planning.memory import RECIPES, kv_cache
from saccade.planning.shapes import ARCHITECTURES, Architecture, find_architecture
from saccade.planning.steps import TracedNetworks, one_loss

DEPTHS = (16, 17)  # layers that are traced of a deeper stack: every further one needs as much as the last of these
MAX_DEPTH = 24  # layers of a stack that is traced as a whole
CHANGEABLE = ("dim", "depth", "heads", "hidden", "vocabulary", "context")
VARIANTS = [(fused, checkpointing) for fused in (True, False) for checkpointing in (False, True)]


@dataclass(frozen=True)
class Shape:
    """Settings of a published architecture that can be changed."""

    dim: int
    depth: int
    heads: int
    hidden: int
    vocabulary: int
    context: int

    def __post_init__(self) -> None:
        for name in ("dim", "depth", "heads", "vocabulary", "context"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if self.dim % self.heads:
            raise ValueError(f"dim must be a multiple of heads, but {self.dim} is not a multiple of {self.heads}")


def change(architecture: Architecture, overrides: list[str]) -> Architecture:
    """Return an architecture with other shapes, by `key=value` overrides."""
    shape = override(Shape(**{name: getattr(architecture, name) for name in CHANGEABLE}), overrides)
    return replace(architecture, **asdict(shape))


def table(utilisation: float) -> list[dict[str, Any]]:
    """Return the rows of the published table, each counted and estimated from its shape alone."""
    return [_row(name, architecture, utilisation) for name, architecture in ARCHITECTURES.items()]


def _row(name: str, architecture: Architecture, utilisation: float) -> dict[str, Any]:
    counted = count(architecture)
    row: dict[str, Any] = {
        "name": name,
        "title": architecture.title,
        "layers": architecture.layers,
        "width": architecture.dim,
        "heads": architecture.heads,
        "parameters": counted.total,
        "terms": counted.terms,
        "stated": architecture.stated,
        "stated_text": architecture.stated_text,
        "difference": counted.total / architecture.stated - 1,
        "usual_count": usual_count(architecture),
        "reason": architecture.reason.format(usual=_short(usual_count(architecture))),
        "data": architecture.data,
        "tokens": architecture.tokens or None,
        "flops": total_flops(architecture) if architecture.tokens else None,
        "paper": architecture.paper,
    }
    training = architecture.training
    if training is None:
        return row
    cluster = Cluster(DEVICES[training.device], training.count, utilisation, training.price)
    row |= {"hardware": training.published, "utilisation": utilisation, "published_hours": training.hours}
    row["estimated_hours"] = cluster.seconds(total_flops(architecture)) / 3600
    if training.price and training.hours:
        row |= {"price": training.price, "dollars": cluster.dollars(training.hours)}
    return row


def _short(number: float) -> str:
    return f"{number / 1e9:,.1f}B" if number >= 1e9 else f"{number / 1e6:,.1f}M"


@dataclass(frozen=True)
class Request:
    """What a plan of a published architecture is asked for."""

    cluster: Cluster
    rows: int = 1
    """of a micro-batch of a device"""
    tokens: float = 0.0
    """of the whole training; 0: those of the paper"""
    split: bool = False

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise UsageError(f"batch must be at least 1, but is {self.rows}")
        if self.tokens < 0:
            raise UsageError(f"tokens must be 0 or more, but is {self.tokens:g}")


def plan_published(name: str, overrides: list[str], request: Request) -> dict[str, Any]:
    """Return the plan of a published architecture, in bfloat16 with a float32 copy and the moments of Adam."""
    architecture, recipe = change(find_architecture(name), overrides), RECIPES["mixed"]
    counted, cluster = count(architecture), request.cluster
    variants = [
        {"fused_attention": fused, "checkpointing": checkpointing, **_activations(architecture, request.rows, *pair)}
        for pair in VARIANTS
        for fused, checkpointing in [pair]
    ]
    result: dict[str, Any] = {
        "kind": "published",
        "name": name,
        "title": architecture.title,
        "layers": architecture.layers,
        **{field: getattr(architecture, field) for field in ("dim", "heads", "vocabulary", "context", "paper")},
        "parameters": counted.total,
        "terms": counted.terms,
        "forward_flops_per_row": forward_flops(architecture),
        "training_flops_per_row": training_flops(architecture),
        "memory": {
            "recipe": "bfloat16 weights and gradients, float32 copy and two moments of Adam",
            "weights": counted.total * recipe.weights,
            "gradients": counted.total * recipe.gradients,
            "optimizer": counted.total * recipe.optimizer,
            "rows": request.rows,
            "variants": variants,
            "kv_cache_per_row": kv_cache(architecture),
        },
    }
    result |= _time(architecture, request)
    load = splits.Load(
        counted.total,
        architecture.layers,
        architecture.dim,
        architecture.context,
        request.rows,
        variants[0]["working"],
        recipe,
        cluster.count,
    )
    result["advice"] = splits.advice(load, cluster.device, cluster.count)
    result["largest_unsplit"] = splits.largest(cluster.device, recipe)
    if request.split:
        result["micro_batches"] = load.micro_batches
        result["splits"] = [_split(split, cluster) for split in splits.splits(load, cluster.count)]
    return result


def _split(split: splits.Split, cluster: Cluster) -> dict[str, Any]:
    device = cluster.device
    others = {"memory": split.memory, "fits": split.fits(device), "link_seconds": split.seconds(device)}
    return {**asdict(split), **others}


def _time(architecture: Architecture, request: Request) -> dict[str, Any]:
    """Return time and cost of the whole training; empty where the number of tokens is not known."""
    tokens = request.tokens or architecture.tokens
    cluster = request.cluster
    result: dict[str, Any] = {"device": asdict(cluster.device), "devices": cluster.count}
    result |= {"utilisation": cluster.utilisation, "tokens": tokens or None}
    if tokens:
        hours = cluster.seconds(total_flops(architecture, tokens)) / 3600
        result |= {"flops": total_flops(architecture, tokens), "hours": hours}
        if cluster.price:
            result |= {"price": cluster.price, "dollars": cluster.dollars(hours)}
    return result


def _activations(architecture: Architecture, rows: int, fused: bool, checkpointing: bool) -> dict[str, int]:
    """Return activations and working memory of a micro-batch in bytes, of a deep stack from two shorter ones."""
    if architecture.depth <= MAX_DEPTH:
        return _trace(architecture, rows, fused=fused, checkpointing=checkpointing)
    short, long = (
        _trace(replace(architecture, depth=depth), rows, fused=fused, checkpointing=checkpointing) for depth in DEPTHS
    )
    more = architecture.depth - DEPTHS[0]
    return {name: short[name] + more * (long[name] - short[name]) for name in short}


def _trace(architecture: Architecture, rows: int, *, fused: bool, checkpointing: bool) -> dict[str, int]:
    """Trace forward and backward pass in bfloat16 on the meta device, without an optimizer."""
    network = build(architecture).to(torch.bfloat16)
    traced = TracedNetworks({"model": network}, lambda *_: [], "meta", torch.bfloat16)
    ids = torch.zeros(rows, architecture.context, dtype=torch.int64, device="meta")
    losses = one_loss("model", lambda model: _loss(model, ids))
    trace = traced.trace(losses, fused=fused, checkpointing=checkpointing)
    return {"activations": trace.activations, "working": trace.working}


def _loss(network: nn.Module, ids: Tensor) -> Tensor:
    """Return the loss of a decoder, or of an encoder or a pair of stacks the sum of what they compute."""
    if isinstance(network, GPT):
        loss: Tensor = network(ids, ids)
        return loss
    if isinstance(network, Bert):
        features: Tensor = network(ids)
        return features.sum()
    assert isinstance(network, Translator)
    memory = network.encode(ids, torch.ones_like(ids, dtype=torch.bool))
    logits: Tensor = network.head(network.decode(ids, memory))
    return logits.sum()
