"""A toy task with words over an image: a caption, or with a question its answer; it looks where its words say.

The attention is computed from the pixels, so that tests know where it must be. It trains as the toy classifier does.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image as Pillow
from torch import Tensor

from saccade import core
from saccade.core import AttentionMap, AttentionMaps, GridAxis, Prediction, Role, Split, TokenAxis
from tests.examples import toy_images

ROWS, COLUMNS, HEADS = 4, 6, 2
CAPTION = ("a", "bright", "square", "on", "the", "left")


class Task(toy_images.Task):
    """Say where the bright square is, with attention from every word to the image."""

    summary = "describe an image, or answer a question about it"
    inputs = (core.Image("image", help="any image"), core.Text("question", optional=True, help="such as: which side?"))

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        for values in inputs:
            pixels = _pixels(values["image"])
            cells = F.adaptive_avg_pool2d(pixels.float().mean(0)[None], (ROWS, COLUMNS))[0] / 255
            side = "left" if int(cells.argmax()) % COLUMNS < COLUMNS // 2 else "right"
            question = tuple(values.get("question", "").split())
            words = question or (*CAPTION[:-1], side)
            grid = GridAxis(Role.IMAGE, ROWS, COLUMNS, pixels)
            queries = TokenAxis(Role.TEXT if question else Role.TARGET, words)
            sharp = torch.stack([_focus(cells, word, number) for number, word in enumerate(words)])
            weights = torch.stack((sharp, torch.full_like(sharp, 1 / sharp.shape[1])))
            maps = [*_layers(cells, pixels), AttentionMap("decoder.0.cross", weights, queries, grid)]
            alignment = None if question else AttentionMap("decoder.0.cross", weights[:1], queries, grid)
            output = core.TextOutput(side if question else " ".join(words))
            yield Prediction(values, output, {"score": 1.0}, AttentionMaps(maps), alignment=alignment)

    rerun = core.Task.rerun  # there is no network behind the words

    def attention_snapshot(self) -> list[Prediction]:
        images = [{"image": pixels[None]} for pixels in self.parts[Split.VALID].pixels[:3]]
        return list(self.predict(images, core.PredictOptions(attention=True)))


def _focus(cells: Tensor, word: str, number: int) -> Tensor:
    """The weights of a word: 'square' looks at the brightest cell, the others along a diagonal."""
    best = int(cells.argmax()) if word == "square" else number % ROWS * COLUMNS + number % COLUMNS
    row, column = divmod(best, COLUMNS)
    distance = (torch.arange(ROWS)[:, None] - row) ** 2 + (torch.arange(COLUMNS)[None] - column) ** 2
    return (-1.2 * distance.float()).flatten().softmax(0)


def _layers(cells: Tensor, pixels: Tensor) -> list[AttentionMap]:
    """Two layers of self-attention with a class token: patches of the same brightness attend to each other."""
    axis = GridAxis(Role.IMAGE, ROWS, COLUMNS, pixels, ("class",))
    values = torch.cat((cells.max()[None], cells.flatten()))
    scores = -((values[:, None] - values[None]) ** 2)
    layers = [torch.stack([(scale * scores).softmax(-1) for scale in (60.0, 5.0)]) for _ in range(2)]
    return [AttentionMap(f"encoder.{number}.self", weights, axis, axis) for number, weights in enumerate(layers)]


def _pixels(image: bytes | Tensor) -> Tensor:
    """Return the pixels (3, H, W) of an input."""
    if isinstance(image, Tensor):
        return image.expand(3, -1, -1) if len(image) == 1 else image
    with Pillow.open(io.BytesIO(image)) as opened:
        return torch.from_numpy(np.array(opened.convert("RGB"))).permute(2, 0, 1)


SETTINGS = toy_images.SETTINGS


def write_data(folder: Path) -> Path:
    return toy_images.write_data(folder)
