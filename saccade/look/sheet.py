"""Contact sheets: generated images side by side, as one image or as text for a terminal.

Shapes: C channels, H x W pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.atomic_io import new_file
from saccade.core import ImageOutput, Prediction
from saccade.core.outputs import png
from saccade.errors import ResourceError, UsageError
from saccade.look.shades import block, half_blocks

GAP, GROUND = 2, 128  # pixels between images, and their grey
SIDE = 14  # pixels of an image in a terminal, at most


def images_of(prediction: Prediction) -> list[Tensor]:
    """Return the images of a prediction and of its alternatives: uint8 (C, H, W)."""
    outputs = [other.output for other in (prediction, *prediction.alternatives)]
    return [output.pixels for output in outputs if isinstance(output, ImageOutput)]


def sheet(images: Sequence[Tensor], columns: int = 0) -> Tensor:
    """Return images of one size in rows and columns: uint8 (3, H, W); a single one as it is."""
    if len(images) == 1:
        return images[0]
    columns = columns or math.ceil(math.sqrt(len(images)))
    _, height, width = images[0].shape
    rows = -(-len(images) // columns)
    canvas = torch.full((3, rows * (height + GAP) + GAP, columns * (width + GAP) + GAP), GROUND, dtype=torch.uint8)
    for number, image in enumerate(images):
        top, left = (GAP + at * (side + GAP) for at, side in zip(divmod(number, columns), (height, width), strict=True))
        canvas[:, top : top + height, left : left + width] = image
    return canvas


def terminal(images: Sequence[Tensor], width: int, *, colour: bool) -> str:
    """Return images as text, as many side by side as fit."""
    blocks = [list(_lines(image, colour)) for image in images]
    wide = min(SIDE, images[0].shape[2])
    together = max(1, (width + 1) // (wide + 1))
    rows = [blocks[first : first + together] for first in range(0, len(blocks), together)]
    return "\n\n".join("\n".join(" ".join(parts).rstrip(" ") for parts in zip(*row, strict=True)) for row in rows)


def _lines(image: Tensor, colour: bool) -> Iterator[str]:
    height, width = (min(SIDE, side) for side in image.shape[1:])
    small = F.interpolate(image[None].float(), (height, width), mode="area")[0]
    if colour:
        yield from half_blocks(small.expand(3, -1, -1).round().byte())
        return
    for row in F.interpolate(small.mean(0)[None, None], (height // 2, width), mode="area")[0, 0] / 255:
        yield "".join(map(block, row.tolist()))


def write_sheet(prediction: Prediction, path: Path) -> None:
    """Write the images of a prediction as one PNG file."""
    images = images_of(prediction)
    if not images:
        raise UsageError(f"--out must be left out, since this model returns no image; see `saccade look` for {path}")
    if path.suffix.lower() != ".png":
        raise UsageError(f"--out must end on .png, but is '{path}'")
    try:
        with new_file(path) as file:
            file.write(png(sheet(images)))
    except OSError as error:
        raise ResourceError(f"cannot write {path}: {error.strerror}; choose another file with --out") from error
