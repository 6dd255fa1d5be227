"""Speech recognition: what is said in a recording, letter by letter; scored in characters and words that are wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from saccade.core import Base, Evaluation, Metric, Pretrained, Progress, Split, Table, ignore_progress
from saccade.core import Task as CoreTask
from saccade.data.audio.features import AudioFeatures, compute_features
from saccade.data.batching import length_groups
from saccade.data.formats.audio_rows import AudioRows
from saccade.data.lengths import load_max_target_length, load_token_rate
from saccade.data.text.tokenizer_choice import train_text_tokenizer
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.token_rows import TokenRows
from saccade.data.tokenization import tokenize
from saccade.decode.search import Search
from saccade.errors import UsageError
from saccade.metrics.speech import error_rates
from saccade.models.seq2seq.interface import Seq2SeqLoss
from saccade.models.seq2seq.recurrent import RecurrentDecoderConfig
from saccade.models.seq2seq.to_text import DecoderConfig, TextDecoderConfig, ToText, build_to_text
from saccade.models.speech.encoders import SpeechEncoderConfig, build_speech_encoder
from saccade.models.speech.whisper import Whisper
from saccade.tasks._pretrained import cannot_run
from saccade.tasks._seq2seq.searching import POSITIONS, ROWS, pack_for, search_apart
from saccade.tasks._seq2seq.settings import TranslationOptions
from saccade.tasks._seq2seq.to_text import TOKENIZER, ToTextTask
from saccade.tasks._seq2seq.tokenizers import TargetTokenizer
from saccade.tasks._speech.task import AudioBatch, AudioConfig, AudioExamples, AudioFormat, AudioTask
from saccade.tasks._speech.whisper import WhisperTask

FRAMES_OF_LABEL = 4  # at most, for the CTC head: an encoder of coarser positions predicts several labels for each
QUICK_ROWS = 200  # of a quick evaluation
MARGIN = 1.2  # of the tokens that a recording may have, over the highest rate of the training data

METRICS = {
    metric.name: metric
    for metric in (
        Metric("cer", False, "% of the characters"),
        Metric("wer", False, "% of the words"),
        Metric("attention_cer", False, "% of the characters"),
        Metric("attention_wer", False, "% of the words"),
        Metric("ctc_cer", False, "% of the characters"),
        Metric("ctc_wer", False, "% of the words"),
        Metric("loss", False, "nats per token"),
        Metric("recordings", None, "recordings"),
    )
}
"""every value that `evaluate` returns: decoder and CTC head together, the decoder alone, and the CTC head alone"""


@dataclass(frozen=True)
class SpeechModel(SpeechEncoderConfig, DecoderConfig):
    """Encoder and decoder, and their shapes."""

    decoder: Literal["transformer", "lstm"] = "lstm"
    """lstm: one attention, which also depends on where the letters before attended (model.lstm.score); transformer:
    cross-attention in every layer"""
    transformer: TextDecoderConfig = field(default_factory=lambda: TextDecoderConfig(dim=144, hidden=288, dropout=0.1))
    lstm: RecurrentDecoderConfig = field(
        default_factory=lambda: RecurrentDecoderConfig(dim=128, hidden=256, cell="lstm", score="location", dropout=0.1)
    )


@dataclass(frozen=True)
class SpeechConfig(AudioConfig):
    """All settings of a speech recognition model except those of the training loop."""

    model: SpeechModel = field(default_factory=SpeechModel)
    search: Search = field(default_factory=lambda: Search(beam=5))
    tokenizer: Literal["characters", "bpe"] = "characters"
    """tokens of the texts: characters, or byte pairs for hours of speech"""
    vocabulary_size: int = 512
    """tokens of bpe"""
    label_smoothing: float = 0.1
    """label smoothing: probability mass that is distributed evenly over all tokens"""
    ctc: float = 1.0
    """weight of a CTC loss on the encoder, which then learns letters before the decoder knows where to look; 0: none"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, but is {self.label_smoothing}")
        if self.ctc < 0:
            raise ValueError(f"ctc must be at least 0, but is {self.ctc}")
        self.check_encoder(self.model)


