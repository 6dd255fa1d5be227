"""Text generation: requests to continue a prompt, the events of their tokens, and the engine that runs many at once."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from saccade.errors import ModelFileError

Finish = Literal["", "stop", "length", "error"]
ROWS = 16  # of an engine, where memory suffices
NOT_FINITE = (
    "the logits of the next token must be finite, but are not: a weight is not a number or too large; "
    "get the model again, or train it again"
)


@dataclass(frozen=True)
class TextRequest:
    """A prompt to continue, with its settings."""

    ids: Sequence[int]
    """tokens of the prompt"""
    max_new_tokens: int = 200
    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """added to the logits of these tokens"""
    seed: int = 1
    stop: Sequence[str] = ()
    """strings before which the text ends"""
    ignore_eos: bool = False
    """continue after the end token of the model"""
    logprobs: int | None = None
    """log probabilities of the chosen tokens (0), and of this many most probable ones at each position"""
    lookup: int = 0
    """speculative decoding: tokens to guess at each step from what followed the same tokens before; by compiled code
    only, where guesses cannot change the text"""
    slide: bool = True
    """drop the older half of a full context and go on; false: the text ends there"""


@dataclass(frozen=True)
class TokenLogprob:
    """A token and its log probability; `token` is readable text, `data` the bytes it adds to the text."""

    id: int
    token: str
    data: bytes
    logprob: float = 0.0


@dataclass(frozen=True)
class TextEvent:
    """A generated token of a request and the text that it completes; the last event of a request has a `finish`."""

    number: int
    """of the request, as `TextEngine.add` returned it"""
    text: str
    """new text: none while a character is incomplete or a stop string may have begun"""
    token: TokenLogprob | None = None
    """None where only text remains: at the end, or where a stop string ends the text"""
    top: tuple[TokenLogprob, ...] = ()
    """the most probable tokens, where `logprobs` were requested"""
    finish: Finish = ""
    """stop: an end token or a stop string; length: max_new_tokens or the context is reached; error: the logits are not
    finite, and this request alone has ended"""


@dataclass
class StreamControl:
    """What the caller of a stream decides while it runs: how the output begins, and how its next tokens are chosen."""

    given: Sequence[int] = ()
    """ids of the tokens that the output begins with; the stream yields them first"""
    options: Any = None
    """options for the next token, in place of those of the call; may be replaced at any time"""


@dataclass(frozen=True)
class Candidate:
    """A token that may come next, with its probabilities."""

    id: int
    token: str
    probability: float
    """in the distribution that is sampled from: after penalties, temperature and cut-offs"""
    model_probability: float
    """of the model: before them"""


@dataclass(frozen=True)
class NextTokens:
    """The most probable next tokens."""

    candidates: tuple[Candidate, ...]
    kept: int
    """tokens with a probability above 0 after the cut-offs"""
    vocabulary: int


class Distribution(Protocol):
    """The distribution of the next token, for any options."""

    def next_tokens(self, options: Any, count: int, include: int = -1) -> NextTokens:
        """Return the most probable tokens in the order of the model, and one more that may not be among them."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""


class Finishing(Protocol):
    """An event that says whether and why it is the last of its request."""

    @property
    def finish(self) -> Finish: ...


E = TypeVar("E", bound=Finishing)


def raise_errors(events: Sequence[E]) -> Sequence[E]:
    """Return the events of a step; raises where a request has ended with an error."""
    if any(event.finish == "error" for event in events):
        raise ModelFileError(NOT_FINITE)
    return events


class TextEngine(abc.ABC):
    """Generates text for many requests at once; they join and leave between steps and do not influence each other.

    It belongs to one thread: only `encode` and `encode_chat` may be called from others.
    """

    context: int
    """maximum number of tokens of a prompt and its continuation"""
    rows: int
    """maximum number of requests that are generated at once; others wait for a row"""

    @abc.abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt; of an empty one the token that precedes a text."""

    @abc.abstractmethod
    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of a conversation, messages with `role` and `content`, up to the start of the answer."""

    @abc.abstractmethod
    def check(self, request: TextRequest) -> None:
        """Refuse a request with a setting that is out of range or a prompt that is too long, before it is added."""

    @abc.abstractmethod
    def add(self, request: TextRequest) -> int:
        """Add a request, which starts in the next step with a free row; returns its number."""

    @abc.abstractmethod
    def remove(self, number: int) -> None:
        """Cancel a request; one that has already ended is ignored."""

    @abc.abstractmethod
    def step(self) -> list[TextEvent]:
        """Generate one token for every request that has a row (several where guesses were right)."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of requests that have not ended."""
