"""Formats: choices as /v1/completions and /v1/chat/completions return them, whole and in chunks of a stream."""

from __future__ import annotations

import abc
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from saccade.core.generation import TokenLogprob
from saccade.serve.texts import Choice, Piece, ScoredToken, token_text


@dataclass
class TextFormat(abc.ABC):
    """One response."""

    model: str
    fingerprint: str
    seed: int
    scored: bool
    """whether log probabilities were requested"""
    created: int = field(default_factory=lambda: int(time.time()))
    id: str = ""

    prefix = ""
    whole = ""
    part = ""

    def __post_init__(self) -> None:
        self.id = f"{self.prefix}-{secrets.token_hex(12)}"

    def response(self, choices: Sequence[Choice], usage: dict[str, int]) -> dict[str, Any]:
        """Return all choices at once."""
        shown = [self._choice(index, choice) for index, choice in enumerate(choices)]
        return {**self._head(self.whole), "choices": shown, "usage": usage}

    def chunk(self, index: int, piece: Piece) -> dict[str, Any]:
        """Return what an event adds to a choice."""
        return {**self._head(self.part), "choices": [self._part(index, piece)]}

    def usage_chunk(self, usage: dict[str, int]) -> dict[str, Any]:
        return {**self._head(self.part), "choices": [], "usage": usage}

    def first(self, index: int) -> dict[str, Any] | None:
        """Return the chunk that begins a choice, if there is one."""
        return None

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "seed": self.seed,
        }

    @abc.abstractmethod
    def _choice(self, index: int, choice: Choice) -> dict[str, Any]: ...

    @abc.abstractmethod
    def _part(self, index: int, piece: Piece) -> dict[str, Any]: ...


@dataclass
class CompletionFormat(TextFormat):
    """Continuations; `echo` has the prompts that are returned before them, one for each choice."""

    echo: Sequence[str] = ()

    prefix = "cmpl"
    whole = part = "text_completion"

    def first(self, index: int) -> dict[str, Any] | None:
        return self.chunk(index, Piece(self.echo[index])) if self.echo else None

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        text = (self.echo[index] if self.echo else "") + choice.text
        return self._entry(index, text, choice.tokens, choice.finish)

    def _part(self, index: int, piece: Piece) -> dict[str, Any]:
        return self._entry(index, piece.text, piece.tokens, piece.finish)

    def _entry(self, index: int, text: str, tokens: Sequence[ScoredToken], finish: str) -> dict[str, Any]:
        logprobs = None
        if self.scored:
            logprobs = {
                "tokens": [token_text(token.token) for token in tokens],
                "token_logprobs": [token.token.logprob for token in tokens],
                "top_logprobs": [_most_probable(token) for token in tokens],
                "text_offset": [token.offset for token in tokens],
            }
        return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish or None}


def _most_probable(token: ScoredToken) -> dict[str, float]:
    """Return the most probable tokens; the chosen one is always among them."""
    return {token_text(entry): entry.logprob for entry in (*token.top, token.token)}


@dataclass
class ChatFormat(TextFormat):
    """Answers to a conversation."""

    prefix = "chatcmpl"
    whole = "chat.completion"
    part = "chat.completion.chunk"

    def first(self, index: int) -> dict[str, Any] | None:
        entry = {
            "index": index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        return {**self._head(self.part), "choices": [entry]}

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        message = {"role": "assistant", "content": choice.text, "refusal": None}
        return {
            "index": index,
            "message": message,
            "logprobs": self._logprobs(choice.tokens),
            "finish_reason": choice.finish,
        }

    def _part(self, index: int, piece: Piece) -> dict[str, Any]:
        return {
            "index": index,
            "delta": {"content": piece.text} if piece.text else {},
            "logprobs": self._logprobs(piece.tokens),
            "finish_reason": piece.finish or None,
        }

    def _logprobs(self, tokens: Sequence[ScoredToken]) -> dict[str, Any] | None:
        if not self.scored:
            return None
        content = [{**_scored(token.token), "top_logprobs": list(map(_scored, token.top))} for token in tokens]
        return {"content": content, "refusal": None}


def _scored(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token_text(token), "logprob": token.logprob, "bytes": list(token.data)}