@dataclass(frozen=True)
class SpeechBatch(AudioBatch):
    """Sounds with their texts, padded; `labels` are the inputs shifted by one, -1 where there is nothing to predict."""

    inputs: Tensor  # (B, L)
    labels: Tensor  # (B, L)
    count: int


@dataclass(frozen=True, eq=False)
class SpeechExamples(AudioExamples):
    """The rows of one split with their features and the tokens of their texts."""

    tokens: TokenRows


@dataclass(frozen=True)
class SpeechOptions(TranslationOptions):
    """Options of a transcript."""


class Task(AudioTask, ToTextTask):
    """An encoder of sound, and a decoder that attends to it at every letter."""

    Config: ClassVar[type[Any]] = SpeechConfig
    Options: ClassVar[type[Any]] = SpeechOptions
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "write down what is said in a recording"
    needs: ClassVar[str] = "recordings of speech with their texts"
    roles: ClassVar[tuple[str, ...]] = ("text",)
    metric = METRICS["cer"]

    splits: dict[Split, SpeechExamples]

    def __init__(
        self,
        config: Any,
        format: AudioFormat,
        target: TargetTokenizer,
        max_length: int,
        model: ToText,
        token_rate: float = 0.0,
    ) -> None:
        """`token_rate`: highest number of tokens per second of sound in the training data; 0: not known."""
        self.config, self.format, self.target = config, format, target
        self.max_length, self.model, self.token_rate = max_length, model, token_rate
        self.splits = {}

    # Data

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        """Return smaller steps of Muon than other tasks have: the CTC loss learns nothing for long with larger ones."""
        return ["train.precision=fastest", "train.optim.matrix_lr=0.015"]

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        if base is not None:
            raise UsageError("speech_recognition cannot be fine-tuned from a pretrained model yet")
        train, _, notes = cls.read(config, data, assets, progress)
        texts = train.texts["text"]
        tokenizer = train_text_tokenizer(config.tokenizer, texts, config.vocabulary_size, "vocabulary_size")
        format = AudioFormat.load(config, assets)
        features = compute_features(train.recordings, format.features, format.max_seconds)  # which are in the cache
        cls.write_tokenizer(tokenizer, texts, assets, features.samples[train.recording] / format.features.rate)
        kind = "characters" if config.tokenizer == "characters" else "bpe tokens"
        return [*notes, f"vocabulary: {tokenizer.size - len(tokenizer.specials)} {kind}"]

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        tokenizer = Tokenizer.load(assets / TOKENIZER)
        encoder = build_speech_encoder(config.model, config.bands)
        frames = max(1, encoder.stride // FRAMES_OF_LABEL) if config.ctc else 0
        model = build_to_text(config.model, encoder, tokenizer.size, ctc_frames=frames)
        format = AudioFormat.load(config, assets)
        limits = load_max_target_length(assets), model, load_token_rate(assets)
        return cls(config, format, TargetTokenizer.of(tokenizer), *limits)

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        notes = super().load_data(data, eval_only=eval_only, progress=progress)
        names = {Split.TRAIN: "training", Split.VALID: "evaluation" if eval_only else "validation"}
        return [*notes, *(note for split in self.splits for note in self.unknown_note(split, names[split]))]

    def examples(self, rows: AudioRows, features: AudioFeatures) -> SpeechExamples:
        tokens = tokenize(rows.texts["text"], self.target.tokenizer)
        return SpeechExamples(rows, features, self.encoder.stride, tokens)

    def collate(self, examples: Any, indices: list[int]) -> SpeechBatch:
        inputs, labels = self.target_tensors(examples, indices)
        source, keep = self.stack([examples.source(row) for row in indices])
        frames = torch.from_numpy(examples.frames[np.asarray(indices)])
        origins = tuple(examples.rows.origins.describe(row) for row in indices)
        return SpeechBatch(source, frames, keep, origins, inputs, labels, int((labels >= 0).sum()))

    def example_source(self, examples: Any, index: int) -> Tensor:
        source: Tensor = examples.source(index)
        return source

    def read_input(self, value: bytes | tuple[Tensor, int], options: Any) -> Tensor:
        return self.format.read(value)

    def length(self, source: Tensor) -> int:
        return -(-len(source) // self.encoder.stride)

    def positions(self, examples: Any, indices: Sequence[int]) -> list[int]:
        lengths: list[int] = examples.lengths[np.asarray(indices)].tolist()
        return lengths

    def limit(self, prefix: Sequence[int], positions: int) -> int:
        """Return the maximum number of tokens: as many as any second of the training data has, and a margin."""
        settings = self.format.features
        seconds = positions * self.encoder.stride * settings.hop_samples / settings.rate
        limit = max(self.max_length, math.ceil(MARGIN * self.token_rate * seconds) + 10)
        shape = self.config.model.transformer
        learned = self.config.model.decoder == "transformer" and shape.position == "learned"
        return min(limit, shape.max_positions - 1 - len(prefix)) if learned else limit

    # Training and evaluation

    def loss_weights(self) -> Seq2SeqLoss:
        return replace(super().loss_weights(), ctc=self.config.ctc)

    @torch.no_grad()
    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        """Compare with the texts what decoder and CTC head write together and each alone; quick: on an even sample."""
        examples = self.splits[split]
        indices = list(range(0, len(examples), max(1, -(-len(examples) // QUICK_ROWS)) if quick else 1))
        settings = replace(self.config.search, beam=2, n_best=1) if quick else replace(self.config.search, n_best=1)
        texts = examples.rows.texts["text"]
        references = [texts[row] for row in indices]
        outputs = self.transcribe(examples, indices, settings, progress)
        scores = {name: error_rates(column, references) for name, column in outputs.items()}
        named = {f"{name}{rate}": score for name, rates in scores.items() for rate, score in rates.items()}
        rows = tuple((f"{references[at]}", f"{outputs[''][at]}") for at in range(min(5, len(indices))))
        return Evaluation(
            {
                **{name: score.value for name, score in named.items()},
                "loss": self.mean_loss(examples, indices),
                "recordings": len(indices),
            },
            {name: score.signature for name, score in named.items()},
            [Table("transcripts", ("said", "written"), rows)],
            complete=len(indices) == len(examples) and not quick,
        )

    def transcribe(
        self, examples: SpeechExamples, indices: Sequence[int], settings: Search, progress: Progress = ignore_progress
    ) -> dict[str, list[str]]:
        """Return the texts of some rows by prefix of their metric: of both together, `attention_`, `ctc_`."""
        device, model = self.device(), pack_for(self.model, len(indices), settings)
        best: dict[str, dict[int, Sequence[int]]] = {"": {}, "attention_": {}, "ctc_": {}} if model.ctc else {"": {}}
        positions = self.positions(examples, indices)
        for group in length_groups(positions, ROWS, POSITIONS):
            source, keep = self.stack([examples.source(indices[at]) for at in group])
            memory = model.encode(source.to(device), keep.to(device))
            limits = [self.limit((), positions[at]) for at in group]
            alone, hypotheses = search_apart(model, memory, self.target, settings, limits)
            if model.ctc is not None:
                paths = model.ctc.best_paths(model.ctc(memory.values), memory.keep)
                best["ctc_"].update(zip(group, paths, strict=True))
                best["attention_"].update((at, one[0].ids) for at, one in zip(group, alone, strict=True))
            best[""].update((at, one[0].ids) for at, one in zip(group, hypotheses, strict=True))
            progress(len(best[""]) / len(indices))
        return {name: [self.target.decode(list(ids[at])) for at in range(len(indices))] for name, ids in best.items()}

    # Exchange

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> CoreTask:
        if isinstance(pretrained.network, Whisper):
            return WhisperTask(pretrained)
        raise cannot_run(pretrained, "speech_recognition")
