"""Generation endpoints: /v1/completions and /v1/chat/completions."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from saccade.core.generation import TextRequest
from saccade.errors import SaccadeError
from saccade.serve import limits, models, requests
from saccade.serve.bodies import parse_object
from saccade.serve.errors import ApiError, large_response
from saccade.serve.formats import ChatFormat, CompletionFormat
from saccade.serve.generator import Generator
from saccade.serve.models import ServedModel
from saccade.serve.requests import ChatBody, CompletionBody, TextBody
from saccade.serve.state import State
from saccade.serve.streaming import EventStream, TextJob, until_disconnect

DEFAULT_TOKENS = 16  # of a completion, as OpenAI has it
SMALLEST_TOP_P = 1e-9  # leaves the most probable token alone, which is what 0 means
LONG = 4096  # characters of all prompts from which on they are encoded in a thread


@dataclass(frozen=True)
class Prompt:
    """The tokens of a prompt, and its text where it was given as one."""

    ids: list[int]
    text: str | None = None


async def completions(state: State, request: Request) -> Response:
    """Continue prompts."""
    async with state.bodies.read(request, limits.TEXT_BODY) as content:
        body = requests.check(CompletionBody, await parse_object(request, content))
    served, generator = _language_model(state, body)
    n = body.n or 1
    _check_completion(body, n)
    given = _prompts(body.prompt)
    with _Places(generator, len(given) * n) as places:
        prompts = await _encode(generator, given)
        for prompt in prompts:
            _check_length(generator, prompt.ids, "prompt")
        echo: list[str] = []
        if body.echo:
            echo = [prompt.text or "" for prompt in prompts for _ in range(n)]
        seed = _seed(body.seed)
        most = DEFAULT_TOKENS if body.max_tokens is None else body.max_tokens
        texts = _requests(generator, prompts, body, seed, most, body.logprobs)
        format = CompletionFormat(served.name, served.fingerprint, seed, body.logprobs is not None, echo=echo)
        return await _respond(state, request, served, TextJob(texts, format, _tokens(prompts)), body, places)


async def chat_completions(state: State, request: Request) -> Response:
    """Answer a conversation."""
    async with state.bodies.read(request, limits.TEXT_BODY) as content:
        body = requests.check(ChatBody, await parse_object(request, content))
    served, generator = _language_model(state, body)
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(
            400, "top_logprobs needs logprobs, but it is not true", param="top_logprobs", code="invalid_value"
        )
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        message = "max_tokens and max_completion_tokens are the same, but both are given; leave one out"
        raise ApiError(400, message, param="max_tokens", code="invalid_value")
    with _Places(generator, body.n or 1) as places:
        prompt = Prompt(await _encode_chat(generator, body))
        _check_length(generator, prompt.ids, "messages")
        given = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        seed, top = _seed(body.seed), (body.top_logprobs or 0) if body.logprobs else None
        texts = _requests(generator, [prompt], body, seed, limits.MAX_TOKENS if given is None else given, top)
        format = ChatFormat(served.name, served.fingerprint, seed, bool(body.logprobs))
        return await _respond(state, request, served, TextJob(texts, format, len(prompt.ids)), body, places)


class _Places:
    """Places of the engine that are given back unless the request reaches it."""

    def __init__(self, generator: Generator, count: int) -> None:
        self._generator, self._count = generator, count

    def __enter__(self) -> _Places:
        self._generator.reserve(self._count)
        return self

    def keep(self) -> None:
        """The engine has the request, and frees the places at its end."""
        self._count = 0

    def __exit__(self, *_: object) -> None:
        self._generator.release(self._count)


async def _respond(
    state: State, request: Request, served: ServedModel, job: TextJob, body: TextBody, places: _Places
) -> Response:
    """Generate; a client that leaves takes its rows with it."""
    assert served.generator is not None
    job.start(served.generator, state.metrics, served.name)
    places.keep()
    try:
        await until_disconnect(request, job.accepted())
        if body.stream:
            usage = body.stream_options is not None and bool(body.stream_options.include_usage)
            return EventStream(job, include_usage=usage)
        await until_disconnect(request, job.finish())
    except BaseException:
        job.close()
        raise
    job.close()
    return await large_response(lambda: job.format.response(job.choices, job.usage()))


def _language_model(state: State, body: TextBody) -> tuple[ServedModel, Generator]:
    served = models.find(state.models, body.model)
    if served.generator is None:
        message = f"'{served.name}' does not continue texts; it is a model for {served.task}: use {served.path}"
        raise ApiError(400, message, param="model", code="unsupported_model")
    if body.stream_options is not None and not body.stream:
        message = "stream_options needs stream, but it is not true"
        raise ApiError(400, message, param="stream_options", code="invalid_value")
    return served, served.generator


def _check_completion(body: CompletionBody, n: int) -> None:
    """Refuse combinations that cannot be handled exactly."""
    if body.best_of not in (None, n):
        message = f"best_of must be equal to n, which is {n}, but is {body.best_of}; texts are not ranked"
        raise ApiError(400, message, param="best_of", code="unsupported_parameter")
    prompts = body.prompt if isinstance(body.prompt, list) else [""]
    if body.echo and not all(isinstance(prompt, str) for prompt in prompts):
        message = "echo needs prompts that are texts, but they are tokens; leave it out"
        raise ApiError(400, message, param="echo", code="unsupported_parameter")
    if body.echo and body.logprobs is not None:
        message = "echo cannot be combined with logprobs: those of the prompt are not computed; leave one out"
        raise ApiError(400, message, param="echo", code="unsupported_parameter")


def _prompts(prompt: str | list[Any] | None) -> list[str | list[int]]:
    """Return the prompts of a request, each a text or a list of tokens."""
    if prompt is None or isinstance(prompt, str):
        return [prompt or ""]
    prompts: list[str | list[int]] = [prompt] if isinstance(prompt[0], int) else prompt
    if len(prompts) > limits.PROMPTS:
        message = f"prompt must have at most {limits.PROMPTS} prompts, but has {len(prompts):,}; send several requests"
        raise ApiError(400, message, param="prompt", code="invalid_value")
    if any(not tokens for tokens in prompts if isinstance(tokens, list)):
        raise ApiError(
            400, "a prompt must have at least one token, but one is empty", param="prompt", code="invalid_value"
        )
    return prompts


async def _encode(generator: Generator, prompts: Sequence[str | list[int]]) -> list[Prompt]:
    def encode() -> list[Prompt]:
        return [
            Prompt(generator.engine.encode(prompt), prompt) if isinstance(prompt, str) else Prompt(prompt)
            for prompt in prompts
        ]

    length = sum(len(prompt) for prompt in prompts if isinstance(prompt, str))
    return await run_in_threadpool(encode) if length > LONG else encode()


async def _encode_chat(generator: Generator, body: ChatBody) -> list[int]:
    roles = {"developer": "system"}
    messages = [{"role": roles.get(message.role, message.role), "content": message.text} for message in body.messages]
    try:
        return await run_in_threadpool(generator.engine.encode_chat, messages)
    except SaccadeError as error:
        raise ApiError.of(error, param="messages") from error


def _check_length(generator: Generator, ids: Sequence[int], param: str) -> None:
    context = generator.engine.context
    if len(ids) >= context:
        message = f"a prompt must have fewer tokens than the context of {context:,}, but has {len(ids):,}; shorten it"
        raise ApiError(400, message, param=param, code="context_length_exceeded")


def _tokens(prompts: Sequence[Prompt]) -> int:
    return sum(len(prompt.ids) for prompt in prompts)


def _seed(seed: int | None) -> int:
    return secrets.randbits(53) if seed is None else seed  # every client reads 53 bits exactly


def _requests(
    generator: Generator, prompts: Sequence[Prompt], body: TextBody, seed: int, most: int, logprobs: int | None
) -> list[TextRequest]:
    """Return n requests for each prompt; the first of each has the seed itself, the others follow it."""
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return [
        TextRequest(
            ids=prompt.ids,
            max_new_tokens=min(most, generator.engine.context),
            temperature=_or(body.temperature, 1.0),
            top_k=body.top_k or 0,
            top_p=max(_or(body.top_p, 1.0), SMALLEST_TOP_P),
            min_p=body.min_p or 0.0,
            repetition_penalty=_or(body.repetition_penalty, 1.0),
            presence_penalty=body.presence_penalty or 0.0,
            frequency_penalty=body.frequency_penalty or 0.0,
            logit_bias={int(token): bias for token, bias in (body.logit_bias or {}).items()},
            seed=(seed + index) % (1 << 63),
            stop=tuple(stop),
            ignore_eos=bool(body.ignore_eos),
            logprobs=logprobs,
            lookup=body.lookup or 0,
            slide=False,
        )
        for prompt in prompts
        for index in range(body.n or 1)
    ]


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
