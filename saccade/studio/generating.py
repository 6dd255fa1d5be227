"""Generating: tokens as they are written, each with the row of attention that led to it, one line of JSON each."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

from saccade import api
from saccade.core.task import Weights
from saccade.errors import SaccadeError
from saccade.look.labels import shown
from saccade.studio.sessions import Model

AHEAD = 64  # tokens that wait for a slow reader
END = None


async def written(model: Model, text: str, words: Sequence[str], name: str) -> AsyncIterator[bytes]:
    """The lines of one generation, with rows of one attention (the last, if no other); a reader that goes stops it."""
    lines: queue.Queue[dict[str, Any] | None] = queue.Queue(AHEAD)
    gone = threading.Event()
    # A thread of its own from the first token to the last: what watches a model lives in one context.
    worker = threading.Thread(target=_write, args=(model, text, words, name, lines, gone), daemon=True)
    worker.start()
    try:
        while True:
            line = await asyncio.to_thread(lines.get)
            if line is END:
                return
            yield json.dumps(line).encode() + b"\n"
    finally:
        gone.set()
        while worker.is_alive():  # let it put its last line and see that nobody waits
            try:
                lines.get_nowait()
            except queue.Empty:
                await asyncio.sleep(0.01)


def _write(
    model: Model,
    text: str,
    words: Sequence[str],
    name: str,
    lines: queue.Queue[dict[str, Any] | None],
    gone: threading.Event,
) -> None:
    with model.lock:
        try:
            for number, grown in enumerate(api.follow(model.task, text, words)):
                if gone.is_set():
                    break
                if not number:
                    lines.put({"prompt": [shown(label) for label in grown.prompt]})
                source = grown.maps.get(name) or next(iter(list(grown.maps.values())[-1:]), None)
                row = [] if source is None else _last(source)  # a model may have no attention
                lines.put({"token": shown(grown.token), "text": grown.text, "row": row})
        except SaccadeError as error:
            lines.put({"error": str(error)})
        finally:
            lines.put(END)


def _last(source: Weights) -> list[float]:
    """What the token read last looked at, as the mean of the heads."""
    count = source.shape[1]
    return [round(value, 4) for value in source.rows(count - 1, count).mean(0)[0].tolist()] if count else []
