"""Downloads: the figure on screen as a file."""

from __future__ import annotations

import math

from saccade.core import Prediction
from saccade.errors import UsageError
from saccade.look.figure import TIMES, AttentionFigure
from saccade.look.overlay import OverlayStyle
from saccade.look.rollout import NAME as ROLLOUT
from saccade.studio.sessions import ALIGNMENT

MEDIA_TYPES = {
    **{"svg": "image/svg+xml", "pdf": "application/pdf", "png": "image/png", "gif": "image/gif"},
    **{"html": "text/html", "json": "application/json"},
    **dict.fromkeys(TIMES, "text/plain; charset=utf-8"),
}
MOST = {**dict.fromkeys(MEDIA_TYPES, 1 << 22), "svg": 1 << 18, "pdf": 1 << 18, "html": 1 << 25}
"""weights in a file of each kind: more take minutes to write, and nothing opens them"""


def export(
    prediction: Prediction, kind: str, name: str, head: int | None, *, pieces: bool, style: OverlayStyle
) -> tuple[bytes, str]:
    """Return a map as svg, pdf, png, gif, textgrid or srt, or all maps as html or json; and the type of the file."""
    kind = kind.lower()
    if kind not in MEDIA_TYPES:
        raise UsageError(f"a file must be {', '.join(MEDIA_TYPES)}, but is '{kind}'")
    layer, count = "" if name == ALIGNMENT else name, 0
    if name in (ALIGNMENT, ROLLOUT):  # these have one head; that of a layer may be left in the address
        head = None
    for attention in prediction.attention.values():
        heads, queries, keys = attention.shape
        whole = kind in ("html", "json")
        count = count + math.prod((heads, queries, keys)) if whole else max(count, queries * keys)
    if count > MOST[kind]:
        message = f"a file of {kind} must hold at most {MOST[kind]:,} weights, but there are {count:,}"
        raise UsageError(f"{message}; predict for a shorter input, or choose another kind of file")
    return AttentionFigure.of(prediction, layer, head, pieces=pieces, style=style).render(kind), MEDIA_TYPES[kind]
