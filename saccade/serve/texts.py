"""Texts: how the events of an engine become the text, tokens and usage of a choice."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field

from saccade.core.generation import Finish, TextEvent, TokenLogprob


@dataclass(frozen=True)
class ScoredToken:
    """A generated token with its most probable alternatives and its position in the text, in characters."""

    token: TokenLogprob
    top: tuple[TokenLogprob, ...]
    offset: int


@dataclass(frozen=True)
class Piece:
    """What one event adds to a choice."""

    text: str
    tokens: tuple[ScoredToken, ...] = ()
    finish: Finish = ""


@dataclass
class Choice:
    """One text in progress.

    A token is given out with the text that it begins in: one that belongs to a stop string is not part of the answer.
    """

    text: str = ""
    tokens: list[ScoredToken] = field(default_factory=list)
    finish: Finish = ""
    generated: int = 0
    _held: list[ScoredToken] = field(default_factory=list)
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )
    _offset: int = 0

    def feed(self, event: TextEvent, *, scored: bool) -> Piece:
        """Add an event; `scored`: keep its token."""
        self.generated += event.token is not None or event.finish == "stop"
        self.text += event.text
        self.finish = event.finish
        if scored and event.token is not None:
            self._held.append(ScoredToken(event.token, event.top, self._offset))
            self._offset += len(self._decoder.decode(event.token.data))
        size = len(self.text)
        ready = tuple(token for token in self._held if token.offset < size or event.finish == "length")
        self._held = self._held[len(ready) :]
        self.tokens += ready
        return Piece(event.text, ready, event.finish)


def token_text(token: TokenLogprob) -> str:
    """Return a token as text; one that is a part of a character as its bytes, one without text by its name."""
    try:
        return token.data.decode() or token.token
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.data)
