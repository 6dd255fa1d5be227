"""Decoded pictures: every picture is decoded and resized once, on threads, into a memory-mapped entry of the cache.

N pictures, B pictures of a batch, H rows, W columns.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.core.callback import Progress, ignore_progress
from saccade.data.cache import Entry, EntryWriter, Record, cached
from saccade.data.fingerprints import hash_lines
from saccade.data.images.decoding import Pixels, decode_image
from saccade.data.images.pictures import Pictures
from saccade.data.images.resizing import Resize
from saccade.data.tables.problems import BadRows, Problems
from saccade.data.texts import NumberWriter

AHEAD = 4  # blocks of pictures of each thread that wait to be written
BLOCK_BYTES = 1 << 20
MAX_BLOCK = 32  # pictures
SMALL_FILE = 1 << 14  # bytes of an encoded picture, below which threads do not pay
HASHED = 8  # pictures that a thread hashes at a time
REPORTS = 200  # calls of `progress`

Result = TypeVar("Result")
Rows = Sequence[int] | NDArray[np.int64]


class DecodedPictures:
    """Pixels of pictures, read from disk as they are needed."""

    def __init__(self, entry: Entry) -> None:
        self.shapes: NDArray[np.int64] = np.asarray(entry.arrays["shapes"]).reshape(-1, 2)
        """height and width of each picture: (N, 2)"""
        self.hashes: NDArray[np.uint64] = np.asarray(entry.arrays["hashes"])
        """hash of the content of each picture, before it was resized; copies of a picture have the same"""
        self.notes = entry.notes
        """messages for the user"""
        self._pixels, self._resize = entry.arrays["pixels"], json.dumps(entry.record["resize"], sort_keys=True)
        self._offsets = np.concatenate([[0], np.cumsum(3 * self.shapes.prod(1))])

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, number: int) -> Tensor:
        """Return the pixels of a picture: uint8 (3, H, W)."""
        number = range(len(self))[number]
        height, width = self.shapes[number].tolist()
        pixels = self._pixels[self._offsets[number] : self._offsets[number + 1]]
        return torch.from_numpy(np.array(pixels)).view(height, width, 3).permute(2, 0, 1)

    @cached_property
    def uniform(self) -> bool:
        """Whether all pictures have the same shape."""
        return bool((self.shapes == self.shapes[:1]).all())

    def batch(self, numbers: Rows) -> Tensor:
        """Return the pixels of some pictures of the same shape: uint8 (B, 3, H, W)."""
        if not self.uniform:
            raise ValueError("a batch needs pictures of one shape; resize them with mode exact or crop, or pad them")
        height, width = self.shapes[0].tolist()
        pixels = self._pixels.reshape(-1, height, width, 3)
        return torch.from_numpy(np.take(pixels, np.asarray(numbers, dtype=np.int64), axis=0)).permute(0, 3, 1, 2)

    def fingerprint(self) -> str:
        """Return a hash of all pictures and how they were resized; where they are stored does not matter."""
        content = hashlib.sha256(self.shapes.tobytes() + self.hashes.tobytes()).hexdigest()
        return hash_lines([self._resize, content])


@dataclass(frozen=True)
class _Decoded:
    """One picture for the cache."""

    pixels: Pixels
    """(H, W, 3)"""
    hash: int


def decode_pictures(pictures: Pictures, resize: Resize, progress: Progress = ignore_progress) -> DecodedPictures:
    """Decode and resize all pictures, or open them in the cache; those that cannot be decoded are raised together."""

    def decode_number(number: int) -> _Decoded | BadRows:
        try:
            content = pictures.read(number)
            picture = decode_image(content, pictures.name(number)) if isinstance(content, bytes) else content
            return _Decoded(resize.apply(picture, pictures.name(number)), hash_picture(content))
        except BadRows as problem:
            return problem

    def build(writer: EntryWriter) -> Record:
        pictures.wait_until_settled()
        pixels, shapes = writer.array("pixels", "uint8"), NumberWriter(writer, "shapes")
        hashes, problems = NumberWriter(writer, "hashes", "uint64"), Problems()
        for picture in in_order(decode_number, len(pictures), progress, *_blocks(pictures, resize)):
            if isinstance(picture, BadRows):
                for problem in picture.problems:
                    problems.add(problem)
                continue
            pixels.write_bytes(picture.pixels.tobytes())
            shapes.add(picture.pixels.shape[0])
            shapes.add(picture.pixels.shape[1])
            hashes.add(picture.hash)
        pictures.check_unchanged()
        problems.check()
        shapes.flush()
        hashes.flush()
        return {"resize": resize.describe()}

    return DecodedPictures(cached("pixels", [pictures.key, resize.describe()], build, pictures.files))


def picture_hashes(pictures: Pictures, progress: Progress = ignore_progress) -> NDArray[np.uint64]:
    """Return the hash of the content of each picture, without decoding it; read once, then from the cache."""

    def hash_number(number: int) -> int | BadRows:
        try:
            return hash_picture(pictures.read(number))
        except BadRows as problem:
            return problem

    def build(writer: EntryWriter) -> Record:
        pictures.wait_until_settled()
        hashes, problems = NumberWriter(writer, "hashes", "uint64"), Problems()
        for value in in_order(hash_number, len(pictures), progress, HASHED):
            if isinstance(value, BadRows):
                for problem in value.problems:
                    problems.add(problem)
            else:
                hashes.add(value)
        pictures.check_unchanged()
        problems.check()
        hashes.flush()
        return {}

    return np.asarray(cached("picture-hashes", pictures.key, build, pictures.files).arrays["hashes"])


def hash_picture(content: bytes | Pixels) -> int:
    """Return the 64-bit hash of an encoded picture, or of pixels."""
    data = content if isinstance(content, bytes) else content.tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def in_order(
    work: Callable[[int], Result], count: int, progress: Progress, block: int = 1, threaded: bool = True
) -> Iterator[Result]:
    """Yield the results for 0 to count - 1 in order, computed on threads a little ahead, `block` of them at a time.

    Cheap ones are computed by the caller instead: threads would mostly wait for the interpreter's lock.
    """
    report = max(block, count // REPORTS // block * block)
    if not threaded:
        for number in range(count):
            if number % report == 0:
                progress(number / count)
            yield work(number)
        progress(1.0)
        return

    def run(start: int) -> list[Result]:
        return [work(number) for number in range(start, min(start + block, count))]

    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads, thread_name_prefix="decode") as pool:
        pending: deque[Future[list[Result]]] = deque()
        try:
            for start in range(0, count, block):
                pending.append(pool.submit(run, start))
                if len(pending) > AHEAD * threads:
                    yield from pending.popleft().result()
                if start % report == 0:
                    progress(start / count)
            while pending:
                yield from pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
    progress(1.0)


def _blocks(pictures: Pictures, resize: Resize) -> tuple[int, bool]:
    """Return how many pictures are decoded at a time, and whether on threads: not if they are small on both sides.

    Several small results cost less than handing them over. Together they have about a megabyte; pictures that are not
    resized may be large.
    """
    block = 1 if resize.mode == "none" else min(MAX_BLOCK, max(1, BLOCK_BYTES // (6 * resize.size**2)))
    return block, block < MAX_BLOCK or pictures.encoded_bytes >= SMALL_FILE
