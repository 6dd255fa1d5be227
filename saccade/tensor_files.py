"""Tensor files: headers of safetensors, checked before the library reads them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.errors import ModelFileError

LARGEST_HEADER = 32 << 20  # bytes
MOST_TENSORS = 100_000


def is_finite(tensor: Tensor) -> bool:
    """Whether all values are finite; the sum of a tensor, which is fast, tells for nearly every one."""
    return not tensor.is_floating_point() or math.isfinite(float(tensor.sum())) or bool(tensor.isfinite().all())


def _reason(error: Exception) -> str:
    """Return why a text is not JSON, without the text."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos:,}"
    if isinstance(error, UnicodeDecodeError):
        return f"byte 0x{error.object[error.start]:02X} at {error.start:,} is not UTF-8"
    return "it is nested too deeply" if isinstance(error, RecursionError) else "a number in it is too long"


def read_header(path: Path) -> dict[str, Any]:
    """Return the header of a safetensors file: type, shape and position of each tensor, by name."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > LARGEST_HEADER:
            raise ModelFileError(f"{path}: the header must have at most {LARGEST_HEADER:,} bytes, but has {size:,}")
        try:
            header = json.loads(file.read(size))
        except (ValueError, RecursionError) as error:
            raise ModelFileError(
                f"{path} cannot be read: the header must be JSON, but is not ({_reason(error)})"
            ) from error
    if not isinstance(header, dict):
        raise ModelFileError(f"{path} cannot be read: the header must be a JSON object, but is not")
    if len(header) > MOST_TENSORS:
        raise ModelFileError(f"{path} must hold at most {MOST_TENSORS:,} tensors, but holds {len(header):,}")
    return header
