"""Exporting: the picture on screen as a file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from saccade.core.task import Prediction
from saccade.errors import UsageError
from saccade.look.figure import AttentionFigure

MEDIA = {"svg": "image/svg+xml", "png": "image/png", "html": "text/html", "json": "application/json"}


def export(found: Prediction, kind: str, name: str, head: int | None, *, pieces: bool) -> tuple[bytes, str]:
    """A map as .svg or .png, or the whole answer as .html or .json; and what media it is."""
    if kind not in MEDIA:
        raise UsageError(f"a picture can be {', '.join(MEDIA)}, but not '{kind}'")
    seen = AttentionFigure.of(found, "" if name == "alignment" else name, head, pieces=pieces)
    with tempfile.TemporaryDirectory(prefix="saccade-") as place:
        path = Path(place) / f"attention.{kind}"
        seen.write(path)
        return path.read_bytes(), MEDIA[kind]
