"""Image processors: how a picture becomes the pixels a pretrained network reads, as in preprocessor_config.json.

Resizing and cropping are those of transformers' Pillow classes, pixel for pixel. Shapes: H height, W width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.atomic_io import write_json
from saccade.data.images.resizing import check_resized
from saccade.errors import ModelFileError, UsageError
from saccade.models.vision.encoder import IMAGENET_MEAN, IMAGENET_STD, VisionEncoder
from saccade.pretrained.processors import TextProcessor
from saccade.pretrained.strict_json import read_object

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
MAX_SIDE = 1 << 14  # pixels
HALF = (0.5, 0.5, 0.5)
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
RESAMPLE: dict[int, Literal["lanczos", "bilinear", "bicubic"]] = {1: "lanczos", 2: "bilinear", 3: "bicubic"}

Colours = tuple[float, float, float]


@dataclass(frozen=True)
class ImageProcessor:
    """Resizing and cropping of a picture, and the mean and deviation by which a network normalizes its pixels."""

    resize: tuple[int, ...] = ()
    """(H, W), or (shorter side,) with the aspect ratio kept; empty: not resized"""
    crop: tuple[int, ...] = ()
    """(H, W) of the part in the centre, black where the picture is smaller; empty: not cropped"""
    interpolation: Literal["lanczos", "bilinear", "bicubic"] = "bicubic"
    mean: Colours = IMAGENET_MEAN
    std: Colours = IMAGENET_STD
    """of pixels from 0 to 1"""
    kind: str = "ViT"
    """class of transformers: {kind}ImageProcessor"""

    @property
    def size(self) -> int:
        """Shorter side of the result; 0: that of the picture."""
        return min(self.crop or self.resize, default=0)

    def apply(self, pixels: NDArray[np.uint8]) -> Tensor:
        """Return the pixels that a network reads: (H, W, 3) -> (3, H', W'), uint8."""
        if self.resize:
            pixels = self._resized(pixels)
        if self.crop:
            pixels = centre_crop(pixels, self.crop[0], self.crop[1])
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))

    def _resized(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        try:
            from PIL import Image
        except ImportError as error:
            raise UsageError("pictures need Pillow, which is not installed: pip install 'saccade[images]'") from error
        height, width = self._target(*pixels.shape[:2])
        check_resized((pixels.shape[0], pixels.shape[1]), (height, width), "picture")
        image = Image.fromarray(pixels).resize((width, height), Image.Resampling[self.interpolation.upper()])
        return np.asarray(image)

    def _target(self, height: int, width: int) -> tuple[int, int]:
        if len(self.resize) == 2:
            return self.resize[0], self.resize[1]
        short = self.resize[0]
        long = int(short * max(height, width) / min(height, width))
        return (long, short) if width <= height else (short, long)

    def normalize(self, encoder: VisionEncoder) -> None:
        """Let a network normalize pixels by this mean and deviation."""
        with torch.no_grad():
            encoder.mean.copy_(torch.tensor(self.mean))
            encoder.std.copy_(torch.tensor(self.std))

    def describe(self) -> dict[str, Any]:
        """Return a summary as JSON."""
        sizes = {"resize": list(self.resize), "crop": list(self.crop), "interpolation": self.interpolation}
        return {"image_processor": f"{self.kind}ImageProcessor", **sizes}

    def to_json(self) -> dict[str, Any]:
        """Return preprocessor_config.json."""
        resize, crop = self.resize, self.crop
        size = (
            {"shortest_edge": resize[0]} if len(resize) == 1 else dict(zip(("height", "width"), resize, strict=False))
        )
        return {
            "image_processor_type": f"{self.kind}ImageProcessor",
            "do_resize": bool(resize),
            **({"size": size} if resize else {}),
            "resample": next(number for number, name in RESAMPLE.items() if name == self.interpolation),
            "do_center_crop": bool(crop),
            **({"crop_size": {"height": crop[0], "width": crop[1]}} if crop else {}),
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
            "do_convert_rgb": True,
        }

    @classmethod
    def from_json(cls, path: Path, values: Mapping[str, Any], family: str) -> ImageProcessor:
        """Read the content of a preprocessor_config.json; `family` names the class where the file does not."""
        kind = _kind(path, values, family)
        values = {**DEFAULTS[kind], **{name: value for name, value in values.items() if value is not None}}
        if _flag(path, values, "do_pad"):
            raise _refusal(path, "do_pad must be false, but is true")
        resample = values["resample"]
        if type(resample) is not int or resample not in RESAMPLE:
            names = ", ".join(f"{number} ({name})" for number, name in RESAMPLE.items())
            raise _refusal(path, f"resample must be one of {names}, but is {str(resample)[:80]!r}")
        mean, std = _normalization(path, values)
        return cls(
            resize=_size(path, "size", values, square=kind in SQUARE) if _flag(path, values, "do_resize") else (),
            crop=_size(path, "crop_size", values) if _flag(path, values, "do_center_crop") else (),
            interpolation=RESAMPLE[resample],
            mean=mean,
            std=std,
            kind=kind,
        )


@dataclass(frozen=True)
class ImageTextProcessor:
    """The processors of a network over images and texts."""

    image: ImageProcessor
    text: TextProcessor

    @property
    def size(self) -> int:
        """Shorter side of the images; 0: that of the picture."""
        return self.image.size

    @property
    def interpolation(self) -> Literal["lanczos", "bilinear", "bicubic"]:
        return self.image.interpolation

    def describe(self) -> dict[str, Any]:
        """Return a summary as JSON."""
        return {**self.image.describe(), **self.text.describe()}


def _defaults(size: dict[str, int], crop: int, resample: int, mean: Colours, std: Colours) -> dict[str, Any]:
    flags = {"do_resize": True, "do_rescale": True, "do_normalize": True, "do_center_crop": crop > 0, "do_pad": False}
    values = {"size": size, "resample": resample, "image_mean": list(mean), "image_std": list(std)}
    return {**flags, **values, "crop_size": {"height": crop, "width": crop}, "rescale_factor": 1 / 255}


DEFAULTS = {  # of transformers' classes, by their names
    "ViT": _defaults({"height": 224, "width": 224}, 0, 2, HALF, HALF),
    "DeiT": _defaults({"height": 256, "width": 256}, 224, 3, HALF, HALF),
    "CLIP": _defaults({"shortest_edge": 224}, 224, 3, CLIP_MEAN, CLIP_STD),
    "Siglip": _defaults({"height": 224, "width": 224}, 0, 3, HALF, HALF),
}
SQUARE = ("ViT", "DeiT")  # a single number is both sides, elsewhere the shorter one
FAMILY_CLASSES = {"vit": "ViT", "deit": "DeiT", "clip": "CLIP", "siglip": "Siglip"}


def centre_crop(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Return the centre of a picture (H, W, 3), in the middle of a black one where it is smaller."""
    for axis, wanted in ((0, height), (1, width)):
        first = (pixels.shape[axis] - wanted) // 2
        if first >= 0:
            pixels = pixels.take(range(first, first + wanted), axis=axis)
        else:
            before, after = -first, wanted + first - pixels.shape[axis]
            pixels = np.pad(pixels, [(before, after) if number == axis else (0, 0) for number in range(3)])
    return pixels


