"""SigLIP: CLIP with a loss for each pair and attention pooling (https://arxiv.org/abs/2303.15343)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import nn

from saccade.models.vision.clip import CLIPConfig
from saccade.pretrained.families import clip
from saccade.pretrained.families.family import Names
from saccade.pretrained.families.mapping import WeightMapping, weight_and_bias

VISION: dict[str, Any] = {"class_token": False, "pooling": "attention", "embedding_norm": False, "patch_bias": True}
TEXT: dict[str, Any] = {"causal": False, "pooling": "last", "embedding_norm": False}


@dataclass(frozen=True)
class SiglipTextFields:
    """Fields of text_config."""

    vocab_size: int = 32000
    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    max_position_embeddings: int = 64
    hidden_act: str = "gelu_pytorch_tanh"
    layer_norm_eps: float = 1e-6
    attention_dropout: float = 0.0
    pad_token_id: int = 1
    projection_size: int | None = None


@dataclass(frozen=True)
class SiglipVisionFields:
    """Fields of vision_config."""

    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_channels: Literal[3] = 3
    image_size: int = 224
    patch_size: int = 16
    hidden_act: str = "gelu_pytorch_tanh"
    layer_norm_eps: float = 1e-6
    attention_dropout: float = 0.0
    vision_use_head: Literal[True] = True


@dataclass(frozen=True)
class SiglipFields:
    """Fields of config.json."""

    text_config: SiglipTextFields = field(default_factory=SiglipTextFields)
    vision_config: SiglipVisionFields = field(default_factory=SiglipVisionFields)


def read_config(fields: SiglipFields, _: Names) -> CLIPConfig:
    text, vision = fields.text_config, fields.vision_config
    return CLIPConfig(
        vision=clip.vision_config(vision, VISION),
        text=clip.text_config(text, {**TEXT, "pad_id": text.pad_token_id}),
        projection=text.projection_size or text.hidden_size,
        project_image=False,
        text_bias=True,
        loss="sigmoid",
    )


def write_config(config: CLIPConfig, network: nn.Module) -> dict[str, Any]:
    text = {**clip.text_fields(config.text, network), "projection_size": config.projection}
    return {
        "text_config": {**text, "model_type": "siglip_text_model"},
        "vision_config": {**clip.vision_fields(config.vision), "model_type": "siglip_vision_model"},
    }


def body(config: CLIPConfig) -> list[WeightMapping]:
    dim, head, pool = config.vision.dim, "vision_model.head", "vision.attention_pool"
    mappings = [
        *clip.towers(config),
        WeightMapping(f"{pool}.query", (f"{head}.probe",), shapes=((1, 1, dim), (1, dim))),
        *weight_and_bias(f"{pool}.cross.out", f"{head}.attention.out_proj"),
        *weight_and_bias(f"{pool}.norm", f"{head}.layernorm"),
        *weight_and_bias(f"{pool}.feed.up", f"{head}.mlp.fc1"),
        *weight_and_bias(f"{pool}.feed.down", f"{head}.mlp.fc2"),
        *weight_and_bias("text_projection", "text_model.head"),
        *(WeightMapping(name, (name,), shapes=((1,), ())) for name in ("logit_scale", "logit_bias")),
    ]
    for part, rows in (("q", (0, dim)), ("kv", (dim, 3 * dim))):
        mappings += [
            WeightMapping(f"{pool}.cross.{part}.{kind}", (f"{head}.attention.in_proj_{kind}",), part=rows)
            for kind in ("weight", "bias")
        ]
    return mappings


FAMILY = replace(
    clip.FAMILY,
    name="siglip",
    fields=SiglipFields,
    read_config=read_config,
    write_config=write_config,
    body=body,
    architecture=lambda _: "SiglipModel",
)
