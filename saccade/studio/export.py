"""Downloads: the figure on screen as a file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from saccade.core import Prediction
from saccade.errors import UsageError
from saccade.look.figure import AttentionFigure

MEDIA_TYPES = {"svg": "image/svg+xml", "png": "image/png", "html": "text/html", "json": "application/json"}


def export(prediction: Prediction, kind: str, name: str, head: int | None, *, pieces: bool) -> tuple[bytes, str]:
    """Return a map as .svg or .png, or the prediction with all maps as .html or .json, with its media type."""
    if kind not in MEDIA_TYPES:
        raise UsageError(f"a file must be {', '.join(MEDIA_TYPES)}, but is '{kind}'")
    figure = AttentionFigure.of(prediction, "" if name == "alignment" else name, head, pieces=pieces)
    with tempfile.TemporaryDirectory(prefix="saccade-") as folder:
        path = Path(folder) / f"attention.{kind}"
        figure.write(path)
        return path.read_bytes(), MEDIA_TYPES[kind]
