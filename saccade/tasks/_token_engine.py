"""Engines of tasks: requests as tokens, generated tokens as text, with stop strings and log probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from saccade.core.generation import TextEngine, TextEvent, TextRequest, TokenLogprob
from saccade.data.text.tokenizers import StreamDecoder, Tokenizer
from saccade.decode.engine import Engine, Event, Request
from saccade.decode.runner import Runner
from saccade.decode.sampling import Sampling
from saccade.decode.stopping import StopStrings
from saccade.errors import UsageError

MAX_TOP = 20  # most probable tokens that are returned at each position


class Decoder(Protocol):
    """Decodes the tokens of one text as they are generated."""

    def feed(self, number: int, /) -> str:
        """Return the text that a token completes."""

    def finish(self) -> str:
        """Return what remains at the end."""


@dataclass
class _Stream:
    """The text of one request in progress."""

    decoder: Decoder
    stop: StopStrings
    started: bool = False
    """whether it has a token"""


class TokenEngine(TextEngine):
    """An engine whose generated tokens become text."""

    def __init__(self, runner: Runner, tokenizer: Tokenizer, context: int, eos_ids: tuple[int, ...]) -> None:
        self._engine = Engine(runner, context)
        self.context, self.rows = self._engine.context, runner.rows
        self._tokenizer, self._eos_ids = tokenizer, eos_ids
        self._streams: dict[int, _Stream] = {}
        self._finished: list[TextEvent] = []

    def check(self, request: TextRequest) -> None:
        if not request.ids:
            raise UsageError("a prompt must have at least one token, but has none")
        for ids, size in ((request.ids, self._vocabulary()), (request.logit_bias, self._tokenizer.size)):
            if not all(0 <= token < size for token in ids):
                raise UsageError(f"a token must be from 0 to {size - 1}, but one of the request is not")
        if not request.slide and len(request.ids) >= self.context:
            raise UsageError(
                f"a prompt must have fewer tokens than the context of {self.context:,}, but has {len(request.ids):,}; "
                "shorten it"
            )
        if isinstance(request.stop, str):
            raise UsageError(f"stop must be a list of strings, but is {request.stop!r}")
        if request.max_new_tokens < 0:
            raise UsageError(f"max_new_tokens must be 0 or more, but is {request.max_new_tokens}")
        if not 0 <= request.seed < 1 << 63:
            raise UsageError(f"seed must be at least 0 and below 2^63, but is {request.seed}")
        if request.logprobs is not None and not 0 <= request.logprobs <= MAX_TOP:
            raise UsageError(f"logprobs must be from 0 to {MAX_TOP}, but is {request.logprobs}")
        try:
            self._request(request, request.ids)
            StopStrings(request.stop)
        except ValueError as error:
            raise UsageError(str(error)) from error

    def add(self, request: TextRequest) -> int:
        number = self._engine.add(self._start(request))
        if request.max_new_tokens > 0:
            self._streams[number] = _Stream(self._decoder(request), StopStrings(request.stop))
        else:
            self._finished.append(TextEvent(number, "", finish="length"))
        return number

    def remove(self, number: int) -> None:
        self._engine.remove(number)
        self._streams.pop(number, None)

    def step(self) -> list[TextEvent]:
        events, self._finished = self._finished, []
        for event in self._engine.step():
            if event.number in self._streams:  # a stop string may have ended it earlier in this step
                events.append(self._text_event(event))
        return events

    def __len__(self) -> int:
        return len(self._engine) + len(self._finished)

    def _vocabulary(self) -> int:
        """Return the number of tokens that a prompt may have."""
        return self._tokenizer.size

    def _start(self, request: TextRequest) -> Request:
        """Return what the engine generates."""
        return self._request(request, request.ids)

    def _decoder(self, request: TextRequest) -> Decoder:
        """Return what decodes the tokens of one request."""
        return StreamDecoder(self._tokenizer, request.ids)

    def _request(self, request: TextRequest, ids: Sequence[int]) -> Request:
        sampling = Sampling(**{field.name: getattr(request, field.name) for field in fields(Sampling)})
        return Request(
            ids=ids,
            sampling=sampling,
            seed=request.seed,
            max_new_tokens=request.max_new_tokens,
            stop_ids=() if request.ignore_eos else self._eos_ids,
            logit_bias=request.logit_bias,
            logprobs=request.logprobs,
            lookup=request.lookup,
            slide=request.slide,
        )

    def _text_event(self, event: Event) -> TextEvent:
        """Return the text that a token completes; the end token itself is not part of it."""
        stream, number = self._streams[event.number], event.number
        if event.finish == "error":
            del self._streams[number]
            return TextEvent(number, "", finish="error")
        if event.finish == "stop":
            ready, stopped = stream.stop.feed(stream.decoder.finish())
            del self._streams[number]
            return TextEvent(number, ready if stopped else ready + stream.stop.finish(), finish="stop")
        text = stream.decoder.feed(event.token)
        first, stream.started = not stream.started, True
        bare = first and text[:1] != " " and self._tokenizer.raw([event.token])[0][:1] == b" "
        ready, stopped = stream.stop.feed(text)
        if not stopped and event.finish:
            more, stopped = stream.stop.feed(stream.decoder.finish())
            ready += more if stopped else more + stream.stop.finish()
        if stopped:
            self._engine.remove(number)
            del self._streams[number]
            return TextEvent(number, ready, finish="stop")
        if event.finish:
            del self._streams[number]
        top = tuple(self._token(token, logprob, bare=bare) for token, logprob in event.top)
        chosen = self._token(event.token, event.logprob, bare=bare)
        return TextEvent(number, ready, chosen, top, event.finish)

    def _token(self, token: int, logprob: float, *, bare: bool) -> TokenLogprob:
        """Return a token; `bare`: without its space, which the first word of a text does not have."""
        data = self._tokenizer.raw([token])[0]
        data = data.removeprefix(b" ") if bare else data
        return TokenLogprob(token, self._tokenizer.pieces([token])[0], data, logprob)
