"""Text generation: decode the tokens of a causal model to text, which ends before a stop string."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from saccade.core import GeneratedToken
from saccade.data.text.tokenizers import StreamDecoder, Tokenizer
from saccade.decode.generate import CausalModel, Generation, NotFiniteError, Request, generate
from saccade.decode.sampling import Sampling
from saccade.decode.stopping import StopStrings
from saccade.errors import ModelFileError
from saccade.nn.probe import RecordedRow, Recorder

ROWS = 32  # prompts generated at once


@dataclass(frozen=True)
class GenerationOptions(Sampling):
    """Options of text generation."""

    max_new_tokens: int = 200
    """maximum number of tokens to generate"""
    stop: str = ""
    """stop before this string"""
    seed: int = 1
    """seed of the random generator"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_new_tokens < 0:
            raise ValueError(f"max_new_tokens must be 0 or more, but is {self.max_new_tokens}")
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

    def request(self, prompt: Sequence[int], options: GenerationOptions) -> Request:
        """Return the request to continue a prompt."""
        return Request(prompt, options, options.seed, options.max_new_tokens, self.eos_ids)

    def continue_all(self, prompts: Sequence[Sequence[int]], options: GenerationOptions) -> Iterator[Continuation]:
        """Yield the continuation of each prompt in order; many are generated at once, with the same result as alone."""
        generation = Generation(self.model, self.context)
        live: dict[int, _Row] = {}  # by the identity of the request
        results: dict[int, Continuation] = {}
        waiting = iter(enumerate(prompts))
        for number in range(len(prompts)):
            while number not in results:
                while len(live) < ROWS and (item := next(waiting, None)) is not None:
                    index, prompt = item
                    row = _Row(index, self.request(prompt, options), TextDecoder(self.tokenizer, options.stop))
                    row.id = generation.add(row.request)
                    if options.max_new_tokens:
                        live[id(row.request)] = row
                    else:
                        results[index] = row.result
                for request, token in _step(generation):
                    row = live[id(request)]
                    if row.feed(token):
                        generation.remove(row.id)
                        results[row.index] = row.result
                        del live[id(request)]
            yield results.pop(number)

    def stream(
        self, prompt: Sequence[int], options: GenerationOptions, recorder: Recorder | None = None
    ) -> Iterator[GeneratedToken]:
        """Yield the continuation of a prompt token by token, with the attention of all tokens read so far.

        The recorder is active only while the network runs: a suspended stream records no other call.
        """
        pieces = self.tokenizer.pieces
        tokens = generate(self.model, self.request(prompt, options), self.context)
        if recorder is not None:
            tokens = recorder.iterate(tokens)
        maps = {name: RecordedRow(recorded, 0) for name, recorded in (recorder or {}).items()}
        decoder, prompt_tokens = TextDecoder(self.tokenizer, options.stop), tuple(pieces(prompt))
        for token in _finite(tokens):
            text, stopped = decoder.feed(token)
            if stopped:
                if text:
                    yield GeneratedToken("", text, maps, prompt_tokens)
                return
            yield GeneratedToken(pieces([token])[0], text, maps, prompt_tokens)
        text = decoder.finish()
        if text:
            yield GeneratedToken("", text, maps, prompt_tokens)

    def visible_start(self, prompt: int, end: int) -> int:
        """Return the first cached token after a prompt of some length, once the tokens before `end` were read.

        A full context drops its older half, as `decode.generate` does.
        """
        length = min(prompt, self.context)
        for _ in range(end - prompt):
            length = length + 1 if length < self.context else max(1, self.context // 2)
        return end - length


class TextDecoder:
    """Decodes generated ids to text; what may be the start of a stop string is buffered until more text follows."""

    def __init__(self, tokenizer: Tokenizer, stop: str) -> None:
        self._decoder, self._stop = StreamDecoder(tokenizer), StopStrings([stop] if stop else [])

    def feed(self, token: int) -> tuple[str, bool]:
        """Return the text that is ready, and whether the stop string follows it."""
        return self._stop.feed(self._decoder.feed(token))

    def finish(self) -> str:
        """Return the remaining text, when no more tokens follow."""
        ready, stopped = self._stop.feed(self._decoder.finish())
        return ready if stopped else ready + self._stop.finish()


def _step(generation: Generation) -> list[tuple[Request, int]]:
    try:
        return generation.step()
    except NotFiniteError as error:
        raise _damaged(error) from error


def _finite(tokens: Iterator[int]) -> Iterator[int]:
    try:
        yield from tokens
    except NotFiniteError as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> ModelFileError:
    return ModelFileError(f"{error}: a weight is not a number or too large; get the model again, or train it again")


@dataclass
class Continuation:
    """The tokens generated after one prompt, without the stop tokens, and their text."""

    ids: list[int] = field(default_factory=list)
    text: str = ""


class _Row:
    """A prompt in progress."""

    def __init__(self, index: int, request: Request, decoder: TextDecoder) -> None:
        self.index, self.request, self.decoder, self.id = index, request, decoder, -1
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
