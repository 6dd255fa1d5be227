"""Text generation: decode the tokens of a causal model to text, which ends before a stop string."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from saccade.core import GeneratedToken
from saccade.core.generation import raise_errors
from saccade.data.text.tokenizers import StreamDecoder, Tokenizer
from saccade.decode.engine import Engine, Request
from saccade.decode.runner import CausalModel, Runner, TorchRunner
from saccade.decode.sampling import Sampling
from saccade.decode.stopping import StopStrings
from saccade.nn.probe import RecordedRow, Recorder

ROWS = 32  # prompts generated at once


@dataclass(frozen=True)
class GenerationOptions(Sampling):
    """Options of text generation."""

    max_new_tokens: int = 200
    """maximum number of tokens to generate; 0: only read the prompt, and return the most likely next tokens"""
    stop: str = ""
    """stop before this string"""
    seed: int = 1
    """seed of the random generator"""
    lookup: int = 0
    """prompt lookup, by compiled code only: tokens to guess at each step from what followed the same tokens before;
    right guesses save time"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_new_tokens < 0:
            raise ValueError(f"max_new_tokens must be 0 or more, but is {self.max_new_tokens}")
        if not 0 <= self.lookup <= 64:
            raise ValueError(f"lookup must be from 0 to 64, but is {self.lookup}")
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed must be at least 0 and below 2^63, but is {self.seed}")


@dataclass(frozen=True)
class TextGenerator:
    """A causal model with its tokenizer; it is never changed, so several threads can use it."""

    model: CausalModel
    tokenizer: Tokenizer
    context: int
    """maximum number of tokens the model reads"""
    eos_ids: tuple[int, ...] = ()
    make_runner: Callable[[int, int], Runner] | None = None
    """returns a runner with some rows of some capacity; None: by torch"""
    rows_that_fit: Callable[[int, int], int] | None = None
    """returns how many of some rows of some capacity fit into memory; None: all"""

    def request(self, prompt: Sequence[int], options: GenerationOptions) -> Request:
        """Return the request to continue a prompt."""
        return Request(
            prompt,
            options,
            options.seed,
            max_new_tokens=options.max_new_tokens,
            stop_ids=self.eos_ids,
            lookup=options.lookup,
        )

    def continue_all(self, prompts: Sequence[Sequence[int]], options: GenerationOptions) -> Iterator[Continuation]:
        """Yield the continuation of each prompt in order; many are generated at once, with the same result as alone."""
        if not options.max_new_tokens:
            yield from (Continuation() for _ in prompts)
            return
        engine = self._engine(prompts, options.max_new_tokens)
        live: dict[int, _Row] = {}  # by the number of the request
        results: dict[int, Continuation] = {}
        waiting = iter(enumerate(prompts))
        for number in range(len(prompts)):
            while number not in results:
                while len(live) < ROWS and (item := next(waiting, None)) is not None:
                    index, prompt = item
                    decoder = TextDecoder(self.tokenizer, options.stop, prompt)
                    row = _Row(index, self.request(prompt, options), decoder)
                    live[engine.add(row.request)] = row
                for event in raise_errors(engine.step()):
                    row = live[event.number]
                    if row.feed(event.token):
                        engine.remove(event.number)
                        results[row.index] = row.result
                        del live[event.number]
            yield results.pop(number)

    def stream(
        self, prompt: Sequence[int], options: GenerationOptions, recorder: Recorder | None = None
    ) -> Iterator[GeneratedToken]:
        """Yield the continuation of a prompt token by token, with the attention of all tokens read so far.

        The recorder is active only while the network runs: a suspended stream records no other call.
        """
        pieces = self.tokenizer.pieces
        request = self.request(prompt, options)
        if recorder is None:
            tokens = _tokens(self._engine([prompt], options.max_new_tokens), request)
        else:  # the modules themselves must run
            tokens = recorder.iterate(_tokens(Engine(TorchRunner(self.model, 1, self.context), self.context), request))
        maps = {name: RecordedRow(recorded, 0) for name, recorded in (recorder or {}).items()}
        decoder, prompt_tokens = TextDecoder(self.tokenizer, options.stop, prompt), tuple(pieces(prompt))
        for token in tokens:
            text, stopped = decoder.feed(token)
            if stopped:
                if text:
                    yield GeneratedToken("", text, maps, prompt_tokens)
                return
            yield GeneratedToken(pieces([token])[0], text, maps, prompt_tokens)
        text = decoder.finish()
        if text:
            yield GeneratedToken("", text, maps, prompt_tokens)

    def _engine(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Engine:
        """Return an engine with a cache that is large enough for some prompts."""
        rows, longest = min(ROWS, max(1, len(prompts))), max(map(len, prompts), default=1)
        capacity = min(self.context, longest + max_new_tokens)
        if self.rows_that_fit is not None:
            rows = self.rows_that_fit(capacity, rows)
        if self.make_runner is None:
            return Engine(TorchRunner(self.model, rows, capacity), self.context)
        return Engine(self.make_runner(rows, capacity), self.context)

    def visible_start(self, prompt: int, end: int) -> int:
        """Return the first cached token after a prompt of some length, once the tokens before `end` were read.

        A full context drops its older half, as the engine does.
        """
        length = min(prompt, self.context)
        for _ in range(end - prompt):
            length = length + 1 if length < self.context else max(1, self.context // 2)
        return end - length


def _tokens(engine: Engine, request: Request) -> Iterator[int]:
    """Yield the tokens of one request as they are generated, without the end token."""
    engine.add(request)
    while len(engine):
        for event in raise_errors(engine.step()):
            if event.finish != "stop":
                yield event.token


class TextDecoder:
    """Decodes generated ids to text; what may be the start of a stop string is buffered until more text follows."""

    def __init__(self, tokenizer: Tokenizer, stop: str, prompt: Sequence[int]) -> None:
        self._decoder, self._stop = StreamDecoder(tokenizer, prompt), StopStrings([stop] if stop else [])

    def feed(self, token: int) -> tuple[str, bool]:
        """Return the text that is ready, and whether the stop string follows it."""
        return self._stop.feed(self._decoder.feed(token))

    def finish(self) -> str:
        """Return the remaining text, when no more tokens follow."""
        ready, stopped = self._stop.feed(self._decoder.finish())
        return ready if stopped else ready + self._stop.finish()


@dataclass
class Continuation:
    """The tokens generated after one prompt, without the stop tokens, and their text."""

    ids: list[int] = field(default_factory=list)
    text: str = ""


class _Row:
    """A prompt in progress."""

    def __init__(self, index: int, request: Request, decoder: TextDecoder) -> None:
        self.index, self.request, self.decoder = index, request, decoder
        self.result = Continuation()

    def feed(self, token: int) -> bool:
        """Append a token; returns whether the continuation is complete."""
        if token in self.request.stop_ids:
            self.result.text += self.decoder.finish()
            return True
        text, stopped = self.decoder.feed(token)
        self.result.text += text
        if stopped:
            return True
        self.result.ids.append(token)
        if len(self.result.ids) < self.request.max_new_tokens:
            return False
        self.result.text += self.decoder.finish()
        return True
