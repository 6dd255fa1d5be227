"""Checks of the texts that tasks receive."""

from collections.abc import Sequence

from saccade.errors import UsageError


def require_tokens(name: str, text: str, ids: Sequence[int]) -> None:
    """Refuse a text of which the tokenizer leaves nothing, such as control characters alone."""
    if not ids:
        raise UsageError(f"{name} must have at least one token, but {text[:40]!r} has none; write words in it")
