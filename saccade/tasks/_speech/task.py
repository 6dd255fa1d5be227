"""Audio task: base class of all tasks that read sounds: their data, features, batches and attention over time.

Shapes: B rows, T frames, F bands, N positions of the encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saccade.atomic_io import read_json, write_json
from saccade.core import Audio, Axis, Batch, Field, Progress, Role, Split, Task, TimeAxis
from saccade.core.callback import ignore_progress
from saccade.core.fields import name_of
from saccade.data.audio.augment import AudioAugment, augment_features
from saccade.data.audio.decoding import to_samples
from saccade.data.audio.features import AudioFeatures, compute_features, read_features, typical_rate
from saccade.data.audio.log_mel import LogMel
from saccade.data.audio.resampling import resample
from saccade.data.audio.waves import encode_wave
from saccade.data.fingerprints import hash_lines
from saccade.data.formats.audio_rows import AudioRows, AudioSettings, read_audio_rows, split_audio_rows
from saccade.data.parts import take_evaluated
from saccade.errors import UsageError
from saccade.models.speech.encoders import SpeechEncoder, SpeechEncoderConfig

HIGHEST_RATE = 16_000  # where the settings do not say
WINDOW = 0.025  # seconds of a frame, at least
SAMPLED = 8  # recordings whose rate decides
FORMAT = "audio.json"
SHOWN = 3.0  # standard deviations of a spectrogram that are black and white


@dataclass(frozen=True)
class AudioConfig:
    """Settings that all tasks on sound have."""

    data: AudioSettings = field(default_factory=AudioSettings)
    augment: AudioAugment = field(default_factory=AudioAugment)
    """random changes of the training sounds"""
    rate: int = 0
    """samples per second, to which all recordings are resampled; 0: those of the recordings, at most 16,000"""
    bands: int = 40
    """bands of the mel scale"""
    hop: float = 0.01
    """seconds from one frame to the next; frames overlap, each has 0.025 seconds or twice this"""
    max_seconds: float = 30.0
    """longest recording; longer ones are refused"""
    batch_size: int = 32
    """recordings per step, about: short ones are more"""
    micro_batches: int = 1
    """micro-batches per step, to save memory (gradient accumulation); the result is the same, but for batch norms, each
    of which sees one micro-batch"""

    def __post_init__(self) -> None:
        for name, least in (("bands", 8), ("batch_size", 1), ("micro_batches", 1), ("rate", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        if self.rate and self.rate < 1000:
            raise ValueError(f"rate must be 0 or at least 1000, but is {self.rate}")
        if not 0.001 <= self.hop <= 0.1:
            raise ValueError(f"hop must be from 0.001 to 0.1, but is {self.hop}")
        if not 0 < self.max_seconds <= 3600:
            raise ValueError(f"max_seconds must be above 0 and at most 3600, but is {self.max_seconds}")

    def check_encoder(self, model: SpeechEncoderConfig) -> None:
        """Refuse a number of bands that the convolutions cannot halve."""
        reduction = 2 ** len(model.convolutional.widths)
        if model.encoder == "convolutional" and self.bands % reduction:
            rule = f"bands must be a multiple of {reduction}, as every stage of model.convolutional.widths halves them"
            raise ValueError(f"{rule}, but is {self.bands}")


@dataclass(frozen=True)
class AudioFormat:
    """How sounds become the input of a network."""

    features: LogMel
    max_seconds: float

    @classmethod
    def load(cls, config: AudioConfig, assets: Path) -> Self:
        """Return the format of a run."""
        return cls(LogMel(**read_json(assets / FORMAT)), config.max_seconds)

    def save(self, assets: Path) -> None:
        """Write the format to the assets of a run."""
        write_json(assets / FORMAT, asdict(self.features))

    def read(self, value: bytes | tuple[Tensor, int], name: str = "audio") -> Tensor:
        """Return an input as features (T, F)."""
        samples, rate = to_samples(value, name)
        seconds = len(samples) / rate
        if seconds > self.max_seconds:
            name = name_of(value, name)
            raise UsageError(f"{name} must have at most {self.max_seconds:g} seconds, but has {seconds:,.1f}; cut it")
        return read_features(samples, rate, self.features)


@dataclass(frozen=True, eq=False)
class AudioExamples:
    """The rows of one split with their features."""

    rows: AudioRows
    features: AudioFeatures
    stride: int
    """frames of a position"""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def frames(self) -> NDArray[np.int64]:
        """Frames of each row."""
        return self.features.frames[self.rows.recording]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Positions of each row."""
        return -(-self.frames // self.stride)

    def source(self, index: int) -> Tensor:
        """Return the features (T, F) of a row."""
        return self.features[int(self.rows.recording[index])]

    def fingerprint(self) -> str:
        """Return a hash of the rows and the content of their recordings."""
        return hash_lines([self.rows.fingerprint(), self.features.fingerprint()])


@dataclass(frozen=True)
class AudioBatch:
    """Sounds, padded; a subclass adds what is predicted of them."""

    source: Tensor  # (B, T, F)
    frames: Tensor  # (B,), real frames
    keep: Tensor  # (B, N)
    rows: tuple[str, ...]

    @property
    def units(self) -> int:
        return int(self.frames.sum())

    def to(self, device: Any) -> Self:
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor) and name != "frames"}
        moved: dict[str, Any] = {name: value.to(device) for name, value in tensors.items()}
        return replace(self, **moved)


