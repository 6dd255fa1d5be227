"""A map over sound: the spectrogram, and below it a row for each letter with its weights over time; SVG, PNG, text.

Shapes: Q queries, K positions of the sound.
"""

from __future__ import annotations

import base64
import io
from html import escape

import torch
from torch import Tensor

from saccade.core import AttentionMap, TimeAxis
from saccade.core.outputs import png as encode_png
from saccade.core.serialize import image_url
from saccade.look.fonts import text_mask
from saccade.look.labels import truncate, visible
from saccade.look.times import is_over_time, letter_times, times_of
from saccade.metrics.alignment import head_weights

WIDTH, HIGH, ROW = 900, 160, 20  # pixels of the sound, of the spectrogram and of a row
EDGE, LABEL, FONT = 16, 20, 13
MOST = 200  # rows with a label of their own
SHADE, MARK = (26, 86, 196), "#c8102e"
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)  # seconds between two marks of the time axis
STYLE = f"""
svg{{color:#1b1f24;background:#fff;font:{FONT}px system-ui,"Noto Sans","Noto Sans CJK SC",sans-serif}}
text{{fill:currentColor}}.f{{fill:none;stroke:currentColor;stroke-opacity:.35}}.p{{image-rendering:pixelated}}
.m{{stroke:{MARK};stroke-width:1.5}}
@media(prefers-color-scheme:dark){{svg{{color:#e6e8eb;background:#15181c}}}}
"""


def terminal(attention: AttentionMap) -> str:
    """Return when each word was said, a line each."""
    _, words = times_of(attention)
    return "\n".join(f"{word.start:7.2f} {word.end:7.2f} s  {visible(word.text)}" for word in words) or "(nothing said)"


