"""Input fields: the inputs of a task, declared once for the command line, Python, pages, servers and validation."""

from __future__ import annotations

import abc
import base64
import binascii
import io
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote_to_bytes

import torch
from torch import Tensor

from saccade.errors import UsageError

SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair, which no encoding can write
DATA_URL = re.compile(r"data:[\w.+/-]*(?:;[\w=.-]+)*?(;base64)?,", re.ASCII)

# Modes of PIL images that a format stores as they are.
PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
TIFF_MODES = ("CMYK", "YCbCr", "LAB", "F", "I", "I;16B")


@dataclass(frozen=True)
class Field(abc.ABC):
    """One named input of a task."""

    name: str
    optional: bool = False
    help: str = ""

    kind: ClassVar[str]
    """type of the value, as named in pages and schemas"""

    @abc.abstractmethod
    def read(self, value: Any) -> Any:
        """Return the value as the task receives it; refuse a value of another type."""

    def to_json(self) -> dict[str, Any]:
        """Return the declaration for pages and schemas."""
        return {"name": self.name, "kind": self.kind, "optional": self.optional, "help": self.help}

    def _refuse(self, value: Any, rule: str) -> UsageError:
        shown = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
        return UsageError(f"{self.name} must be {rule}, but is {shown[:80]}")


@dataclass(frozen=True)
class Text(Field):
    """A text, as a `str` of valid Unicode."""

    may_be_empty: bool = False
    """whether a text of whitespace alone is accepted, such as a prompt to start from nothing"""

    kind: ClassVar[str] = "text"

    def read(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self._refuse(value, "a text")
        if not value.strip() and not (self.may_be_empty or self.optional):
            raise UsageError(f"{self.name} must hold text, but is {value[:20]!r}; write something in it")
        surrogate = SURROGATE.search(value)
        if surrogate is not None:
            code = f"U+{ord(surrogate[0]):04X}"
            rule = f"{self.name} must be valid Unicode, but character {surrogate.start() + 1:,} is"
            raise UsageError(f"{rule} the lone surrogate {code}; remove it")
        return value


@dataclass(frozen=True)
class Image(Field):
    """An image: the bytes of an encoded file, or a uint8 tensor (C, H, W).

    Accepts a path, bytes, a data URL, an array or tensor (H, W) or (H, W, C), and a PIL image.
    """

    kind: ClassVar[str] = "image"

    def read(self, value: Any) -> bytes | Tensor:
        if hasattr(value, "convert") and hasattr(value, "tobytes"):  # a PIL image
            return _encode_image(self, value)
        if isinstance(value, str | bytes | os.PathLike):
            return _file_bytes(self, value)
        pixels = _tensor(self, value, "a path, bytes, a data URL, a PIL image or an array of pixels")
        if pixels.dtype != torch.uint8 or pixels.dim() not in (2, 3) or (pixels.dim() == 3 and pixels.shape[2] > 4):
            shape = f"{pixels.dtype} of shape {tuple(pixels.shape)}"
            raise UsageError(f"{self.name} must be a uint8 array (H, W) or (H, W, C), but is {shape}")
        return pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)


@dataclass(frozen=True)
class Audio(Field):
    """Audio: the bytes of an encoded file, or samples (T,) with their rate in Hz.

    Accepts a path, bytes, a data URL, and a pair (samples, rate).
    """

    kind: ClassVar[str] = "audio"

    def read(self, value: Any) -> bytes | tuple[Tensor, int]:
        if isinstance(value, str | bytes | os.PathLike):
            return _file_bytes(self, value)
        rule = "a path, bytes, a data URL or a pair (samples, rate)"
        if not isinstance(value, tuple | list) or len(value) != 2 or not isinstance(value[1], int):
            raise self._refuse(value, rule)
        samples = _tensor(self, value[0], rule)
        if samples.dim() != 1:
            raise UsageError(f"{self.name} must have samples of shape (T,), but they are {tuple(samples.shape)}")
        return samples.float(), value[1]


@dataclass(frozen=True)
class Graph(Field):
    """A graph in node-link format: {"nodes": [...], "edges": [...]}, as a mapping, JSON text or a path to it.

    The list of edges may be called "links".
    """

    kind: ClassVar[str] = "graph"

    def read(self, value: Any) -> Mapping[str, Any]:
        rule = 'a mapping with "nodes" and "edges", JSON text of one, or a path to it'
        graph = _json_object(self, value, rule)
        lists = {'"nodes"': {"nodes"}, '"edges" (or "links")': {"edges", "links"}}
        missing = [shown for shown, names in lists.items() if not names & graph.keys()]
        if missing:
            raise UsageError(f"{self.name} must be {rule}, but has no {' and no '.join(missing)}; add the list")
        return graph


@dataclass(frozen=True)
class World(Field):
    """The state of a world to act in, as a JSON object: a mapping, JSON text or a path to it."""

    check: Callable[[Mapping[str, Any]], object] = field(default=lambda value: None, repr=False, compare=False)
    """raises ValueError with the rule that an object breaks"""

    kind: ClassVar[str] = "world"

    def read(self, value: Any) -> dict[str, Any]:
        world = _json_object(self, value, "a JSON object, its text, or a path to it")
        try:
            self.check(world)
        except ValueError as error:
            raise UsageError(f"{self.name}: {error}") from error
        return dict(world)


