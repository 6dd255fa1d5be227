"""Generation: one line of JSON per token as it is generated, with the attention of its position."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any

from saccade.core import Weights
from saccade.errors import SaccadeError
from saccade.look.labels import visible
from saccade.model import Model

AHEAD = 64  # tokens that wait for a slow reader
END = None
Lines = queue.Queue[dict[str, Any] | None]


async def generate(
    model: Model, inputs: Mapping[str, Any], options: Mapping[str, Any], name: str
) -> AsyncIterator[bytes]:
    """Yield the lines of one generation, with rows of one attention (the last by default); closing it stops it."""
    lines: Lines = queue.Queue(AHEAD)
    closed = threading.Event()
    # One thread from the first token to the last: the recorder of attention belongs to one context.
    worker = threading.Thread(target=_work, args=(model, inputs, options, name, lines, closed), daemon=True)
    worker.start()
    try:
        while True:
            line = await asyncio.to_thread(lines.get)
            if line is END:
                return
            yield json.dumps(line).encode() + b"\n"
    finally:
        closed.set()
        while worker.is_alive():  # let it put its last line and see that nobody reads
            try:
                lines.get_nowait()
            except queue.Empty:
                await asyncio.sleep(0.01)


def _work(
    model: Model,
    inputs: Mapping[str, Any],
    options: Mapping[str, Any],
    name: str,
    lines: Lines,
    closed: threading.Event,
) -> None:
    try:
        for number, token in enumerate(model.stream(**inputs, **options)):
            if closed.is_set():
                break
            if not number:
                lines.put({"prompt": [visible(label) for label in token.prompt]})
            weights = token.attention.get(name) or next(iter(list(token.attention.values())[-1:]), None)
            row = [] if weights is None else _last_row(weights)  # a model may have no attention
            lines.put({"token": visible(token.token), "text": token.text, "row": row})
    except SaccadeError as error:
        lines.put({"error": str(error)})
    finally:
        lines.put(END)


def _last_row(weights: Weights) -> list[float]:
    """Return the weights of the last query, as the mean over heads."""
    count = weights.shape[1]
    return [round(value, 4) for value in weights.rows(count - 1, count).mean(0)[0].tolist()] if count else []