def stack_features(sounds: Sequence[Tensor], stride: int) -> tuple[Tensor, Tensor]:
    """Return sounds (T, F) in one batch (B, T, F) of a multiple of the stride, with their real positions (B, N)."""
    frames = torch.tensor([len(sound) for sound in sounds])
    batch = sounds[0].new_zeros(len(sounds), -(-int(frames.max()) // stride) * stride, sounds[0].shape[1])
    for row, sound in enumerate(sounds):
        batch[row, : len(sound)] = sound
    return batch, positions_of(frames, batch.shape[1], stride)


def positions_of(frames: Tensor, width: int, stride: int) -> Tensor:
    """Return the real positions (B, N) of rows with this many frames (B,) in a batch of a width."""
    return torch.arange(width // stride) < -(-frames[:, None] // stride)


class AudioTask(Task):
    """A task on sounds; its network `model`, with an `encoder`, is built by the subclass."""

    roles: ClassVar[tuple[str, ...]]
    """what a row has besides its recording: text or label"""
    unit: ClassVar[str] = "frames"
    inputs: tuple[Field, ...] = (Audio("audio"),)

    config: Any
    model: Any
    format: AudioFormat
    splits: dict[Split, Any]

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    # Data

    @classmethod
    def read(
        cls, config: Any, data: Path, assets: Path, progress: Progress = ignore_progress
    ) -> tuple[AudioRows, AudioRows, list[str]]:
        """Return the rows for training and for validation with notes; choose and save how sounds are read."""
        rows = read_audio_rows(data, cls.roles[0], config.data, ignore_progress)
        count = len(rows.recordings)
        sampled = np.unique(np.linspace(0, count - 1, min(SAMPLED, count)).astype(int)).tolist()
        rate = config.rate or typical_rate(rows.recordings, HIGHEST_RATE, sampled)
        settings = LogMel(rate, config.bands, max(WINDOW, 2 * config.hop), config.hop)
        format = AudioFormat(settings, config.max_seconds)
        format.save(assets)
        train, valid = cls._split(config, rows, format, progress)
        return train[0], valid[0], [*train[0].read_notes, f"features: {config.bands} mel bands of {rate:,} Hz sound"]

    @classmethod
    def _split(
        cls, config: Any, rows: AudioRows, format: AudioFormat, progress: Progress
    ) -> tuple[tuple[AudioRows, AudioFeatures], tuple[AudioRows, AudioFeatures]]:
        """Return training and validation rows with their features."""
        features = compute_features(rows.recordings, format.features, format.max_seconds, progress)
        if config.data.valid:
            valid = read_audio_rows(Path(config.data.valid), cls.roles[0], config.data)
            other = compute_features(valid.recordings, format.features, format.max_seconds, progress)
            return (rows, features), (valid, other)
        train, valid = split_audio_rows(rows, config.data, features)
        return (train, features), (valid, features)

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        rows = read_audio_rows(data, self.roles[0], self.config.data)
        self.data_notes = ()
        if eval_only:
            rows, self.data_notes = take_evaluated(rows, "recordings")
            features = compute_features(rows.recordings, self.format.features, self.format.max_seconds, progress)
            parts = {Split.VALID: (rows, features)}
        else:
            train, valid = self._split(self.config, rows, self.format, progress)
            parts = {Split.TRAIN: train, Split.VALID: valid}
        for part, _ in parts.values():
            self.check_rows(part)
        self.splits = {split: self.examples(*part) for split, part in parts.items()}
        if not eval_only:
            self.fingerprint = hash_lines(examples.fingerprint() for examples in self.splits.values())
        names = {Split.TRAIN: "training", Split.VALID: "evaluation" if eval_only else "validation"}
        return [*(self._describe(split, names[split]) for split in self.splits), *self.data_notes]

    def _describe(self, split: Split, name: str) -> str:
        examples = self.splits[split]
        minutes = examples.features.samples[examples.rows.recording].sum() / self.format.features.rate / 60
        return f"recordings for {name}: {len(examples):,}, {minutes:,.1f} minutes"

    def check_rows(self, rows: AudioRows) -> None:
        """Refuse rows that this model cannot be trained or evaluated on, such as unknown labels."""

    def examples(self, rows: AudioRows, features: AudioFeatures) -> Any:
        """Return rows with their features."""
        return AudioExamples(rows, features, self.encoder.stride)

    def augmented(self, batch: Any, seed: int) -> Batch:
        """Return a batch with its sounds changed at random."""
        stride, settings = self.encoder.stride, self.format.features
        source, frames = augment_features(batch.source, batch.frames, self.config.augment, settings.rate, seed)
        padding = -source.shape[1] % stride
        source = nn.functional.pad(source, (0, 0, 0, padding))
        keep = positions_of(frames, source.shape[1], stride)
        changed: Batch = replace(batch, source=source, frames=frames, keep=keep)
        return changed

    def stack(self, sources: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        return stack_features(sources, self.encoder.stride)

    # Attention

    @property
    def encoder(self) -> SpeechEncoder:
        """The encoder of the network."""
        encoder: SpeechEncoder = self.model.encoder
        return encoder

    def source_axis(self, source: Tensor, positions: int) -> Axis:
        """Return the axis of positions over the features (T, F) of a sound."""
        stride = self.encoder.stride
        padded = -(-len(source) // stride) * stride
        frame = self.format.features.hop_samples / self.format.features.rate
        return TimeAxis(Role.AUDIO, positions, frame * padded / positions, draw_spectrogram(source, padded))

    def source_positions(self, source: Tensor) -> int:
        stride = self.encoder.stride
        return -(-len(source) // stride) * stride // self.encoder.embedding_stride

    def example_input(self, examples: Any, index: int) -> bytes:
        """Return the sound of a row as a small WAV file, which pages play."""
        number, rate = int(examples.rows.recording[index]), self.format.features.rate
        content = examples.rows.recordings.read(number)
        samples, own_rate = to_samples(content, examples.rows.recordings.name(number))
        return encode_wave(resample(samples, own_rate, rate), rate)


def draw_spectrogram(source: Tensor, frames: int) -> Tensor:
    """Return features (T, F) as a picture uint8 (1, F, frames), the lowest band last; louder is brighter."""
    levels = ((source.clamp(-SHOWN, SHOWN) + SHOWN) * (255 / (2 * SHOWN))).round().to(torch.uint8)
    return nn.functional.pad(levels.T.flip(0), (0, frames - len(source)))[None].contiguous()
