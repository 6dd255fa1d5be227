"""Translation: learn from pairs of texts to turn one into the other; scored in BLEU, chrF and exact match."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import shorten
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from saccade.core.task import (
    AttentionMap,
    ForwardTrace,
    GeneratedToken,
    Prediction,
    Progress,
    Split,
    TokenScores,
    quiet,
)
from saccade.core.task import Task as Contract
from saccade.data.batching import Buckets, length_groups
from saccade.data.formats.bitext import Bitext, BitextSettings, Reader, Sides, learn_vocabularies
from saccade.data.pair_batches import PairBatch, PairBatches, make_batch
from saccade.data.text.axes import token_axis
from saccade.data.text.tokenizers import BEGIN, END, StreamDecoder
from saccade.decode.search import Hypothesis, Search, search
from saccade.errors import DataError
from saccade.look import maps as looks
from saccade.metrics import generation
from saccade.models import presets
from saccade.models.seq2seq.architectures import Seq2SeqConfig, build
from saccade.models.seq2seq.decoder_only import DecoderOnly
from saccade.models.seq2seq.interface import DecoderState, Seq2Seq, Vocabularies
from saccade.nn.kernels import consistent_loss, token_loss
from saccade.nn.packed import packed
from saccade.nn.probe import RecordedRow, watch
from saccade.nn.transformer import residuals

QUICK = 500  # pairs of a quick evaluation
STUDIED = 100  # pairs that show which head aligns words
ROWS = 64  # sentences translated at once,
POSITIONS = 1 << 14  # and their tokens with padding
PACKED = 8  # sentences for which packing the weights pays


@dataclass(frozen=True)
class TranslationConfig:
    """All settings of a translator but those of the training loop."""

    model: Seq2SeqConfig = field(default_factory=Seq2SeqConfig)
    data: BitextSettings = field(default_factory=BitextSettings)
    search: Search = field(default_factory=Search)
    tokens: int = 3000
    """positions of one step, source and target with their padding"""
    parts: int = 1
    """parts a step is computed in, one after the other, to save memory; the result is the same"""
    smoothing: float = 0.1
    """label smoothing: share of the target's probability that goes to all tokens alike"""
    consistency: float = 0.0
    """read each pair twice under different dropout and pull the two answers together with this weight (R-Drop): twice
    the work a step, better scores on small data in long runs"""

    def __post_init__(self) -> None:
        for name in ("tokens", "parts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if self.consistency and any(getattr(shape, "head_bias", False) for shape in vars(self.model).values()):
            raise ValueError("head_bias must be false with consistency, but is true")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing must be at least 0 and below 1, but is {self.smoothing}")
        if self.consistency < 0:
            raise ValueError(f"consistency must be 0 or more, but is {self.consistency}")
        for name in ("transformer", "universal"):
            shape, max_length = getattr(self.model, name), self.data.max_length
            if shape.position == "learned" and shape.max_positions <= max_length:
                raise ValueError(
                    f"model.{name}.max_positions must be above data.max_length ({max_length}) for learned positions, "
                    f"but is {shape.max_positions}"
                )


@dataclass(frozen=True)
class TranslationOptions(Search):
    """How one text is translated."""

    prefix: str = ""
    """how the output must begin"""
    target: str = ""
    """score this translation, and say what the model would have said after each of its words (teacher forcing)"""
    maps: bool = True
    """keep the attention of every layer and head"""


class Task(Contract):
    """Any of the architectures, on pairs of texts."""

    Config: ClassVar[type[Any]] = TranslationConfig
    Options: ClassVar[type[Any]] = TranslationOptions
    presets: ClassVar[dict[str, Any]] = presets.TRANSLATION
    summary: ClassVar[str] = "learn from pairs of texts to turn one into the other"
    score = "bleu"

    def __init__(self, config: Any, reader: Reader | Sides, marks: tuple[int, int, int] | None = None) -> None:
        """`marks`: what ends a source, begins a target and ends it, where the vocabularies do not say so."""
        self.config, self.reader = config, cast(Reader, reader)  # only what comes from files needs all of it
        source, target = reader.source, reader.target
        self.model: Seq2Seq = build(config.model, Vocabularies(source.size, target.size, reader.joint))
        self.marks = marks or (source.specials[END], target.specials[BEGIN], target.specials[END])
        self.parts: dict[Split, Bitext] = {}
        self.gold: list[set[tuple[int, int]]] = []
        if target.kind != "bpe":  # spellings, phonemes, dates: all or nothing
            self.score = "exact"

    @classmethod
    def prepare(cls, config: Any, data: Path, assets: Path, advance: Progress = quiet) -> list[str]:
        return learn_vocabularies(config.data, data, assets, advance)

    @classmethod
    def open(cls, config: Any, assets: Path) -> Task:
        return cls(config, Reader(config.data, assets))

    def load_data(self, data: Path, advance: Progress = quiet, *, whole: bool = False) -> list[str]:
        if whole:
            self.parts = {Split.VALID: self.reader.whole(data, advance)}
            return [f"pairs: {len(self.parts[Split.VALID]):,}"]
        train, valid = self.reader.split(data, advance)
        self.parts = {Split.TRAIN: train, Split.VALID: valid}
        for split, part in self.parts.items():
            if not len(part):
                raise DataError(
                    f"{data}: the {split} part has no pairs, expected at least one; give more pairs, or --valid FILE"
                )
        self.fingerprint, self.gold = train.fingerprint(), self._gold(valid)
        tokens = int(train.source.lengths.sum() + train.target.lengths.sum())
        return [
            f"pairs: {len(train):,} ({tokens:,} tokens) to train on, {len(valid):,} held back",
            *self.reader.notes(),
        ]

    def batches(self, split: Split, seed: int) -> PairBatches:
        pairs = self.parts[split]
        buckets = Buckets(pairs.source.lengths + 1, pairs.target.lengths + 1, self.config.tokens, seed)
        return PairBatches(pairs, buckets, self.marks, self.config.parts)

    def losses(self, batch: PairBatch) -> Iterator[tuple[str, Tensor]]:
        if self.config.consistency:
            batch = batch.twice()
        loss, memory = self._loss(batch, self.config.smoothing, self.config.consistency)
        for halting, real in zip(memory.halting, (batch.keep, batch.labels >= 0), strict=False):
            loss = loss + self.config.model.universal.ponder * halting.cost[real].sum() / batch.count
        yield "model", loss

    def _loss(self, batch: PairBatch, smoothing: float = 0.0, consistency: float = 0.0) -> tuple[Tensor, Any]:
        """The mean loss over real targets; only they go through the output layer."""
        memory = self.model.encode(batch.source, batch.keep)
        real = batch.labels >= 0
        features = self.model.decode(batch.inputs, memory)[real]  # (count, D)
        head, labels = self.model.head, batch.labels[real]
        if consistency:
            return consistent_loss(features, head.weight, labels, smoothing, consistency), memory
        return token_loss(features, head.weight, labels, smoothing, head.bias), memory

    @torch.no_grad()
    def evaluate(self, split: Split, *, quick: bool = False, advance: Progress = quiet) -> dict[str, float]:
        """Scores of translations made by the search; quick: greedy, on an even sample of the pairs."""
        pairs = self.parts[split]
        rows = np.arange(len(pairs))[:: max(1, -(-len(pairs) // QUICK))] if quick else np.arange(len(pairs))
        sources = [pairs.source[row].tolist() for row in rows]
        found = self._search(
            sources, replace(self.config.search, beam=1, best=1) if quick else self.config.search, advance=advance
        )
        outputs = [self._text(hypotheses[0]) for hypotheses in found]
        references = [self._reference(pairs, row) for row in rows]
        scores = self._scores(outputs, references)
        self.explained = {name: score.signature for name, score in scores.items()}
        loss = self._valid_loss(pairs, rows)
        return {**{name: score.value for name, score in scores.items()}, "loss": loss, "pairs": len(rows)}

    def _reference(self, pairs: Bitext, row: int) -> str:
        """The true target of a pair; made of its tokens where the text was not kept, as for training pairs."""
        return pairs.texts[row][1] if pairs.texts else self.reader.target.decode(pairs.target[row].tolist()).strip()

    def _scores(self, outputs: list[str], references: list[str]) -> dict[str, generation.Score]:
        """What the outputs are worth; for spellings and the like the share of wrong tokens takes the place of BLEU."""
        exact = generation.exact(outputs, references)
        if self.score == "exact":
            return {"exact": exact, "token_error": generation.token_error(outputs, references)}
        return {
            "bleu": generation.bleu(outputs, references),
            "bleu_lowercase": generation.bleu(outputs, references, lowercase=True),
            "chrf": generation.chrf(outputs, references),
            "exact": exact,
        }

    def _valid_loss(self, pairs: Bitext, rows: Any) -> float:
        """Cross-entropy of the references, without smoothing."""
        total, count = 0.0, 0
        lengths = pairs.source.lengths[rows] + pairs.target.lengths[rows]
        with self._settled():
            for group in length_groups(lengths.tolist(), ROWS, POSITIONS):
                batch = make_batch(pairs, rows[group], self.marks).to(self._device())
                total += float(self._loss(batch)[0]) * batch.count
                count += batch.count
        return total / count

    def predict(self, input: str, options: TranslationOptions) -> Prediction:
        return next(self.predict_all([input], options))

    def predict_all(self, inputs: Sequence[str], options: TranslationOptions) -> Iterator[Prediction]:
        """Answers in the order of the inputs; they are worked on in groups of like length."""
        sources = self.reader.encode(inputs)
        if options.target:
            target = self.reader.target.encode(options.target)
            yield from (self._forced(text, ids, target, options) for text, ids in zip(inputs, sources, strict=True))
            return
        prefix = self.reader.target.encode(options.prefix) if options.prefix else []
        found = self._search(sources, options, prefix)
        for text, ids, hypotheses in zip(inputs, sources, found, strict=True):
            first, *rest = [self._prediction(text, ids, one, options) for one in hypotheses]
            yield Prediction(**{**vars(first), "others": tuple(rest)})

    def sample(self) -> str:
        pairs = self.parts[Split.VALID]
        rows = [0, len(pairs) // 2]
        found = self._search([pairs.source[row].tolist() for row in rows], replace(self.config.search, beam=1, best=1))
        texts = [self._text(one[0]) for one in found]
        sources = [shorten(pairs.texts[row][0], 120, placeholder=" ...") for row in rows]
        return "\n".join(f"{source} -> {text}" for source, text in zip(sources, texts, strict=True))

    @torch.no_grad()
    def follow(self, input: str, options: TranslationOptions) -> Iterator[GeneratedToken]:
        """The most likely target token by token, with how each looked at the source."""
        (source,) = self.reader.encode([input])
        stop, begin, end = self.marks
        prompt = tuple(self.reader.source.pieces([*source, stop]))
        decoded, max_length = StreamDecoder(self.reader.target), self._longest(len(source) + 1)
        with self._settled(), self._watched() as maps:
            writing = DecoderState(self.model, self.model.encode(*self._source(source)), max_length + 1)
            reads = {name: RecordedRow(found, 0) for name, found in maps.items() if _crosses(name)}
            token = begin
            for _ in range(max_length):
                token = int(writing.step(torch.tensor([[token]])).argmax())
                if token == end:
                    break
                yield GeneratedToken(self.reader.target.pieces([token])[0], decoded.feed(token), reads, prompt)

    def attention_snapshot(self) -> list[Prediction]:
        pairs = self.parts[Split.VALID]
        rows = dict.fromkeys((0, len(pairs) // 2))
        ids = ((pairs.texts[row][0], pairs.source[row].tolist(), pairs.target[row].tolist()) for row in rows)
        return [self._forced(*one, TranslationOptions()) for one in ids]

    @torch.no_grad()
    def analyse(self) -> dict[str, Any]:
        """Which head aligns words best, judged on the validation pairs."""
        pairs = self.parts[Split.VALID]
        rows = range(0, len(pairs), max(1, len(pairs) // STUDIED))
        ids = ((pairs.source[row].tolist(), pairs.target[row].tolist()) for row in rows)
        crossing = [
            [looks.inside(read) for read in looks.crossing(self._reads(source, target)[0])] for source, target in ids
        ]
        known = [self.gold[row] for row in rows] if self.gold else None
        return {"alignment": vars(looks.choose(crossing, known))} if crossing[0] else {}

    def _gold(self, pairs: Bitext) -> list[set[tuple[int, int]]]:
        """The true alignments of the validation pairs, where a file gives them."""
        name = self.config.data.alignments
        if not name:
            return []
        try:
            lines = Path(name).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{name}: cannot be read ({error}); data.alignments must name a text file") from error
        if len(lines) != len(pairs):
            raise DataError(
                f"{name}: {len(lines):,} lines, expected one for each of the {len(pairs):,} validation pairs"
            )
        return [looks.parse(line) for line in lines]

    def _search(
        self, sources: Sequence[list[int]], settings: Search, prefix: Sequence[int] = (), advance: Progress = quiet
    ) -> list[list[Hypothesis]]:
        """The best targets of each source; sources of like length are searched together."""
        found: dict[int, list[Hypothesis]] = {}
        stop, begin, end = self.marks
        rows = min(len(sources), ROWS) * settings.beam
        fast = packed(self.model, rows) if len(sources) >= PACKED else nullcontext()
        with self._settled(), torch.no_grad(), fast:
            for group in length_groups([len(source) for source in sources], ROWS, POSITIONS):
                read = [[*sources[at], stop] for at in group]
                width = max(map(len, read))
                ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in read], device=self._device())
                keep = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in read])
                max_length = [len(prefix) + self._longest(len(row)) for row in read]
                writing = DecoderState(self.model, self.model.encode(ids, keep.to(ids.device)), max(max_length) + 1)
                hypotheses = search(
                    writing, max_length, begin=begin, end=end, settings=settings, prefixes=[prefix] * len(group)
                )
                found.update(zip(group, hypotheses, strict=True))
                advance(len(found) / len(sources))
        return [found[at] for at in range(len(sources))]

    def _longest(self, source: int) -> int:
        """Most tokens written for a source of this many."""
        return 2 * source + 20

    def _prediction(self, text: str, source: list[int], found: Hypothesis, options: TranslationOptions) -> Prediction:
        scores = {"log_probability": found.log_probability, "score": found.score}
        output = self._text(found)
        trace = (source, list(found.ids))
        if not options.maps:
            return Prediction(text, output, scores, trace=trace)
        reads, readings = self._reads(*trace)
        return Prediction(text, output, scores, tuple(reads), tuple(readings), self._alignment(reads), trace=trace)

    def rerun(self, found: Prediction, *, layers: bool = False) -> ForwardTrace:
        source, target = found.trace
        stop, begin, end = self.marks
        reader = self.reader
        with self._settled(), residuals(self.model.decoder, layers) as states:
            ids = torch.tensor([[begin, *target]], device=self._device())
            logits = self.model(*self._source(source), ids)[0]  # (T, V)
            # The last ones, since source and target may be in one row.
            by_layer = tuple((f"decoder.{at}", self.model.head(x)[0, -len(logits) :]) for at, x in enumerate(states))
        axes = (
            token_axis("source", reader.source, [*source, stop]),
            token_axis("target", reader.target, [begin, *target]),
        )
        places = token_axis("target", reader.target, [*target, end])
        return ForwardTrace(logits, (*target, end), places, axes, lambda one: reader.target.pieces([one])[0], by_layer)

    def _forced(self, text: str, source: list[int], target: list[int], options: TranslationOptions) -> Prediction:
        """What the model says after each beginning of a given translation, and how likely that translation is."""
        _, begin, end = self.marks
        with self._settled(), torch.no_grad():
            ids, keep = self._source(source)
            inputs = torch.tensor([[begin, *target]], device=ids.device)
            chances = self.model(ids, keep, inputs).log_softmax(-1)[0]  # (T, V)
            labels = torch.tensor([*target, end], device=ids.device)
            total = float(chances.gather(1, labels[:, None]).sum())
            said = [token for token in chances.argmax(-1).tolist() if token != end]
        scores = {"log_probability": total, "perplexity": math.exp(min(700.0, -total / len(labels)))}
        reads, readings = self._reads(source, target) if options.maps else ([], [])
        output, trace = self.reader.target.decode(said).strip(), (source, target)
        return Prediction(text, output, scores, tuple(reads), tuple(readings), self._alignment(reads), trace=trace)

    def _reads(self, source: list[int], target: list[int]) -> tuple[list[AttentionMap], list[TokenScores]]:
        """Every attention of reading the source and writing the target, and the steps of tokens that may halt."""
        stop, begin, end = self.marks
        read = token_axis("source", self.reader.source, [*source, stop])
        written = token_axis("target", self.reader.target, [*target, end])
        given = token_axis("target", self.reader.target, [begin, *target])
        with self._settled(), torch.no_grad(), self._watched() as maps:
            ids, keep = self._source(source)
            memory = self.model.encode(ids, keep)
            self.model.decode(torch.tensor([[begin, *target]], device=ids.device), memory)
            reads = []
            for name, found in maps.items():
                if isinstance(self.model, DecoderOnly):  # source and target in one row
                    seen = self.model.on_source(name, found.rows(len(read.labels))[0], len(read.labels))
                    reads.append(AttentionMap(name, seen.cpu(), written, read))
                    continue
                crossing = _crosses(name)
                own = read if name.startswith("encoder") else given
                axes = (written, read) if crossing else (own, own)
                reads.append(AttentionMap(name, RecordedRow(found, 0), *axes))
        axes = (read, given)
        steps = [halting.steps[0].tolist() for halting in memory.halting]
        return reads, [TokenScores("steps", axis, tuple(values)) for axis, values in zip(axes, steps, strict=False)]

    @contextmanager
    def _watched(self) -> Iterator[Any]:
        """The maps of the model; none where it has no attention."""
        if not any(hasattr(module, "weights") for module in self.model.modules()):
            yield {}
            return
        with watch(self.model) as maps:
            yield maps

    def _alignment(self, reads: Sequence[AttentionMap]) -> AttentionMap | None:
        """The cross-attention that shows best which source words an output word comes from."""
        crossing = looks.crossing(reads)
        if not crossing:
            return None
        choice = self.analysis.get("alignment", {})
        read = next((read for read in crossing if read.name == choice.get("name")), crossing[-1])
        head = choice.get("head")
        return looks.inside(looks.mean_heads(read) if head is None else looks.one_head(read, head))

    def _source(self, source: list[int]) -> tuple[Tensor, Tensor]:
        ids = torch.tensor([[*source, self.marks[0]]], device=self._device())
        return ids, torch.ones_like(ids, dtype=torch.bool)

    def _text(self, found: Hypothesis) -> str:
        return self.reader.target.decode(found.ids).strip()


def _crosses(name: str) -> bool:
    """Whether an attention of this name looks from the target at the source."""
    return name.endswith("cross") or name == "attention"
