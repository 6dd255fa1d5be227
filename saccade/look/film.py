"""A film of attention: one gaze for each word over an image, or one frame for each step of an episode, as a GIF."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from saccade.core import AttentionMap, GridAxis, TokenAxis
from saccade.errors import UsageError
from saccade.look.fonts import text_mask
from saccade.look.labels import truncate, visible
from saccade.look.overlay import OverlayStyle, fit, picture, scale
from saccade.look.panels import gaze, grid_of
from saccade.look.picture import check_pillow, to_image
from saccade.look.replay import draw_step, episode_frames, key_grid
from saccade.look.text_film import text_frames
from saccade.metrics.alignment import head_weights

if TYPE_CHECKING:
    from PIL import Image

AREA = 400 * 400  # pixels of the image
WORD, TEXT, BAR = 26, 15, 4  # pixels of the word, of the text so far and of the bar below
PAPER, INK, SOFT, PATH = (20, 23, 27), (240, 242, 245), (140, 148, 158), (255, 214, 64)
DARK = 0.25  # brightness where no weight is, with full opacity
MILLISECONDS, LETTER, LAST = 700, 300, 2000  # of a frame: of a word, of a single letter, of the end
MOST = 400  # frames


@dataclass(frozen=True)
class Frame:
    """The gaze of one word, or one step of an episode."""

    label: str
    gaze: tuple[float, float] | None
    """x and y in the image, 0 to 1; None: the keys are words"""
    image: Image.Image
    milliseconds: int


def film(attention: AttentionMap, style: OverlayStyle = OverlayStyle(), title: str = "") -> bytes:
    """Return a GIF with one frame for each query: the image dark but where it attends to, its label below.

    Over words it is the replay of an episode: what was there at each step, and the words that it attended to. Of words
    over words each frame has a query and the keys in the colours of their weights, below the title.

    The comment of the file has the label of each frame on a line of its own.
    """
    shown = frames(attention, style, title)
    from PIL import Image

    file = io.BytesIO()
    few = isinstance(attention.keys, TokenAxis) and not episode_frames(attention)  # colours: they stay as they are
    method = Image.Quantize.MEDIANCUT if few else Image.Quantize.FASTOCTREE
    first, *others = (frame.image.quantize(method=method) for frame in shown)  # 256 colours
    durations = [frame.milliseconds for frame in shown]
    comment = "\n".join(frame.label for frame in shown).encode()
    first.save(file, "GIF", save_all=True, append_images=others, duration=durations, loop=0, comment=comment)
    return file.getvalue()


def frames(attention: AttentionMap, style: OverlayStyle = OverlayStyle(), title: str = "") -> list[Frame]:
    """Return the frames of a film, one for each query."""
    check_pillow("a film")
    over_words = isinstance(attention.keys, TokenAxis) and not episode_frames(attention)
    if not isinstance(attention.keys, GridAxis) and not over_words and not episode_frames(attention):
        raise UsageError(f"a film must show an image or words, but '{attention.name}' attends to {attention.keys.kind}")
    if isinstance(attention.queries, GridAxis):
        message = f"a film must have words as queries, but those of '{attention.name}' are cells of the image"
        raise UsageError(f"{message}; write a .png, or choose another layer")
    count = len(attention.queries)
    if not 0 < count <= MOST:
        raise UsageError(f"a film must have 1 to {MOST} words, but '{attention.name}' has {count}")
    labels = [visible(label) for label in attention.queries.labels]
    if over_words and len(attention.keys) > MOST:
        raise UsageError(f"a film must have at most {MOST} keys, but '{attention.name}' has {len(attention.keys)}")
    if not isinstance(attention.keys, GridAxis):
        durations = [LAST if number + 1 == count else MILLISECONDS for number in range(count)]
        steps: Iterable[Image.Image] = (draw_step(attention, number, AREA) for number in range(count))
        steps = text_frames(attention, title, style) if over_words else steps
        return [Frame(*frame) for frame in zip(labels, [None] * count, steps, durations, strict=True)]
    letters = all(len(label) == 1 for label in labels)
    points, size = gaze(attention), fit(key_grid(attention, 0), AREA)
    pictures = _lit(attention, size, style)
    result = []
    for number, (label, pixels) in enumerate(zip(labels, pictures, strict=True)):
        text = ("" if letters else " ").join(labels[: number + 1])
        canvas = _canvas(to_image(pixels), label, text, (number + 1) / count)
        earliest = number if episode_frames(attention) else 0  # a gaze at another frame would be nowhere in this one
        _draw_path(canvas, [(x * size[1], y * size[0]) for x, y in points[earliest : number + 1]])
        milliseconds = LAST if number + 1 == count else LETTER if letters else MILLISECONDS
        result.append(Frame(label, points[number], canvas, milliseconds))
    return result


def _lit(attention: AttentionMap, size: tuple[int, int], style: OverlayStyle) -> list[Tensor]:
    """Return the image once for each query, bright where its weights are: uint8 (3, H, W)."""
    keys = grid_of(attention)
    pictures = []
    for number, row in enumerate(head_weights(attention)):
        base = picture(key_grid(attention, number), size)
        cells = row[len(keys.extra) :].reshape(keys.rows, keys.columns)
        light = scale(cells, float(cells.max()), size, smooth=style.smooth)
        pictures.append((base * (1 - style.opacity * (1 - DARK) * (1 - light))).round().clamp(0, 255).byte())
    return pictures


def _canvas(image: Image.Image, word: str, text: str, progress: float) -> Image.Image:
    """Return a frame: the image, the word, the text so far and a bar for how much of the film is over."""
    from PIL import Image, ImageDraw

    below = round(1.5 * (WORD + TEXT)) + BAR + 10
    canvas = Image.new("RGB", (max(image.width, 240), image.height + below), PAPER)
    canvas.paste(image, (0, 0))
    mask = text_mask(truncate(word, 40), WORD)
    mask = mask.crop((0, 0, min(mask.width, canvas.width), mask.height))
    canvas.paste(INK, ((canvas.width - mask.width) // 2, image.height + 4), mask)
    mask = text_mask(text, TEXT)
    last = min(mask.width, canvas.width - 16)  # of a long text its end
    mask = mask.crop((mask.width - last, 0, mask.width, mask.height))
    canvas.paste(SOFT, ((canvas.width - mask.width) // 2, image.height + 6 + round(1.5 * WORD)), mask)
    top = canvas.height - BAR
    ImageDraw.Draw(canvas).rectangle((0, top, round(progress * canvas.width), canvas.height), fill=PATH)
    return canvas


def _draw_path(canvas: Image.Image, points: list[tuple[float, float]]) -> None:
    """Draw the saccades so far: a line from gaze to gaze, and a ring around the last one."""
    from PIL import ImageDraw

    pen = ImageDraw.Draw(canvas)
    if len(points) > 1:
        pen.line(points, fill=PATH, width=2, joint="curve")
    for x, y in points[:-1]:
        pen.ellipse((x - 3, y - 3, x + 3, y + 3), fill=PATH)
    x, y = points[-1]
    pen.ellipse((x - 9, y - 9, x + 9, y + 9), outline=PATH, width=3)
