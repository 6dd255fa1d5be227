"""Language model: next-token prediction on any text; scored in bits per byte and perplexity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from saccade.core import InputLength
from saccade.core import Task as CoreTask
from saccade.core.attention import AttentionMap, AttentionMaps
from saccade.core.axes import Role
from saccade.core.callback import Log, Progress, ignore_progress
from saccade.core.evaluation import Evaluation, Metric
from saccade.core.fields import Field, Text
from saccade.core.generation import ROWS as ENGINE_ROWS
from saccade.core.generation import StreamControl
from saccade.core.outputs import TextOutput
from saccade.core.prediction import ForwardTrace, GeneratedToken, OutputLayer, Prediction
from saccade.core.pretrained import Base, Pretrained
from saccade.core.source import Split
from saccade.core.task import even_sample
from saccade.data.batching import WindowBatches, Windows
from saccade.data.formats.corpus import read_corpus
from saccade.data.settings import TextSettings
from saccade.data.shards import Shard, build_shards
from saccade.data.text.axes import token_axis
from saccade.data.text.chat import SPECIALS
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.data.text.tokenizers import END, Tokenizer
from saccade.decode.runner import TorchRunner
from saccade.decode.runners import Runners
from saccade.errors import DataError, ModelFileError, UsageError
from saccade.models import presets
from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.probe import RecordedAttention, RecordedRow, record
from saccade.nn.quantized import WEIGHT_TYPES, QuantizedLinear
from saccade.nn.transformer import layer_outputs
from saccade.pretrained.processors import TextProcessor
from saccade.pretrained.quantize import quantize_weights
from saccade.tasks._language_model import chat
from saccade.tasks._language_model.batch import TextBatch
from saccade.tasks._language_model.engine import LanguageModelEngine, encode_text
from saccade.tasks._language_model.evaluation import evaluate_windows
from saccade.tasks._language_model.generation import Continuation, GenerationOptions, TextGenerator
from saccade.tasks._language_model.memory import check_rows, rows_that_fit
from saccade.tasks._pretrained import cannot_run

CHARACTERS_BELOW = 5_000_000  # bytes; a smaller text is tokenized into characters
NEXT_TOKENS = 10  # most likely tokens after a prompt that is only read
WINDOW_TOKENS = 64  # of a validation row
SNAPSHOT_TOKENS = 40  # of validation text whose attention is saved during training
METRICS = {
    metric.name: metric
    for metric in (
        Metric("loss", False, "nats per token"),
        Metric("perplexity", False),
        Metric("bits_per_byte", False, "bits per byte"),
        Metric("tokens", None, "tokens"),
    )
}
"""every value that `evaluate` returns"""


@dataclass(frozen=True)
class DataConfig(TextSettings):
    """Which texts are read, and how they are tokenized."""

    tokenizer: Literal["auto", "characters", "bpe", "wordpiece"] = "auto"
    """auto: characters for a text below 5 MB with a small alphabet, else byte-level BPE"""
    vocabulary_size: int = 8192
    """number of tokens that bpe and wordpiece learn"""
    chat_loss: Literal["assistant", "all"] = "assistant"
    """of chats: learn what the assistant says, or every token"""


@dataclass(frozen=True)
class TextConfig:
    """All settings of a language model except those of the training loop."""

    model: GPTConfig = field(default_factory=GPTConfig)
    data: DataConfig = field(default_factory=DataConfig)
    batch_size: int = 12
    """sequences per step"""
    micro_batches: int = 1
    """micro-batches per step, to save memory (gradient accumulation); the result is the same"""

    def __post_init__(self) -> None:
        for name in ("batch_size", "micro_batches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if self.batch_size % self.micro_batches:
            raise ValueError(
                f"batch_size must be a multiple of micro_batches, but {self.batch_size} is not a multiple of "
                f"{self.micro_batches}"
            )


@dataclass(frozen=True)
class TextOptions(GenerationOptions):
    """Options of a prediction."""

    chat: Literal["auto", "yes", "no"] = "auto"
    """ask the prompt as a message of a user, or continue it; auto: ask a model that was trained on chats"""
    system: str = ""
    """message of the system before the prompt, for a chat model"""
    attention: bool = False
    """keep the attention of every layer and head"""


@dataclass(frozen=True)
class Trace:
    """The ids of a prompt with its continuation, and the range that was visible to the model at the end."""

    ids: list[int]
    prompt: int
    """number of ids of the prompt"""
    start: int
    end: int


class Task(CoreTask):
    """GPT on plain text."""

    Config = TextConfig
    Options = TextOptions
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {name: {"model": shape} for name, shape in presets.GPT.items()}
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "predict the next token, from any text"
    continues: bool = True
    inputs: tuple[Field, ...] = (Text("prompt", help="text to continue", may_be_empty=True),)
    metric = METRICS["loss"]

    def __init__(
        self, config: TextConfig, processor: TextProcessor, model: GPT | None = None, family: Any = None
    ) -> None:
        """Use the network `model`, or initialize a new one."""
        self.config, self.processor, self.family = config, processor, family
        self.tokenizer: Tokenizer = processor.tokenizer
        self.model: GPT = GPT(config.model, self.tokenizer.size) if model is None else model
        end = self.tokenizer.specials.get(END)
        self.eos_ids = processor.eos_ids or (() if end is None else (end,))
        self.shards: dict[Split, Shard] = {}
        self.continues = not chat.is_chat_model(processor)
        self._runners: Runners | None = None  # of a model that is loaded and not trained
        self._question = ""  # that the samples of a chat model answer

    @classmethod
    def prepare(
        cls, config: TextConfig, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        if base is not None:
            raise UsageError("a language model cannot be fine-tuned from a pretrained model yet")
        files, valid = config.data.find(data)
        all_files, kind = [*files, *(valid or ())], config.data.tokenizer
        corpus = read_corpus(files, valid, config.data.split(), chats=True, progress=progress)
        if kind == "auto":
            small = sum(file.size for file in all_files) < CHARACTERS_BELOW
            kind = "characters" if small and _small_alphabet(chat.texts(corpus)) else "bpe"
        if kind == "characters":  # an alphabet, nothing learned: the validation data may have other characters
            tokenizer = train_tokenizer(kind, chat.texts(corpus), 1 << 16, SPECIALS if corpus.layout else ())
        else:
            specials = SPECIALS if corpus.layout else (END,)
            tokenizer = train_tokenizer(kind, chat.texts(corpus, "train"), config.data.vocabulary_size, specials)
        tokenizer.save(assets / "tokenizer.json")
        notes = [file.describe() for file in all_files[:3]]
        notes += [f"… {len(all_files)} files in all"] if len(all_files) > 3 else []
        notes += dict.fromkeys(note for file in all_files for note in file.notes)
        notes += config.data.notes(data)
        if corpus.layout:
            chat.save_template(assets)
            learned = "every token" if config.data.chat_loss == "all" else "what the assistant says"
            count = len(corpus.train) + (0 if corpus.valid is None else len(corpus.valid))
            notes.append(f"chats: {count:,} conversations (key {corpus.layout}) in ChatML; learns {learned}")
        return [*notes, f"vocabulary: {tokenizer.size:,} {'characters' if kind == 'characters' else f'{kind} tokens'}"]

    @classmethod
    def open(cls, config: TextConfig, assets: Path) -> Task:
        return cls(config, chat.open_processor(assets))

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        files, valid = self.config.data.find(data)
        chats = not self.continues
        corpus = read_corpus(files, files if eval_only else valid, self.config.data.split(), chats=chats)
        if chats and not corpus.layout:
            raise DataError(f"{data}: no chats, expected the key messages or conversations; name a chat log")
        train, valid_shard = build_shards(corpus, self.tokenizer, progress=progress)
        self.shards = {Split.TRAIN: train, Split.VALID: valid_shard}
        self.fingerprint = corpus.key[:16]
        self._question = chat.first_question(corpus) if chats else ""
        needed = self.config.model.max_positions + 2
        for split, shard in self.shards.items():
            if shard.size < needed:
                raise DataError(
                    f"{data}: the {split} part must have at least {needed} tokens for a context of "
                    f"{self.config.model.max_positions}, but has {shard.size}; "
                    "give more text, or set model.max_positions lower"
                )
        return [f"tokens: {train.size:,} for training, {valid_shard.size:,} for validation", *train.notes]

    def source(self, split: Split, seed: int) -> WindowBatches:
        shard, config, width = self.shards[split], self.config, self.config.model.max_positions

        def collate(starts: list[int]) -> TextBatch:
            rows = np.stack([shard.ids[start : start + width + 1] for start in starts])
            return TextBatch(torch.from_numpy(rows.astype(np.int64)), tuple(starts), self.learned_labels(shard, starts))

        windows = Windows(shard.size, width, seed)
        return WindowBatches(windows, collate, batch_size=config.batch_size, micro_batches=config.micro_batches)

    def learned_labels(self, shard: Shard, starts: Sequence[int]) -> Tensor | None:
        """Return which labels of some windows count, (B, T); None: all."""
        if shard.spoken is None or self.config.data.chat_loss == "all":
            return None
        width = self.config.model.max_positions
        rows = [shard.spoken[start + 1 : start + width + 1] for start in starts]
        return torch.from_numpy(np.stack(rows).astype(np.bool_))

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    def losses(self, batch: TextBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        if batch.learned is not None and not batch.learned.any():
            yield "model", 0.0 * networks["model"](batch.ids[:, :-1], batch.ids[:, 1:])
        else:
            yield "model", networks["model"](batch.ids[:, :-1], batch.labels)

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        """Predict every token of the split once, in adjacent windows; quick: in an even sample of them."""
        return evaluate_windows(self, self.model, split, quick=quick, progress=progress)

    def evaluate_rounded(self, dtype: str, split: Split, *, progress: Progress = ignore_progress) -> Evaluation:
        rounded = quantize_weights(self.model, dtype)
        return evaluate_windows(self, rounded, split, reference=self.model, progress=progress)

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: TextOptions) -> Iterator[Prediction]:
        prompts = [self._encode(example["prompt"], options) for example in inputs]
        continuations = self._generator.continue_all(prompts, options)
        for example, prompt, continuation in zip(inputs, prompts, continuations, strict=True):
            yield self._prediction(example, prompt, continuation, options)

    def _prediction(
        self, example: Mapping[str, Any], prompt: list[int], continuation: Continuation, options: TextOptions
    ) -> Prediction:
        ids, count = [*prompt, *continuation.ids], len(continuation.ids)
        # The last token is not read if it reached the limit; a stop token is not among the ids.
        end = len(ids) - 1 if count and count == options.max_new_tokens else len(ids)
        trace = Trace(ids, len(prompt), self._generator.visible_start(len(prompt), end), end)
        maps, scores = AttentionMaps(), {"tokens": float(count)}
        if not options.max_new_tokens:
            maps, scores = self._read(ids[trace.start : trace.end], attention=options.attention)
        elif options.attention:
            maps = self._attention(ids[trace.start : trace.end])
        return Prediction(example, TextOutput(continuation.text), scores, maps, trace=trace)

    @torch.no_grad()
    def _read(self, ids: list[int], *, attention: bool) -> tuple[AttentionMaps, dict[str, float]]:
        """Return the attention over some tokens if it is asked for, and the most likely next tokens."""
        recorder = record(self.model) if attention else None
        with recorder or nullcontext():
            features = self.model.features(torch.tensor([ids], device=self.device()))
        probs = self.model.logits(features[0, -1]).float().softmax(-1)
        values, tokens = probs.topk(min(NEXT_TOKENS, len(probs)))
        scores = dict[str, float]()
        for label, value in zip(self.tokenizer.pieces(tokens.tolist()), values.tolist(), strict=True):
            scores.setdefault(label, value)  # several tokens may be written alike
        return self._maps(recorder or {}, ids), scores

    def input_lengths(self, inputs: Mapping[str, Any], options: TextOptions) -> list[InputLength]:
        return [InputLength("prompt", len(self._encode(inputs["prompt"], options)), self.config.model.max_positions)]

    def stream(
        self, inputs: Mapping[str, Any], options: TextOptions, control: StreamControl | None = None
    ) -> Iterator[GeneratedToken]:
        ids = self._encode(inputs["prompt"], options)
        return self._generator.stream(ids, options, control, attention=options.attention)

    def engine(self, rows: int | None = None) -> LanguageModelEngine:
        context = self.config.model.max_positions
        if rows is None:
            rows = rows_that_fit(self.config.model, context, ENGINE_ROWS)
        check_rows(self.config.model, context, rows)
        runner = TorchRunner(self.model, rows, context) if self._runners is None else self._runners.make(rows, context)
        return LanguageModelEngine(runner, self.processor, context, self.eos_ids)

    def set_precision(self, dtype: str, log: Log) -> None:
        if dtype in WEIGHT_TYPES:
            self.model = quantize_weights(self.model, dtype)
        self._runners = Runners(self.model)
        reason = self._runners.slow_reason()
        if reason and self.device().type == "cpu":
            log(f"texts are generated by torch, several times slower than compiled: {reason}")

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        trace: Trace = prediction.trace
        visible, first = trace.ids[trace.start : trace.end], max(0, trace.prompt - 1 - trace.start)
        with layer_outputs(self.model.decoder, layers) as states:
            features = self.model.features(torch.tensor([visible], device=self.device()))
        logits = self.model.logits(features[0, first:])
        by_layer = tuple((f"decoder.{at}", self.model.logits(x[0, first:])) for at, x in enumerate(states))
        chosen = [*trace.ids[trace.start + first + 1 :], int(logits[-1].argmax())][: len(logits)]
        positions, inputs = (token_axis(Role.TEXT, self.tokenizer, ids) for ids in (chosen, visible))
        return ForwardTrace(
            logits,
            tuple(chosen),
            positions,
            (inputs,),
            lambda token: self.tokenizer.pieces([token])[0],
            by_layer,
            OutputLayer("decoder", self.model.logits),
        )

    def validation_inputs(self, limit: int) -> list[dict[str, Any]]:
        """Return windows of the validation text as prompts."""
        ids, width = self.shards[Split.VALID].ids, min(WINDOW_TOKENS, self.config.model.max_positions)
        starts = even_sample(max(1, len(ids) // width), limit)
        windows = (ids[start * width : (start + 1) * width].astype(np.int64).tolist() for start in starts)
        return [{"prompt": self.tokenizer.decode(window)} for window in windows]

    def attention_snapshot(self) -> list[Prediction]:
        count = min(SNAPSHOT_TOKENS, self.config.model.max_positions)
        ids = self.shards[Split.VALID].ids[:count].astype(np.int64).tolist()
        text = {"prompt": self.tokenizer.decode(ids)}
        return [Prediction(text, TextOutput(""), attention=self._attention(ids))]

    def sample(self) -> str:
        options = TextOptions(max_new_tokens=160, temperature=0.8)
        (prediction,) = self.predict([{"prompt": self._question}], options)
        return prediction.text if self.continues else f"{self._question}\n{prediction.text}"

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Task:
        network = pretrained.network
        if not isinstance(network, GPT):
            raise cannot_run(pretrained, "language_model")
        if pretrained.processor.cleans_up_spaces:
            raise ModelFileError(
                "clean_up_tokenization_spaces must be false for a language model, but is true in its "
                "tokenizer_config.json; set it to false to get the text as it is generated"
            )
        return cls(TextConfig(model=pretrained.config), pretrained.processor, network, pretrained.family)

    def to_pretrained(self) -> Pretrained:
        if isinstance(self.model.head, QuantizedLinear):
            raise UsageError(
                "an exported model must have its own weights, but these are rounded; load it with dtype=auto"
            )
        processor = replace(self.processor, eos_ids=self.eos_ids)
        return Pretrained(self.model, self.config.model, processor, self.family, "language_model")

    @property
    def _generator(self) -> TextGenerator:
        config, fit = self.config.model, partial(rows_that_fit, self.config.model)
        return TextGenerator(self.model, self.tokenizer, config.max_positions, self.eos_ids, self._runners, fit)

    def _encode(self, prompt: str, options: TextOptions) -> list[int]:
        """Return the ids of a prompt; for an empty one, the token that precedes a text."""
        if options.chat == "yes" or (options.chat == "auto" and not self.continues):
            system = [{"role": "system", "content": options.system}] if options.system else []
            return chat.encode_messages(self.processor, [*system, {"role": "user", "content": prompt}])
        if options.system:
            raise UsageError("system must be empty unless the prompt is a message; add the option chat=yes")
        return encode_text(self.processor, self.eos_ids, prompt)

    @torch.no_grad()
    def _attention(self, ids: list[int]) -> AttentionMaps:
        """Return the attention maps of every layer for some tokens."""
        with record(self.model) as recorder:
            self.model.features(torch.tensor([ids], device=self.device()))
        return self._maps(recorder, ids)

    def _maps(self, recorder: Mapping[str, RecordedAttention], ids: list[int]) -> AttentionMaps:
        axis = token_axis(Role.TEXT, self.tokenizer, ids)
        return AttentionMaps(
            AttentionMap(name, RecordedRow(recorded, 0), axis, axis) for name, recorded in recorder.items()
        )


def _small_alphabet(texts: Iterator[str]) -> bool:
    """Whether the texts have few enough characters for a character tokenizer."""
    characters: set[str] = set()
    for text in texts:
        characters.update(text)
        if len(characters) > 512:
            return False
    return True
