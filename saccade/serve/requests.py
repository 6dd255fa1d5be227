"""Requests: the bodies of every endpoint, checked; a parameter that cannot be handled exactly is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from saccade.errors import suggest
from saccade.serve import limits
from saccade.serve.errors import ApiError

Token = Annotated[int, Field(ge=0, lt=1 << 31)]
AtFirst = Field(fail_fast=True)  # a list is refused at its first mistake: others would cost time and memory
Tokens = Annotated[list[Token], AtFirst]
Texts = str | Annotated[Annotated[list[str], AtFirst] | Tokens | Annotated[list[Tokens], AtFirst], Field(min_length=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Stop = Annotated[str, Field(min_length=1, max_length=limits.STOP_LENGTH)]
BiasedToken = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
Metadata = Annotated[dict[str, str], Field(max_length=limits.METADATA)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Seed = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]

STOP_RULE = f"a string or a list of at most {limits.STOPS} strings of 1 to {limits.STOP_LENGTH} characters"
TEXTS_RULE = "a string, a list of strings, a list of tokens or a list of lists of tokens"
RULES = {  # of parameters with several types, of which pydantic reports each
    "prompt": TEXTS_RULE,
    "input": TEXTS_RULE,
    "stop": STOP_RULE,
    "inputs": "an object of inputs, or a list of such objects",
    "content": "a string or a list of text parts",
    "metadata": f"an object of at most {limits.METADATA} strings",
    "logit_bias": f"an object of at most {limits.BIASES:,} tokens, as digits, with numbers from -100 to 100",
}
SIZES = {"metadata": limits.METADATA, "logit_bias": limits.BIASES}  # of objects
PLAIN = {"valid integer": "whole number", "a valid boolean": "true or false", "valid ": ""}


class Body(BaseModel):
    """A request; names of parameters that are refused unless they have a value that changes nothing."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    unsupported: ClassVar[Mapping[str, tuple[Any, ...]]] = {}


class Modelled(Body):
    """A request to a model; parameters about the client are accepted and change nothing."""

    model: Annotated[str, Field(max_length=512, description="name of a model, as /v1/models lists it")]
    user: str | None = Field(None, description="accepted, changes nothing")
    metadata: Metadata | None = Field(None, description="accepted, changes nothing")
    safety_identifier: str | None = Field(None, description="accepted, changes nothing")
    prompt_cache_key: str | None = Field(None, description="accepted, changes nothing")


class StreamOptions(Body):
    """Options of a stream."""

    include_usage: bool | None = Field(None, description="send the usage in a last chunk")
    unsupported: ClassVar[Mapping[str, tuple[Any, ...]]] = {"include_obfuscation": (False,)}


class TextBody(Modelled):
    """What both endpoints for text take."""

    n: int | None = Field(None, ge=1, le=limits.CHOICES, description="texts for each prompt; default 1")
    stop: Stop | Annotated[list[Stop], Field(max_length=limits.STOPS, fail_fast=True)] | None = Field(
        None, description="strings before which a text ends"
    )
    temperature: float | None = Field(None, ge=0, le=2, description="0 is greedy; default 1")
    top_p: float | None = Field(None, ge=0, le=1, description="nucleus sampling; default 1")
    top_k: int | None = Field(None, ge=0, le=1 << 20, description="sample from the k most probable; 0: all")
    min_p: float | None = Field(None, ge=0, lt=1, description="exclude tokens below this part of the most probable")
    repetition_penalty: float | None = Field(None, ge=0.01, le=100, description="above 1: repeat less")
    presence_penalty: Penalty | None = Field(None, description="subtracted from logits of generated tokens")
    frequency_penalty: Penalty | None = Field(None, description="the same, for each time")
    logit_bias: Annotated[dict[BiasedToken, Bias], Field(max_length=limits.BIASES)] | None = Field(
        None, description="added to the logits of tokens"
    )
    seed: Seed | None = Field(None, description="the same seed gives the same text; default: a random one")
    ignore_eos: bool | None = Field(None, description="continue after the end token")
    lookup: int | None = Field(
        None, ge=0, le=limits.LOOKUP, description="tokens to guess at each step; the text stays the same"
    )
    stream: bool | None = Field(None, description="send the text as server-sent events")
    stream_options: StreamOptions | None = None


class CompletionBody(TextBody):
    """A prompt to continue."""

    prompt: Texts | None = Field(None, description=f"{TEXTS_RULE}; default: the beginning of a text")
    max_tokens: int | None = Field(None, ge=0, le=limits.MAX_TOKENS, description="default 16")
    echo: bool | None = Field(None, description="return the prompt before its continuation")
    logprobs: int | None = Field(
        None, ge=0, le=limits.TOP_LOGPROBS, description="most probable tokens at each position"
    )
    best_of: int | None = Field(None, ge=1, le=limits.CHOICES, description="must be equal to n")
    unsupported: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "suffix": ("",),
        "service_tier": ("auto", "default"),
        "store": (False,),
    }


class TextPart(Body):
    """Text of a message."""

    type: Literal["text"]
    text: str


