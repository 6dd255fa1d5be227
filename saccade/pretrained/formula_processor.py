"""Processor of pix2tex: how the picture of a formula becomes pixels, and the tokens of its LaTeX."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.images.formulas import read_formula, read_formula_sizes
from saccade.data.text.tokenizer_checks import call_library, check_fits, check_tokenizer, parse_json, read_text
from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import ModelFileError

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class FormulaProcessor:
    """Limits of the pictures and tokenizer of the texts."""

    tokenizer: Tokenizer
    start: int
    """token a text starts with"""
    end: int
    """token a text ends with"""
    max_height: int
    max_width: int
    max_length: int
    """tokens of a text, its start included"""

    def apply(self, pixels: NDArray[np.uint8], name: str = "image") -> Tensor:
        """Return the pixels that the network reads: (H, W, 3) -> (3, H', W'), uint8, three times the grey levels."""
        return _colours(read_formula(pixels, self.max_height, self.max_width, name))

    def sizes(self, pixels: NDArray[np.uint8], name: str = "image") -> list[Tensor]:
        """Return the same, and the formula larger and smaller."""
        return [_colours(grey) for grey in read_formula_sizes(pixels, self.max_height, self.max_width, name)]

    def describe(self) -> dict[str, Any]:
        """Return a summary as JSON."""
        sizes = {"max_height": self.max_height, "max_width": self.max_width, "max_length": self.max_length}
        names = {"tokenizer": self.tokenizer.kind, "vocabulary_size": self.tokenizer.size}
        return {"image_processor": "pix2tex", **sizes, **names}


def _colours(grey: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(np.repeat(grey[None], 3, axis=0))


def read_formula_processor(folder: Path, config: Mapping[str, Any]) -> FormulaProcessor:
    """Read the processor of a folder whose config.json, already checked, is `config`."""
    path = folder / TOKENIZER
    if not path.is_file():
        raise ModelFileError(f"{folder} must hold {TOKENIZER}, but does not; download the complete model")
    tokenizer = _read_tokenizer(path)
    check_fits(folder, tokenizer.size, {"vocab_size": config["num_tokens"]})
    for name in ("bos_token", "eos_token"):
        if not 0 <= config[name] < tokenizer.size:
            rule = f"{name} must be an id of {TOKENIZER}, which has {tokenizer.size:,} tokens"
            raise ModelFileError(f"{folder / 'config.json'}: {rule}, but is {config[name]}; download the model again")
    return FormulaProcessor(
        tokenizer,
        config["bos_token"],
        config["eos_token"],
        config["max_height"],
        config["max_width"],
        config["max_seq_len"],
    )


def _read_tokenizer(path: Path) -> Tokenizer:
    """Read byte pairs; the published file, an old one, names no type of model, and no decoder: pix2tex joins tokens."""
    values = parse_json(path, read_text(path))
    if isinstance(values.get("model"), dict):
        values["model"].setdefault("type", "BPE")
    splitting = values.get("pre_tokenizer")
    if not isinstance(splitting, dict) or splitting.get("type") != "ByteLevel":
        rule = f"pre_tokenizer must be ByteLevel, but is {str(splitting)[:80]}"
        raise ModelFileError(f"{path}: {rule}; this tokenizer is not supported")
    text = json.dumps({**values, "decoder": splitting})
    check_tokenizer(path, text)
    return call_library(path, lambda: Tokenizer(library.Tokenizer.from_str(text), path))
