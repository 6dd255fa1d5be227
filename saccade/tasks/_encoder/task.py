"""Encoder: what every task with BERT has in common: where its encoder comes from, and how rows go through it.

Shapes: B rows, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from saccade.atomic_io import read_json, write_json
from saccade.config import from_json, to_json
from saccade.core.task import AttentionMap, Axis, Prediction
from saccade.core.task import Task as Contract
from saccade.data.batching import length_groups
from saccade.data.text.axes import token_axis
from saccade.data.text.templates import InputTemplate, pad_rows
from saccade.data.text.tokenizers import Tokenizer, train_tokenizer
from saccade.errors import UsageError
from saccade.loading import load_run
from saccade.models.text.bert import BertConfig, BertForPreTraining
from saccade.nn.probe import RecordedRow, watch
from saccade.nn.transformer import residuals
from saccade.pretrained import lora
from saccade.pretrained.opening import open_model
from saccade.runs.folder import Run
from saccade.tasks._encoder.layers import combine
from saccade.tasks._encoder.parallel import parallel_map

TOGETHER = 64  # rows read at once,
POSITIONS = {"cpu": 1 << 10}  # and their tokens with padding: what fits into the cache of a core,
MANY = 1 << 15  # or keeps a larger device busy
SHAPE, WEIGHTS = "encoder.json", "base.safetensors"


@dataclass(frozen=True)
class EncoderConfig:
    """Where the encoder comes from and how it is trained."""

    base: str = ""
    """a pretrained encoder: a run, a folder, a name of `saccade models list`, owner/name on the hub; none: scratch"""
    tune: Literal["all", "lora", "head"] = "all"
    """what is trained of a pretrained encoder: all of it, small changes of low rank, or nothing but what is on top"""
    rank: int = 8
    """rank of the changes that tune=lora learns"""
    model: BertConfig = field(default_factory=lambda: BertConfig(dim=256, hidden=768))
    """the shape of an encoder from scratch"""
    vocabulary: int = 8000
    """word pieces that an encoder from scratch learns"""
    lowercase: bool = True
    """an encoder from scratch takes no notice of case and accents"""
    max_length: int = 128
    """most tokens of a row; longer texts lose their end"""
    tokens: int = 1000
    """positions of one step, with their padding"""
    parts: int = 1
    """parts a step is computed in, one after the other, to save memory; the result is the same"""

    def __post_init__(self) -> None:
        for name, least in (("rank", 1), ("max_length", 8), ("tokens", 1), ("parts", 1), ("vocabulary", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        if self.tune != "all" and not self.base:
            raise ValueError(f"tune must be all without a base, but is {self.tune}")


@dataclass(frozen=True)
class Rows:
    """Framed texts as rectangles."""

    ids: Tensor  # (B, T)
    keep: Tensor | None  # (B, T), True for a real token; None: all are
    segments: Tensor  # (B, T), 1 for the second text

    @classmethod
    def of(cls, framed: Sequence[tuple[Sequence[int], int]]) -> Rows:
        """Rows with the places where their second segments begin."""
        ids = torch.from_numpy(pad_rows([row for row, _ in framed], -1))
        keep, place = ids >= 0, torch.arange(ids.shape[1])
        second = place >= torch.tensor([start for _, start in framed])[:, None]
        return cls(ids.clamp_min(0), None if bool(keep.all()) else keep, (second & keep).long())

    def to(self, device: Any) -> Rows:
        keep = None if self.keep is None else self.keep.to(device)
        return Rows(self.ids.to(device), keep, self.segments.to(device))


class EncoderTask(Contract):
    """A task whose model has an encoder called `bert`."""

    model: Any
    config: Any

    def __init__(self, config: Any, tokenizer: Tokenizer, shape: BertConfig) -> None:
        self.config, self.tokenizer, self.shape = config, tokenizer, shape
        max_length = config.max_length
        if shape.position == "learned":
            max_length = min(max_length, shape.max_positions)
        self.frame = InputTemplate.of(tokenizer, max_length)

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        """A pretrained encoder wants small steps and few epochs."""
        if not config.base:
            return []
        rate = {"all": "5e-5", "lora": "1e-3", "head": "1e-3"}[config.tune]
        words = {"kind": "adamw", "lr": rate, "schedule": "linear", "warmup": "50", "weight_decay": "0.01", "clip": "1"}
        words["beta2"] = "0.999"
        words["new_head_lr"] = "1e-3"  # a layer that begins at 0 would hardly move at the rate of the others
        return ["train.epochs=3", *(f"train.optim.{name}={value}" for name, value in words.items())]

    @staticmethod
    def learn(config: Any, texts: Iterable[str], assets: Path) -> list[str]:
        """Keep what an encoder needs, of the base or learnt from the texts; says what it is."""
        if not config.base:
            tokenizer = train_tokenizer("wordpiece", texts, config.vocabulary, lowercase=config.lowercase)
            tokenizer.save(assets / "tokenizer.json")
            write_json(assets / SHAPE, {"config": to_json(config.model)})
            return [f"vocabulary: {tokenizer.size:,} word pieces"]
        base = _base(config.base)
        base.tokenizer.save(assets / "tokenizer.json")
        write_json(assets / SHAPE, {"config": to_json(base.shape)})
        save_file(_trimmed(base.model, base.tokenizer.size), assets / WEIGHTS)
        count = sum(value.numel() for value in base.model.bert.parameters())
        return [f"base: {config.base}, {base.kind}, {count / 1e6:.1f} M parameters"]

    @staticmethod
    def read_assets(assets: Path) -> tuple[Tokenizer, BertConfig]:
        """The tokenizer and the shape that `learn` kept."""
        shape = from_json(BertConfig, read_json(assets / SHAPE)["config"])
        return Tokenizer.load(assets / "tokenizer.json"), shape

    def begin(self, assets: Path) -> None:
        """Give the model the weights of its base, and freeze what is not to be trained."""
        if not self.config.base:
            return
        if not next(self.model.parameters()).is_meta:
            known = load_file(assets / WEIGHTS)
            with torch.no_grad():
                for name, value in self.model.named_parameters():
                    if name in known:
                        value.copy_(known[name])
        if self.config.tune == "lora":
            lora.add(self.model.bert, self.config.rank)
        elif self.config.tune == "head":
            self.model.bert.requires_grad_(False)

    def framed(self, first: str, second: str | None = None, *, parse_special: bool = False) -> tuple[list[int], int]:
        """The row of one text or two, and where its second segment begins; marked: [MASK] stands for itself."""
        encode = self.tokenizer.encode
        return self.frame.build(encode(first, parse_special=parse_special), None if second is None else encode(second, parse_special=parse_special))

    def features(
        self, framed: Sequence[tuple[Sequence[int], int]], layers: Sequence[str] = ("last",)
    ) -> Iterator[tuple[int, Tensor]]:
        """Which row, and the vectors (T, D) of its tokens; rows of like length go through the encoder together.

        The vectors of several choices of `LAYERS` stand side by side.
        """
        device = self._device()

        @torch.no_grad()
        def read(group: list[int]) -> list[tuple[int, Tensor]]:
            rows = Rows.of([framed[at] for at in group]).to(device)
            states: list[Tensor] = []
            self.model.bert(rows.ids, rows.keep, rows.segments, states=states)
            found = torch.cat([combine(states, one) for one in layers], dim=-1)
            return [(at, vectors[: len(framed[at][0])]) for at, vectors in zip(group, found, strict=True)]

        parts = list(length_groups([len(row) for row, _ in framed], TOGETHER, POSITIONS.get(device.type, MANY)))
        with self._settled():
            for found in parallel_map(read, parts) if device.type == "cpu" else map(read, parts):
                yield from found

    def asked(
        self, framed: tuple[Sequence[int], int], says: Callable[[Tensor], Tensor], *, layers: bool
    ) -> tuple[Tensor, Axis, tuple[tuple[str, Tensor], ...]]:
        """What is said of the vectors (T, D) of a row, what the row is, and what would be said after each layer."""
        rows, bert = Rows.of([framed]).to(self._device()), self.model.bert
        with self._settled(), residuals(bert.encoder, layers) as states:
            found = says(bert(rows.ids, None, rows.segments)[0])
            by_layer = tuple((f"bert.encoder.{at}", says(x[0])) for at, x in enumerate(states))
        return found, token_axis("words", self.tokenizer, framed[0]), by_layer

    def snapshot_of(self, text: str, framed: tuple[Sequence[int], int]) -> Prediction:
        """A row with its maps, whatever is answered to it."""
        return Prediction(text, "", {}, tuple(self.reads(framed)))

    @torch.no_grad()
    def reads(self, framed: tuple[Sequence[int], int]) -> list[AttentionMap]:
        """Every attention of reading one row."""
        rows, words = Rows.of([framed]).to(self._device()), token_axis("words", self.tokenizer, framed[0])
        with self._settled(), watch(self.model) as maps:
            self.model.bert(rows.ids, None, rows.segments)
        return [AttentionMap(name, RecordedRow(found, 0), words, words) for name, found in maps.items()]


@dataclass(frozen=True)
class _Base:
    """A pretrained network with an encoder, its shape and tokenizer, and what kind of thing it is."""

    model: Any
    shape: BertConfig
    tokenizer: Tokenizer
    kind: str


def _base(word: str) -> _Base:
    """The encoder of a run, or of a model from elsewhere."""
    if (Path(word) / "run.json").is_file():
        run = Run(Path(word))
        task, kind = load_run(run), run.describe()["task"]
        if not isinstance(task, EncoderTask):
            raise UsageError(f"base must be an encoder such as BERT, but {word} is a {kind}")
        lora.merge(task.model)
        return _Base(task.model, task.shape, task.tokenizer, kind)
    opened = open_model(word)
    kind = opened.foreign.family.name
    if not isinstance(opened.foreign.model, BertForPreTraining):
        raise UsageError(f"base must be an encoder such as BERT, but {word} is a {kind}")
    return _Base(opened.foreign.model, opened.foreign.config, opened.tokenizer, kind)


def _trimmed(model: Any, vocabulary: int) -> dict[str, Tensor]:
    """The weights of a model without the rows beyond the vocabulary, which some models have to fill up a table."""
    by_token = ("bert.embedding.weight", "words.head.weight", "words.head.bias")
    return {
        name: value[:vocabulary].contiguous() if name in by_token else value for name, value in model.named_parameters()
    }
