"""Tagging: learn from sentences with a tag for each word, such as names of people and places, to tag others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.atomic_io import read_json, write_json
from saccade.core.task import Axis, ForwardTrace, Prediction, Progress, Split, quiet
from saccade.data.batching import Buckets
from saccade.data.formats.tagged import Sentence, Tagged, read_tagged
from saccade.data.settings import ValidationSplit
from saccade.data.splitting import SplitSettings
from saccade.data.tables.problems import Strays
from saccade.data.text.tokenizers import Tokenizer
from saccade.decode.tags import best_tags
from saccade.metrics import classification, tagging
from saccade.models.text.bert import BertConfig, BertWithHead
from saccade.tasks._encoder.rows import LABELS
from saccade.tasks._encoder.task import EncoderConfig, EncoderTask, Rows

QUICK = 500  # sentences of a quick evaluation
Said = tuple[list[str], list[float]]  # the tag of each word, and how sure the model is


@dataclass(frozen=True)
class TaggedSettings(ValidationSplit):
    """Where tagged words stand: one a line, the word first and the tag last, an empty line between sentences."""

    encoding: str = ""
    """encoding of the files, where it is not UTF-8"""


@dataclass(frozen=True)
class TagConfig(EncoderConfig):
    """All settings of a tagger but those of the training loop."""

    data: TaggedSettings = field(default_factory=TaggedSettings)


@dataclass(frozen=True)
class TagOptions:
    """How a sentence is tagged."""

    maps: bool = False
    """keep the attention of every layer and head"""


@dataclass(frozen=True)
class Framed:
    """A sentence as a row of tokens, and the place of the first piece of each word; words beyond the row have none."""

    ids: list[int]
    places: list[int]


@dataclass(frozen=True)
class TagBatch:
    """Rows with the tag of each word at its first piece, -1 elsewhere."""

    read: Rows
    tags: Tensor  # (B, T)
    names: tuple[str, ...]
    count: int

    @property
    def rows(self) -> list[str]:
        return list(self.names)

    def to(self, device: Any) -> TagBatch:
        return TagBatch(self.read.to(device), self.tags.to(device), self.names, self.count)


@dataclass(frozen=True)
class TagBatches:
    """Sentences of like length together; which ones depends on (seed, step) alone."""

    sentences: Sequence[Sentence]
    framed: Sequence[Framed]
    names: Sequence[str]
    buckets: Buckets
    parts: int

    @property
    def per_epoch(self) -> int:
        return self.buckets.per_epoch

    def at(self, step: int) -> list[TagBatch]:
        rows = self.buckets.rows(step)
        return [self._make(part.tolist()) for part in np.array_split(rows, min(self.parts, len(rows)))]

    def _make(self, rows: list[int]) -> TagBatch:
        framed, number = [self.framed[row] for row in rows], {name: at for at, name in enumerate(self.names)}
        read = Rows.of([(one.ids, len(one.ids)) for one in framed])
        tags = torch.full_like(read.ids, -1)
        for at, row in enumerate(rows):
            for place, tag in zip(framed[at].places, self.sentences[row].tags, strict=False):
                tags[at, place] = number[tag]
        places = tuple(f"{self.sentences[row].file.name}:{self.sentences[row].lines[0]}" for row in rows)
        return TagBatch(read, tags, places, int((tags >= 0).sum()))


class Task(EncoderTask):
    """An encoder with one output for each tag over the first piece of each word.

    Tags of entities follow each other as they do in the training data: no I where nothing has begun.
    """

    Config: ClassVar[type[Any]] = TagConfig
    Options: ClassVar[type[Any]] = TagOptions
    presets: ClassVar[dict[str, Any]] = {}
    summary: ClassVar[str] = "learn from sentences with a tag for each word to tag others"
    score = "f1"

    def __init__(
        self,
        config: TagConfig,
        tokenizer: Tokenizer,
        shape: BertConfig,
        names: Sequence[str],
        scheme: tagging.Scheme | None,
    ) -> None:
        super().__init__(config, tokenizer, shape)
        self.names = tuple(names)
        self.model: BertWithHead = BertWithHead(shape, tokenizer.size, len(self.names))
        self.parts: dict[Split, Tagged] = {}
        self.score = "f1" if all(map(tagging.is_entity_tag, self.names)) else "accuracy"
        all_tags = (*self.names, "O")  # what stands before the first word and after the last counts as O
        self._joins = torch.tensor(
            [[scheme is None or tagging.may_follow(a, b, scheme) for b in all_tags] for a in all_tags]
        )

    @classmethod
    def prepare(cls, config: TagConfig, data: Path, assets: Path, advance: Progress = quiet) -> list[str]:
        found = read_tagged(data, encoding=config.data.encoding or None)
        train = found if config.data.valid else found.split(SplitSettings(fraction=config.data.fraction))[0]
        write_json(assets / LABELS, {"names": list(found.names), "scheme": _scheme(train)})
        texts = (" ".join(sentence.words) for sentence in train.sentences)
        return [*found.notes(), *cls.learn(config, texts, assets)]

    @classmethod
    def open(cls, config: TagConfig, assets: Path) -> Task:
        labels = read_json(assets / LABELS)
        opened = cls(config, *cls.read_assets(assets), labels["names"], labels["scheme"])
        opened.begin(assets)
        return opened

    def load_data(self, data: Path, advance: Progress = quiet, *, whole: bool = False) -> list[str]:
        encoding = self.config.data.encoding or None
        like = Tagged((), self.names, (), 0, Strays())
        found = read_tagged(data, encoding=encoding, like=like)
        if whole:
            self.parts = {Split.VALID: found}
            return [f"sentences: {len(found.sentences):,}"]
        if self.config.data.valid:
            train, valid = found, read_tagged(Path(self.config.data.valid), encoding=encoding, like=like)
        else:
            train, valid = found.split(SplitSettings(fraction=self.config.data.fraction))
        self.parts = {Split.TRAIN: train, Split.VALID: valid}
        content = "\n".join(" ".join((*one.words, *one.tags)) for one in train.sentences)
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()[:16]
        cut = sum(len(self._frame(one.words).places) < len(one.words) for one in train.sentences)
        long = (
            [f"{cut:,} sentences have more than {self.frame.max_length} tokens: their ends are not read"] if cut else []
        )
        return [f"sentences: {len(train.sentences):,} to train on, {len(valid.sentences):,} held back", *long]

    def _frame(self, words: Sequence[str]) -> Framed:
        """Words as one row; each is tokenized by itself, as if after a space where the tokenizer minds spaces."""
        spaced = [word if self.tokenizer.kind == "wordpiece" else f" {word}" for word in words]
        ids, places = [self.frame.cls_id], list[int]()
        for pieces in self.tokenizer.encode_batch(spaced):
            kept = pieces or [self.tokenizer.specials.get("[UNK]", self.frame.sep_id)]  # a word of signs the rules remove
            if not places:  # a row has at least one word
                kept = kept[: self.frame.max_length - 2]
            if len(ids) + len(kept) + 1 > self.frame.max_length:
                break
            places.append(len(ids))
            ids += kept
        return Framed([*ids, self.frame.sep_id], places)

    def batches(self, split: Split, seed: int) -> TagBatches:
        sentences = self.parts[split].sentences
        framed = [self._frame(sentence.words) for sentence in sentences]
        lengths = np.array([len(one.ids) for one in framed], dtype=np.int64)
        buckets = Buckets(lengths, np.zeros_like(lengths), self.config.tokens, seed)
        return TagBatches(sentences, framed, self.names, buckets, self.config.parts)

    def losses(self, batch: TagBatch) -> Iterator[tuple[str, Tensor]]:
        rows, real = batch.read, batch.tags >= 0
        features = self.model.bert(rows.ids, rows.keep, rows.segments)[real]  # (N, D)
        yield "model", F.cross_entropy(self.model(features), batch.tags[real])

    @torch.no_grad()
    def _tags(self, sentences: Sequence[Sequence[str]], advance: Progress = quiet) -> list[Said]:
        """The tag of each word, and how sure the model is; words beyond the longest row are O."""
        framed = [self._frame(words) for words in sentences]
        found: dict[int, Said] = {}
        for at, features in self.features([(one.ids, len(one.ids)) for one in framed]):
            with self._settled():
                chances = self.model(features[framed[at].places]).log_softmax(-1).cpu()
            best = best_tags(chances, self._joins)
            sure = chances.gather(1, best[:, None])[:, 0].exp()
            rest = len(sentences[at]) - len(framed[at].places)
            names = [self.names[tag] for tag in best.tolist()] + [self.names[0]] * rest
            found[at] = names, sure.tolist() + [0.0] * rest
            advance(len(found) / len(framed))
        return [found[at] for at in range(len(framed))]

    def evaluate(self, split: Split, *, quick: bool = False, advance: Progress = quiet) -> dict[str, float]:
        sentences = self.parts[split].sentences
        sentences = sentences[:: max(1, -(-len(sentences) // QUICK)) if quick else 1]
        found = [tags for tags, _ in self._tags([one.words for one in sentences], advance)]
        wanted = [list(one.tags) for one in sentences]
        flat = [[tag for tags in side for tag in tags] for side in (found, wanted)]
        scores = {"accuracy": classification.accuracy(*flat)}
        result: dict[str, float] = {}
        if self.score == "f1":
            counted = tagging.score_entities(found, wanted)
            scores["f1"] = counted.f1
            result = {"precision": counted.all.precision, "recall": counted.all.recall}
        self.explained = {name: score.signature for name, score in scores.items()}
        return {**{name: score.value for name, score in scores.items()}, **result, "sentences": len(sentences)}

    def attention_snapshot(self) -> list[Prediction]:
        sentences = self.parts[Split.VALID].sentences
        chosen = [sentences[row].words for row in dict.fromkeys((0, len(sentences) // 2))]
        framed = [self._frame(words).ids for words in chosen]
        return [self.snapshot_of(" ".join(words), (ids, len(ids))) for words, ids in zip(chosen, framed, strict=True)]

    def predict(self, input: str, options: TagOptions) -> Prediction:
        """Every word with its tag; the scores say how sure the model is of the entities."""
        words = input.split()
        ((tags, sure),) = self._tags([words])
        scores = {
            f"{' '.join(words[one.start : one.end])} ({one.type})": min(sure[one.start : one.end])
            for one in (tagging.entities(tags) if self.score == "f1" else ())
        }
        framed = self._frame(words)
        maps = tuple(self.reads((framed.ids, len(framed.ids)))) if options.maps else ()
        output = " ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=True))
        return Prediction(input, output, scores, maps, trace=framed)

    def rerun(self, found: Prediction, *, layers: bool = False) -> ForwardTrace:
        framed: Framed = found.trace
        row = (framed.ids, len(framed.ids))
        logits, words, by_layer = self.asked(row, lambda x: self.model(x[framed.places]), layers=layers)
        places = Axis("words", tuple(found.input.split()[: len(framed.places)]))
        best = best_tags(logits.detach().log_softmax(-1).cpu(), self._joins).tolist()
        return ForwardTrace(logits, tuple(best), places, (words,), self.names.__getitem__, by_layer)


def _scheme(tagged: Tagged) -> tagging.Scheme | None:
    """The scheme that all sentences keep to; None: tags that are no entities, or that follow no scheme."""
    if not all(map(tagging.is_entity_tag, tagged.names)):
        return None
    found = tagging.find_scheme(one.tags for one in tagged.sentences)
    pairs = {pair for one in tagged.sentences for pair in pairwise(("O", *one.tags, "O"))}
    return found if all(tagging.may_follow(*pair, found) for pair in pairs) else None
