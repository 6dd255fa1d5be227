"""Arrays of pictures in .npz files: pixels with labels, or encoded pictures one after another with their offsets.

N pictures, H rows, W columns, C channels.
"""

from __future__ import annotations

import math
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress
from saccade.data.cache import Array, EntryWriter, Record, cached, hash_file
from saccade.data.formats.image_layouts import ImageLayout, ImageRows, PictureBlock, join_blocks
from saccade.data.images.pictures import MappedPictures, Member, Pictures, PixelPictures, open_zip
from saccade.data.parts import part_of, part_of_file
from saccade.data.settings import ImageSettings
from saccade.data.tables.encodings import BLOCK
from saccade.data.tables.problems import BadRows, Problem
from saccade.data.tables.sniffing import format_size

IMAGES = {"images", "image", "x", "data", "pixels", "jpeg", "jpegs", "png", "pngs", "encoded", "arr_0"}
LABELS = {"labels", "label", "y", "targets", "target", "arr_1"}
CLASSES = ("classes", "class_names", "label_names", "names")
OFFSETS = "offsets"
MAX_LABELS = 1 << 28  # bytes
WORDS = re.compile(r"[_.-]")
NUMPY_DAMAGE = (
    *(ValueError, OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError),
    *(SyntaxError, tokenize.TokenError),  # of a header, which is Python
)

OBJECT = re.compile(r"<.*?>")  # of Python, in messages of NumPy


@dataclass(frozen=True)
class _Names:
    """Names of the arrays of one part of the data."""

    images: str
    labels: str
    part: int | None


class NpzPictures(ImageLayout):
    """One file, or several that are parts of the data."""

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        self.path, self.files = path, tuple(files)

    @property
    def roles(self) -> tuple[tuple[str, ...], ...]:
        return (("label",),)

    def read(self, roles: Sequence[str], settings: ImageSettings, progress: Progress) -> ImageRows:
        if tuple(roles) != ("label",):
            raise self.refuse_roles(roles, "pictures with class labels")
        blocks: list[PictureBlock] = []
        for number, file in enumerate(self.files):
            blocks += NpzFile(file).blocks(part_of_file(file, file) if len(self.files) > 1 else None)
            progress((number + 1) / len(self.files))
        return join_blocks(self.path, blocks)


def find_npz(path: Path) -> NpzPictures | None:
    """Return the .npz files of a path: a file, or all of a folder; None if there are none."""
    if not path.is_dir():
        return NpzPictures(path, [path]) if path.suffix.lower() == ".npz" else None
    files = [file for file in sorted(path.glob("*.npz")) if NpzFile(file).has_images()]
    return NpzPictures(path, files) if files else None


