"""Recordings: the sounds of a data set, in files of a folder, members of an archive, or one array of samples.

T samples.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.audio.kinds import audio_format
from saccade.data.cache import Array
from saccade.data.fingerprints import hash_lines
from saccade.data.images.pictures import Key, Pictures
from saccade.data.tables.problems import BadRows, Problem

ROUGHER = 4  # times as far apart are the values of samples that are read in the wrong byte order, at least

Sound = bytes | tuple[Tensor, int]
"""an encoded sound, or samples (T,) with their rate"""


class Recordings(abc.ABC):
    """Numbered sounds, read one by one from several threads; none is held in memory."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def name(self, number: int) -> str:
        """Return the name of a recording for messages: its path, within its archive if it is in one."""

    @abc.abstractmethod
    def read(self, number: int) -> Sound:
        """Return a recording."""

    @property
    @abc.abstractmethod
    def key(self) -> Key:
        """Identity of all recordings for the cache, as JSON values: it changes when one changes."""

    def wait_until_settled(self) -> None:  # noqa: B027  (samples have nothing to wait for)
        """Wait until a further change of a recording is sure to change the key."""

    def check_unchanged(self) -> None:  # noqa: B027  (`cached` checks the content of containers)
        """Refuse recordings that are not those of the key any more."""

    @property
    @abc.abstractmethod
    def files(self) -> tuple[Path, ...]:
        """Files whose hashes are in the key."""


class EncodedRecordings(Recordings):
    """Sounds in files or members of an archive, which are read as pictures are."""

    def __init__(self, files: Pictures) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def name(self, number: int) -> str:
        return self._files.name(number)

    def read(self, number: int) -> Sound:
        return self._content(number)

    def _content(self, number: int) -> bytes:
        content = self._files.read(number)
        return content if isinstance(content, bytes) else content.tobytes()

    @property
    def key(self) -> Key:
        return self._files.key

    def wait_until_settled(self) -> None:
        self._files.wait_until_settled()

    def check_unchanged(self) -> None:
        self._files.check_unchanged()

    @property
    def files(self) -> tuple[Path, ...]:
        return self._files.files


class RawRecordings(EncodedRecordings):
    """Files of 16-bit little-endian samples without a header."""

    def __init__(self, files: Pictures, rate: int) -> None:
        super().__init__(files)
        self._rate = rate

    def read(self, number: int) -> Sound:
        content = self._content(number)
        if audio_format(content):  # a sound with a header, whatever its name says
            return content
        if len(content) % 2:
            what, step = f"{len(content):,} bytes of samples", "download it again, or remove it"
            raise self._refuse(number, what, "an even number: each has 2 bytes", step)
        samples = np.frombuffer(content, "<i2")
        steps, swapped = (np.abs(np.diff(part.astype(np.int32))).sum() for part in (samples, samples.byteswap()))
        if swapped * ROUGHER < steps:
            step = "convert it, for example: sox -t raw -r 16000 -e signed -b 16 -c 1 -B INPUT.raw OUTPUT.wav"
            raise self._refuse(number, "samples in big-endian order", "little-endian ones", step)
        return torch.from_numpy(samples.astype(np.float32) / 32768), self._rate

    def _refuse(self, number: int, what: str, expected: str, step: str) -> BadRows:
        return BadRows([Problem(Path(self.name(number)), None, None, what, expected, step)])

    @property
    def key(self) -> Key:
        return ["raw", str(self._rate), *super().key]


class SampleRecordings(Recordings):
    """Sounds one after another in an array of int16 samples: number n is samples[offsets[n] : offsets[n + 1]]."""

    def __init__(self, path: Path, samples: Array, offsets: Sequence[int], rate: int, key: Key) -> None:
        self.path, self._samples, self._rate, self._key = path, samples, rate, key
        self._offsets: NDArray[np.int64] = np.asarray(offsets, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def name(self, number: int) -> str:
        return f"{self.path}: recording {number + 1}"

    def read(self, number: int) -> tuple[Tensor, int]:
        samples = self._samples[self._offsets[number] : self._offsets[number + 1]]
        return torch.from_numpy(samples.astype(np.float32) / 32768), self._rate

    @property
    def key(self) -> Key:
        return ["samples", *self._key, str(self._rate), hash_lines([self._offsets.tobytes().hex()])]

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)
