"""Sentences: running text cut where sentences end."""

from __future__ import annotations

import re
from collections.abc import Iterator

CLOSING, OPENING = r"[\"'\u201d\u2019)\]]*", r"[\"'\u201c\u2018(\[]*"
# After . ! ? at the end of a line, or before something that can start a sentence; after the full stops of Chinese and
# Japanese; at an empty line.
END = re.compile(rf"(?<=[.!?]){CLOSING}(?:[^\S\n]*\n\s*|\s+(?={OPENING}[^\W\d_a-z]))|(?<=[\u3002\uff01\uff1f])|\n\s*\n")
ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St|vs|etc|No|Prof|Rev|Sr|Jr|[A-Z])\.$")  # a dot that ends no sentence


def cut_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, without the space around them."""
    start, pending = 0, ""
    for match in END.finditer(text):
        piece = pending + text[start : match.start()] + match.group().rstrip()
        start = match.end()
        if ABBREVIATION.search(piece) and "\n\n" not in match.group():
            pending = piece + " "
            continue
        pending = ""
        if piece.strip():
            yield " ".join(piece.split())
    piece = pending + text[start:]
    if piece.strip():
        yield " ".join(piece.split())