def read_image_processor(folder: Path, config: Mapping[str, Any]) -> ImageProcessor:
    """Read the image processor of a folder whose config.json is `config`."""
    family = str(config.get("model_type"))
    if (folder / PROCESSOR).is_file():
        values = read_object(folder / PROCESSOR).get("image_processor")
        if isinstance(values, dict):
            return ImageProcessor.from_json(folder / PROCESSOR, values, family)
    if not (folder / PREPROCESSOR).is_file():
        raise ModelFileError(f"{folder} must hold {PREPROCESSOR}, but does not; download the complete model")
    return ImageProcessor.from_json(folder / PREPROCESSOR, read_object(folder / PREPROCESSOR), family)


def write_image_processor(processor: ImageProcessor, folder: Path) -> None:
    """Write preprocessor_config.json."""
    write_json(folder / PREPROCESSOR, processor.to_json())


def _kind(path: Path, values: Mapping[str, Any], family: str) -> str:
    """Return the name of transformers' class without its suffix."""
    if values.get("auto_map"):
        raise ModelFileError(f"{path}: auto_map refers to custom code, which is never run; choose a model without it")
    name = values.get("image_processor_type") or values.get("feature_extractor_type")
    name = f"{FAMILY_CLASSES.get(family)}ImageProcessor" if name is None else str(name)
    kind = name.removesuffix("Fast").replace("FeatureExtractor", "ImageProcessor").removesuffix("ImageProcessor")
    if kind not in DEFAULTS:
        supported = ", ".join(f"{kind}ImageProcessor" for kind in DEFAULTS)
        raise _refusal(path, f"image_processor_type must be one of {supported}, but is {name[:80]!r}")
    return kind


