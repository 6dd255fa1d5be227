"""Opening: a model by what a person calls it, with its tokenizer, from whatever form it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from saccade.data.text import guard
from saccade.data.text.sentencepiece import is_marian, read_sides
from saccade.data.text.vocabularies import SAID, read_tokenizer
from saccade.errors import ModelFileError
from saccade.pretrained import huggingface
from saccade.pretrained.catalogue import find
from saccade.pretrained.gguf import Opened, read_gguf


def open_model(word: str) -> Opened:
    """A model of a folder, a .gguf file, a name of the catalogue, or owner/name on the hub."""
    path = find(word)
    if not path.is_dir():
        return read_gguf(path)
    values = huggingface.read_config(path)[2]
    tokenizer, target = read_sides(path) if is_marian(path) else (read_tokenizer(path), None)
    foreign = huggingface.read(path)
    if tokenizer.size > foreign.vocabulary:
        raise ModelFileError(
            f"{path}: the tokenizer must have at most {foreign.vocabulary:,} tokens, as config.json says, but has "
            f"{tokenizer.size:,}; get both from one model"
        )
    begin, end = (_mark(values, name, foreign.vocabulary) for name in ("decoder_start_token_id", "eos_token_id"))
    return Opened(foreign, tokenizer, begin, end, _template(path), target)


def describe(word: str) -> dict[str, Any]:
    """What a model is, after all of it was read and checked."""
    opened = open_model(word)
    found = opened.foreign
    return {
        "path": str(find(word)),
        "family": found.family.name,
        "parameters": sum(value.numel() for value in found.model.parameters()),
        "vocabulary": found.vocabulary,
        "tokenizer": opened.tokenizer.kind,
        "config": vars(found.config),
        "unused": list(found.unused),
    }


def _mark(values: dict[str, Any], name: str, below: int) -> int | None:
    """The id that begins or ends a text; the first where there are several."""
    said = values.get(name)
    first = said[0] if isinstance(said, list) and said else said
    if not isinstance(first, int) or isinstance(first, bool) or not 0 <= first < below:
        return None
    return first


def _template(folder: Path) -> str:
    path = folder / SAID
    found = guard.parse(path, guard.read_text(path)).get("chat_template") if path.exists() else None
    return found if isinstance(found, str) else ""
