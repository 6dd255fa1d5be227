"""A scripted engine: an answer is a text that the test gives, one character per token and step."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from saccade.core.generation import TextEngine, TextEvent, TextRequest, TokenLogprob
from saccade.decode.stopping import StopStrings
from saccade.errors import UsageError


class ScriptedEngine(TextEngine):
    """Tokens are characters; `answers` are the texts that it generates in turn."""

    rows = 1

    def __init__(self, context: int = 1000, *, template: bool = True) -> None:
        self.context, self.template = context, template
        self.answers: list[str] = []
        self.requests: list[TextRequest] = []
        self.prompts: list[str] = []
        self._live: tuple[int, str, StopStrings] | None = None

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        if not self.template:
            raise UsageError("a conversation needs a model with a chat template, but this one has none")
        return self.encode("".join(f"[{message['role'][0]}]{message['content']}" for message in messages) + "[a]")

    def check(self, request: TextRequest) -> None:
        if len(request.ids) >= self.context:
            raise UsageError(f"a prompt must have fewer tokens than the context of {self.context}")
        if request.temperature < 0:
            raise UsageError(f"temperature must be 0 or more, but is {request.temperature}")

    def add(self, request: TextRequest) -> int:
        assert not request.slide
        self.requests.append(request)
        self.prompts.append("".join(map(chr, request.ids)))
        answer = self.answers.pop(0) if self.answers else "Yes."
        self._live = (len(self.requests), answer, StopStrings(request.stop))
        return len(self.requests)

    def remove(self, number: int) -> None:
        self._live = None

    def step(self) -> list[TextEvent]:
        number, answer, stop = self._live
        letter, rest = answer[:1], answer[1:]
        self._live = (number, rest, stop)
        if not letter:
            return [TextEvent(number, stop.finish(), finish="stop")]
        text, stopped = stop.feed(letter)
        if stopped:
            return [TextEvent(number, text, finish="stop")]
        generated = len(self.requests[-1].ids) + 1
        request = self.requests[-1] = TextRequest(
            [*self.requests[-1].ids, ord(letter)], self.requests[-1].max_new_tokens - 1, stop=self.requests[-1].stop
        )
        full = request.max_new_tokens == 0 or generated >= self.context
        text += stop.finish() if full else ""
        return [TextEvent(number, text, TokenLogprob(ord(letter), letter, b""), finish="length" if full else "")]

    def __len__(self) -> int:
        return int(self._live is not None)


class Recorder:
    """An output that keeps everything."""

    shows_input = True

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.notes: list[str] = []
        self.records: list[Mapping] = []
        self.stop_after: int | None = None

    def text(self, text: str) -> None:
        self.texts.append(text)

    def end(self, record: Mapping) -> None:
        self.records.append(record)

    def note(self, message: str) -> None:
        self.notes.append(message)

    def interruptible(self) -> Callable[[], bool]:
        first = len(self.texts)
        return lambda: self.stop_after is not None and len(self.texts) - first >= self.stop_after


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def output() -> Recorder:
    return Recorder()


@pytest.fixture(scope="session")
def make_engine() -> Callable[..., ScriptedEngine]:
    return ScriptedEngine
