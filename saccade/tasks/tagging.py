"""Tagging: a tag for each word of a sentence, such as named entities or parts of speech."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from saccade.atomic_io import read_json, write_json
from saccade.core.attention import AttentionMaps
from saccade.core.axes import Role, StepAxis
from saccade.core.callback import Progress, ignore_progress
from saccade.core.evaluation import Evaluation, Metric
from saccade.core.fields import Text
from saccade.core.options import PredictOptions
from saccade.core.outputs import TagOutput
from saccade.core.prediction import ForwardTrace, OutputLayer, Prediction
from saccade.core.pretrained import Base, Pretrained
from saccade.core.source import Split
from saccade.core.task import even_sample
from saccade.data.batching import BucketedBatches
from saccade.data.fingerprints import fingerprint
from saccade.data.formats.tagged import Tagged, read_tagged
from saccade.data.settings import ValidationSplit
from saccade.data.splitting import SplitSettings
from saccade.data.text.tokenizers import Tokenizer
from saccade.decode.tags import viterbi
from saccade.metrics import classification, tagging
from saccade.models.text.bert import BertConfig, EncoderInputs
from saccade.models.text.heads import BertForTokenClassification
from saccade.pretrained.families.heads import Head
from saccade.tasks._encoder.inputs import (
    EncodedText,
    EncoderBatch,
    Lengths,
    check_outputs,
    count_tokens,
    pad_texts,
    shorten,
)
from saccade.tasks._encoder.labelled import LABELS
from saccade.tasks._encoder.task import EncoderConfig, EncoderTask, pretrained_length

QUICK_SENTENCES = 500  # number of sentences of a quick evaluation
UNTAGGED = "O"  # the tag of a truncated word in an evaluation


@dataclass(frozen=True)
class TaggedSettings(ValidationSplit):
    """Tagged words: one per line, the word first and the tag last, an empty line between sentences."""

    encoding: str = ""
    """encoding of the files, if not UTF-8"""


@dataclass(frozen=True)
class TaggingConfig(EncoderConfig):
    """All settings of a tagger except those of the training loop."""

    data: TaggedSettings = field(default_factory=TaggedSettings)


class EncodedWords(NamedTuple):
    """The token ids of a sentence and the position of the first token of each word; truncated words have none."""

    ids: list[int]
    positions: list[int]
    tokens: int
    """number of tokens of the whole sentence, special tokens included"""

    @property
    def text(self) -> EncodedText:
        return EncodedText(self.ids, len(self.ids))


class TaggedWords(NamedTuple):
    """The tag of each word of a sentence, with its probability."""

    tags: list[str]
    probabilities: list[float]


@dataclass(frozen=True)
class TagBatch(EncoderBatch):
    """Sentences with the tag of each word at its first token, -1 elsewhere."""

    inputs: EncoderInputs
    targets: Tensor  # (B, T)


class Task(EncoderTask):
    """An encoder with one output for each tag, at the first token of each word.

    Entity tags follow the scheme of the training data, such as no I- without a B- before it.
    """

    Config: ClassVar[type[Any]] = TaggingConfig
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "assign a tag to each word of a sentence, such as named entities"
    needs: ClassVar[str] = "a CoNLL file"
    inputs = (Text("text"),)

    def __init__(
        self,
        config: TaggingConfig,
        tokenizer: Tokenizer,
        shape: BertConfig,
        labels: Sequence[str],
        scheme: tagging.Scheme | None,
    ) -> None:
        super().__init__(config, tokenizer, shape)
        self.labels = tuple(labels)
        self.model: BertForTokenClassification = BertForTokenClassification(shape, tokenizer.size, len(self.labels))
        self.splits: dict[Split, Tagged] = {}
        self._encoded: dict[Split, list[EncodedWords]] = {}
        self.entities = all(map(tagging.is_entity_tag, self.labels))
        self.metric = Metric("f1" if self.entities else "accuracy", True, "%")
        tags = (*self.labels, "O")  # the tag before the first word and after the last is O
        self._allowed = [[scheme is None or tagging.may_follow(a, b, scheme) for b in tags] for a in tags]

    # Data

    @classmethod
    def prepare(
        cls, config: TaggingConfig, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        tagged = read_tagged(data, encoding=config.data.encoding or None, progress=progress)
        train = tagged if config.data.valid else tagged.split(SplitSettings(fraction=config.data.valid_fraction))[0]
        write_json(assets / LABELS, {"labels": list(tagged.names), "scheme": tag_scheme(train)})
        texts = (" ".join(sentence.words) for sentence in train.sentences)
        return [*tagged.notes(), *cls.write_encoder(config, texts, assets, base)]

    @classmethod
    def read_labels(cls, assets: Path) -> tuple[Any, ...]:
        label_info = read_json(assets / LABELS)
        return label_info["labels"], label_info["scheme"]

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        settings, encoding = self.config.data, self.config.data.encoding or None
        tagged = read_tagged(data, encoding=encoding, tags=self.labels, progress=progress)
        if eval_only:
            splits = {Split.VALID: tagged}
        elif settings.valid:
            valid = read_tagged(Path(settings.valid), encoding=encoding, tags=self.labels)
            splits = {Split.TRAIN: tagged, Split.VALID: valid}
        else:
            train, valid = tagged.split(SplitSettings(fraction=settings.valid_fraction))
            splits = {Split.TRAIN: train, Split.VALID: valid}
        self.splits, self._encoded = splits, {}
        counts = [len(split.sentences) for split in splits.values()]
        self.fingerprint = fingerprint(splits.values())
        if eval_only:
            return [f"sentences: {counts[0]:,}"]
        pairs = zip(self.encoded(Split.TRAIN), splits[Split.TRAIN].sentences, strict=True)
        truncated = sum(len(words.positions) < len(sentence.words) for words, sentence in pairs)
        notes = [f"sentences: {counts[0]:,} for training, {counts[1]:,} for validation"]
        if truncated:
            notes.append(f"{truncated:,} sentences have more than {self.template.max_length} tokens and are truncated")
        return notes

    def encode_words(self, words: Sequence[str]) -> EncodedWords:
        """Encode words one by one, each with a space before it if the tokenizer distinguishes that."""
        return self._build(self.tokenizer.encode_batch([f" {word}" if self._spaced else word for word in words]))

    @property
    def _spaced(self) -> bool:
        return self.tokenizer.kind != "wordpiece"

    def _build(self, words: Iterable[Sequence[int]]) -> EncodedWords:
        """Return the tokens of words as one row; words that do not fit are truncated."""
        template = self.template
        ids, positions, total, full = [template.cls_id], list[int](), template.special_count(1), False
        for pieces in words:
            # The normalizer can remove all characters of a word.
            tokens = list(pieces) or [self.tokenizer.specials.get("[UNK]", template.sep_id)]
            total += len(tokens)
            if not positions:  # at least one word is kept
                tokens = tokens[: template.max_length - template.special_count(1)]
            full = full or len(ids) + len(tokens) + 1 > template.max_length
            if full:
                continue
            positions.append(len(ids))
            ids += tokens
        return EncodedWords([*ids, template.sep_id], positions, total)

    def encoded(self, split: Split) -> list[EncodedWords]:
        """Return the encoded sentences of a split; they are encoded once."""
        if split not in self._encoded:
            words = self.splits[split].sentences.tokenize(self.tokenizer, spaced=self._spaced)
            self._encoded[split] = [self._build([ids.tolist() for ids in sentence]) for sentence in words]
        return self._encoded[split]

    def source(self, split: Split, seed: int) -> BucketedBatches:
        sentences, encoded = self.splits[split].sentences, self.encoded(split)
        label_ids = {label: index for index, label in enumerate(self.labels)}

        def collate(rows: list[int]) -> TagBatch:
            inputs = pad_texts([encoded[row].text for row in rows])
            targets = torch.full_like(inputs.ids, -1)
            for index, row in enumerate(rows):
                for position, tag in zip(encoded[row].positions, sentences[row].tags, strict=False):
                    targets[index, position] = label_ids[tag]
            return TagBatch(
                rows=[f"{sentences[row].file.name}:{sentences[row].lines[0]}" for row in rows],
                count=int((targets >= 0).sum()),
                units=count_tokens(inputs),
                inputs=inputs,
                targets=targets,
            )

        config, lengths = self.config, np.array([len(words.ids) for words in encoded], dtype=np.int64)
        return BucketedBatches(
            Lengths(lengths), collate, budget=config.batch_tokens, seed=seed, micro_batches=config.micro_batches
        )

    # Training and inference

    def losses(self, batch: TagBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        yield "model", networks["model"](batch.inputs, batch.targets)

    def tag(self, encoded: Sequence[EncodedWords], progress: Progress = ignore_progress) -> list[TaggedWords]:
        """Return the tags of sentences, in order, without those of truncated words."""
        allowed = torch.tensor(self._allowed)

        def compute(model: Any, inputs: EncoderInputs, rows: list[int]) -> Iterator[TaggedWords]:
            for row, logits in zip(rows, check_outputs(model(inputs)), strict=True):
                log_probs = logits[encoded[row].positions].log_softmax(-1).cpu()
                best = viterbi(log_probs, allowed)
                probabilities = log_probs.gather(1, best[:, None])[:, 0].exp()
                yield TaggedWords([self.labels[tag] for tag in best.tolist()], probabilities.tolist())

        return self.run_all([words.text for words in encoded], compute, progress)

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        count = len(self.splits[split].sentences)
        step = max(1, -(-count // QUICK_SENTENCES)) if quick else 1
        sentences, encoded = self.splits[split].sentences[::step], self.encoded(split)[::step]
        expected = [list(sentence.tags) for sentence in sentences]
        tagged = zip(self.tag(encoded, progress), expected, strict=True)
        predicted = [words.tags + [UNTAGGED] * (len(tags) - len(words.tags)) for words, tags in tagged]
        flat = [[tag for tags in side for tag in tags] for side in (predicted, expected)]
        scores = {"accuracy": classification.accuracy(*flat)}
        values: dict[str, float] = {}
        if self.entities:
            entities = tagging.score_entities(predicted, expected)
            scores["f1"] = entities.f1
            values = {"precision": entities.all.precision, "recall": entities.all.recall}
        values = {**{name: score.value for name, score in scores.items()}, **values, "sentences": len(sentences)}
        return Evaluation(values, {name: score.signature for name, score in scores.items()}, complete=step == 1)

    def validation_inputs(self, limit: int) -> list[dict[str, Any]]:
        sentences = self.splits[Split.VALID].sentences
        return [{"text": " ".join(sentences[row].words)} for row in even_sample(len(sentences), limit)]

    def attention_snapshot(self) -> list[Prediction]:
        sentences, encoded = self.splits[Split.VALID].sentences, self.encoded(Split.VALID)
        rows = dict.fromkeys((0, len(sentences) // 2))
        return [self.snapshot({"text": " ".join(sentences[row].words)}, encoded[row].text) for row in rows]

    def predict_rows(self, inputs: Sequence[Mapping[str, Any]], options: PredictOptions) -> Iterable[Prediction]:
        """Return every word with its tag; the scores are the lowest probability within each entity."""
        sentences = [example["text"].split() for example in inputs]
        encoded = [self.encode_words(words) for words in sentences]
        for example, words, tokens, (tags, probabilities) in zip(
            inputs, sentences, encoded, self.tag(encoded), strict=True
        ):
            scores = {
                f"{' '.join(words[entity.start : entity.end])} ({entity.type})": min(
                    probabilities[entity.start : entity.end]
                )
                for entity in (tagging.entities(tags) if self.entities else ())
            }
            attention = self.attention(tokens.text) if options.attention else AttentionMaps()
            output = TagOutput(tuple(words[: len(tags)]), tuple(tags), tuple(probabilities))
            notes = self._notes(example["text"], words, tokens)
            yield Prediction(example, output, scores, attention, trace=tokens, notes=notes)

    def _notes(self, text: str, words: Sequence[str], encoded: EncodedWords) -> tuple[str, ...]:
        """Return a note on the words that do not fit and have no tag."""
        if len(encoded.ids) == encoded.tokens:
            return ()
        words_note = f"{len(encoded.positions):,} of {len(words):,} words have a tag"
        cut = f"cut to {len(encoded.ids)} of {encoded.tokens} tokens: text {shorten(text)!r}"
        return (cut if len(encoded.positions) == len(words) else f"{cut}; {words_note}",)

    def count_tokens(self, text: str) -> int:
        words = self.tokenizer.encode_batch([f" {word}" if self._spaced else word for word in text.split()])
        return sum(max(1, len(pieces)) for pieces in words)

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        words: EncodedWords = prediction.trace
        logits, axis, by_layer = self.trace(words.text, lambda x: self.model.logits(x[words.positions]), layers=layers)
        positions = StepAxis(Role.LABEL, tuple(prediction.inputs["text"].split()[: len(words.positions)]))
        best = viterbi(logits.detach().log_softmax(-1).cpu(), torch.tensor(self._allowed)).tolist()
        output = OutputLayer("bert.encoder", self.model.logits)
        return ForwardTrace(logits, tuple(best), positions, (axis,), self.labels.__getitem__, by_layer, output)

    # Exchange

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Task:
        """Return a tagger whose tags may follow each other in any order: a config does not name their scheme."""
        head = cls.pretrained_head(pretrained)
        return cls.from_head(pretrained, TaggingConfig(max_length=pretrained_length(pretrained)), head.labels, None)

    def head(self) -> Head:
        return Head("tagging", self.labels)


def tag_scheme(tagged: Tagged) -> tagging.Scheme | None:
    """Return the tagging scheme of all sentences; None: the tags are not entities, or follow no scheme."""
    if not all(map(tagging.is_entity_tag, tagged.names)):
        return None
    scheme = tagging.find_scheme(sentence.tags for sentence in tagged.sentences)
    pairs = {pair for sentence in tagged.sentences for pair in pairwise(("O", *sentence.tags, "O"))}
    return scheme if all(tagging.may_follow(*pair, scheme) for pair in pairs) else None
