"""Unknown words: what a vocabulary of words or characters does not have, and a model therefore reads as one token."""

from saccade.data.text.alphabets import UNKNOWN
from saccade.data.text.tokenizers import Tokenizer

LISTED = 10  # unknown words in a note


def unknown_id(tokenizer: Tokenizer) -> int | None:
    """Return the token that stands for every unknown word; None if nothing is unknown, as with byte pairs."""
    return tokenizer.specials.get(UNKNOWN)


def unit(tokenizer: Tokenizer) -> str:
    """Return what the tokens of a tokenizer are."""
    return "characters" if tokenizer.kind == "characters" else "words"


def unknown_words(tokenizer: Tokenizer, text: str) -> list[str]:
    """Return the different words of a text that have no token, or the characters where these are the tokens."""
    unknown = unknown_id(tokenizer)
    if unknown is None or unknown not in tokenizer.encode(text):
        return []
    units = dict.fromkeys(text if tokenizer.kind == "characters" else text.split())
    return [word for word in units if unknown in tokenizer.encode(word)]


def unknown_note(tokenizer: Tokenizer, text: str) -> tuple[str, ...]:
    """Return a note for the user on the unknown words of an input; empty if there are none."""
    words = unknown_words(tokenizer, text)
    if not words:
        return ()
    return (f"unknown {unit(tokenizer)}, all read as {UNKNOWN}: {list_words(words)}",)


def list_words(words: list[str]) -> str:
    """Return some words in quotes, of which a long list is cut."""
    more = f" and {len(words) - LISTED:,} more" if len(words) > LISTED else ""
    return ", ".join(f"'{word}'" for word in words[:LISTED]) + more
