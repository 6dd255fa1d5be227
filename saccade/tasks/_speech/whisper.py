"""Whisper as a task: sound to text, with times and attention; it runs as it is and is not trained here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from saccade.core import (
    AttentionMap,
    AttentionMaps,
    Audio,
    Base,
    Evaluation,
    ForwardTrace,
    GeneratedToken,
    Metric,
    Prediction,
    Pretrained,
    Progress,
    Role,
    Source,
    Split,
    Task,
    TimeAxis,
    TokenAxis,
    ignore_progress,
)
from saccade.data.text.axes import token_axis
from saccade.data.text.tokenizers import StreamDecoder
from saccade.decode.search import Beams, Search
from saccade.errors import UsageError, suggest
from saccade.models.speech.whisper import Whisper
from saccade.nn.packed import pack
from saccade.nn.probe import RecordedRow, record
from saccade.nn.transformer import layer_outputs
from saccade.pretrained.speech_processor import SpeechProcessor
from saccade.tasks._seq2seq.attention import cross_recorder, is_cross
from saccade.tasks._seq2seq.searching import StrippedText
from saccade.tasks._speech.transcript import TranscriptOutput
from saccade.tasks._speech.windows import Recording, Transcriber, Window, open_recording
from saccade.tasks._speech.word_times import TimedText, attention_to_costs, time_words, warp

CHUNK = 64  # recordings in memory at once
TRAINED = "whisper runs as it is and cannot be trained yet; leave out the model to train on this data"


@dataclass(frozen=True)
class WhisperConfig:
    """No settings: everything is in the pretrained model."""


@dataclass(frozen=True)
class WhisperOptions:
    """Options of a transcription."""

    beam: int = 1
    """beam size; 1 is greedy search"""
    length_penalty: float = 1.0
    """log probabilities are divided by length to this power: 0 favours short outputs, >1 long ones"""
    language: str = ""
    """code of the spoken language, such as de; empty: detected from the first 30 seconds"""
    task: Literal["transcribe", "translate"] = "transcribe"
    """transcribe: in the spoken language; translate: into English"""
    timestamps: bool = False
    """predict the times of segments; recordings of more than 30 seconds always have them"""
    word_times: bool = False
    """times of words from cross-attention"""
    attention: bool = False
    """keep the attention of every layer and head"""

    def __post_init__(self) -> None:
        self.search()

    def search(self) -> Search:
        """Return the settings of the beam search."""
        return Search(beam=self.beam, length_penalty=self.length_penalty)


class WhisperTask(Task):
    """A pretrained Whisper."""

    Config: ClassVar[type[Any]] = WhisperConfig
    Options: ClassVar[type[Any]] = WhisperOptions
    summary: ClassVar[str] = "transcribe speech with a pretrained Whisper"
    unit: ClassVar[str] = "windows"
    inputs = (Audio("audio"),)
    metric = Metric("wer", False, "% of the words")

    def __init__(self, pretrained: Pretrained) -> None:
        assert isinstance(pretrained.network, Whisper)
        self.config, self.pretrained = WhisperConfig(), pretrained
        self.model: Whisper = pretrained.network
        self.processor: SpeechProcessor = pretrained.processor

    # Not trained here

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        raise UsageError(TRAINED)

    @classmethod
    def open(cls, config: Any, assets: Path) -> Task:
        raise UsageError(TRAINED)

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        raise UsageError(TRAINED)

    def source(self, split: Split, seed: int) -> Source:
        raise UsageError(TRAINED)

    def losses(self, batch: Any, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        raise UsageError(TRAINED)

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        raise UsageError(TRAINED)

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    # Prediction

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        self._check(options)
        for first in range(0, len(inputs), CHUNK):
            yield from self._predict(inputs[first : first + CHUNK], options)

    def _predict(self, examples: Sequence[Mapping[str, Any]], options: WhisperOptions) -> Iterator[Prediction]:
        recordings = self._open(examples, options)
        model = pack(self.model, self.model.positions)
        for timestamps in (False, True):
            chosen = [recording for recording in recordings if recording.timestamps == timestamps]
            if chosen:
                self._transcriber(model, options, timestamps).run(chosen)
        times: list[list[TimedText]] = [[] for _ in recordings]
        if options.word_times:
            times = [self._word_times(model, recording) for recording in recordings]
        for example, recording, words in zip(examples, recordings, times, strict=True):
            yield self._prediction(example, recording, words, options)

    def _open(self, examples: Sequence[Mapping[str, Any]], options: WhisperOptions) -> list[Recording]:
        recordings = []
        for example in examples:
            samples = self._samples(example["audio"])
            recording = open_recording(self.processor, samples, timestamps=options.timestamps)
            recording.language = options.language
            recordings.append(recording)
        return recordings

    def _samples(self, value: bytes | tuple[Tensor, int]) -> Tensor:
        """Return the samples (N,) of an input at the rate of the model."""
        rate = self.processor.features.sampling_rate
        if isinstance(value, bytes) or value[1] != rate:
            shown = "a file" if isinstance(value, bytes) else f"at {value[1]} Hz"
            raise UsageError(f"audio must be samples at {rate} Hz, but is {shown}; resample it first")
        samples = value[0]
        if not len(samples):
            raise UsageError("audio must have samples, but has none")
        if not bool(samples.isfinite().all()):
            raise UsageError("audio must have finite samples, but one is nan or infinite")
        return samples

    def _check(self, options: WhisperOptions) -> None:
        languages, tasks = self.processor.languages, self.processor.tasks
        if options.language and options.language not in (languages or {"en": 0}):
            known = ", ".join(languages) if languages else "en: the model knows English alone"
            hint = suggest(options.language, list(languages))
            raise UsageError(f"language must be one of {known}, but is '{options.language}'{hint}")
        if options.task != "transcribe" and options.task not in tasks:
            raise UsageError(f"task must be transcribe for a model of English alone, but is '{options.task}'")

    def _transcriber(self, model: Whisper, options: WhisperOptions, timestamps: bool) -> Transcriber:
        return Transcriber(model, self.processor, options.search(), options.task, timestamps=timestamps)

    def _prediction(
        self, example: Mapping[str, Any], recording: Recording, words: list[TimedText], options: WhisperOptions
    ) -> Prediction:
        first, tokenizer = self.processor.first_timestamp, self.processor.tokenizer
        ids = [token for window in recording.windows for token in window.text_ids(first)]
        segments = self._segments(recording) if recording.timestamps else []
        output = TranscriptOutput(
            tokenizer.decode(ids).strip(), tuple(segments), tuple(words), recording.language
        )
        best = [window.hypothesis for window in recording.windows]
        total = sum(hypothesis.log_probability for hypothesis in best)
        scores = {"log_probability": total, "windows": float(len(best))}
        maps = self._attention(recording) if options.attention else AttentionMaps()
        trace = (recording.windows[0], options) if len(best) == 1 else None
        alignment = self._alignment(maps, recording) if maps and len(best) == 1 else None
        return Prediction(example, output, scores, maps, alignment=alignment, trace=trace)

    def _segments(self, recording: Recording) -> list[TimedText]:
        """Return the segments of a text with their times."""
        seconds, position = self.processor.features.seconds_per_frame, self.processor.seconds_per_position
        segments = []
        for window in recording.windows:
            for start, end, ids in window.segments:
                text = self.processor.tokenizer.decode(
                    token for token in ids if token < self.processor.first_timestamp
                ).strip()
                if text:
                    offset = window.start * seconds
                    segments.append(TimedText(text, offset + start * position, offset + end * position))
        return segments

    # Times of words

    @torch.no_grad()
    def _word_times(self, model: Whisper, recording: Recording) -> list[TimedText]:
        """Return the words of a recording with their times."""
        words: list[TimedText] = []
        for window in recording.windows:
            ids = window.text_ids(self.processor.first_timestamp)
            if not ids:
                continue
            starts = self._token_times(model, recording, window, ids)
            offset = window.start * self.processor.features.seconds_per_frame
            language = recording.language or "en"
            words += time_words(self.processor.tokenizer, ids, starts, language, offset)
        return words

    def _token_times(self, model: Whisper, recording: Recording, window: Window, ids: list[int]) -> list[float]:
        """Return the seconds in a window at which each of its tokens, and the end, start."""
        heads = self.alignment_heads()
        language = self.processor.languages.get(recording.language)
        prompt = self.processor.prompt(language, "transcribe", timestamps=False)
        tokens = torch.tensor([[*prompt, *ids, self.processor.end]], device=self.device())
        with record(model, sorted({f"decoder.{layer}.cross" for layer, _ in heads})) as recorder:
            model.decode(tokens, model.encode_windows(window.features[None].to(self.device())))
        maps = {name: recorded.rows()[0].cpu() for name, recorded in recorder.items()}  # (H, T, K)
        weights = torch.stack([maps[f"decoder.{layer}.cross"][head] for layer, head in heads])
        positions = max(1, window.frames // 2)
        costs = attention_to_costs(weights, positions, self.processor.median_filter)
        first = warp(costs[len(prompt) - 1 : -1])  # each row predicts the token after it
        return [int(position) * self.processor.seconds_per_position for position in first]

    def alignment_heads(self) -> tuple[tuple[int, int], ...]:
        """Return (layer, head) of the cross-attention from which words are aligned."""
        shape = self.model.shape.decoder
        upper = ((layer, head) for layer in range(shape.depth // 2, shape.depth) for head in range(shape.heads))
        return self.processor.alignment_heads or tuple(upper)

    # Attention and explanations

    @torch.no_grad()
    def _attention(self, recording: Recording) -> AttentionMaps:
        """Return every attention map; those of a second and later window have its number before their name."""
        maps: list[AttentionMap] = []
        for number, window in enumerate(recording.windows, start=1):
            ids = list(window.hypothesis.ids)
            with record(self.model) as recorder:
                self._forward(window, ids)
            axes = self._axes(window, ids)
            before = "" if number == 1 else f"window.{number}."
            for name, recorded in recorder.items():
                queries, keys = axes["cross" if is_cross(name) else name.partition(".")[0]]
                maps.append(AttentionMap(before + name, RecordedRow(recorded, 0), queries, keys))
        return AttentionMaps(maps)

    def _forward(self, window: Window, ids: list[int]) -> Tensor:
        """Return the logits (1, T, V) after each token of the prompt and of a text."""
        tokens = torch.tensor([[*window.prompt, *ids]], device=self.device())
        memory = self.model.encode_windows(window.features[None].to(self.device()))
        logits: Tensor = self.model.head(self.model.decode(tokens, memory))
        return logits

    def _axes(self, window: Window, ids: list[int]) -> dict[str, tuple[Any, Any]]:
        """Return the axes of the queries and keys of the encoder, of the decoder and of cross-attention."""
        tokenizer = self.processor.tokenizer
        sound = TimeAxis(Role.AUDIO, self.model.positions, self.processor.seconds_per_position)
        read = token_axis(Role.TARGET, tokenizer, [*window.prompt, *ids])
        written = token_axis(Role.TARGET, tokenizer, [*window.prompt[1:], *ids, self.processor.end])
        return {"encoder": (sound, sound), "decoder": (read, read), "cross": (written, sound)}

    def _alignment(self, maps: AttentionMaps, recording: Recording) -> AttentionMap:
        """Return the mean attention of the heads that follow the sound, of the text over the sound: (1, T, K)."""
        (window,) = recording.windows
        weights = torch.stack([maps[f"decoder.{layer}.cross"].weights[head] for layer, head in self.alignment_heads()])
        positions, prompt = max(1, window.frames // 2), len(window.prompt)
        mean = weights.mean(0)[None, prompt - 1 : -1, :positions]
        words = token_axis(Role.TARGET, self.processor.tokenizer, list(window.hypothesis.ids))
        sound = TimeAxis(Role.AUDIO, positions, self.processor.seconds_per_position)
        return AttentionMap("alignment", mean, words, sound)

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        if prediction.trace is None:
            seconds = self.processor.features.chunk_length
            raise UsageError(f"explanations need a recording of at most {seconds} seconds, but this one is longer")
        window, _ = prediction.trace
        ids, prompt = list(window.hypothesis.ids), len(window.prompt)
        with layer_outputs(self.model.decoder, layers) as states:
            logits = self._forward(window, ids)[0, prompt - 1 :]
            by_layer = tuple((f"decoder.{at}", self.model.head(x)[0, prompt - 1 :]) for at, x in enumerate(states))
        axes, tokenizer = self._axes(window, ids), self.processor.tokenizer
        written: TokenAxis = token_axis(Role.TARGET, tokenizer, [*ids, self.processor.end])
        return ForwardTrace(
            logits,
            (*ids, self.processor.end),
            written,
            (axes["encoder"][0], axes["decoder"][0]),
            lambda token: tokenizer.pieces([token])[0],
            by_layer,
        )

    # Streaming

    def stream(self, inputs: Mapping[str, Any], options: Any) -> Iterator[GeneratedToken]:
        """Yield the text token by token; with a beam or timestamps, window by window."""
        self._check(options)
        (recording,) = self._open([inputs], options)
        transcriber = self._transcriber(self.model, options, recording.timestamps)
        text, stripped = StreamDecoder(self.processor.tokenizer), StrippedText()
        labels = TimeAxis(Role.AUDIO, self.model.positions, self.processor.seconds_per_position).labels
        recorder = cross_recorder(self.model) if options.attention and not recording.timestamps else None
        maps = {name: RecordedRow(recorded, 0) for name, recorded in (recorder or {}).items()}
        tokens = self._greedy(transcriber, recording) if options.beam == 1 and not recording.timestamps else None
        if tokens is None:
            tokens = self._by_window(transcriber, recording)
        for token in tokens if recorder is None else recorder.iterate(tokens):
            piece = self.processor.tokenizer.pieces([token])[0]
            yield GeneratedToken(piece, stripped.feed(text.feed(token)), maps, labels)
        last = stripped.feed(text.finish())
        if last:
            yield GeneratedToken("", last, maps, labels)

    def _greedy(self, transcriber: Transcriber, recording: Recording) -> Iterator[int]:
        """Yield the tokens of one window as they are generated."""
        with torch.no_grad():
            memory = self.model.encode_windows(transcriber.window(recording)[None].to(self.device()))
            transcriber.detect_languages([recording], memory)
        prompt = transcriber.prompt(recording)
        limit = transcriber.limit(prompt)
        decoder = transcriber.decoder(memory, [prompt], limit)
        beams = Beams([limit], self.processor.end, transcriber.settings, [()])
        ids, count = torch.tensor([[self.processor.start]]), 0
        while True:
            rows, sentences, ids = beams.choose(decoder.step(ids))
            if not beams.open:
                break
            decoder.reorder(rows, sentences)
            count += 1
            yield int(ids)
        yield from beams.results()[0][0].ids[count:]

    def _by_window(self, transcriber: Transcriber, recording: Recording) -> Iterator[int]:
        """Yield the tokens of each window when it is finished."""
        while recording.seek < recording.frames:
            transcriber.step([recording])
            yield from recording.windows[-1].text_ids(self.processor.first_timestamp)

    # Exchange

    def to_pretrained(self) -> Pretrained:
        return self.pretrained
