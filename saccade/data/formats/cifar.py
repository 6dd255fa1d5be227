"""CIFAR-10 and CIFAR-100 as they are published: the binary and the Python version, in an archive or unpacked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress
from saccade.data.cache import Entry, EntryWriter, Record, cached, hash_file
from saccade.data.formats.image_layouts import ImageLayout, ImageRows, PictureBlock, join_blocks
from saccade.data.formats.pickles import UnsupportedPickle, parse_pickle
from saccade.data.images.pictures import PixelPictures
from saccade.data.images.trees import Folder, Tree
from saccade.data.parts import TEST, TRAIN
from saccade.data.settings import ImageSettings
from saccade.data.tables.problems import BadRows, Problem

PIXELS = 3 * 32 * 32
BATCH = re.compile(r"(data_batch_[1-5]|test_batch)(\.bin)?")  # of CIFAR-10
HUNDRED = re.compile(r"(train|test)(\.bin)?")  # of CIFAR-100
NAMES = {"batches.meta", "batches.meta.txt", "meta", "fine_label_names.txt"}
NEXT = "download the archive again"


@dataclass(frozen=True)
class _Batch:
    """Pictures of one file: (N, 3072) bytes, and the number of the class of each."""

    pixels: NDArray[np.uint8]
    labels: Sequence[int]


class CifarPictures(ImageLayout):
    """The files of CIFAR in a folder or an archive."""

    def __init__(self, tree: Tree, names: Sequence[str]) -> None:
        self.tree, self.path, self.names = tree, tree.path, tuple(names)

    @property
    def roles(self) -> tuple[tuple[str, ...], ...]:
        return (("label",),)

    def read(self, roles: Sequence[str], settings: ImageSettings, progress: Progress) -> ImageRows:
        if tuple(roles) != ("label",):
            raise self.refuse_roles(roles, "pictures with class labels")
        entry = self._entry(progress)
        pixels = entry.arrays["pixels"].reshape(-1, 3, 32, 32)
        labels, classes = np.asarray(entry.arrays["labels"]), entry.record["classes"]
        blocks, start = [], 0
        for name, count in entry.record["batches"]:
            numbers = labels[start : start + count].tolist()
            part = TEST if name.startswith("test") else TRAIN
            key = [entry.key, str(start), str(count)]
            pictures = PixelPictures(str(self.path / name), pixels[start : start + count], key, channels_first=True)
            blocks.append(PictureBlock(pictures, [_class(classes, number) for number in numbers], part))
            start += count
        has_both = len({block.part for block in blocks}) > 1
        return join_blocks(
            self.path, blocks if has_both else [PictureBlock(b.pictures, b.labels, None) for b in blocks]
        )

    def _entry(self, progress: Progress) -> Entry:
        """Return the entry of the cache with all pixels and labels."""

        def build(writer: EntryWriter) -> Record:
            pixels, labels = writer.array("pixels", "uint8"), writer.array("labels", "int64")
            batches: list[tuple[str, int]] = []
            classes: list[str] = []
            for number, (name, data) in enumerate(self.tree.contents(self.names)):
                base = PurePosixPath(name).name
                if base in NAMES:
                    classes = self._class_names(name, data)
                else:
                    batch = self._binary(name, data) if base.endswith(".bin") else self._pickled(name, data)
                    pixels.write_bytes(batch.pixels.tobytes())
                    labels.write(batch.labels)
                    batches.append((base, len(batch.labels)))
                progress((number + 1) / len(self.names))
            return {"batches": batches, "classes": classes}

        folder = isinstance(self.tree, Folder)
        files = [self.path / name for name in self.names] if folder else [self.path]
        return cached("cifar", [hash_file(file) for file in files], build, files)

    def _binary(self, name: str, data: bytes) -> _Batch:
        """Return the pictures of a binary file: records of a label, two for CIFAR-100, and the pixels."""
        size = 1 + PIXELS + bool(HUNDRED.fullmatch(PurePosixPath(name).name))
        if not data or len(data) % size:
            raise self._refuse(name, f"{len(data):,} bytes", f"records of {size:,} bytes", NEXT)
        records = np.frombuffer(data, np.uint8).reshape(-1, size)
        return _Batch(records[:, -PIXELS:], records[:, -PIXELS - 1].tolist())

    def _pickled(self, name: str, data: bytes) -> _Batch:
        content = self._parse(name, data)
        pixels = _get(content, "data")
        labels = _get(content, "fine_labels") or _get(content, "labels")
        if not isinstance(pixels, np.ndarray) or pixels.shape[1:] != (PIXELS,):
            raise self._refuse(name, "no array of N x 3,072 bytes under 'data'", "pictures of 32 x 32 pixels", NEXT)
        if not isinstance(labels, list) or not all(isinstance(label, int) for label in labels):
            raise self._refuse(name, "no list of numbers under 'labels'", "a label for each picture", NEXT)
        if len(labels) != len(pixels):
            raise self._refuse(name, f"{len(labels):,} labels", f"{len(pixels):,}, one for each picture", NEXT)
        return _Batch(pixels, labels)

    def _class_names(self, name: str, data: bytes) -> list[str]:
        if name.endswith(".txt"):
            return [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
        content = self._parse(name, data)
        names = _get(content, "fine_label_names") or _get(content, "label_names") or []
        return [text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text) for text in names]

    def _parse(self, name: str, data: bytes) -> Any:
        try:
            return parse_pickle(data)
        except UnsupportedPickle as error:
            what = f"a Python pickle with {error}"
            step = "it may run code when it is opened elsewhere: download CIFAR again, best its binary version"
            raise self._refuse(name, what, "byte arrays, lists and texts alone", step) from error

    def _refuse(self, name: str, what: str, expected: str, step: str) -> BadRows:
        return BadRows([Problem(self.path / name, None, None, what, expected, step)])


def find_cifar(tree: Tree) -> CifarPictures | None:
    """Return the files of CIFAR in a folder or archive; None if it has none."""
    by_folder: dict[str, list[str]] = {}
    for name in tree.names:
        folder, _, base = name.rpartition("/")
        if BATCH.fullmatch(base) or HUNDRED.fullmatch(base) or base in NAMES:
            by_folder.setdefault(folder, []).append(name)
    fitting = [names for names in by_folder.values() if _is_cifar([PurePosixPath(name).name for name in names])]
    return CifarPictures(tree, fitting[0]) if len(fitting) == 1 else None


def _is_cifar(names: Sequence[str]) -> bool:
    """Whether files have the names of CIFAR: batches, and a list of the classes, which CIFAR-100 must have."""
    return any(map(BATCH.fullmatch, names)) or (any(map(HUNDRED.fullmatch, names)) and bool(NAMES & set(names)))


def _class(classes: Sequence[str], number: int) -> str:
    return classes[number] if number < len(classes) else str(number)


def _get(content: Any, key: str) -> Any:
    """Return an entry of a dictionary whose keys are texts or bytes."""
    if not isinstance(content, dict):
        return None
    return content.get(key, content.get(key.encode()))
