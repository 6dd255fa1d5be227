"""A film of training: the attention of one head in every snapshot of a run, on one colour scale, as a GIF."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from saccade.core import GridAxis
from saccade.errors import UsageError
from saccade.look import ramps
from saccade.look.draw import scale_text
from saccade.look.fonts import SIZE, text_mask
from saccade.look.labels import truncate, visible
from saccade.look.overlay import OverlayStyle, fit, overlay
from saccade.look.picture import EDGE, FRAME, INK, PAPER, SCALE, check_pillow, coloured, to_image

if TYPE_CHECKING:
    from PIL import Image

MILLISECONDS, LAST = 500, 2500  # of a frame, and of the last one
MOST = 200  # frames; of more snapshots some are left out
MATRIX, SMALLEST, LARGEST = 640, 8, 40  # pixels of a matrix, and of a cell
AREA = 480 * 480  # pixels of an image
LABEL, TITLE = 20, 70  # cells of the longest label and of the longest title
BAR, TRACK = 6, (217, 222, 228)  # pixels and colour of the bar that shows how much of the training is over


@dataclass(frozen=True)
class Step:
    """The weights of one head at a step of training."""

    number: int
    weights: Tensor  # (Q, K)


def training_film(
    title: str, snapshots: Sequence[tuple[int, Mapping[str, Any]]], head: int | None, style: OverlayStyle
) -> bytes:
    """Return a GIF with a frame for each snapshot: its step and its map as JSON; no head: the mean of all.

    Over an image it is the mean of all queries. The comment of the file has the step of each frame on its own line.
    """
    check_pillow("a film")
    if not snapshots:
        raise UsageError("a film of training needs attention snapshots, but this run has none")
    chosen = [*snapshots[:: -(-len(snapshots) // MOST)]]
    if chosen[-1] is not snapshots[-1]:
        chosen.append(snapshots[-1])
    steps = [Step(number, _weights(entry, head)) for number, entry in chosen]
    first = chosen[-1][1]
    if first["keys"]["kind"] == "grid":
        pictures, largest = _over_image(first["keys"], steps, style)
    else:
        pictures, largest = _matrices(first, steps, sqrt=style.sqrt)
    over_image = first["keys"]["kind"] == "grid"
    frames = [
        _frame(picture, title, step.number, (steps[-1].number, largest), None if over_image else style.sqrt)
        for picture, step in zip(pictures, steps, strict=True)
    ]
    return _gif(frames, [step.number for step in steps])


def _weights(entry: Mapping[str, Any], head: int | None) -> Tensor:
    """Return the weights of a head of a map as JSON, or their mean over the heads."""
    dtype, largest = ("<u2", 65535) if entry["encoding"] == "uint16" else ("u1", 255)
    values = np.frombuffer(base64.b64decode(entry["weights"]), dtype).astype(np.float32) / largest
    heads, queries, keys = entry["heads"], len(entry["queries"]["labels"]), len(entry["keys"]["labels"])
    weights = torch.from_numpy(values).reshape(heads, queries, keys)
    if head is not None and not 0 <= head < heads:
        raise UsageError(f"head must be 0 to {heads - 1}, but is {head}")
    return weights.mean(0) if head is None else weights[head]


def _matrices(entry: Mapping[str, Any], steps: Sequence[Step], *, sqrt: bool) -> tuple[list[Image.Image], float]:
    """Return the matrix of each step with its labels, and the largest weight of all."""
    from PIL import Image, ImageDraw

    largest = max(float(step.weights.max()) for step in steps)
    queries, keys = entry["queries"]["labels"], entry["keys"]["labels"]
    size = max(SMALLEST, min(LARGEST, MATRIX // max(len(queries), len(keys), 1)))
    every = -(-SIZE // size)  # labels that would overlap are skipped
    rows = [text_mask(truncate(visible(label), LABEL)) for label in queries[::every]]
    columns = [text_mask(truncate(visible(label), LABEL)).rotate(60, expand=True) for label in keys[::every]]
    left, above = max(row.width for row in rows) + 12, max(column.height for column in columns) + 4
    across, down = size * len(keys), size * len(queries)
    canvas = Image.new("RGB", (left + across + max(column.width for column in columns), above + down + 1), PAPER)
    for number, row in enumerate(rows):
        canvas.paste(INK, (left - 12 - row.width, above + number * every * size + (size - row.height) // 2), row)
    for number, column in enumerate(columns):
        canvas.paste(INK, (left + number * every * size + size // 2 - SIZE // 4, above - column.height - 2), column)
    pictures = []
    for step in steps:
        fractions = (step.weights / max(largest, 1e-9)).clamp(0, 1)
        levels = ((ramps.LEVELS - 1) * (fractions.sqrt() if sqrt else fractions)).round().long()
        picture = canvas.copy()
        picture.paste(coloured(levels, (across, down)), (left, above))
        ImageDraw.Draw(picture).rectangle((left - 1, above - 1, left + across, above + down), outline=FRAME)
        pictures.append(picture)
    return pictures, largest


def _over_image(axis: Mapping[str, Any], steps: Sequence[Step], style: OverlayStyle) -> tuple[list[Image.Image], float]:
    """Return the image with the mean of all queries over it at each step, and the largest mean of all."""
    extra = len(axis["extra"])
    cells = [step.weights.mean(0)[extra:].reshape(axis["rows"], axis["columns"]) for step in steps]
    grid = GridAxis(axis["role"], axis["rows"], axis["columns"], _pixels(axis.get("image")))
    largest, size = max(float(part.max()) for part in cells), fit(grid, AREA)
    return [to_image(overlay(grid, part, largest, size, style)) for part in cells], largest


def _pixels(url: str | None) -> Tensor | None:
    """Return the image of a data URL: uint8 (3, H, W)."""
    if not url:
        return None
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)


def _frame(picture: Image.Image, title: str, step: int, ends: tuple[int, float], sqrt: bool | None) -> Image.Image:
    """Return a frame: title and step, the picture, the colour scale, and a bar for how much of the training is over."""
    from PIL import Image, ImageDraw

    (last, largest), head = ends, text_mask(truncate(visible(title), TITLE))
    texts = [head, text_mask(f"step {step:,}")]
    if sqrt is None:
        texts.append(text_mask(f"mean of all queries, strongest colour {largest:.2g}"))
    low, high = text_mask("0"), text_mask(scale_text(largest, sqrt=bool(sqrt)))
    scale = low.width + SCALE + high.width + 16
    widest = text_mask(f"step {last:,}").width
    wide = max(picture.width, *(text.width for text in texts), widest, scale if sqrt is not None else 0) + 2 * EDGE
    top = EDGE + sum(text.height + 6 for text in texts) + 8
    below = low.height + 14 if sqrt is not None else 0
    canvas = Image.new("RGB", (wide, top + picture.height + below + EDGE + BAR + EDGE), PAPER)
    for number, text in enumerate(texts):
        canvas.paste(INK, (EDGE, EDGE + number * (head.height + 6)), text)
    canvas.paste(picture, (EDGE, top))
    if sqrt is not None:
        across = top + picture.height + 14
        canvas.paste(INK, (EDGE, across), low)
        bar = coloured(torch.tensor([ramps.scale(sqrt=sqrt, steps=SCALE)]), (SCALE, SIZE))
        canvas.paste(bar, (EDGE + low.width + 8, across + (low.height - SIZE) // 2))
        canvas.paste(INK, (EDGE + low.width + SCALE + 16, across), high)
    pen, bottom = ImageDraw.Draw(canvas), canvas.height - EDGE
    pen.rectangle((EDGE, bottom - BAR, wide - EDGE, bottom), fill=TRACK)
    pen.rectangle((EDGE, bottom - BAR, EDGE + round((wide - 2 * EDGE) * step / max(last, 1)), bottom), fill=INK)
    return canvas


def _gif(frames: Sequence[Image.Image], steps: Sequence[int]) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    first, *others = (frame.quantize(method=Image.Quantize.FASTOCTREE) for frame in frames)
    durations = [*([MILLISECONDS] * len(others)), LAST]
    comment = "\n".join(f"step {step}" for step in steps).encode()
    first.save(file, "GIF", save_all=True, append_images=others, duration=durations, loop=0, comment=comment)
    return file.getvalue()
