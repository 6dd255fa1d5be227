"""Transcription by Whisper: recordings of any length in windows of 30 seconds, many windows at once.

A long recording is read window by window: the next one starts at the last timestamp of the text before it.

Shapes: B windows, M mel bins, F frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.decode.search import Hypothesis, Search, search
from saccade.models.seq2seq.interface import DecoderState, Memory
from saccade.models.speech.whisper import STRIDE, Whisper
from saccade.pretrained.speech_processor import SpeechProcessor
from saccade.tasks._speech.token_rules import TokenRules, WhisperDecoder

MAX_WINDOWS = 8  # decoded at once
MEMORY = 1 << 31  # bytes of their keys and values

Segment = tuple[int, int, tuple[int, ...]]
"""first and last position in a window, and tokens, timestamps included"""


@dataclass(frozen=True)
class Window:
    """A part of a recording and its text."""

    start: int
    """frame of the recording"""
    frames: int
    """of sound; the rest of the window is silence"""
    features: Tensor
    """(M, F)"""
    prompt: tuple[int, ...]
    hypothesis: Hypothesis
    segments: tuple[Segment, ...]
    memory: Tensor | None = None
    """the encoded window (S, D), where it was kept"""

    @property
    def positions(self) -> int:
        """Positions of sound."""
        return max(1, self.frames // STRIDE)

    def text_ids(self, first_timestamp: int) -> list[int]:
        """Return the tokens of the text without timestamps."""
        return [token for _, _, tokens in self.segments for token in tokens if token < first_timestamp]


@dataclass
class Recording:
    """A sound on its way through the windows."""

    features: Tensor
    """(M, frames)"""
    frames: int
    timestamps: bool
    language: str = ""
    seek: int = 0
    windows: list[Window] = field(default_factory=list)


def open_recording(processor: SpeechProcessor, samples: Tensor, *, timestamps: bool) -> Recording:
    """Return samples (N,) as a recording; one of several windows always has timestamps."""
    mel = processor.features
    if len(samples) <= mel.samples:
        return Recording(mel.window(samples), -(-len(samples) // mel.hop_length), timestamps)
    features = mel.whole(samples)
    return Recording(features, features.shape[1], True)


class Transcriber:
    """Runs recordings through a network."""

    def __init__(
        self,
        model: Whisper,
        processor: SpeechProcessor,
        settings: Search,
        task: str,
        *,
        timestamps: bool,
        keep_memory: bool = False,
    ) -> None:
        """Take a network and its rules; `keep_memory`: keep encoded windows, from which words are aligned later."""
        self.model, self.processor, self.settings, self.task = model, processor, settings, task
        self.timestamps, self.keep_memory = timestamps, keep_memory
        device = model.target.weight.device
        self.rules = TokenRules(processor, model.shape.vocabulary, device, timestamps=timestamps)
        shape = model.shape.decoder
        row = 8 * shape.depth * model.positions * shape.dim  # bytes of keys and values
        self.rows = max(1, min(MAX_WINDOWS, MEMORY // row))

    @torch.no_grad()
    def run(self, recordings: Sequence[Recording]) -> None:
        """Add the windows of recordings, all with or all without timestamps, to them."""
        open_ones = [recording for recording in recordings if recording.seek < recording.frames]
        while open_ones:
            for first in range(0, len(open_ones), self.rows):
                self.step(open_ones[first : first + self.rows])
            open_ones = [recording for recording in open_ones if recording.seek < recording.frames]

    def step(self, recordings: Sequence[Recording]) -> None:
        """Transcribe the next window of each recording."""
        features = [self.window(recording) for recording in recordings]
        decoder, limit = self.start(features, recordings)
        memory = decoder.state.memory.values
        hypotheses = search(
            decoder,
            [limit] * len(recordings),
            start_id=self.processor.start,
            end_id=self.processor.end,
            settings=self.settings,
        )
        for row, (recording, part, (best, *_)) in enumerate(zip(recordings, features, hypotheses, strict=True)):
            frames = min(recording.frames - recording.seek, part.shape[1])
            segments: tuple[Segment, ...] = ((0, frames // STRIDE, best.ids),)
            advance = recording.frames
            if self.timestamps:
                segments, advance = cut_segments(best.ids, self.processor.first_timestamp, frames)
            kept = memory[row].clone() if self.keep_memory else None
            prompt = self.prompt(recording)
            recording.windows.append(Window(recording.seek, frames, part, prompt, best, segments, kept))
            recording.seek += max(1, advance)

    @torch.no_grad()
    def start(self, features: Sequence[Tensor], recordings: Sequence[Recording]) -> tuple[WhisperDecoder, int]:
        """Return a decoder after the prompts of recordings and the number of tokens it may write."""
        memory = self.encode(features)
        self._detect_languages(recordings, memory)
        prompts = [self.prompt(recording) for recording in recordings]
        limit = self.limit(prompts[0])
        state = DecoderState(self.model, memory, len(prompts[0]) + limit)
        return WhisperDecoder(state, torch.tensor(prompts, device=memory.values.device), self.rules), limit

    def encode(self, features: Sequence[Tensor]) -> Memory:
        """Encode windows (M, F), a few at a time: what a layer computes of many does not fit a processor's cache."""
        device = self.rules.always.device
        few = 2 if device.type == "cpu" else self.rows
        batches = torch.stack(list(features)).to(device).split(few)
        parts = [self.model.encode_windows(batch) for batch in batches]
        return Memory(torch.cat([part.values for part in parts]), torch.cat([part.keep for part in parts]))

    def window(self, recording: Recording) -> Tensor:
        """Return the features (M, F) of the next window, filled with zeros behind the end."""
        size = self.processor.features.frames
        part = recording.features[:, recording.seek : recording.seek + size]
        return F.pad(part, (0, size - part.shape[1]))

    def prompt(self, recording: Recording) -> tuple[int, ...]:
        """Return the tokens before the text of a recording."""
        language = self.processor.languages.get(recording.language)
        return self.processor.prompt(language, self.task, timestamps=self.timestamps)

    def limit(self, prompt: Sequence[int]) -> int:
        """Return the maximum number of tokens after a prompt."""
        positions = self.model.shape.decoder.max_positions
        longest = self.processor.max_length
        return positions - len(prompt) if longest is None else min(longest, positions - len(prompt))

    def _detect_languages(self, recordings: Sequence[Recording], memory: Memory) -> None:
        """Set the language of recordings where it is not known: the likeliest one after the start token."""
        ids = list(self.processor.languages.values())
        if not ids or all(recording.language for recording in recordings):
            return
        start = torch.full((len(recordings), 1), self.processor.start, device=memory.values.device)
        logits = self.model.head(self.model.decode(start, memory)[:, -1])[:, ids]  # (B, languages)
        codes = list(self.processor.languages)
        for recording, best in zip(recordings, logits.argmax(-1).tolist(), strict=True):
            recording.language = recording.language or codes[best]


def cut_segments(ids: Sequence[int], first_timestamp: int, frames: int) -> tuple[tuple[Segment, ...], int]:
    """Return the segments between pairs of timestamps, and the number of frames to the start of the next window.

    What follows the last pair is not finished: the next window starts there. Times are positions of the encoder.
    """
    stamps = [token >= first_timestamp for token in ids]
    cuts = [at + 1 for at in range(len(ids) - 1) if stamps[at] and stamps[at + 1]]
    single = stamps[-2:] == [False, True]  # no speech after the last timestamp
    end = frames // STRIDE
    if not cuts:
        last = next((token - first_timestamp for token in reversed(ids) if token > first_timestamp), end)
        return ((0, last, tuple(ids)),), frames
    bounds = [*cuts, len(ids)] if single else cuts
    segments = []
    for first, after in zip([0, *bounds], bounds, strict=False):
        part = tuple(ids[first:after])
        segments.append((part[0] - first_timestamp, part[-1] - first_timestamp, part))
    return tuple(segments), frames if single else STRIDE * segments[-1][1]
