"""CLIP: an image and a text encoder (https://arxiv.org/abs/2103.00020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from saccade.models.vision.clip import CLIP, CLIPConfig, TextConfig
from saccade.models.vision.vit import ViTConfig
from saccade.pretrained.families.family import Family, Names, read_activation, write_activation
from saccade.pretrained.families.mapping import WeightMapping, weight_and_bias
from saccade.pretrained.families.vit import patch_mapping
from saccade.pretrained.image_processors import ImageTextProcessor, read_image_processor, write_image_processor
from saccade.pretrained.processors import read_text_processor, write_text_processor

PUBLISHED: dict[str, Any] = {
    "norm": "layer",
    "position": "learned",
    "score": "scaled_dot",
    "bias": True,
    "inner_dropout": False,
    "init": "normal",
}
VISION: dict[str, Any] = {"class_token": True, "pooling": "class", "embedding_norm": True, "patch_bias": False}
TEXT: dict[str, Any] = {"causal": True, "pooling": "eos", "embedding_norm": False}
LARGEST_ID = 2  # the eos_token_id of the first checkpoints: the text ends at its largest id instead


@dataclass(frozen=True)
class CLIPTextFields:
    """Fields of text_config."""

    vocab_size: int = 49408
    hidden_size: int = 512
    intermediate_size: int = 2048
    num_hidden_layers: int = 12
    num_attention_heads: int = 8
    max_position_embeddings: int = 77
    hidden_act: str = "quick_gelu"
    layer_norm_eps: float = 1e-5
    attention_dropout: float = 0.0
    pad_token_id: int = 1
    eos_token_id: int = 49407


@dataclass(frozen=True)
class CLIPVisionFields:
    """Fields of vision_config."""

    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_channels: Literal[3] = 3
    image_size: int = 224
    patch_size: int = 32
    hidden_act: str = "quick_gelu"
    layer_norm_eps: float = 1e-5
    attention_dropout: float = 0.0


@dataclass(frozen=True)
class CLIPFields:
    """Fields of config.json; text_config_dict and vision_config_dict replace the others in some older files."""

    text_config: CLIPTextFields = field(default_factory=CLIPTextFields)
    vision_config: CLIPVisionFields = field(default_factory=CLIPVisionFields)
    text_config_dict: CLIPTextFields | None = None
    vision_config_dict: CLIPVisionFields | None = None
    projection_dim: int = 512


def read_config(fields: CLIPFields, _: Names) -> CLIPConfig:
    text, vision = fields.text_config_dict or fields.text_config, fields.vision_config_dict or fields.vision_config
    eos = -1 if text.eos_token_id == LARGEST_ID else text.eos_token_id
    return CLIPConfig(
        vision=vision_config(vision, VISION),
        text=text_config(text, {**TEXT, "eos_id": eos, "pad_id": text.pad_token_id}),
        projection=fields.projection_dim,
    )


def vision_config(fields: Any, published: dict[str, Any]) -> ViTConfig:
    """Return our config of the image encoder."""
    return ViTConfig(**_shape(fields), image_size=fields.image_size, patch=fields.patch_size, **PUBLISHED, **published)


def text_config(fields: Any, published: dict[str, Any]) -> TextConfig:
    """Return our config of the text encoder."""
    return TextConfig(**_shape(fields), max_positions=fields.max_position_embeddings, **PUBLISHED, **published)


def _shape(fields: Any) -> dict[str, Any]:
    return {
        "dim": fields.hidden_size,
        "depth": fields.num_hidden_layers,
        "heads": fields.num_attention_heads,
        "hidden": fields.intermediate_size,
        "activation": read_activation(fields.hidden_act),
        "epsilon": fields.layer_norm_eps,
        "attention_dropout": fields.attention_dropout,
    }


def write_config(config: CLIPConfig, network: nn.Module) -> dict[str, Any]:
    eos = LARGEST_ID if config.text.eos_id < 0 else config.text.eos_id
    return {
        "text_config": {**text_fields(config.text, network), "model_type": "clip_text_model", "eos_token_id": eos},
        "vision_config": {**vision_fields(config.vision), "model_type": "clip_vision_model"},
        "projection_dim": config.projection,
    }


def text_fields(config: TextConfig, network: nn.Module) -> dict[str, Any]:
    """Return text_config."""
    vocabulary = network.get_parameter("text.embedding.weight").shape[0]
    sizes = {"vocab_size": vocabulary, "max_position_embeddings": config.max_positions, "pad_token_id": config.pad_id}
    return {**_fields(config), **sizes}


def vision_fields(config: ViTConfig) -> dict[str, Any]:
    """Return vision_config."""
    if config.image_width or config.head_dim:
        raise ValueError("image_width and head_dim must be 0 in an image encoder of two")
    return {**_fields(config), "image_size": config.image_size, "patch_size": config.patch, "num_channels": 3}


def _fields(config: ViTConfig | TextConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.dim,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "hidden_act": write_activation(config.activation),
        "layer_norm_eps": 1e-5 if config.epsilon is None else config.epsilon,
        "attention_dropout": config.attention_dropout,
    }


def build(config: CLIPConfig, fields: Any, _: Names) -> nn.Module:
    text = getattr(fields, "text_config_dict", None) or fields.text_config
    return CLIP.from_config(config, text.vocab_size)


def body(config: CLIPConfig) -> list[WeightMapping]:
    dim = config.vision.dim
    return [
        WeightMapping("vision.tokens", ("vision_model.embeddings.class_embedding",), shapes=((dim,), (1, dim))),
        *weight_and_bias("vision.norm", "vision_model.pre_layrnorm"),
        *towers(config),
        WeightMapping("image_projection.weight", ("visual_projection.weight",)),
        WeightMapping("text_projection.weight", ("text_projection.weight",)),
        WeightMapping("logit_scale", ("logit_scale",)),
    ]


def towers(config: CLIPConfig) -> list[WeightMapping]:
    """Map what the encoders of CLIP and SigLIP have in common."""
    return [
        *(
            replace(mapping, name=f"vision.{mapping.name}")
            for mapping in patch_mapping(config.vision, "vision_model.embeddings.patch_embedding")
        ),
        WeightMapping("vision.position.table", ("vision_model.embeddings.position_embedding.weight",)),
        *_stack("vision.encoder", "vision_model", "post_layernorm", config.vision),
        WeightMapping("text.embedding.weight", ("text_model.embeddings.token_embedding.weight",)),
        WeightMapping("text.encoder.position.table.weight", ("text_model.embeddings.position_embedding.weight",)),
        *_stack("text.encoder", "text_model", "final_layer_norm", config.text),
    ]


def _stack(name: str, hf_name: str, norm: str, config: ViTConfig | TextConfig) -> list[WeightMapping]:
    mappings = weight_and_bias(f"{name}.norm", f"{hf_name}.{norm}")
    for layer in range(config.depth):
        ours, theirs = f"{name}.{layer}", f"{hf_name}.encoder.layers.{layer}"
        qkv = [f"{theirs}.self_attn.{part}_proj" for part in ("q", "k", "v")]
        mappings += weight_and_bias(f"{ours}.self.qkv", qkv, rows=(config.dim,) * 3)
        mappings += weight_and_bias(f"{ours}.self.out", f"{theirs}.self_attn.out_proj")
        mappings += weight_and_bias(f"{ours}.self_residual.norm", f"{theirs}.layer_norm1")
        mappings += weight_and_bias(f"{ours}.feed.up", f"{theirs}.mlp.fc1")
        mappings += weight_and_bias(f"{ours}.feed.down", f"{theirs}.mlp.fc2")
        mappings += weight_and_bias(f"{ours}.feed_residual.norm", f"{theirs}.layer_norm2")
    return mappings


def read_processor(folder: Path, values: Mapping[str, Any]) -> ImageTextProcessor:
    text = values.get("text_config_dict") or values.get("text_config") or {}
    config = {"vocab_size": CLIPTextFields.vocab_size, **text, "model_type": values.get("model_type")}
    return ImageTextProcessor(read_image_processor(folder, values), read_text_processor(folder, config))


def write_processor(processor: ImageTextProcessor, folder: Path) -> None:
    write_image_processor(processor.image, folder)
    write_text_processor(processor.text, folder)


def prepare(network: nn.Module, processor: ImageTextProcessor) -> None:
    """Let the image encoder normalize pixels as the processor does."""
    assert isinstance(network, CLIP)
    processor.image.normalize(network.vision)


FAMILY = Family(
    name="clip",
    fields=CLIPFields,
    config=CLIPConfig,
    task=lambda _: "image_text",
    read_config=read_config,
    write_config=write_config,
    build=build,
    body=body,
    head=(),
    prefix="",
    network_prefix="",
    architecture=lambda _: "CLIPModel",
    read_processor=read_processor,
    write_processor=write_processor,
    prepare=prepare,
    ignored=("position_ids",),
)
