"""Text generation: decode the tokens of a causal model to text, which ends before a stop string."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from saccade.core import GeneratedToken, StreamControl, Weights
from saccade.core.generation import raise_errors
from saccade.data.text.tokenizers import StreamDecoder, Tokenizer
from saccade.decode.engine import Engine, Event, Request
from saccade.decode.runner import CausalModel, TorchRunner
from saccade.decode.runners import Runners
from saccade.decode.sampling import Sampling
from saccade.decode.stopping import StopStrings
from saccade.nn.probe import RecordedRow, Recorder, record
from saccade.tasks._token_distribution import TokenDistribution

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
    runners: Runners | None = None
    """makes runners of the model; None: by torch"""
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
        longest = max(map(len, prompts), default=1)
        engine = self._engine(min(ROWS, max(1, len(prompts))), min(self.context, longest + options.max_new_tokens))
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
        self,
        prompt: Sequence[int],
        options: GenerationOptions,
        control: StreamControl | None = None,
        *,
        attention: bool = False,
    ) -> Iterator[GeneratedToken]:
        """Yield the continuation of a prompt token by token, with the attention of all tokens read so far.

        Attention is recorded only while the network runs: a suspended stream records no other call.
        """
        given = [] if control is None else list(control.given)
        count, capacity = options.max_new_tokens - len(given), min(self.context, len(prompt) + options.max_new_tokens)
        request = replace(self.request([*prompt, *given], options), given=len(given), max_new_tokens=max(0, count))
        if control is not None:
            request = replace(request, current=lambda: control.options or options)
        engine, recorder, maps = self._recorded(capacity) if attention else (self._engine(1, capacity), None, {})
        events = _events(engine, request)
        stream = TokenStream(TextDecoder(self.tokenizer, options.stop, prompt), self.tokenizer, prompt, maps)
        for number in given:
            yield stream.add(number)
        for event in events if recorder is None else recorder.iterate(events):
            if event.finish == "stop":
                if control is not None:
                    yield stream.end(event)
                    return
                break
            token = stream.add(event.token, event)
            if token.text or not stream.stopped or control is not None:
                yield token
            if stream.stopped:
                return
        if rest := stream.decoder.finish():
            yield GeneratedToken("", rest, maps, stream.prompt)

    def _recorded(self, capacity: int) -> tuple[Engine, Recorder | None, Mapping[str, Weights]]:
        """Return an engine of one row, what must be active while it runs, and the attention that it records."""
        made = None if self.runners is None else self.runners.make_recorded(capacity)
        if made is not None:
            return Engine(made[0], self.context), None, made[1]
        recorder = record(self.model)  # type: ignore[arg-type]
        maps = {name: RecordedRow(recorded, 0) for name, recorded in recorder.items()}
        return Engine(TorchRunner(self.model, 1, capacity), self.context), recorder, maps

    def _engine(self, rows: int, capacity: int) -> Engine:
        """Return an engine with rows of a capacity."""
        if self.rows_that_fit is not None:
            rows = self.rows_that_fit(capacity, rows)
        if self.runners is None:
            return Engine(TorchRunner(self.model, rows, capacity), self.context)
        return Engine(self.runners.make(rows, capacity), self.context)

    def visible_start(self, prompt: int, end: int) -> int:
        """Return the first cached token after a prompt of some length, once the tokens before `end` were read.

        A full context drops its older half, as the engine does.
        """
        length = min(prompt, self.context)
        for _ in range(end - prompt):
            length = length + 1 if length < self.context else max(1, self.context // 2)
        return end - length


def _events(engine: Engine, request: Request) -> Iterator[Event]:
    """Yield the tokens of one request as they are generated."""
    engine.add(request)
    while len(engine):
        yield from raise_errors(engine.step())


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


class TokenStream:
    """The continuation of one prompt as it is generated."""

    def __init__(
        self, decoder: TextDecoder, tokenizer: Tokenizer, prompt: Sequence[int], maps: Mapping[str, Weights]
    ) -> None:
        self.decoder, self.stopped, self.prompt = decoder, False, tuple(tokenizer.pieces(prompt))
        self._tokenizer, self._maps, self._ids, self._start = tokenizer, maps, list(prompt), len(prompt)
        self._labels: dict[int, str] = {}

    def add(self, token: int, event: Event | None = None) -> GeneratedToken:
        """Append a token, one that was generated with its event; only text remains where a stop string ends it."""
        text, self.stopped = self.decoder.feed(token)
        if self.stopped:
            return GeneratedToken("", text, self._maps, self.prompt, finish="stop")
        piece = self._tokenizer.pieces([token])[0]
        result = GeneratedToken(piece, text, self._maps, self.prompt, token)
        if event is not None:
            sampling, finish = event.sampling, event.finish
            result = replace(result, distribution=self._distribution(event), options=sampling, finish=finish)
        self._ids.append(token)
        return result

    def end(self, event: Event) -> GeneratedToken:
        """Return the end token, with the remaining text."""
        piece, distribution = self._tokenizer.pieces([event.token])[0], self._distribution(event)
        text = self.decoder.finish()
        return GeneratedToken(
            piece, text, self._maps, self.prompt, event.token, distribution, event.sampling, finish="stop"
        )

    def _distribution(self, event: Event) -> TokenDistribution | None:
        if event.logits is None:
            return None
        return TokenDistribution(event.logits, self._tokenizer, self._ids, len(self._ids), self._start, self._labels)


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
