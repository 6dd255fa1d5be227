"""Chat templates of pretrained models: conversations as text and as ids, as transformers' apply_chat_template does.

A template is rendered in a process of its own with limits on time, memory and files (`chat_sandbox`). Special tokens
that are written in a message stay text: only the template can begin and end turns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from saccade.data.text.sandbox_process import SANDBOX
from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import ModelFileError, UsageError

MAX_TEMPLATE = 200_000  # characters; published ones have up to 20,000
MARKERS = ("\ufdd0", "\ufdd1")  # characters that no text has, around the content of a message
MINIMAL = [{"role": "user", "content": "a"}]  # the shortest conversation

Messages = Sequence[Mapping[str, str]]


def render(template: str, conversations: Sequence[Messages], tokens: Mapping[str, str]) -> list[str]:
    """Return the text of each conversation up to the start of the answer; `tokens`: special tokens by role.

    A conversation that the template refuses or fails on is a UsageError; a template that fails on the shortest one is a
    ModelFileError.
    """
    _check(template, tuple(tokens.items()))
    request = {
        "template": template,
        "conversations": [[dict(message) for message in messages] for messages in conversations],
        "variables": dict(tokens),
    }
    result = SANDBOX.ask(request)
    reason = result.get("refused", result.get("error"))  # both come from the conversation: others can be rendered
    if reason is not None:
        raise UsageError(f"the chat template of the model does not accept the conversation: {reason}")
    texts: list[str] = result["texts"]
    return texts


@lru_cache(maxsize=16)
def _check(template: str, tokens: tuple[tuple[str, str], ...]) -> None:
    """Raise an error unless a template can render the shortest conversation, or refuses it."""
    if len(template) > MAX_TEMPLATE:
        raise _refusal(f"it has {len(template):,} characters, more than {MAX_TEMPLATE:,}")
    result = SANDBOX.ask({"template": template, "conversations": [MINIMAL], "variables": dict(tokens)})
    if "error" in result:
        raise _refusal(str(result["error"]))


def encode_with_template(
    tokenizer: Tokenizer, template: str, messages: Messages, tokens: Mapping[str, str]
) -> list[int]:
    """Return the ids of a conversation up to the start of the answer.

    They are those of transformers unless a message has a special token in it, which here stays text.
    """
    if any(marker in text for marker in MARKERS for message in messages for text in message.values()):
        raise UsageError(f"a message must be valid text, but has the noncharacter U+{ord(MARKERS[0]):X} or the next")
    marked = [{**message, "content": _mark(message["content"])} for message in messages]
    text, with_markers = render(template, [messages, marked], tokens)
    if not any(special in message["content"] for special in tokenizer.specials for message in messages):
        return tokenizer.encode(text, parse_special=True)
    spans = _spans(with_markers)
    if _unmark(with_markers) != text or spans is None:
        raise UsageError(
            f"a message has the special token '{_first_special(tokenizer, messages)}' in it, which cannot be kept as "
            "text: the chat template of this model changes the texts of messages; write it in another way"
        )
    return _encode_around(tokenizer, text, spans)


def _encode_around(tokenizer: Tokenizer, text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return the ids of a text in which special tokens count outside of `spans` only.

    A tokenizer splits a text at special tokens and encodes what is between them by itself, which is repeated here. The
    same text with letters in the spans shows where the special tokens are, and whether that gives the same ids.
    """
    control = text
    for first, end in spans:
        control = control[:first] + "a" * (end - first) + control[end:]
    places = tokenizer.find_specials(control)
    if _encode_between(tokenizer, control, places) != tokenizer.encode(control, parse_special=True):
        known = {place[:2] for place in places}
        inside = next(text[first:end] for first, end, _ in tokenizer.find_specials(text) if (first, end) not in known)
        raise UsageError(
            f"a message has the special token '{inside}' in it, which the tokenizer of this model cannot keep as text; "
            "write it in another way"
        )
    return _encode_between(tokenizer, text, places)


def _encode_between(tokenizer: Tokenizer, text: str, places: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return the ids of a text whose special tokens are those at some places."""
    ids: list[int] = []
    position = 0
    for first, end, token in places:
        ids += tokenizer.encode(text[position:first]) if first > position else []
        ids.append(token)
        position = end
    return ids + (tokenizer.encode(text[position:]) if position < len(text) else [])


def _mark(content: str) -> str:
    """Put markers around a content, inside the white space that a template may remove."""
    core = content.strip()
    before, _, after = content.partition(core) if core else (content, "", "")
    return f"{before}{MARKERS[0]}{core}{MARKERS[1]}{after}" if core else content


def _unmark(text: str) -> str:
    return text.replace(MARKERS[0], "").replace(MARKERS[1], "")


def _spans(marked: str) -> list[tuple[int, int]] | None:
    """Return where the contents are in a text once its markers are removed; None: the markers are not in pairs."""
    spans: list[tuple[int, int]] = []
    start: int | None = None
    length = 0
    for part in re.split(f"({'|'.join(MARKERS)})", marked):
        if part == MARKERS[0]:
            if start is not None:
                return None
            start = length
        elif part == MARKERS[1]:
            if start is None:
                return None
            spans.append((start, length))
            start = None
        else:
            length += len(part)
    return spans if start is None else None


def _first_special(tokenizer: Tokenizer, messages: Messages) -> str:
    return next(special for special in tokenizer.specials for message in messages if special in message["content"])


def _refusal(reason: str) -> ModelFileError:
    return ModelFileError(
        f"the chat template of the model cannot be used: {reason}; choose another model, or continue the conversation "
        "as plain text with `saccade predict`"
    )