class NpzFile:
    """One .npz file: a zip archive of arrays."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with open_zip(path) as archive:
            self.arrays = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]

    def has_images(self) -> bool:
        """Whether an array has the name of pictures; other files have sounds or features."""
        return any(set(WORDS.split(name.lower())) & IMAGES or name.lower() in IMAGES for name in self.arrays)

    def blocks(self, part: int | None) -> Iterator[PictureBlock]:
        """Yield the pictures of the file with their labels, by part."""
        for names in self._names(part):
            pictures = self._pictures(names.images)
            yield PictureBlock(pictures, self.labels(names.labels, len(pictures), "picture"), names.part)

    def _names(self, file_part: int | None) -> list[_Names]:
        """Return the arrays of pictures and labels: images and labels, or x_train, y_train, x_test and y_test."""
        images: dict[int | None, str] = {}
        labels: dict[int | None, str] = {}
        for name in self.arrays:
            words = [name.lower()] if name.lower() in IMAGES | LABELS else WORDS.split(name.lower())
            parts = [part for word in words if (part := part_of(word)) is not None]
            part = parts[0] if parts else file_part
            plain = {word for word in words if part_of(word) is None}
            if plain & IMAGES:
                images.setdefault(part, name)
            elif plain & LABELS:
                labels.setdefault(part, name)
        if not images or images.keys() != labels.keys():
            what = f"the arrays {', '.join(self.arrays[:20]) or 'none'}"
            expected = "images and labels, or x_train and y_train, or jpeg, offsets and labels"
            raise self.refuse(what, expected, "rename the arrays with numpy.savez")
        return [_Names(images[part], labels[part], part) for part in images]

    def _pictures(self, name: str) -> Pictures:
        shape, dtype = self.header(name)
        if dtype != np.uint8:
            step = "scale them to 0 to 255 and convert them: (255 * x).round().astype('uint8')"
            raise self.refuse(f"{dtype} pixels in '{name}'", "uint8", step)
        if len(shape) == 1:
            return self._encoded(name)
        fits = len(shape) == 3 or (len(shape) == 4 and (shape[3] in (1, 3) or shape[1] in (1, 3)))
        if not fits or not all(shape):
            expected = "(N, H, W), (N, H, W, 1 or 3) or (N, 1 or 3, H, W)"
            raise self.refuse(f"the shape {shape} of '{name}'", expected, "reshape the array")
        first = len(shape) == 4 and shape[3] not in (1, 3)
        pixels = self.mapped(name).reshape(shape)
        key = [hash_file(self._path), name]
        return PixelPictures(str(self._path), pixels, key, channels_first=first)

    def _encoded(self, name: str) -> Pictures:
        """Return encoded pictures: number n is the bytes offsets[n] to offsets[n + 1]."""
        if OFFSETS not in self.arrays:
            step = f"add the array {OFFSETS}: where each picture starts, and the end of the last"
            raise self.refuse(f"'{name}' has one dimension and no array '{OFFSETS}'", "both", step)
        data = self.mapped(name)
        starts = self.offsets(len(data), name).tolist()
        members = [
            Member(f"picture {number + 1}", start, end - start) for number, (start, end) in enumerate(pairwise(starts))
        ]
        return MappedPictures(self._path, members, data, [hash_file(self._path), name])

    def offsets(self, size: int, name: str) -> NDArray[np.int64]:
        """Return where each item starts in an array of this size, and the end of the last."""
        offsets = self.small(OFFSETS)
        right = offsets.ndim == 1 and offsets.dtype.kind in "iu" and len(offsets) > 1
        if not right or offsets[0] < 0 or offsets[-1] > size or (np.diff(offsets.astype(np.int64)) < 0).any():
            expected = f"ascending numbers from 0 to {size:,}"
            raise self.refuse(f"'{OFFSETS}' does not fit '{name}'", expected, "write the file again")
        return offsets.astype(np.int64)

    def first_of(self, names: Sequence[str]) -> str:
        """Return the first of some names that an array has; empty if none has one."""
        return next((name for name in names if name in self.arrays), "")

    def labels(self, name: str, count: int, unit: str) -> list[str]:
        """Return one label or text for each picture or recording, as `unit` says."""
        labels = self.small(name)
        if labels.shape not in ((count,), (count, 1)):
            expected = f"({count},), one for each {unit}"
            raise self.refuse(f"the shape {labels.shape} of '{name}'", expected, f"write one label for each {unit}")
        if labels.dtype.kind not in "iubUS":
            raise self.refuse(f"{labels.dtype} values in '{name}'", "whole numbers or texts", "convert the array")
        values = labels.ravel().tolist()
        classes = next((self.small(array) for array in CLASSES if array in self.arrays), None)
        if classes is None or labels.dtype.kind not in "iu":
            return [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values]
        names = [
            text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
            for text in classes.ravel().tolist()
        ]
        wrong = next((value for value in values if not 0 <= value < len(names)), None)
        if wrong is not None:
            raise self.refuse(
                f"the label {wrong} in '{name}'",
                f"0 to {len(names) - 1}, as there are {len(names)} classes",
                "correct it",
            )
        return [names[value] for value in values]

    def mapped(self, name: str) -> Array:
        """Return the bytes of an array, decompressed once into the cache."""

        def build(writer: EntryWriter) -> Record:
            values = writer.array("values", "uint8")
            with self._open(name) as stream:
                shape, dtype = self._read_header(stream, name)
                missing = math.prod(shape) * dtype.itemsize
                while missing:
                    data = stream.read(min(missing, BLOCK))
                    if not data:
                        raise self.refuse(
                            f"'{name}' ends {format_size(missing)} too early", "a complete array", "write it again"
                        )
                    missing -= len(data)
                    values.write_bytes(data)
            return {}

        return cached("npz", [hash_file(self._path), name], build, [self._path]).arrays["values"]

    def header(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        with self._open(name) as stream:
            return self._read_header(stream, name)

    def _read_header(self, stream: IO[bytes], name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
        if fortran:
            raise self.refuse(f"'{name}' is in Fortran order", "C order", "use numpy.ascontiguousarray before saving")
        return tuple(shape), dtype

    def small(self, name: str) -> NDArray[Any]:
        """Return an array of labels, names or offsets."""
        with self._open(name) as stream:
            shape, dtype = self._read_header(stream, name)
            size = math.prod(shape) * dtype.itemsize
            if dtype.hasobject or size > MAX_LABELS:
                what = f"'{name}' has Python objects" if dtype.hasobject else f"'{name}' has {format_size(size)}"
                raise self.refuse(what, f"numbers or texts of at most {format_size(MAX_LABELS)}", "convert the array")
            data = stream.read(size)
        if len(data) < size:
            raise self.refuse(
                f"'{name}' ends {format_size(size - len(data))} too early", "a complete array", "write it again"
            )
        return np.frombuffer(data, dtype).reshape(shape)

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        with open_zip(self._path) as archive:
            try:
                with archive.open(f"{name}.npy") as stream:
                    yield stream
            except NUMPY_DAMAGE as error:
                what = f"the array '{name}' is damaged ({OBJECT.sub('...', str(error))})"
                raise self.refuse(what, "a complete .npz file", "write or download it again") from error

    def refuse(self, what: str, expected: str, step: str) -> BadRows:
        return BadRows([Problem(self._path, None, None, what, expected, step)])
