"""Export formats: each writes a model for other tools, and compares its outputs with those of the network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from saccade.core import Pretrained
from saccade.errors import UsageError, suggest
from saccade.pretrained.exports import ctranslate2, gguf, hf, onnx, peft

Writer = Callable[[Pretrained, Path], list[str]]
WRITERS: dict[str, Writer] = {
    "hf": hf.export,
    "onnx": onnx.export,
    "gguf": gguf.export,
    "ctranslate2": ctranslate2.export,
    "peft": peft.export,
}


def choose_writer(format: str, dtype: str = "") -> Writer:
    """Return the function that writes a format and returns what it wrote, with the difference of its outputs."""
    if format not in WRITERS:
        raise UsageError(
            f"format must be one of {', '.join(WRITERS)}, but is '{format}'{suggest(format, list(WRITERS))}"
        )
    if format == "gguf":
        return partial(gguf.export, dtype=dtype or "f16")
    if dtype not in ("", "f32"):
        raise UsageError(f"dtype must be f32 for {format}, but is '{dtype}'; gguf has {', '.join(gguf.TYPES)}")
    return WRITERS[format]
