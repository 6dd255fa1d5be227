"""ViT and ViTForImageClassification (https://arxiv.org/abs/2010.11929)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from saccade.models.vision.classifier import ImageClassifier
from saccade.models.vision.encoder import VisionEncoder
from saccade.models.vision.vit import ViT, ViTConfig
from saccade.pretrained.families.family import Family, Names, read_activation, write_activation
from saccade.pretrained.families.mapping import WeightMapping, weight_and_bias
from saccade.pretrained.image_processors import ImageProcessor, read_image_processor, write_image_processor

PUBLISHED: dict[str, Any] = {
    "norm": "layer",
    "position": "learned",
    "score": "scaled_dot",
    "bias": True,
    "inner_dropout": False,
    "class_token": True,
    "pooling": "class",
    "embedding_norm": False,
    "init": "normal",
}
QKV = ("query", "key", "value")
RENAMES = (  # of transformers' modules since 5.0
    ("layers.", "encoder.layer."),
    *((f"attention.{short}_proj", f"attention.attention.{name}") for short, name in zip("qkv", QKV, strict=True)),
    ("attention.o_proj", "attention.output.dense"),
    ("mlp.fc1", "intermediate.dense"),
    ("mlp.fc2", "output.dense"),
)


@dataclass(frozen=True)
class ViTFields:
    """Fields of config.json."""

    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    head_dim: int | None = None
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    layer_norm_eps: float = 1e-12
    image_size: int | list[int] = 224
    patch_size: int | list[int] = 16
    num_channels: Literal[3] = 3
    qkv_bias: bool = True


def read_config(fields: ViTFields, _: Names) -> ViTConfig:
    return config_of(fields, PUBLISHED)


def config_of(fields: ViTFields, published: dict[str, Any]) -> ViTConfig:
    """Return our config of a ViT or a DeiT."""
    height, width = sides("image_size", fields.image_size)
    return ViTConfig(
        dim=fields.hidden_size,
        depth=fields.num_hidden_layers,
        heads=fields.num_attention_heads,
        head_dim=fields.head_dim or 0,
        hidden=fields.intermediate_size,
        activation=read_activation(fields.hidden_act),
        dropout=fields.hidden_dropout_prob,
        embedding_dropout=fields.hidden_dropout_prob,
        attention_dropout=fields.attention_probs_dropout_prob,
        epsilon=fields.layer_norm_eps,
        image_size=height,
        image_width=0 if width == height else width,
        patch=square("patch_size", fields.patch_size),
        qkv_bias=fields.qkv_bias,
        **published,
    )


def sides(name: str, value: int | list[int]) -> tuple[int, int]:
    """Return the height and width of a field that is a number or a pair of numbers."""
    if isinstance(value, int):
        return value, value
    if len(value) != 2:
        raise ValueError(f"{name} must be one number or two, but is {str(value)[:80]}")
    return value[0], value[1]


def square(name: str, value: int | list[int]) -> int:
    """Return the side of a square."""
    height, width = sides(name, value)
    if height != width:
        raise ValueError(f"{name} must be a square, but is {height} x {width}")
    return height


def write_config(config: ViTConfig, _: nn.Module) -> dict[str, Any]:
    size: int | list[int] = [config.image_size, config.image_width] if config.image_width else config.image_size
    return {
        "hidden_size": config.dim,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        **({"head_dim": config.head_dim} if config.head_dim else {}),
        "intermediate_size": config.hidden,
        "hidden_act": write_activation(config.activation),
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "layer_norm_eps": 1e-5 if config.epsilon is None else config.epsilon,
        "image_size": size,
        "patch_size": config.patch,
        "num_channels": 3,
        "qkv_bias": config.qkv_bias,
    }


def build(config: ViTConfig, fields: Any, _: Names) -> nn.Module:
    return ViT(config)


def prepare(network: nn.Module, processor: ImageProcessor) -> None:
    """Let the encoder normalize pixels as the processor does."""
    encoder = network.encoder if isinstance(network, ImageClassifier) else network
    assert isinstance(encoder, VisionEncoder)
    processor.normalize(encoder)


def patch_mapping(config: ViTConfig, hf_name: str) -> list[WeightMapping]:
    """Map the embedding of patches, which the checkpoint has as a convolution."""
    size, pixels = config.patch, 3 * config.patch**2
    shapes = ((config.dim, 3, size, size), (config.dim, pixels))
    weight = WeightMapping("patch.weight", (f"{hf_name}.weight",), shapes=shapes)
    return [weight, WeightMapping("patch.bias", (f"{hf_name}.bias",))]


def body(config: ViTConfig) -> list[WeightMapping]:
    tokens = ("cls_token", "distillation_token")[: len(config.extra)]
    mappings = [
        WeightMapping(
            "tokens",
            tuple(f"embeddings.{name}" for name in tokens),
            rows=(1,) * len(tokens),
            shapes=((1, 1, config.dim), (1, config.dim)),
        ),
        WeightMapping("position.table", ("embeddings.position_embeddings",), squeeze=True),
        *patch_mapping(config, "embeddings.patch_embeddings.projection"),
        *weight_and_bias("encoder.norm", "layernorm"),
    ]
    for layer in range(config.depth):
        ours, theirs = f"encoder.{layer}", f"encoder.layer.{layer}"
        qkv = [f"{theirs}.attention.attention.{name}" for name in QKV]
        mappings += weight_and_bias(f"{ours}.self.qkv", qkv, rows=(config.heads * config.head_width,) * 3)
        mappings += weight_and_bias(f"{ours}.self.out", f"{theirs}.attention.output.dense")
        mappings += weight_and_bias(f"{ours}.self_residual.norm", f"{theirs}.layernorm_before")
        mappings += weight_and_bias(f"{ours}.feed.up", f"{theirs}.intermediate.dense")
        mappings += weight_and_bias(f"{ours}.feed.down", f"{theirs}.output.dense")
        mappings += weight_and_bias(f"{ours}.feed_residual.norm", f"{theirs}.layernorm_after")
    return mappings


FAMILY = Family(
    name="vit",
    fields=ViTFields,
    config=ViTConfig,
    task=lambda _: "image_classification",
    read_config=read_config,
    write_config=write_config,
    build=build,
    body=body,
    head=(),
    prefix="vit.",
    network_prefix="",
    architecture=lambda _: "ViTModel",
    read_processor=read_image_processor,
    write_processor=write_image_processor,
    prepare=prepare,
    renames=RENAMES,
    ignored=("mask_token",),
)