def _flag(path: Path, values: Mapping[str, Any], name: str) -> bool:
    if not isinstance(values[name], bool):
        raise _refusal(path, f"{name} must be true or false, but is {str(values[name])[:80]!r}")
    return bool(values[name])


def _size(path: Path, name: str, values: Mapping[str, Any], *, square: bool = True) -> tuple[int, ...]:
    """Return a size: {"height", "width"}, {"shortest_edge"}, a pair, or a number as older files have it."""
    value = values[name]
    if isinstance(value, int) and not isinstance(value, bool):
        value = (value, value) if square else (value,)
    elif isinstance(value, dict) and value.keys() == {"height", "width"}:
        value = (value["height"], value["width"])
    elif isinstance(value, dict) and value.keys() == {"shortest_edge"} and name == "size":
        value = (value["shortest_edge"],)
    elif not isinstance(value, list) or len(value) != 2:
        rule = f'{name} must be {{"height": ..., "width": ...}} or {{"shortest_edge": ...}}'
        raise _refusal(path, f"{rule}, but is {str(value)[:80]}")
    wrong = next((side for side in value if not _is_side(side)), None)
    if wrong is not None:
        raise _refusal(path, f"a side of {name} must be from 1 to {MAX_SIDE:,}, but is {str(wrong)[:80]!r}")
    return tuple(value)


def _is_side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SIDE


def _normalization(path: Path, values: Mapping[str, Any]) -> tuple[Colours, Colours]:
    """Return the mean and the deviation of pixels from 0 to 1 that give what rescaling and normalizing give."""
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if _flag(path, values, "do_normalize"):
        mean, std = _colours(path, values, "image_mean"), _colours(path, values, "image_std")
    factor = values["rescale_factor"] if _flag(path, values, "do_rescale") else 1.0
    if not _is_number(factor) or factor <= 0:
        raise _refusal(path, f"rescale_factor must be a positive number, but is {str(factor)[:80]!r}")
    if min(std) <= 0:
        raise _refusal(path, f"image_std must be positive, but is {list(std)}")
    scale = 1.0 if factor == 1 / 255 else 255 * factor
    first, second = (tuple(number / scale for number in numbers) for numbers in (mean, std))
    return (first[0], first[1], first[2]), (second[0], second[1], second[2])


def _colours(path: Path, values: Mapping[str, Any], name: str) -> Colours:
    value = values[name]
    numbers = [value] * 3 if _is_number(value) else value
    if not isinstance(numbers, list) or len(numbers) != 3 or not all(map(_is_number, numbers)):
        raise _refusal(path, f"{name} must be 3 numbers, but is {str(value)[:80]}")
    return float(numbers[0]), float(numbers[1]), float(numbers[2])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refusal(path: Path, rule: str) -> ModelFileError:
    return ModelFileError(f"{path}: {rule}; this image processor is not supported")
