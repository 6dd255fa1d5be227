"""Audio features: every recording is decoded, resampled and turned into features once, into the cache.

Shapes: N frames, F bands.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.core.callback import Progress, ignore_progress
from saccade.data.audio.decoding import decode
from saccade.data.audio.log_mel import LogMel, log_mel, standardize
from saccade.data.audio.recordings import Recordings, Sound
from saccade.data.audio.resampling import resample
from saccade.data.cache import Entry, EntryWriter, Record, cached
from saccade.data.fingerprints import hash_lines
from saccade.data.images.decoded import in_order
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.texts import NumberWriter

VERSION = 1  # of the features; a change of their computation must change it


class AudioFeatures:
    """Features of recordings, read from disk as they are needed."""

    def __init__(self, entry: Entry, bands: int) -> None:
        self.frames: NDArray[np.int64] = np.asarray(entry.arrays["frames"])
        """frames of each recording"""
        self.samples: NDArray[np.int64] = np.asarray(entry.arrays["samples"])
        """samples of each recording, at the rate of the features"""
        self.hashes: NDArray[np.uint64] = np.asarray(entry.arrays["hashes"])
        """hash of the content of each recording; copies have the same"""
        self.notes = entry.notes
        self._values = entry.arrays["values"].reshape(-1, bands)
        self._settings = json.dumps(entry.record, sort_keys=True)
        self._offsets = np.concatenate([[0], np.cumsum(self.frames)])

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, number: int) -> Tensor:
        """Return the features of a recording: float32 (N, F)."""
        number = range(len(self))[number]
        values = self._values[self._offsets[number] : self._offsets[number + 1]]
        return torch.from_numpy(values.astype(np.float32))

    def fingerprint(self) -> str:
        """Return a hash of all recordings and of how features are computed; where they are stored does not matter."""
        content = hashlib.sha256(self.frames.tobytes() + self.hashes.tobytes()).hexdigest()
        return hash_lines([self._settings, content])


def read_features(samples: Tensor, rate: int, settings: LogMel) -> Tensor:
    """Return the features (N, F) of samples (T,) of any rate."""
    return standardize(log_mel(resample(samples, rate, settings.rate), settings))


def compute_features(
    recordings: Recordings, settings: LogMel, max_seconds: float, progress: Progress = ignore_progress
) -> AudioFeatures:
    """Compute the features of all recordings, or open them in the cache; bad recordings are raised together."""

    def compute(number: int) -> tuple[Tensor, int, int] | BadRows:
        try:
            content = recordings.read(number)
            name = recordings.name(number)
            samples, rate = decode(content, name) if isinstance(content, bytes) else content
            seconds = len(samples) / rate
            if not 0 < seconds <= max_seconds:
                return _wrong_length(name, seconds, max_seconds)
        except BadRows as problem:
            return problem
        features = read_features(samples, rate, settings)
        return features, -(-len(samples) * settings.rate // rate), hash_sound(content)

    def build(writer: EntryWriter) -> Record:
        recordings.wait_until_settled()
        values, problems = writer.array("values", "float16"), Problems()
        numbers = {name: NumberWriter(writer, name) for name in ("frames", "samples")}
        hashes = NumberWriter(writer, "hashes", "uint64")
        for result in in_order(compute, len(recordings), progress):
            if isinstance(result, BadRows):
                for problem in result.problems:
                    problems.add(problem)
                continue
            features, samples, content = result
            values.write(features.numpy())
            numbers["frames"].add(len(features))
            numbers["samples"].add(samples)
            hashes.add(content)
        recordings.check_unchanged()
        problems.check()
        for column in (*numbers.values(), hashes):
            column.flush()
        return {"version": VERSION, **asdict(settings)}

    parts = [recordings.key, asdict(settings), max_seconds, VERSION]
    return AudioFeatures(cached("log-mel", parts, build, recordings.files), settings.bands)


def hash_sound(content: Sound) -> int:
    """Return the 64-bit hash of an encoded sound, or of samples."""
    data = content if isinstance(content, bytes) else content[0].numpy().tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def typical_rate(recordings: Recordings, highest: int, sampled: Sequence[int]) -> int:
    """Return the median sample rate of some recordings, at most `highest`; those that cannot be read do not count."""
    rates = []
    for number in sampled:
        try:
            content = recordings.read(number)
            rates.append(decode(content, recordings.name(number))[1] if isinstance(content, bytes) else content[1])
        except BadRows:  # computing the features reports it, with all others
            continue
    return min(highest, int(np.median(rates))) if rates else highest


def _wrong_length(name: str, seconds: float, max_seconds: float) -> BadRows:
    if seconds <= 0:
        problem = ("no samples", "some sound", "record it again, or remove it")
    else:
        step = "cut it into shorter recordings with their texts, or allow more with max_seconds"
        problem = (f"{seconds:,.1f} seconds", f"at most {max_seconds:g} (max_seconds)", step)
    return BadRows([Problem(Path(name), None, None, *problem)])
