"""Audio processor: samples to the log-mel spectrogram that Whisper reads, as in preprocessor_config.json.

Shapes: N samples, M mel bins, F frames.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.config import from_json
from saccade.errors import ModelFileError, UsageError
from saccade.pretrained.strict_json import one_line, read_object

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
EXTRACTOR = "WhisperFeatureExtractor"
FLOOR = 1e-10  # of the power of a mel bin
RANGE = 8.0  # powers of ten below the loudest bin; what is quieter counts as this
MAX_FREQUENCY = 8000.0
KNEE, LINEAR = 1000.0, 200 / 3  # Hz up to which a mel is a fixed number of Hz, and that number
LOG_STEP = np.log(6.4) / 27  # above: ratio of the frequencies of neighbouring mels, as a logarithm


@dataclass(frozen=True)
class LogMel:
    """A log-mel spectrogram; the fields are those of transformers."""

    feature_size: int = 80
    """mel bins"""
    sampling_rate: int = 16_000
    """Hz"""
    n_fft: int = 400
    """samples of a frame"""
    hop_length: int = 160
    """samples from one frame to the next"""
    chunk_length: int = 30
    """seconds of a window"""

    def __post_init__(self) -> None:
        for field in fields(LogMel):
            value = getattr(self, field.name)
            if not 1 <= value <= 1 << 20:
                raise ValueError(f"{field.name} must be from 1 to {1 << 20:,}, but is {value}")
        if self.samples % self.hop_length:
            raise ValueError(f"hop_length must divide the {self.samples} samples of a window, but is {self.hop_length}")

    @property
    def samples(self) -> int:
        """Samples of a window."""
        return self.chunk_length * self.sampling_rate

    @property
    def frames(self) -> int:
        """Frames of a window."""
        return self.samples // self.hop_length

    @property
    def seconds_per_frame(self) -> float:
        return self.hop_length / self.sampling_rate

    def window(self, samples: Tensor) -> Tensor:
        """Return the spectrogram (M, F) of one window; samples (N,) are padded with silence or cut.

        Frames of silence alone are not computed: their power is 0.
        """
        samples = samples[: self.samples].float()
        used = min(self.samples, -(-(len(samples) + self.n_fft) // self.hop_length) * self.hop_length)
        power = self._power(F.pad(samples, (0, used - len(samples))))
        return _compress(F.pad(power, (0, self.frames - power.shape[1])))

    def whole(self, samples: Tensor) -> Tensor:
        """Return the spectrogram (M, F) of samples (N,) of any length from one window on."""
        return _compress(self._power(samples.float()))

    def _power(self, samples: Tensor) -> Tensor:
        """Return the power of each mel bin in each frame: (M, F)."""
        window = torch.hann_window(self.n_fft, device=samples.device)
        spectrum = torch.stft(samples, self.n_fft, self.hop_length, window=window, return_complex=True)
        power = spectrum[:, :-1].abs() ** 2  # (bins of the spectrum, F)
        filters = mel_filters(self.feature_size, self.n_fft, self.sampling_rate).to(samples.device)
        return filters @ power.contiguous()

    def to_json(self) -> dict[str, Any]:
        """Return preprocessor_config.json."""
        values = {field.name: getattr(self, field.name) for field in fields(LogMel)}
        fixed = {"padding_value": 0.0, "padding_side": "right", "return_attention_mask": False, "dither": 0.0}
        sizes = {"n_samples": self.samples, "nb_max_frames": self.frames}
        kind = {"feature_extractor_type": EXTRACTOR, "processor_class": "WhisperProcessor"}
        return {**kind, **values, **fixed, **sizes}


def _compress(power: Tensor) -> Tensor:
    """Return the logarithm of the power, about -1 to 1."""
    log = power.clamp_min(FLOOR).log10()
    return (torch.maximum(log, log.max() - RANGE) + 4.0) / 4.0


@functools.cache
def mel_filters(mels: int, n_fft: int, rate: int) -> Tensor:
    """Return triangular filters on Slaney's mel scale, each with the same area: (M, bins of the spectrum)."""
    bins = np.linspace(0, rate // 2, 1 + n_fft // 2)
    top = KNEE / LINEAR + np.log(MAX_FREQUENCY / KNEE) / LOG_STEP
    mel = np.linspace(0, top, mels + 2)
    corners = np.where(mel < KNEE / LINEAR, mel * LINEAR, KNEE * np.exp(LOG_STEP * (mel - KNEE / LINEAR)))  # Hz
    rising = (bins - corners[:-2, None]) / np.diff(corners)[:-1, None]
    falling = (corners[2:, None] - bins) / np.diff(corners)[1:, None]
    filters = np.maximum(0, np.minimum(rising, falling)) * (2 / (corners[2:] - corners[:-2]))[:, None]
    return torch.from_numpy(filters).float()


@dataclass(frozen=True)
class ExtractorFields(LogMel):
    """Fields of preprocessor_config.json; those that are no setting of ours must have these values."""

    feature_extractor_type: Literal["WhisperFeatureExtractor"] = "WhisperFeatureExtractor"
    padding_value: float = 0.0
    dither: float = 0.0
    do_normalize: Literal[False] | None = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("padding_value", "dither"):
            if getattr(self, name):
                raise ValueError(f"{name} must be 0, but is {getattr(self, name)}")


def read_log_mel(folder: Path, config: Mapping[str, Any]) -> LogMel:
    """Read the audio processor of a folder whose config.json, already checked, is `config`."""
    path = folder / PREPROCESSOR
    values = read_object(path) if path.is_file() else {}
    if not values and (folder / PROCESSOR).is_file():
        path = folder / PROCESSOR
        nested = read_object(path).get("feature_extractor")
        values = nested if isinstance(nested, dict) else {}
    names = {field.name for field in fields(ExtractorFields)}
    selected = {name: value for name, value in values.items() if name in names}
    mels = config.get("num_mel_bins", 80)
    try:
        extractor = from_json(ExtractorFields, {"feature_size": mels, **selected})
    except (UsageError, TypeError) as error:
        raise ModelFileError(f"{path}: {one_line(error)}; this audio processor is not supported") from error
    if extractor.feature_size != mels:
        rule = f"feature_size must be num_mel_bins of config.json ({mels})"
        raise ModelFileError(f"{path}: {rule}, but is {extractor.feature_size}; download both from the same model")
    positions = config.get("max_source_positions", 1500)
    if extractor.frames != 2 * positions:
        rule = f"a window must have two frames for each of the {positions} max_source_positions of config.json"
        raise ModelFileError(f"{path}: {rule}, but has {extractor.frames}; download both from the same model")
    return LogMel(**{field.name: getattr(extractor, field.name) for field in fields(LogMel)})
