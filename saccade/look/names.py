"""Titles of attention maps: 'Layer 3 · self-attention', 'Decoder 1 · cross-attention'; numbers as in the names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from saccade.look.rollout import NAME as ROLLOUT

SEPARATOR = " · "
KINDS = {"self": "self-attention", "cross": "cross-attention", "feed": "feed-forward"}
WHOLE = {"alignment": "Alignment", ROLLOUT: "Attention rollout"}
LAYER = re.compile(
    r"(?:(?P<before>.+)\.)?(?P<stack>encoder|decoder|layers?|blocks?)\.(?P<number>\d+)(?:\.(?P<kind>\w+))?"
)
WINDOW = re.compile(r"window\.(\d+)\.(.+)")


def map_titles(names: Iterable[str]) -> dict[str, str]:
    """Return a title for each map of one prediction; a name that is not that of a layer stays as it is.

    Where all layers are of one stack they are called layers, else by their stack.
    """
    names = list(names)
    matches = {name: match for name in names if (match := LAYER.fullmatch(_within_window(name)[1]))}
    stacks = {(match["before"], match["stack"]) for match in matches.values()}
    titles = {}
    for name in names:
        window = _within_window(name)[0]
        title = _layer_title(matches[name], stacks) if name in matches else WHOLE.get(name, name)
        titles[name] = f"Window {window}{SEPARATOR}{title}" if window and name in matches else title
    return titles


def stack_titles(names: Iterable[str]) -> dict[str, str]:
    """Return a title for each stack: 'Encoder', 'Decoder', or with what is before it where two have the same."""
    names = list(names)
    last = [name.rpartition(".")[2] for name in names]
    titles = [end if last.count(end) == 1 else name.replace(".", " ") for name, end in zip(names, last, strict=True)]
    return {name: title.capitalize() for name, title in zip(names, titles, strict=True)}


def _within_window(name: str) -> tuple[str, str]:
    """Return the number of the window of a long recording, empty for the first, and the name within it."""
    match = WINDOW.fullmatch(name)
    return (match[1], match[2]) if match else ("", name)


def _layer_title(match: re.Match[str], stacks: set[tuple[str | None, str]]) -> str:
    stack = "layer"
    if len(stacks) > 1:
        stack = match["stack"].removesuffix("s")
        if sum(other == match["stack"] for _, other in stacks) > 1 and match["before"]:
            stack = f"{match['before'].rpartition('.')[2]} {stack}"
    kind = match["kind"]
    return SEPARATOR.join([f"{stack.capitalize()} {match['number']}", *([KINDS.get(kind, kind)] if kind else [])])
