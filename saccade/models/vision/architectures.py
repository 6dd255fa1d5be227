"""Image encoders by name."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from saccade.models.vision.efficientnet import EfficientNet, EfficientNetConfig
from saccade.models.vision.encoder import VisionEncoder
from saccade.models.vision.hybrid import Hybrid, HybridConfig
from saccade.models.vision.resnet import ResNet, ResNetConfig
from saccade.models.vision.vit import ViT, ViTConfig

Architecture = Literal["cnn", "cnn+attention", "hybrid", "vit"]
PATCHES = 8  # along each side of an image, where the settings do not say


@dataclass(frozen=True)
class ScratchViTConfig(ViTConfig):
    """Shape of a ViT that is trained from scratch."""

    image_size: int = 0
    """height and width of the images; 0: those of the data"""
    patch: int = 0
    """height and width of a patch in pixels; 0: an eighth of the image"""

    def __post_init__(self) -> None:
        if self.image_size and self.patch:
            super().__post_init__()


@dataclass(frozen=True)
class VisionConfig:
    """Architecture and its shape; only the shape of the chosen architecture is used."""

    architecture: Architecture = "cnn+attention"
    """cnn: convolutions; cnn+attention: with a self-attention module between them; hybrid: convolutions, then a
    Transformer; vit: a Transformer over patches"""
    cnn: ResNetConfig = field(default_factory=ResNetConfig)
    hybrid: HybridConfig = field(default_factory=HybridConfig)
    vit: ScratchViTConfig = field(default_factory=ScratchViTConfig)


def shape(config: VisionConfig, size: int) -> Any:
    """Return the config of the chosen encoder for images of `size` x `size` pixels."""
    if config.architecture == "vit":
        vit = config.vit
        values = {field.name: getattr(vit, field.name) for field in fields(ViTConfig)}
        return ViTConfig(
            **values | {"image_size": vit.image_size or size, "patch": vit.patch or max(1, size // PATCHES)}
        )
    return config.hybrid if config.architecture == "hybrid" else config.cnn


ENCODERS: dict[str, tuple[type[Any], Callable[[Any, int], VisionEncoder]]] = {
    "cnn": (ResNetConfig, lambda config, size: ResNet(config, attention=False, size=size)),
    "cnn+attention": (ResNetConfig, lambda config, size: ResNet(config, attention=True, size=size)),
    "hybrid": (HybridConfig, Hybrid),
    "vit": (ViTConfig, lambda config, size: ViT(config)),
    "efficientnet": (EfficientNetConfig, lambda config, size: EfficientNet(config)),
}
"""every encoder by name: the class of its config, and a function that builds it for images of a size"""