def rows_of(attention: AttentionMap) -> list[tuple[str, float | None]]:
    """Return the label of each query, and the second at which it was said where it is a letter."""
    labels = [visible(label) for label in attention.queries.labels]
    if not is_over_time(attention):
        step = max(1, len(labels) * ROW // (MOST * ROW) + 1)
        return [(label if at % step == 0 else "", None) for at, label in enumerate(labels)]
    times = letter_times(attention)
    return [(label, (time.start + time.end) / 2) for label, time in zip(labels, times, strict=True)]


def seconds_of(attention: AttentionMap) -> float:
    """Return the length of the sound of the keys."""
    axis = attention.keys
    assert isinstance(axis, TimeAxis)
    return max(len(axis) * axis.seconds_per_frame, 1e-3)


def ticks(seconds: float) -> list[float]:
    """Return the marks of a time axis, about ten."""
    step = next((step for step in TICKS if seconds / step <= 12), TICKS[-1])
    return [number * step for number in range(int(seconds / step) + 1)]


def svg(attention: AttentionMap, title: str = "") -> str:
    """Return a map as an SVG: spectrogram, letters with their weights over time, and the time of each as a mark."""
    weights, rows, seconds = head_weights(attention), rows_of(attention), seconds_of(attention)
    high = _row_height(len(rows))
    left = EDGE + max((len(truncate(label, LABEL)) for label, _ in rows), default=0) * 9 + 8
    head = 2 * FONT if title else 0
    top = EDGE + head
    down = round(high * len(rows))
    width, height = left + WIDTH + EDGE, top + HIGH + 8 + down + 3 * FONT
    name = escape(visible(title or f"Attention {attention.name}"))
    about = f"{len(rows)} rows over {seconds:.2f} seconds of sound; the largest weight is {_largest(weights):.2f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{name}"><title>{name}</title><desc>{about}</desc><style>{STYLE}</style>'
    ]
    if title:
        shown = escape(truncate(visible(title), width // 8))
        parts.append(f'<text x="{EDGE}" y="{FONT + 8}" font-weight="600">{shown}</text>')
    axis = attention.keys
    assert isinstance(axis, TimeAxis)
    frame = f'x="{left}" width="{WIDTH}" preserveAspectRatio="none"'
    if axis.spectrogram is not None:
        parts.append(f'<image {frame} y="{top}" height="{HIGH}" href="{image_url(axis.spectrogram)}"/>')
    below = top + HIGH + 8
    if weights.numel():
        parts.append(f'<image class="p" {frame} y="{below}" height="{down}" href="{_heat_url(weights)}"/>')
    for box, size in ((top, HIGH), (below, down)):
        parts.append(f'<rect class="f" x="{left}" y="{box}" width="{WIDTH}" height="{size}"/>')
    for number, (label, time) in enumerate(rows):
        y = below + (number + 0.5) * high
        if label:
            place = f'x="{left - 6}" y="{y:.1f}" text-anchor="end" dominant-baseline="central"'
            parts.append(f"<text {place}>{escape(truncate(label, LABEL))}</text>")
        if time is not None:
            x = left + time / seconds * WIDTH
            said = f"<title>{escape(label)}: {time:.2f} s</title>"
            line = f'x1="{x:.1f}" x2="{x:.1f}" y1="{y - high / 2:.1f}" y2="{y + high / 2:.1f}"'
            parts.append(f'<line class="m" {line}>{said}</line>')
    for tick in ticks(seconds):
        place = f'x="{left + tick / seconds * WIDTH:.1f}" y="{below + down + 1.4 * FONT:.0f}" text-anchor="middle"'
        parts.append(f"<text {place}>{tick:g}</text>")
    return "".join([*parts, "</svg>"])


def png(attention: AttentionMap, title: str = "") -> bytes:
    """Return the same figure as a PNG."""
    from PIL import Image, ImageDraw

    weights, rows, seconds = head_weights(attention), rows_of(attention), seconds_of(attention)
    high = _row_height(len(rows))
    labels = [text_mask(truncate(label, LABEL), FONT) if label else None for label, _ in rows]
    left = EDGE + max((mask.width for mask in labels if mask is not None), default=0) + 8
    head = [text_mask(truncate(visible(title), 120), FONT)] if title else []
    top, down = EDGE + 24 * len(head), round(high * len(rows))
    below = top + HIGH + 8
    image = Image.new("RGB", (left + WIDTH + EDGE, below + down + 3 * FONT), "white")
    for mask in head:
        image.paste((27, 31, 36), (EDGE, EDGE // 2), mask)
    axis = attention.keys
    assert isinstance(axis, TimeAxis)
    if axis.spectrogram is not None:
        sound = Image.fromarray(axis.spectrogram[0].cpu().numpy())
        image.paste(sound.resize((WIDTH, HIGH)).convert("RGB"), (left, top))
    if weights.numel():
        opacity = Image.fromarray((_fractions(weights) * 255).round().byte().numpy())
        image.paste(SHADE, (left, below), opacity.resize((WIDTH, max(1, down)), Image.Resampling.NEAREST))
    canvas = ImageDraw.Draw(image)
    canvas.rectangle((left - 1, top - 1, left + WIDTH, top + HIGH), outline=(150, 155, 160))
    canvas.rectangle((left - 1, below - 1, left + WIDTH, below + down), outline=(150, 155, 160))
    for number, (label, (_, time)) in enumerate(zip(labels, rows, strict=True)):
        y = below + (number + 0.5) * high
        if label is not None:
            image.paste((27, 31, 36), (left - 6 - label.width, round(y - label.height / 2)), label)
        if time is not None:
            x = left + time / seconds * WIDTH
            canvas.line((x, y - high / 2, x, y + high / 2), fill=MARK, width=2)
    for tick in ticks(seconds):
        mask = text_mask(f"{tick:g}", FONT)
        image.paste((27, 31, 36), (round(left + tick / seconds * WIDTH - mask.width / 2), below + down + 4), mask)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _row_height(rows: int) -> float:
    return ROW if rows <= MOST else max(1.0, MOST * ROW / rows)


def _largest(weights: Tensor) -> float:
    return float(weights.max()) if weights.numel() else 0.0


def _fractions(weights: Tensor) -> Tensor:
    return (weights.detach().float() / max(_largest(weights), 1e-9)).clamp(0, 1).cpu()


def _heat_url(weights: Tensor) -> str:
    """Return weights (Q, K) as a picture of one colour with their opacity."""
    opacity = (_fractions(weights) * 255).round().byte()
    colour = torch.tensor(SHADE, dtype=torch.uint8)[:, None, None].expand(3, *opacity.shape)
    return f"data:image/png;base64,{base64.b64encode(encode_png(torch.cat((colour, opacity[None])))).decode()}"
