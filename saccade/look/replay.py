"""Replays of episodes: what was there at each step, and the words that it attended to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from saccade.core import AttentionMap, GridAxis, Role, StepAxis
from saccade.look.fonts import text_mask
from saccade.look.labels import truncate, visible
from saccade.look.overlay import fit, picture
from saccade.look.picture import to_image
from saccade.metrics.alignment import head_weights

if TYPE_CHECKING:
    from PIL import Image

ACTION, TEXT, BAR, MARGIN = 24, 18, 4, 10  # pixels
PAPER, INK, SOFT, LIGHT, PATH = (20, 23, 27), (240, 242, 245), (140, 148, 158), (176, 52, 32), (255, 214, 64)


def episode_frames(attention: AttentionMap) -> tuple[Tensor, ...]:
    """Return what was there at each query, if the queries are steps of an episode; empty: they are not."""
    return attention.queries.frames if isinstance(attention.queries, StepAxis) else ()


def key_grid(attention: AttentionMap, query: int) -> GridAxis:
    """Return the grid of the keys as a query saw it: every step of an episode has another image."""
    keys, frames = attention.keys, episode_frames(attention)
    assert isinstance(keys, GridAxis)
    return GridAxis(keys.role, keys.rows, keys.columns, frames[query], keys.extra) if frames else keys


def draw_step(attention: AttentionMap, step: int, area: float) -> Image.Image:
    """Return the picture of one step: what was there, its action, and the keys as light as its attention to them."""
    from PIL import Image, ImageDraw

    frame = episode_frames(attention)[step]
    axis = GridAxis(Role.IMAGE, frame.shape[1], frame.shape[2], frame)
    size = fit(axis, area)
    image = to_image(picture(axis, size).round().byte())
    width = max(image.width, 320)
    weights = head_weights(attention)[step]
    words = [visible(label) for label in attention.keys.labels]
    lines = _wrap(words, width - 2 * MARGIN)
    height = image.height + round(1.5 * ACTION) + len(lines) * round(1.7 * TEXT) + BAR + 2 * MARGIN
    canvas = Image.new("RGB", (width, height), PAPER)
    canvas.paste(image, ((width - image.width) // 2, 0))
    label = text_mask(truncate(visible(attention.queries.labels[step]), 40), ACTION)
    canvas.paste(INK, ((width - label.width) // 2, image.height + 4), label)
    pen, top = ImageDraw.Draw(canvas), image.height + round(1.5 * ACTION) + MARGIN
    largest = max(float(weights.max()), 1e-6)
    for line in lines:
        left = (width - sum(mask.width + MARGIN for _, mask in line)) // 2
        for number, mask in line:
            fraction = float(weights[number]) / largest
            box = (left - 3, top, left + mask.width + 3, top + round(1.5 * TEXT))
            pen.rounded_rectangle(box, 4, fill=_between(PAPER, LIGHT, fraction))
            canvas.paste(_between(SOFT, INK, fraction), (left, top), mask)
            left += mask.width + MARGIN
        top += round(1.7 * TEXT)
    progress = (step + 1) / len(attention.queries)
    pen.rectangle((0, height - BAR, round(progress * width), height), fill=PATH)
    return canvas


def _wrap(words: list[str], width: int) -> list[list[tuple[int, Image.Image]]]:
    """Return lines of numbered words that fit into a width."""
    lines: list[list[tuple[int, Image.Image]]] = [[]]
    used = 0
    for number, word in enumerate(words):
        mask = text_mask(truncate(word, 30) or " ", TEXT)
        if lines[-1] and used + mask.width > width:
            lines.append([])
            used = 0
        lines[-1].append((number, mask))
        used += mask.width + MARGIN
    return lines


def _between(low: tuple[int, ...], high: tuple[int, ...], fraction: float) -> tuple[int, ...]:
    return tuple(round(a + (b - a) * fraction) for a, b in zip(low, high, strict=True))
