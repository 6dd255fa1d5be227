"""Image processors of pretrained models as formats of image tasks, and the other way round."""

from __future__ import annotations

from saccade.core import Base
from saccade.errors import UsageError
from saccade.models.vision.encoder import VisionEncoder
from saccade.pretrained.image_processors import ImageProcessor, ImageTextProcessor
from saccade.tasks._vision.image_format import ImageFormat


def base_processor(base: Base, ref: str) -> ImageProcessor | None:
    """Return the image processor of a pretrained model, if any; a model that reads something else is refused."""
    if base is None or base.processor is None:
        return None
    processor = base.processor.image if isinstance(base.processor, ImageTextProcessor) else base.processor
    if not isinstance(processor, ImageProcessor):
        kind = base.task if base.family is None else base.family.name
        raise UsageError(f"base must be a model that reads images of one size, but {ref} is a {kind}")
    return processor


def format_of(processor: ImageProcessor) -> ImageFormat:
    """Return how a pretrained model reads images."""
    resize, crop = processor.resize, processor.crop
    square = len({*resize}) == 1 and len({*crop}) <= 1 and max(crop, default=0) <= resize[0]
    if not square or not (crop or len(resize) == 2):
        sizes = f"{list(resize) or 'none'} and {list(crop) or 'none'}"
        raise UsageError(
            f"the image processor must resize to a square, or crop one, but its size and crop_size are {sizes}; "
            "such a model cannot run as it is, but can be trained from with size=N"
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
