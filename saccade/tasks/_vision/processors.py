"""Image processors of pretrained models as formats of image tasks, and the other way round."""

from __future__ import annotations

from saccade.errors import UsageError
from saccade.models.vision.encoder import VisionEncoder
from saccade.pretrained.image_processors import ImageProcessor
from saccade.tasks._vision.task import ImageFormat


def format_of(processor: ImageProcessor) -> ImageFormat:
    """Return how a pretrained model reads images."""
    resize, crop = processor.resize, processor.crop
    square = len({*resize}) == 1 and len({*crop}) <= 1 and max(crop, default=0) <= resize[0]
    if not square or not (crop or len(resize) == 2):
        sizes = f"{list(resize) or 'none'} and {list(crop) or 'none'}"
        raise UsageError(
            f"the image processor must resize to a square, or crop one, but its size and crop_size are {sizes}; "
            "such a model is not supported"
        )
    size = crop[0] if crop else resize[0]
    return ImageFormat(size, resize[0], processor.interpolation, "crop" if len(resize) == 1 else "exact")


def processor_of(format: ImageFormat, encoder: VisionEncoder, kind: str) -> ImageProcessor:
    """Return how other tools read images as a task does; `kind`: their class, such as CLIP."""
    mean, std = encoder.mean.tolist(), encoder.std.tolist()
    squashed = format.mode == "exact"
    return ImageProcessor(
        resize=(format.stored, format.stored) if squashed else (format.stored,),
        crop=() if squashed and format.size == format.stored else (format.size, format.size),
        interpolation=format.interpolation,
        mean=(mean[0], mean[1], mean[2]),
        std=(std[0], std[1], std[2]),
        kind=kind,
    )
