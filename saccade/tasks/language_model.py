"""Language model: learn from any text to say what comes next; scored in bits per byte and perplexity."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.core.task import AttentionMap, ForwardTrace, GeneratedToken, Prediction, Progress, Split, quiet
from saccade.core.task import Task as Contract
from saccade.data import cache as text
from saccade.data.batching import Windows
from saccade.data.settings import TextSettings
from saccade.data.tables import files
from saccade.data.text.axes import token_axis
from saccade.data.text.tokenizers import END, StreamDecoder, Tokenizer, train_tokenizer
from saccade.decode.generate import generate
from saccade.decode.sampling import Sampling
from saccade.errors import DataError
from saccade.models import presets
from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.probe import RecordedAttention, RecordedRow, watch
from saccade.nn.transformer import residuals

CHARACTERS_BELOW = 5_000_000  # bytes; a smaller text is read by characters, where a vocabulary of words would be rare
QUICK = 16_384  # tokens of a quick evaluation
GLIMPSE = 40  # tokens of validation text that are watched


@dataclass(frozen=True)
class DataConfig(TextSettings):
    """What is read and how."""

    tokenizer: Literal["auto", "characters", "bpe", "wordpiece"] = "auto"
    """auto: characters for a text below 5 MB with a small alphabet, else byte-level BPE"""
    vocabulary: int = 8192
    """number of tokens that bpe and wordpiece learn"""


@dataclass(frozen=True)
class TextConfig:
    """All settings of a language model but those of the training loop."""

    model: GPTConfig = field(default_factory=GPTConfig)
    data: DataConfig = field(default_factory=DataConfig)
    batch: int = 12
    """rows of one step"""
    parts: int = 1
    """parts a step is computed in, one after the other, to save memory; the result is the same"""

    def __post_init__(self) -> None:
        for name in ("batch", "parts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if self.batch % self.parts:
            raise ValueError(f"batch must be a multiple of parts, but {self.batch} is not a multiple of {self.parts}")


@dataclass(frozen=True)
class TextOptions(Sampling):
    """How a text is continued."""

    length: int = 200
    """tokens to add at most"""
    stop: str = ""
    """stop before this text"""
    seed: int = 1
    """another seed gives another continuation"""
    maps: bool = False
    """keep the attention of every layer and head"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 0:
            raise ValueError(f"length must be 0 or more, but is {self.length}")
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed must be at least 0 and below 2^63, but is {self.seed}")


@dataclass(frozen=True)
class TextBatch:
    """Windows of text: `ids` (B, T + 1), of which the first T are read and the last T predicted."""

    ids: Tensor
    starts: tuple[int, ...]

    @property
    def count(self) -> int:
        return self.ids.shape[0] * (self.ids.shape[1] - 1)

    @property
    def rows(self) -> list[str]:
        return [f"token {start}" for start in self.starts]

    def to(self, device: Any) -> TextBatch:
        return TextBatch(self.ids.to(device), self.starts)


