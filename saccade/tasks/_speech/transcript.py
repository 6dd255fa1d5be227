"""Transcripts: a text with the times of its segments and words."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from saccade.core.outputs import Output
from saccade.tasks._speech.word_times import TimedText


@dataclass(frozen=True)
class TranscriptOutput(Output):
    """A text with times in seconds, where they were requested."""

    value: str
    segments: tuple[TimedText, ...] = ()
    words: tuple[TimedText, ...] = ()
    language: str = ""
    """code of the spoken language; empty: the model knows one alone"""

    kind: ClassVar[str] = "transcript"

    @property
    def text(self) -> str:
        return self.value

    def to_json(self) -> dict[str, Any]:
        times = {"segments": _rows(self.segments), "words": _rows(self.words)}
        given = {name: rows for name, rows in times.items() if rows}
        return {**super().to_json(), **given, **({"language": self.language} if self.language else {})}

    def to_html(self) -> str:
        if not self.words and not self.segments:
            return super().to_html()
        rows = (
            f"<tr><td>{part.start:.2f}</td><td>{part.end:.2f}</td><td>{html.escape(part.text)}</td></tr>"
            for part in self.words or self.segments
        )
        return f"{super().to_html()}<table>{''.join(rows)}</table>"


def _rows(parts: Sequence[TimedText]) -> list[dict[str, Any]]:
    return [{"text": part.text, "start": round(part.start, 3), "end": round(part.end, 3)} for part in parts]
