"""Decoding: the bytes of a sound as mono samples; a sound that cannot be decoded is refused with the reason.

T samples, C channels.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.core.fields import name_of
from saccade.data.audio.completeness import missing_part, sphere_fields
from saccade.data.audio.kinds import CONVERT, audio_format, unsupported
from saccade.data.tables.problems import BadRows, Problem
from saccade.errors import DataError, UsageError

MAX_SECONDS = 3600  # of one file
RATES = (1000, 768_000)  # lowest and highest sample rate in Hz
MAX_CHANNELS = 64
PACKED = ("shorten", "shortpack", "wavpack")  # compression of SPHERE files that libsndfile does not decode
UNPACK = "sph2pipe -f wav INPUT.sph OUTPUT.wav"
OPENING = re.compile(r"^Error opening <.*?>: ")  # before the reason in messages of soundfile
AGAIN = "record, download or convert it again, or remove it"


def decode(data: bytes, name: str) -> tuple[Tensor, int]:
    """Return the samples float32 (T,) of an encoded sound and their rate in Hz; channels are averaged.

    `name` is that of the file, for messages.
    """
    format = audio_format(data)
    if not format:
        raise _refuse(name, *unsupported(data))
    _check_complete(data, format, name)
    soundfile = _soundfile()
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            rate, frames, channels = int(file.samplerate), int(file.frames), int(file.channels)
            _check_shape(name, rate, frames, channels)
            samples = file.read(dtype="float32", always_2d=True)  # (T, C)
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError, OSError) as error:
        reason = OPENING.sub("", str(error)).strip().rstrip(".") or "it cannot be decoded"
        raise _refuse(name, f"a damaged {format} file ({reason})", "a complete one", AGAIN) from error
    if len(samples) < frames and format != "MP3":  # the header of an MP3 file counts frames that hold no samples
        what = f"{_named(format)} of {len(samples):,} samples, of which its header counts {frames:,}"
        raise _refuse(name, what, "all of them", AGAIN)
    if not len(samples):
        raise _refuse(name, f"{_named(format)} without samples", "some sound", AGAIN)
    if not np.isfinite(samples).all():
        raise _refuse(name, "samples that are not finite", "numbers between -1 and 1", "write the file again")
    return torch.from_numpy(samples.mean(1, dtype=np.float32)), rate


def to_samples(value: bytes | tuple[Tensor, int], name: str) -> tuple[Tensor, int]:
    """Return the samples (T,) and the rate of an input of a model: an encoded sound, or samples with their rate."""
    if isinstance(value, bytes):
        try:
            return decode(value, name_of(value, name))
        except DataError as error:
            raise UsageError(str(error)) from error
    samples, rate = value
    if not RATES[0] <= rate <= RATES[1]:
        raise UsageError(f"{name} must have a sample rate of {RATES[0]:,} to {RATES[1]:,} Hz, but has {rate:,}")
    if not len(samples):
        raise UsageError(f"{name} must have samples, but has none")
    if not bool(samples.isfinite().all()):
        raise UsageError(f"{name} must have finite samples, but one is {samples[~samples.isfinite()][0].item()}")
    return samples.cpu().float(), rate


def _soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: the library libsndfile is missing
        raise UsageError("sounds need soundfile, which is not installed: pip install 'saccade[audio]'") from error
    return soundfile


def _check_shape(name: str, rate: int, frames: int, channels: int) -> None:
    """Refuse a sound by its header, before memory for its samples is needed."""
    if not RATES[0] <= rate <= RATES[1]:
        raise _refuse(name, f"{rate:,} samples a second", f"{RATES[0]:,} to {RATES[1]:,}", CONVERT)
    if channels > MAX_CHANNELS:
        raise _refuse(name, f"{channels} channels", f"at most {MAX_CHANNELS}", CONVERT)
    if frames > MAX_SECONDS * rate:
        what = f"{frames / rate / 60:,.0f} minutes of sound"
        raise _refuse(name, what, f"at most {MAX_SECONDS // 60}", "cut it into shorter files")


def _check_complete(data: bytes, format: str, name: str) -> None:
    """Refuse a file that ends too early where its container says how long it is: the decoder would return a part."""
    coding = sphere_fields(data).get("sample_coding", "") if format == "SPHERE" else ""
    packed = next((method for method in PACKED if method in coding), "")
    if packed:
        what = f"a NIST SPHERE file that is compressed with {packed}"
        raise _refuse(name, what, "one that is not compressed", f"unpack it, for example: {UNPACK}")
    missing = missing_part(data, format)
    if missing:
        raise _refuse(name, f"{_named(format)} without {missing}", "a complete one", AGAIN)


def _named(format: str) -> str:
    return f"{'an' if format[0] in 'AMO' else 'a'} {format} file"


def _refuse(name: str, what: str, expected: str, step: str) -> BadRows:
    return BadRows([Problem(Path(name), None, None, what, expected, step)])