@dataclass(frozen=True)
class TextBatches:
    """Random windows of a shard; which ones depends on (seed, step) alone."""

    shard: text.Shard
    windows: Windows
    batch: int
    parts: int

    @property
    def per_epoch(self) -> int:
        return max(1, self.windows.per_epoch // self.batch)

    def at(self, step: int) -> list[TextBatch]:
        starts = self.windows.starts(step * self.batch, self.batch)
        return [self._read(part) for part in np.split(starts, self.parts)]

    def _read(self, starts: Any) -> TextBatch:
        width = self.windows.width + 1
        rows = np.stack([self.shard.ids[start : start + width] for start in starts])
        return TextBatch(torch.from_numpy(rows.astype(np.int64)), tuple(int(start) for start in starts))


@dataclass(frozen=True)
class Trace:
    """The ids of a text with what was written on, and which of them the model had read at the end."""

    ids: list[int]
    prompt: int
    """how many were given"""
    begin: int
    end: int


class Task(Contract):
    """GPT on one long row of tokens."""

    Config = TextConfig
    Options = TextOptions
    presets: ClassVar[dict[str, Any]] = {name: {"model": shape} for name, shape in presets.GPT.items()}
    summary: ClassVar[str] = "learn from any text to say what comes next"
    continues: ClassVar[bool] = True
    score = "loss"

    def __init__(
        self,
        config: TextConfig,
        tokenizer: Tokenizer,
        model: GPT | None = None,
        *,
        begin: int | None = None,
        end: int | None = None,
    ) -> None:
        """With a new network, or a given one with the ids that stand before and after its texts."""
        self.config, self.tokenizer = config, tokenizer
        self.model: GPT = GPT(config.model, tokenizer.size) if model is None else model
        self.begin, self.end = begin, tokenizer.specials.get(END) if end is None else end
        self.shards: dict[Split, text.Shard] = {}

    @classmethod
    def prepare(cls, config: TextConfig, data: Path, assets: Path, advance: Progress = quiet) -> list[str]:
        found, valid = config.data.find(data)
        every, settings = [*found, *(valid or ())], config.data.split()
        kind = config.data.tokenizer
        if kind == "auto":
            small = sum(file.size for file in every) < CHARACTERS_BELOW
            kind = "characters" if small and _small_alphabet(_texts(every, settings, advance)) else "bpe"
        if kind == "characters":  # an alphabet, not something learnt: the held-back part may have a letter of its own
            tokenizer = train_tokenizer(kind, _texts(every, settings, advance), 1 << 16)
        else:
            split = files.split(found, settings, advance=_bytes_read(found, advance))
            parts = (document.text for part, document in split if part == "train")
            learnt = parts if valid is None else _texts(found, settings, advance)
            tokenizer = train_tokenizer(kind, learnt, config.data.vocabulary, (END,))
        tokenizer.save(assets / "tokenizer.json")
        notes = [file.describe() for file in every[:3]] + ([f"… {len(every)} files in all"] if len(every) > 3 else [])
        notes += [note for file in every for note in file.notes]
        return [*notes, f"vocabulary: {tokenizer.size:,} {'characters' if kind == 'characters' else f'{kind} tokens'}"]

    @classmethod
    def open(cls, config: TextConfig, assets: Path) -> Task:
        return cls(config, Tokenizer.load(assets / "tokenizer.json"))

    def load_data(self, data: Path, advance: Progress = quiet, *, whole: bool = False) -> list[str]:
        found, valid = self.config.data.find(data)
        valid = found if whole else valid
        train, held = text.build_shards(
            found,
            valid,
            self.tokenizer,
            text.default_cache() / "shards",
            self.config.data.split(),
            advance=lambda done, total: advance(done / max(1, total)),
        )
        self.shards = {Split.TRAIN: train, Split.VALID: held}
        self.fingerprint = train.source[:16]
        needed = self.config.model.max_positions + 2
        for split, shard in self.shards.items():
            if shard.size < needed:
                raise DataError(
                    f"{data}: the {split} part must have at least {needed} tokens for a context of "
                    f"{self.config.model.max_positions}, but has {shard.size}; "
                    "give more text, or set model.max_positions lower"
                )
        return [f"tokens: {train.size:,} to train on, {held.size:,} held back", *train.notes]

    def batches(self, split: Split, seed: int) -> TextBatches:
        shard, config = self.shards[split], self.config
        return TextBatches(shard, Windows(shard.size, config.model.max_positions, seed), config.batch, config.parts)

    def losses(self, batch: TextBatch) -> Iterator[tuple[str, Tensor]]:
        logits = self.model(batch.ids[:, :-1])  # (B, T, V)
        yield "model", F.cross_entropy(logits.flatten(0, 1), batch.ids[:, 1:].flatten())

    @torch.no_grad()
    def evaluate(self, split: Split, *, quick: bool = False, advance: Progress = quiet) -> dict[str, float]:
        """Every token of the split predicted once, in windows side by side; quick: an even sample of them."""
        shard, width = self.shards[split], self.config.model.max_positions
        total, count = 0.0, 0
        with self._settled():
            for share, group in _windows(shard, width, quick):
                ids = torch.from_numpy(group.astype(np.int64)).to(self._device())
                logits = self.model(ids[:, :-1]).float()
                total += F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum").item()
                count += ids[:, 1:].numel()
                advance(share)
        loss = total / count
        scores = {"loss": loss, "perplexity": math.exp(min(loss, 700))}
        if self.tokenizer.kind != "wordpiece":  # which loses spaces, so that its bits do not tell the text
            scores["bits_per_byte"] = loss / math.log(2) * shard.size / shard.bytes
        return {**scores, "tokens": count}

    def predict(self, input: str, options: TextOptions) -> Prediction:
        prompt = self._prompt(input)
        ids, pieces = [*prompt], []
        watched: AbstractContextManager[Mapping[str, RecordedAttention]] = (
            watch(self.model) if options.maps else nullcontext({})
        )
        with watched as maps:
            for number, piece in self._continue(prompt, options):
                ids += [] if number is None else [number]
                pieces.append(piece)
        count = len(ids) - len(prompt)
        read = ids[:-1] if count == options.length else ids  # the last one is not read; one that stops is not in ids
        reads = tuple(self._map(name, found, read) for name, found in _rows(maps))
        seen = reads[0].shape[2] if reads else min(len(read), self.config.model.max_positions)
        trace = Trace(ids, len(prompt), len(read) - seen, len(read))
        return Prediction(input, "".join(pieces), {"tokens": float(count)}, reads, trace=trace)

    def rerun(self, found: Prediction, *, layers: bool = False) -> ForwardTrace:
        trace: Trace = found.trace
        read, first = trace.ids[trace.begin : trace.end], max(0, trace.prompt - 1 - trace.begin)
        with self._settled(), residuals(self.model.decoder, layers) as states:
            logits = self.model(torch.tensor([read], device=self._device()))[0, first:]
            by_layer = tuple((f"decoder.{at}", self.model.head(x)[0, first:]) for at, x in enumerate(states))
        chosen = [*trace.ids[trace.begin + first + 1 :], int(logits[-1].argmax())][: len(logits)]
        places, words = (token_axis("words", self.tokenizer, part) for part in (chosen, read))
        return ForwardTrace(
            logits, tuple(chosen), places, (words,), lambda one: self.tokenizer.pieces([one])[0], by_layer
        )

    def follow(self, input: str, options: TextOptions) -> Iterator[GeneratedToken]:
        ids = self._prompt(input)
        prompt = tuple(self.tokenizer.pieces(ids))
        with watch(self.model) as maps:
            reads = {name: RecordedRow(found, 0) for name, found in maps.items()}
            for number, piece in self._continue(ids, options):
                yield GeneratedToken("" if number is None else self.tokenizer.pieces([number])[0], piece, reads, prompt)

    def attention_snapshot(self) -> list[Prediction]:
        ids = self.shards[Split.VALID].ids[: min(GLIMPSE, self.config.model.max_positions)].astype(np.int64).tolist()
        with self._settled(), torch.no_grad(), watch(self.model) as maps:
            self.model(torch.tensor([ids], device=self._device()))
        return [Prediction(self.tokenizer.decode(ids), "", {}, tuple(self._map(*one, ids) for one in _rows(maps)))]

    def stream(self, input: str, options: TextOptions) -> Iterator[str]:
        for _, piece in self._continue(self._prompt(input), options):
            yield piece

    def sample(self) -> str:
        return self.predict("", TextOptions(length=160, temperature=0.8)).output

    def _continue(self, prompt: list[int], options: TextOptions) -> Iterator[tuple[int | None, str]]:
        """Ids and the text each one completes, until the length, the stop text or the end of the text."""
        ids = torch.tensor([prompt], device=self._device())
        decoded, held = StreamDecoder(self.tokenizer), ""
        context = min(self.config.model.max_positions, len(prompt) + options.length)
        tokens = generate(self.model, ids, context, options, options.seed)
        with self._settled():
            for _, chosen in zip(range(options.length), tokens, strict=False):
                number = int(chosen[0])
                if number == self.end:
                    break
                held += decoded.feed(number)
                if options.stop and options.stop in held:
                    held, decoded = held[: held.index(options.stop)], StreamDecoder(self.tokenizer)
                    break
                ready = len(held) - _overhang(held, options.stop)
                yield number, held[:ready]
                held = held[ready:]
        rest = held + decoded.finish()
        if rest:
            yield None, rest

    def _prompt(self, input: str) -> list[int]:
        """The ids to start from; without a prompt, what stands before the beginning of a text."""
        ids = [*([] if self.begin is None else [self.begin]), *self.tokenizer.encode(input)]
        return ids or ([self.end] if self.end is not None else text.separator(self.tokenizer) or [0])

    def _map(self, name: str, found: RecordedRow, read: list[int]) -> AttentionMap:
        """A map with its words; after a full context it covers the tokens that were read again."""
        words = token_axis("words", self.tokenizer, read[-found.shape[-1] :])
        return AttentionMap(name, found, words, words)


def _rows(maps: Mapping[str, RecordedAttention]) -> list[tuple[str, RecordedRow]]:
    """The maps of the only row by their names, without those of attentions that have not run."""
    return [(name, RecordedRow(found, 0)) for name, found in maps.items() if found.shape[2]]


def _windows(shard: text.Shard, width: int, quick: bool) -> Iterator[tuple[float, Any]]:
    """Groups of windows (rows, width + 1) that cover a shard, its tail included, each with the share done so far.

    Quick: an even sample of them.
    """
    whole, rows = (shard.size - 1) // width, max(1, 4096 // width)
    starts = np.arange(whole) * width
    if quick:
        starts = starts[:: -(-whole * width // QUICK)]
    for first in range(0, len(starts), rows):
        share = min(1.0, (first + rows) / len(starts))
        yield share, shard.ids[starts[first : first + rows, None] + np.arange(width + 1)]
    tail = shard.ids[whole * width :]
    if len(tail) > 1 and not quick:
        yield 1.0, tail[None]


def _texts(found: list[files.DataFile], settings: files.SplitSettings, advance: Progress) -> Iterator[str]:
    """The texts of some files, one after the other."""
    read = _bytes_read(found, advance)
    for file in found:
        for document in files.documents(file, column=settings.column, advance=partial(read, file)):
            yield document.text


def _bytes_read(found: list[files.DataFile], advance: Progress) -> Callable[[files.DataFile, int], None]:
    """Turns a place in one of the files into the share of all of them that is read."""
    before = dict(
        zip((file.path for file in found), accumulate((file.size for file in found), initial=0), strict=False)
    )
    total = max(1, sum(file.size for file in found))
    return lambda file, position: advance(min(1.0, (before[file.path] + position) / total))


def _small_alphabet(texts: Iterator[str]) -> bool:
    """Whether characters are few enough to be tokens of their own."""
    seen: set[str] = set()
    for piece in texts:
        seen.update(piece)
        if len(seen) > 512:
            return False
    return True


def _overhang(held: str, stop: str) -> int:
    """How much of the end of `held` may be the beginning of the stop text, and must wait."""
    return next((size for size in range(min(len(held), len(stop) - 1), 0, -1) if stop.startswith(held[-size:])), 0)
