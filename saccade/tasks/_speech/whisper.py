"""Whisper as a task: sound to text, with times and attention; it runs as it is and is not trained here."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from saccade.core import (
    AttentionMaps,
    Audio,
    Base,
    Evaluation,
    ForwardTrace,
    GeneratedToken,
    Metric,
    OutputLayer,
    Prediction,
    Pretrained,
    Progress,
    Role,
    Source,
    Split,
    StreamControl,
    Table,
    Task,
    TimeAxis,
    ignore_progress,
)
from saccade.data.audio.decoding import decode, to_samples
from saccade.data.audio.recordings import Recordings
from saccade.data.audio.resampling import resample
from saccade.data.formats.audio_rows import AudioRows, AudioSettings, read_audio_rows
from saccade.data.parts import take_evaluated
from saccade.data.tables.problems import BadRows, Problems
from saccade.data.text.axes import token_axis
from saccade.data.text.tokenizers import StreamDecoder
from saccade.decode.search import Beams, Search
from saccade.errors import UsageError, suggest
from saccade.metrics.speech import error_rates
from saccade.models.speech.whisper import Whisper
from saccade.nn.packed import pack
from saccade.nn.probe import RecordedRow
from saccade.nn.transformer import layer_outputs
from saccade.pretrained.speech_processor import SpeechProcessor
from saccade.tasks._seq2seq.attention import cross_recorder
from saccade.tasks._seq2seq.searching import StrippedText, cut_note
from saccade.tasks._speech.transcript import TranscriptOutput
from saccade.tasks._speech.whisper_maps import WhisperMaps
from saccade.tasks._speech.windows import Recording, Transcriber, open_recording
from saccade.tasks._speech.word_times import TimedText
from saccade.tasks._token_distribution import TokenDistribution

CHUNK = 64  # recordings in memory at once
QUICK_ROWS = 40  # of a quick evaluation
NOT_TRAINED = "a Whisper runs as it is and cannot be trained yet; train a speech_recognition model without it"

METRICS = {
    metric.name: metric
    for metric in (
        Metric("wer", False, "% of the words"),
        Metric("cer", False, "% of the characters"),
        Metric("plain_wer", False, "% of the words, lower-case and without punctuation"),
        Metric("plain_cer", False, "% of the characters, lower-case and without punctuation"),
        Metric("recordings", None, "recordings"),
    )
}
"""every value that `evaluate` returns"""


@dataclass(frozen=True)
class WhisperTaskConfig:
    """Settings of the data to evaluate on; all others are those of the pretrained model."""

    data: AudioSettings = field(default_factory=AudioSettings)


@dataclass(frozen=True)
class WhisperOptions:
    """Options of a transcript."""

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

    Config: ClassVar[type[Any]] = WhisperTaskConfig
    Options: ClassVar[type[Any]] = WhisperOptions
    summary: ClassVar[str] = "transcribe speech with a pretrained Whisper"
    needs: ClassVar[str] = "recordings of speech with their texts"
    unit: ClassVar[str] = "recordings"
    inputs = (Audio("audio"),)
    metric = METRICS["plain_wer"]

    def __init__(self, pretrained: Pretrained) -> None:
        assert isinstance(pretrained.network, Whisper)
        self.config, self.pretrained = WhisperTaskConfig(), pretrained
        self.model: Whisper = pretrained.network
        self.processor: SpeechProcessor = pretrained.processor
        self.rows: AudioRows | None = None

    # Training, which is not supported

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        raise UsageError(NOT_TRAINED)

    @classmethod
    def open(cls, config: Any, assets: Path) -> Task:
        raise UsageError(NOT_TRAINED)

    def source(self, split: Split, seed: int) -> Source:
        raise UsageError(NOT_TRAINED)

    def losses(self, batch: Any, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        raise UsageError(NOT_TRAINED)

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    # Evaluation

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        if not eval_only:
            raise UsageError(NOT_TRAINED)
        rows = read_audio_rows(data, "text", self.config.data, progress)
        self.rows, self.data_notes = take_evaluated(rows, "recordings")
        return [f"recordings for evaluation: {len(self.rows):,}", *self.data_notes]

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        """Compare greedy transcripts with the texts, as they are and in lower case without punctuation."""
        assert self.rows is not None
        rows = self.rows
        count = len(rows)
        indices = list(range(0, count, max(1, -(-count // QUICK_ROWS)) if quick else 1))
        outputs: list[str] = []
        for first in range(0, len(indices), CHUNK):
            sounds = _decode([int(rows.recording[row]) for row in indices[first : first + CHUNK]], rows.recordings)
            outputs += [out.text for out in self.predict([{"audio": sound} for sound in sounds], WhisperOptions())]
            progress(len(outputs) / len(indices))
        references = [rows.texts["text"][row] for row in indices]
        scores = error_rates(outputs, references)
        plain = error_rates([plain_text(text) for text in outputs], [plain_text(text) for text in references])
        scores |= {f"plain_{name}": score for name, score in plain.items()}
        table = tuple(zip(references[:5], outputs[:5], strict=True))
        return Evaluation(
            {**{name: score.value for name, score in scores.items()}, "recordings": len(indices)},
            {name: score.signature for name, score in scores.items()},
            [Table("transcripts", ("said", "written"), table)],
            complete=len(indices) == count,
        )

    # Prediction

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        self._check(options)
        for first in range(0, len(inputs), CHUNK):
            yield from self._predict(inputs[first : first + CHUNK], options)

    def _predict(self, examples: Sequence[Mapping[str, Any]], options: WhisperOptions) -> Iterator[Prediction]:
        recordings = [self._open(example, options) for example in examples]
        model = pack(self.model, self.model.positions)
        for timestamps in (False, True):
            chosen = [recording for recording in recordings if recording.timestamps == timestamps]
            if chosen:
                self._transcriber(model, options, timestamps).run(chosen)
        maps = WhisperMaps(model, self.processor)
        for example, recording in zip(examples, recordings, strict=True):
            words = maps.word_times(recording, options.task) if options.word_times else []
            yield self._prediction(example, recording, words, options)

    def _open(self, example: Mapping[str, Any], options: WhisperOptions) -> Recording:
        samples, rate = to_samples(example["audio"], "audio")
        samples = resample(samples, rate, self.processor.features.sampling_rate)
        recording = open_recording(self.processor, samples, timestamps=options.timestamps)
        recording.language = options.language if self.processor.languages else ""
        return recording

    def _check(self, options: WhisperOptions) -> None:
        """Refuse a language or a task that the model does not know."""
        languages, tasks = self.processor.languages, self.processor.tasks
        if options.language and options.language not in (languages or {"en": 0}):
            known = ", ".join(languages) if languages else "en, which is all the model knows"
            raise UsageError(
                f"language must be {known}, but is '{options.language}'{suggest(options.language, list(languages))}"
            )
        if options.task != "transcribe" and options.task not in tasks:
            raise UsageError(f"task must be transcribe for a model of English alone, but is '{options.task}'")

    def _transcriber(self, model: Whisper, options: WhisperOptions, timestamps: bool) -> Transcriber:
        return Transcriber(
            model,
            self.processor,
            options.search(),
            options.task,
            timestamps=timestamps,
            keep_memory=options.word_times,
        )

    def _prediction(
        self, example: Mapping[str, Any], recording: Recording, words: list[TimedText], options: WhisperOptions
    ) -> Prediction:
        first, tokenizer = self.processor.first_timestamp, self.processor.tokenizer
        ids = [token for window in recording.windows for token in window.text_ids(first)]
        segments = self._segments(recording) if recording.timestamps else []
        text = tokenizer.decode(ids).strip()
        output = TranscriptOutput(text, tuple(segments), tuple(words), recording.language)
        best = [window.hypothesis for window in recording.windows]
        scores = {"log_probability": sum(hypothesis.log_probability for hypothesis in best)}
        maps, alignment = AttentionMaps(), None
        if options.attention:
            reader = WhisperMaps(self.model, self.processor)
            maps = reader.maps(recording)
            alignment = reader.alignment(maps, recording.windows[0]) if len(best) == 1 and ids else None
        trace = recording.windows[0] if len(best) == 1 else None
        notes = next((cut_note(hypothesis) for hypothesis in best if not hypothesis.ended), ())
        return Prediction(example, output, scores, maps, alignment=alignment, trace=trace, notes=notes)

    def _segments(self, recording: Recording) -> list[TimedText]:
        """Return the segments of a text with their times."""
        seconds, position = self.processor.features.seconds_per_frame, self.processor.seconds_per_position
        segments, length = [], recording.frames * seconds
        for window in recording.windows:
            offset = window.start * seconds
            for start, end, ids in window.segments:
                written = [token for token in ids if token < self.processor.first_timestamp]
                text = self.processor.tokenizer.decode(written).strip()
                if text:
                    times = (min(length, offset + at * position) for at in (start, end))
                    segments.append(TimedText(text, *times))
        return segments

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        window = prediction.trace
        if window is None:
            seconds = self.processor.features.chunk_length
            raise UsageError(f"explanations need a recording of at most {seconds} seconds, but this one is longer")
        reader, tokenizer = WhisperMaps(self.model, self.processor), self.processor.tokenizer
        ids, before = list(window.hypothesis.ids), len(window.prompt) - 1
        with layer_outputs(self.model.decoder, layers) as states:
            logits = reader.forward(window)[0, before:]
            by_layer = tuple((f"decoder.{at}", self.model.head(x)[0, before:]) for at, x in enumerate(states))
        axes = reader.axes(window)
        return ForwardTrace(
            logits,
            (*ids, self.processor.end),
            token_axis(Role.TARGET, tokenizer, [*ids, self.processor.end]),
            (axes["encoder"][0], axes["decoder"][0]),
            lambda token: tokenizer.pieces([token])[0],
            by_layer,
            OutputLayer("decoder", self.model.head),
        )

    # Streaming

    def stream(
        self, inputs: Mapping[str, Any], options: Any, control: StreamControl | None = None
    ) -> Iterator[GeneratedToken]:
        """Yield the text token by token; with a beam or timestamps, window by window and without attention."""
        self._check(options)
        recording = self._open(inputs, options)
        transcriber = self._transcriber(self.model, options, recording.timestamps)
        text, stripped = StreamDecoder(self.processor.tokenizer), StrippedText()
        labels = TimeAxis(Role.AUDIO, self.model.positions, self.processor.seconds_per_position).labels
        greedy = options.beam == 1 and not recording.timestamps
        given = () if control is None else control.given
        tokens = self._greedy(transcriber, recording, given) if greedy else self._by_window(transcriber, recording)
        recorder = cross_recorder(self.model) if options.attention and greedy else None
        maps = {name: RecordedRow(recorded, 0) for name, recorded in (recorder or {}).items()}
        for token, logits in tokens if recorder is None else recorder.iterate(tokens):
            if token >= self.processor.first_timestamp:
                continue
            piece = self.processor.tokenizer.pieces([token])[0]
            distribution = None if logits is None else TokenDistribution(logits[0], self.processor.tokenizer)
            yield GeneratedToken(piece, stripped.feed(text.feed(token)), maps, labels, token, distribution)
        last = stripped.feed(text.finish())
        if last:
            yield GeneratedToken("", last, maps, labels)

    def _greedy(
        self, transcriber: Transcriber, recording: Recording, given: Sequence[int]
    ) -> Iterator[tuple[int, Tensor | None]]:
        """Yield the tokens of one window as they are generated, the given ones first, with their logits (1, V)."""
        decoder, limit = transcriber.start([transcriber.window(recording)], [recording])
        beams = Beams([limit], self.processor.end, transcriber.settings, [given])
        ids, count = torch.tensor([[self.processor.start]]), 0
        while True:
            logits = decoder.step(ids)
            rows, sentences, ids = beams.choose(logits)
            if not beams.open:
                break
            decoder.reorder(rows, sentences)
            count += 1
            yield int(ids), logits
        yield from ((token, logits) for token in beams.results()[0][0].ids[count:])

    def _by_window(self, transcriber: Transcriber, recording: Recording) -> Iterator[tuple[int, Tensor | None]]:
        """Yield the tokens of each window when it is finished."""
        while recording.seek < recording.frames:
            transcriber.step([recording])
            yield from ((token, None) for token in recording.windows[-1].text_ids(self.processor.first_timestamp))

    # Exchange

    def to_pretrained(self) -> Pretrained:
        return self.pretrained


def _decode(numbers: Sequence[int], recordings: Recordings) -> list[tuple[Tensor, int]]:
    """Return the samples and the rates of some recordings; bad ones are raised together, by their names."""
    sounds, problems = [], Problems()
    for number in numbers:
        try:
            content = recordings.read(number)
            sounds.append(decode(content, recordings.name(number)) if isinstance(content, bytes) else content)
        except BadRows as error:
            for problem in error.problems:
                problems.add(problem)
    problems.check()
    return sounds


def plain_text(text: str) -> str:
    """Return a text in lower case, with a space for each mark of punctuation but the apostrophe."""
    marks = str.maketrans(dict.fromkeys(string.punctuation.replace("'", ""), " "))
    return " ".join(text.lower().translate(marks).split())