@dataclass(frozen=True)
class Vector(Field):
    """A vector of numbers, as a float32 tensor (D,)."""

    sequence: bool = False
    """whether the value is a sequence of vectors (T, D), such as the observations of an episode; one is accepted too"""

    kind: ClassVar[str] = "vector"

    def read(self, value: Any) -> Tensor:
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                raise self._refuse(value, "a list of numbers") from None
        vector = _tensor(self, value, "a list of numbers")
        if self.sequence and vector.dim() == 1:
            vector = vector[None]
        if vector.dim() != (2 if self.sequence else 1) or not vector.numel():
            rule = "vectors (T, D)" if self.sequence else "a vector (D,)"
            raise UsageError(f"{self.name} must be {rule}, but has shape {tuple(vector.shape)}")
        vector = vector.float()
        if not bool(vector.isfinite().all()):
            raise UsageError(f"{self.name} must hold finite numbers, but one is {vector[~vector.isfinite()][0].item()}")
        return vector


def bind(fields: Sequence[Field], values: Sequence[Any] = (), named: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return one validated value per field, from positional values in the order of the fields and named ones.

    Inputs are matched with fields here and nowhere else; too many, missing, unknown and repeated ones are refused.
    """
    names = [field.name for field in fields]
    usage = f"this model takes {', '.join(names)}"
    if len(values) > len(fields):
        raise UsageError(f"{len(values)} inputs were given, expected at most {len(fields)}; {usage}")
    inputs = dict(zip(names, values, strict=False))
    for name, value in (named or {}).items():
        if name not in names:
            raise UsageError(f"no input '{name}'; {usage}")
        if name in inputs:
            raise UsageError(f"{name} was given twice; {usage}")
        inputs[name] = value
    missing = [field.name for field in fields if not field.optional and inputs.get(field.name) is None]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} must be given, but {'is' if len(missing) == 1 else 'are'} not; {usage}"
        )
    return {field.name: field.read(inputs[field.name]) for field in fields if inputs.get(field.name) is not None}


def bind_line(fields: Sequence[Field], line: str) -> dict[str, Any]:
    """Return the example of a line: of one field the line itself; of several separated by tabs, or a JSON object."""
    if len(fields) == 1:
        return bind(fields, [line])
    if not line.startswith("{"):
        return bind(fields, line.split("\t"))
    try:
        return bind(fields, (), json.loads(line))
    except json.JSONDecodeError as error:
        raise UsageError(str(error)) from error


class FileBytes(bytes):
    """The content of a file, which messages call by its name."""

    name: str

    def __new__(cls, path: Path) -> FileBytes:
        content = super().__new__(cls, path.read_bytes())
        content.name = str(path)
        return content


def name_of(value: object, name: str) -> str:
    """Return how messages call an input: the file it was read from, else its name among the inputs."""
    return value.name if isinstance(value, FileBytes) else name


def _json_object(owner: Field, value: Any, rule: str) -> Mapping[str, Any]:
    """Return a JSON object that is given as a mapping, as JSON text, or by the path of a file."""
    if isinstance(value, str | bytes | os.PathLike):
        literal = isinstance(value, str) and value.lstrip().startswith("{")
        content: Any = value if literal else _file_bytes(owner, value)
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{owner.name} must be {rule}, but cannot be parsed: {error}") from error
    if not isinstance(value, Mapping):
        raise owner._refuse(value, rule)
    return value


def _file_bytes(field: Field, value: str | bytes | os.PathLike[str]) -> bytes:
    """Return the bytes of a file or a data URL; bytes are returned unchanged."""
    if isinstance(value, bytes):
        return value
    url = DATA_URL.match(value) if isinstance(value, str) else None
    if url is not None and isinstance(value, str):
        body = value[url.end() :]
        try:
            return base64.b64decode(body, validate=True) if url[1] else unquote_to_bytes(body)
        except binascii.Error as error:
            raise UsageError(f"{field.name} must be a valid data URL, but its base64 is damaged: {error}") from error
    path = Path(value)
    try:
        return FileBytes(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{field.name}: cannot read {str(path)[:200]!r} ({reason}); name a file") from error


def _encode_image(field: Field, image: Any) -> bytes:
    """Return a PIL image as an encoded file, without loss: it is then read as its own file is (orientation, alpha)."""
    stream, exif = io.BytesIO(), image.info.get("exif")
    options = {"exif": exif} if isinstance(exif, bytes) else {}
    try:
        if image.mode in TIFF_MODES:
            image.save(stream, "TIFF", **options)
        else:
            image = image if image.mode in PNG_MODES else image.convert("RGBA")
            image.save(stream, "PNG", compress_level=1, **options)
    except (OSError, ValueError, SyntaxError) as error:
        raise UsageError(f"{field.name}: the PIL image cannot be read ({error}); open or create it again") from error
    return stream.getvalue()


def _tensor(field: Field, value: Any, rule: str) -> Tensor:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, RecursionError):
        raise field._refuse(value, rule) from None
