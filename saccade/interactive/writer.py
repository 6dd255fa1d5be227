"""Writers: generate one text after another with the same engine, which keeps what it has read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from saccade.config import override
from saccade.core.generation import Finish, TextEngine, TextRequest, raise_errors

SPARE = 4  # part of the context that is kept free for a text, if max_new_tokens is larger


@dataclass(frozen=True)
class WritingOptions:
    """Options of generated texts."""

    max_new_tokens: int = 400
    """maximum number of tokens of a text"""
    temperature: float = 0.7
    """<1 sharpens, >1 flattens the distribution, 0 is greedy"""
    top_k: int = 0
    """sample from the k most probable tokens; 0: all"""
    top_p: float = 0.95
    """sample from the smallest set of tokens with at least this total probability (nucleus sampling)"""
    min_p: float = 0.0
    """exclude tokens less probable than this times the most probable one"""
    repetition_penalty: float = 1.0
    """>1 makes tokens that have already occurred less probable"""
    stop: str = ""
    """stop before this string"""
    seed: int = 1
    """seed of the first text; each further one has the next seed"""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, but is {self.max_new_tokens}")
        if not 0 <= self.seed < 1 << 62:
            raise ValueError(f"seed must be at least 0 and below 2^62, but is {self.seed}")


@dataclass(frozen=True)
class Written:
    """A generated text."""

    text: str
    tokens: int
    """number of generated tokens"""
    finish: Finish
    """stop: by the model or a stop string; length: max_new_tokens or the context is reached; empty: interrupted"""


class Writer:
    """An engine with the options of the texts it generates."""

    def __init__(self, engine: TextEngine, options: WritingOptions, stop: Sequence[str] = ()) -> None:
        """`stop`: strings before which every text ends, besides the one of the options."""
        self.engine, self.options, self._stop = engine, options, tuple(stop)
        self._count = 0  # texts so far
        self._check(options)

    def set(self, overrides: Sequence[str]) -> None:
        """Change options by `key=value` overrides."""
        options = override(self.options, overrides)
        self._check(options)
        self.options = options

    @property
    def room(self) -> int:
        """Tokens of the context that a prompt leaves free for the text, if it can be shortened."""
        return min(self.options.max_new_tokens, self.engine.context // SPARE)

    def write(self, ids: Sequence[int], show: Callable[[str], None], stopped: Callable[[], bool]) -> Written:
        """Continue a prompt; `show` gets the text piece by piece, `stopped` is asked between two steps."""
        request = self._request(self.options, ids, self._count)
        self.engine.check(request)
        self._count += 1
        number = self.engine.add(request)
        parts: list[str] = []
        tokens = 0
        finish: Finish = ""
        try:
            while not finish and not stopped():
                for event in raise_errors(self.engine.step()):
                    parts.append(event.text)
                    tokens += event.token is not None
                    finish = event.finish
                    if event.text:
                        show(event.text)
        finally:
            self.engine.remove(number)
        return Written("".join(parts), tokens, finish)

    def _request(self, options: WritingOptions, ids: Sequence[int], number: int) -> TextRequest:
        return TextRequest(
            ids=ids,
            max_new_tokens=options.max_new_tokens,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
            repetition_penalty=options.repetition_penalty,
            stop=(*self._stop, *([options.stop] if options.stop else [])),
            seed=options.seed + number,
            slide=False,
        )

    def _check(self, options: WritingOptions) -> None:
        """Refuse options that are out of range."""
        self.engine.check(self._request(options, [0], 0))
