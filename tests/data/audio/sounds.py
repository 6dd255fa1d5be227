"""Generated sounds for tests: tones as files of any format, and data sets of them."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
import soundfile

RATE = 4000
PITCHES = {"a": 400.0, "b": 700.0, "c": 1100.0, "d": 1500.0}


def tone(letters: str, seed: int = 0, rate: int = RATE, seconds: float = 0.12) -> np.ndarray:
    """A tone of its own for each letter, one after another, in a little noise."""
    rng = np.random.default_rng(seed)
    times = np.arange(round(seconds * rate)) / rate
    gap = np.zeros(round(0.04 * rate))
    parts = [part for letter in letters for part in (np.sin(2 * np.pi * PITCHES[letter] * times), gap)]
    samples = np.concatenate(parts) if parts else gap
    return (0.5 * samples + 0.02 * rng.standard_normal(len(samples))).astype(np.float32)


def encode(samples: np.ndarray, rate: int = RATE, format: str = "WAV", subtype: str | None = None) -> bytes:
    """Samples (T,) or (T, C) as the bytes of a file."""
    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, format=format, subtype=subtype)
    return stream.getvalue()


def write_speech(folder: Path, count: int = 60) -> Path:
    """Write recordings of short words with a metadata.csv; returns the folder."""
    draw = random.Random(5)
    folder = folder / "speech"
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["file_name,text"]
    for number in range(count):
        word = "".join(draw.choices(sorted(PITCHES), k=draw.randint(1, 4)))
        (folder / f"{number:03}.wav").write_bytes(encode(tone(word, number)))
        lines.append(f"{number:03}.wav,{word}")
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n")
    return folder


def write_classes(folder: Path, count: int = 15) -> Path:
    """Write recordings named by class, speaker and number; returns the folder."""
    folder = folder / "digits"
    folder.mkdir(parents=True, exist_ok=True)
    for letter in sorted(PITCHES):
        for number in range(count):
            speaker = ("ann", "bob", "eve")[number % 3]
            (folder / f"{letter}_{speaker}_{number}.wav").write_bytes(encode(tone(letter, number)))
    return folder