class Message(Body):
    """A message of a conversation; `developer` is another name of `system`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(min_length=1, max_length=limits.MESSAGES, fail_fast=True)]
    unsupported: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "name": (),
        "tool_calls": ([],),
        "tool_call_id": (),
        "function_call": (),
        "audio": (),
        "refusal": (),
        "annotations": ([],),
    }

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ResponseFormat(Body):
    """The form of an answer: text."""

    type: Literal["text"]


class ChatBody(TextBody):
    """A conversation to answer."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=limits.MESSAGES, fail_fast=True)]
    max_completion_tokens: int | None = Field(
        None, ge=1, le=limits.MAX_TOKENS, description="default: all of the context"
    )
    max_tokens: int | None = Field(None, ge=1, le=limits.MAX_TOKENS, description="the former name of the same")
    logprobs: bool | None = Field(None, description="return log probabilities")
    top_logprobs: int | None = Field(None, ge=0, le=limits.TOP_LOGPROBS, description="needs logprobs")
    response_format: ResponseFormat | None = None
    unsupported: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "tools": ([],),
        "tool_choice": ("none",),
        "parallel_tool_calls": (),
        "functions": ([],),
        "function_call": ("none",),
        "modalities": (["text"],),
        "audio": (),
        "prediction": (),
        "reasoning_effort": (),
        "verbosity": (),
        "web_search_options": (),
        "moderation": (),
        "prompt_cache_retention": (),
        "service_tier": ("auto", "default"),
        "store": (False,),
    }


class EmbeddingsBody(Modelled):
    """Texts to represent as vectors."""

    input: Texts = Field(description="a text or a list of texts")
    encoding_format: Literal["float", "base64"] | None = Field(None, description="default float")
    dimensions: int | None = Field(None, ge=1, le=1 << 20, description="must be the size of the model's vectors")


class TaskBody(Body):
    """Inputs of a task, one example or a list of them."""

    inputs: (
        dict[str, Any] | Annotated[list[dict[str, Any]], Field(min_length=1, max_length=limits.INPUTS, fail_fast=True)]
    )
    options: dict[str, Any] = Field(default_factory=dict)
    attention: bool = Field(False, description="return the attention maps with their axes")


B = TypeVar("B", bound=Body)
PARTS: Mapping[str, type[Body]] = {
    "stream_options": StreamOptions,
    "response_format": ResponseFormat,
}  # parameters that have parameters


def check(kind: type[B], values: Mapping[str, Any]) -> B:
    """Return a checked request; the first mistake is refused with its parameter, value and rule."""
    supported = _without_unsupported(kind, values, "")
    try:
        return kind.model_validate(supported)
    except pydantic.ValidationError as error:
        raise _refusal(supported, error.errors(include_url=False)) from error


def _without_unsupported(kind: type[Body], values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Drop parameters whose value changes nothing, also of messages; refuse others, and unknown ones, by name."""
    kept = dict(values)
    for name, harmless in kind.unsupported.items():
        if name not in kept:
            continue
        value = kept.pop(name)
        if value is not None and not any(type(value) is type(entry) and value == entry for entry in harmless):
            allowed = f"; it may be {' or '.join(map(repr, harmless))}" if harmless else "; leave it out"
            message = f"{prefix}{name} is not supported by this server, but is {_shown(value)}{allowed}"
            raise ApiError(400, message, param=f"{prefix}{name}", code="unsupported_parameter")
    messages = kept.get("messages")
    if kind is ChatBody and isinstance(messages, list):
        kept["messages"] = [
            _without_unsupported(Message, message, f"messages[{at}].") if isinstance(message, dict) else message
            for at, message in enumerate(messages[: limits.MESSAGES + 1])
        ]
    if kind is Message:
        _check_parts(kept.get("content"), f"{prefix}content")
    for name, part in PARTS.items():
        if name in kind.model_fields and isinstance(kept.get(name), dict):
            kept[name] = _without_unsupported(part, kept[name], f"{prefix}{name}.")
    _check_names(kind, kept, prefix)
    return kept


def _check_names(kind: type[Body], values: Mapping[str, Any], prefix: str) -> None:
    """Refuse the first parameter that is not known, and objects that are too large."""
    for name in values:
        if name not in kind.model_fields:
            known = "" if prefix else suggest(name[:80], [*kind.model_fields])
            place = f"{prefix}{name}"[:200]
            raise ApiError(400, f"no parameter '{place}'{known}", param=place, code="unknown_parameter")
    for name, most in SIZES.items():
        value = values.get(name)
        if isinstance(value, dict) and len(value) > most:
            message = f"{name} must be {RULES[name]}, but is {_shown(value)}"
            raise ApiError(400, message, param=name, code="invalid_value")


def _check_parts(content: Any, place: str) -> None:
    """Refuse images, sound and files in a message."""
    for at, part in enumerate(content if isinstance(content, list) else []):
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind != "text":
            message = f"{place}[{at}] must be of type 'text', but is of type {kind[:80]!r}, which is not supported"
            raise ApiError(400, message, param=f"{place}[{at}]", code="unsupported_parameter")
        if isinstance(part, dict):
            _check_names(TextPart, part, f"{place}[{at}].")


def _refusal(values: Mapping[str, Any], errors: list[Any]) -> ApiError:
    """Return the first mistake as one sentence."""
    error = errors[0]
    place = ""
    value: Any = values
    path: list[str | int] = []
    for part in error["loc"]:  # also has names of the types of a union, which are no part of the request
        inside = part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int)
        if not inside and error["type"] != "missing":
            continue
        path.append(part)
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
        value = value[part] if inside else None
    place, name = place[:200], str(path[-1]) if path else ""
    if error["type"] == "missing":
        return ApiError(400, f"{place} must be given, but is not", param=place, code="missing_parameter")
    if path and path[0] in RULES:  # the types of a union are refused one by one: name the whole
        place = name = str(path[0])
        value = values[name]
    rule = RULES.get(name)
    if rule is None:
        rule = error["msg"].removeprefix("Input should be ").split(", unable to")[0].split(", got")[0]
        for phrase, plain in PLAIN.items():
            rule = rule.replace(phrase, plain)
    return ApiError(400, f"{place} must be {rule}, but is {_shown(value)}", param=place, code="invalid_value")


def _shown(value: Any) -> str:
    """Return a value of JSON, shortened."""
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value):,}"
    return repr(value)[:80]
