"""Translation: sequence to sequence on pairs of texts; scored in BLEU, chrF and exact match."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from saccade.core import InputLength
from saccade.core import Task as CoreTask
from saccade.core.attention import AttentionMaps
from saccade.core.callback import Progress, ignore_progress
from saccade.core.evaluation import Evaluation
from saccade.core.fields import Field, Text
from saccade.core.generation import ROWS as ENGINE_ROWS
from saccade.core.generation import StreamControl
from saccade.core.outputs import TextOutput
from saccade.core.prediction import ForwardTrace, GeneratedToken, OutputLayer, Prediction
from saccade.core.pretrained import Base, Pretrained
from saccade.core.source import Split
from saccade.core.task import even_sample
from saccade.data.batching import BucketedBatches, length_groups
from saccade.data.fingerprints import fingerprint
from saccade.data.formats.bitext import Bitext, PairBatch, PairReader, collate_pairs, train_tokenizers
from saccade.data.text.unknown_words import unknown_note
from saccade.decode.search import Hypothesis, Search
from saccade.errors import DataError, UsageError
from saccade.metrics import generation
from saccade.metrics.alignment import choose_alignment_head, cross_attention, parse_alignment, strip_ends
from saccade.models import presets
from saccade.models.seq2seq.architectures import Seq2SeqConfig, build
from saccade.models.seq2seq.interface import Seq2Seq, Seq2SeqLoss, Vocabularies
from saccade.nn.transformer import layer_outputs
from saccade.pretrained.processors import TextProcessor
from saccade.tasks._pretrained import cannot_run
from saccade.tasks._seq2seq.attention import alignment_map, attention_maps, source_tensors
from saccade.tasks._seq2seq.engine import Seq2SeqEngine
from saccade.tasks._seq2seq.searching import POSITIONS, ROWS, cut_note, search_targets, stream_target
from saccade.tasks._seq2seq.settings import METRICS, TranslationConfig, TranslationOptions
from saccade.tasks._seq2seq.tokenizers import PairTokenizers, SpecialIds
from saccade.tasks._texts import require_tokens

QUICK_PAIRS = 500  # of a quick evaluation
ALIGNMENT_PAIRS = 100  # that determine which head aligns words
CHUNK = 1024  # inputs searched before the first predictions are yielded
NEVER = -1e4  # bias of a token that is never generated
MAX_SOURCE = 1024  # tokens of a source that the engine encodes, where the model has no limit of its own


class Task(CoreTask):
    """Any sequence-to-sequence architecture on pairs of texts."""

    Config: ClassVar[type[Any]] = TranslationConfig
    Options: ClassVar[type[Any]] = TranslationOptions
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = presets.TRANSLATION
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "translate, from pairs of texts"
    inputs: tuple[Field, ...] = (Text("source", help="text to translate"),)
    metric = METRICS["bleu"]

    def __init__(
        self, config: Any, tokenizers: PairTokenizers, reader: PairReader | None = None, model: Seq2Seq | None = None
    ) -> None:
        """Use the network `model`, or build a new one; `reader` reads files of pairs (None: no data can be loaded)."""
        self.config, self.tokenizers, self.reader = config, tokenizers, reader
        if model is None:
            sizes = Vocabularies(tokenizers.source.size, tokenizers.target.size, tokenizers.joint)
            model = build(config.model, sizes)
        self.model: Seq2Seq = model
        self.splits: dict[Split, Bitext] = {}
        self.gold: list[set[tuple[int, int]]] = []
        if tokenizers.target.kind != "bpe":  # spellings, phonemes, dates: exact match
            self.metric = METRICS["exact"]

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        if base is not None:
            raise UsageError(f"{cls.__module__.rpartition('.')[2]} cannot be fine-tuned from a pretrained model yet")
        return train_tokenizers(config.data, data, assets, progress)

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        reader = PairReader(config.data, assets)
        return cls(config, cls._tokenizers(config, reader), reader)

    @staticmethod
    def _tokenizers(config: Any, reader: PairReader) -> PairTokenizers:
        return PairTokenizers.of(reader.source, reader.target, config.data.max_length if config.data.truncate else None)

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        if self.reader is None:
            raise UsageError("this model has no settings of how to read files of pairs, so it cannot be evaluated")
        if eval_only:
            self.splits = {Split.VALID: self.reader.read_all(data, progress)}
            return [f"pairs: {len(self.splits[Split.VALID]):,}"]
        train, valid = self.reader.split(data, progress)
        self.splits = {Split.TRAIN: train, Split.VALID: valid}
        for split, pairs in self.splits.items():
            if not len(pairs):
                raise DataError(
                    f"{data}: the {split} part has no pairs, expected at least one; give more pairs, or --valid FILE"
                )
        self.gold = self._gold_alignments(valid)
        self.fingerprint = fingerprint((train, valid))
        tokens = int(train.source.lengths.sum() + train.target.lengths.sum())
        return [
            f"pairs: {len(train):,} ({tokens:,} tokens) for training, {len(valid):,} for validation",
            *self.reader.notes(),
            *self.reader.unknown_notes(train, "training"),
            *self.reader.unknown_notes(valid, "validation"),
        ]

    def source(self, split: Split, seed: int) -> BucketedBatches:
        pairs, config, special = self.splits[split], self.config, self.tokenizers.special
        return BucketedBatches(
            pairs,
            lambda rows: collate_pairs(pairs, rows, special),
            budget=config.batch_tokens,
            seed=seed,
            micro_batches=config.micro_batches,
        )

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    def losses(self, batch: PairBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        config = self.config
        loss = Seq2SeqLoss(config.label_smoothing, config.consistency, config.model.universal.ponder)
        yield "model", networks["model"](batch.source, batch.keep, batch.inputs, batch.labels, loss)

    @torch.no_grad()
    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        """Score the outputs of the search; quick: greedy, on an even sample of the pairs."""
        pairs = self.splits[split]
        rows = np.arange(len(pairs))[:: max(1, -(-len(pairs) // QUICK_PAIRS)) if quick else 1]
        sources = [pairs.source[row].tolist() for row in rows]
        settings = replace(self.config.search, beam=1, n_best=1) if quick else self.config.search
        hypotheses = self._search(sources, settings, progress=progress)
        outputs = [self.tokenizers.output.decode(best.ids) for best, *_ in hypotheses]
        scores = self._scores(outputs, [pairs.texts[row][1] for row in rows])
        values = {name: score.value for name, score in scores.items()}
        return Evaluation(
            {**values, "loss": self._mean_loss(pairs, rows), "pairs": len(rows)},
            {name: score.signature for name, score in scores.items()},
            notes=() if self.reader is None else tuple(self.reader.unknown_notes(pairs, "evaluated")),
            complete=len(rows) == len(pairs) and settings.beam == self.config.search.beam,
        )

    def _scores(self, outputs: list[str], references: list[str]) -> dict[str, generation.Score]:
        """Score outputs; with exact match as the main metric, the token error rate replaces BLEU."""
        exact = generation.exact(outputs, references)
        if self.metric.name == "exact":
            return {"exact": exact, "token_error": generation.token_error(outputs, references)}
        return {
            "bleu": generation.bleu(outputs, references),
            "bleu_lowercase": generation.bleu(outputs, references, lowercase=True),
            "chrf": generation.chrf(outputs, references),
            "exact": exact,
        }

    def _mean_loss(self, pairs: Bitext, rows: Any) -> float:
        """Return the cross-entropy of the references per token, without smoothing."""
        total, count = 0.0, 0
        lengths = pairs.source.lengths[rows] + pairs.target.lengths[rows]
        for group in length_groups(lengths.tolist(), ROWS, POSITIONS):
            batch = collate_pairs(pairs, rows[group], self.tokenizers.special).to(self.device())
            total += float(self.model(batch.source, batch.keep, batch.inputs, batch.labels)) * batch.count
            count += batch.count
        return total / count

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        name = self.inputs[0].name
        prefix = self.tokenizers.target.encode(options.prefix) if options.prefix else []
        notes = unknown_note(self.tokenizers.target, options.target or options.prefix)
        for examples in (inputs[first : first + CHUNK] for first in range(0, len(inputs), CHUNK)):
            sources = self._sources([example[name] for example in examples])
            if options.target:
                target = self.tokenizers.target.encode(options.target)
                for example, source in zip(examples, sources, strict=True):
                    scored = self._score_target(example, source, target, options.attention)
                    yield replace(scored, notes=scored.notes + notes)
                continue
            hypotheses = self._search(sources, options, prefix)
            for example, source, group in zip(examples, sources, hypotheses, strict=True):
                best, *others = [self._prediction(example, source, target, options.attention) for target in group]
                yield replace(best, alternatives=tuple(others), notes=best.notes + notes + cut_note(group[0]))

    def _sources(self, texts: Sequence[str]) -> list[list[int]]:
        sources = self.tokenizers.encode_sources(texts)
        for text, source in zip(texts, sources, strict=True):
            require_tokens(self.inputs[0].name, text, source)
        return sources

    def input_lengths(self, inputs: Mapping[str, Any], options: Any) -> list[InputLength]:
        """Return the lengths with end tokens; a pair with a longer side was not in the training data."""
        limit = self.config.model.transformer.max_positions if self.reader is None else self.config.data.max_length + 1
        name, tokenizers = self.inputs[0].name, self.tokenizers
        tokens = {name: tokenizers.source.encode(inputs[name])}
        tokens |= {side: tokenizers.target.encode(getattr(options, side)) for side in ("prefix", "target")}
        return [InputLength(side, len(ids) + 1, limit) for side, ids in tokens.items()]

    def stream(
        self, inputs: Mapping[str, Any], options: Any, control: StreamControl | None = None
    ) -> Iterator[GeneratedToken]:
        (source,) = self._sources([inputs[self.inputs[0].name]])
        prefix = self.tokenizers.target.encode(options.prefix) if options.prefix else []
        given = prefix if control is None or not control.given else control.given
        beyond = len(given) - len(prefix)
        return stream_target(
            self.model,
            self.tokenizers,
            source,
            options,
            lambda length: max(1, self._max_target(length) - beyond),
            prefix=given,
            attention=options.attention,
        )

    def sample(self) -> str:
        pairs = self.splits[Split.VALID]
        rows = [0, len(pairs) // 2]
        settings = replace(self.config.search, beam=1, n_best=1)
        hypotheses = self._search([pairs.source[row].tolist() for row in rows], settings)
        outputs = [self.tokenizers.output.decode(best.ids) for best, *_ in hypotheses]
        sources = [shorten(pairs.texts[row][0], 120, placeholder=" ...") for row in rows]
        return "\n".join(f"{source} -> {output}" for source, output in zip(sources, outputs, strict=True))

    def validation_inputs(self, limit: int) -> list[dict[str, Any]]:
        texts, name = self.splits[Split.VALID].texts, self.inputs[0].name
        return [{name: texts[row][0]} for row in even_sample(len(texts), limit)]

    def attention_snapshot(self) -> list[Prediction]:
        pairs, name = self.splits[Split.VALID], self.inputs[0].name
        rows = dict.fromkeys((0, len(pairs) // 2))
        return [
            self._score_target(
                {name: pairs.texts[row][0]}, pairs.source[row].tolist(), pairs.target[row].tolist(), attention=True
            )
            for row in rows
        ]

    def analyse(self) -> dict[str, Any]:
        """Return the head that aligns words best on the validation pairs."""
        pairs = self.splits[Split.VALID]
        rows = range(0, len(pairs), max(1, len(pairs) // ALIGNMENT_PAIRS))
        sentences = []
        for row in rows:
            maps, _ = self._attention(pairs.source[row].tolist(), pairs.target[row].tolist())
            sentences.append([strip_ends(attention) for attention in cross_attention(maps)])
        gold = [self.gold[row] for row in rows] if self.gold else None
        return {"alignment": vars(choose_alignment_head(sentences, gold))} if sentences[0] else {}

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        source, target = prediction.trace
        special, tokenizers = self.tokenizers.special, self.tokenizers
        with layer_outputs(self.model.decoder, layers) as states:
            ids = torch.tensor([[special.target_start, *target]], device=self.device())
            logits = self.model(*source_tensors(self.model, tokenizers, source), ids)[0]  # (T, V)
            # Only the last positions, since source and target may be one sequence.
            by_layer = tuple((f"decoder.{at}", self.model.head(x)[0, -len(logits) :]) for at, x in enumerate(states))
        return ForwardTrace(
            logits,
            (*target, special.target_end),
            tokenizers.output.output_axis(target),
            (tokenizers.source_axis(source), tokenizers.output.input_axis(target)),
            lambda token: tokenizers.target.pieces([token])[0],
            by_layer,
            OutputLayer("decoder", self.model.head),
        )

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Self:
        """Return a translator with the special tokens of its own vocabulary; the start token is never generated."""
        processor, network = pretrained.processor, pretrained.network
        if not isinstance(network, Seq2Seq):
            raise cannot_run(pretrained, "translation")
        if processor.decoder_start_id is None or not processor.eos_ids:
            raise UsageError("config.json must have decoder_start_token_id and eos_token_id, but does not have both")
        end = processor.eos_ids[0]
        if len(processor.eos_ids) > 1:
            ends = ", ".join(map(str, processor.eos_ids))
            raise UsageError(f"eos_token_id must be one id for a translator, but is {ends}; choose another model")
        special = SpecialIds(end, processor.decoder_start_id, end)
        tokenizers = PairTokenizers(processor.tokenizer, processor.target_tokenizer or processor.tokenizer, special)
        if network.head.bias is not None and special.target_start != special.target_end:
            network.head.bias.data[special.target_start] = NEVER
        config = cls.Config(model=Seq2SeqConfig(transformer=pretrained.config))
        return cls(config, tokenizers, model=network)

    def to_pretrained(self) -> Pretrained:
        model, tokenizers = self.config.model, self.tokenizers
        shape = getattr(model, "rnn" if model.architecture.startswith("rnn") else model.architecture)
        special = tokenizers.special
        processor = TextProcessor(
            tokenizers.source,
            None if tokenizers.joint else tokenizers.target,
            eos_ids=(special.target_end,),
            decoder_start_id=special.target_start,
        )
        return Pretrained(self.model, shape, processor, None, type(self).__module__.rpartition(".")[2])

    def _gold_alignments(self, pairs: Bitext) -> list[set[tuple[int, int]]]:
        """Return the gold alignments of the validation pairs, if there is a file of them."""
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
        return [parse_alignment(line) for line in lines]

    def _search(
        self,
        sources: Sequence[list[int]],
        settings: Search,
        prefix: Sequence[int] = (),
        progress: Progress = ignore_progress,
    ) -> list[list[Hypothesis]]:
        return search_targets(
            self.model, sources, self.tokenizers, settings, self._max_target, prefix=prefix, progress=progress
        )

    def engine(self, rows: int | None = None) -> Seq2SeqEngine:
        context = self.tokenizers.max_source or MAX_SOURCE
        return Seq2SeqEngine(self.model, self.tokenizers, rows or ENGINE_ROWS, context, self._max_target)

    def _max_target(self, source: int) -> int:
        """Return the maximum number of target tokens for a source of some length."""
        return 2 * source + 20

    def _attention(self, source: list[int], target: list[int]) -> tuple[AttentionMaps, tuple[Any, ...]]:
        return attention_maps(self.model, self.tokenizers, source, target)

    def _prediction(
        self, example: Mapping[str, Any], source: list[int], hypothesis: Hypothesis, attention: bool
    ) -> Prediction:
        scores = {"log_probability": hypothesis.log_probability, "score": hypothesis.score}
        output = TextOutput(self.tokenizers.output.decode(hypothesis.ids))
        return self._with_attention(example, output, scores, (source, list(hypothesis.ids)), attention)

    @torch.no_grad()
    def _score_target(
        self, example: Mapping[str, Any], source: list[int], target: list[int], attention: bool
    ) -> Prediction:
        """Return the most likely token after each prefix of a given target, and the probability of the target."""
        special = self.tokenizers.special
        ids, keep = source_tensors(self.model, self.tokenizers, source)
        logits = self.model(ids, keep, torch.tensor([[special.target_start, *target]], device=ids.device))
        log_probs = logits.log_softmax(-1)[0]  # (T, V)
        labels = torch.tensor([*target, special.target_end], device=ids.device)
        total = float(log_probs.gather(1, labels[:, None]).sum())
        best = [token for token in log_probs.argmax(-1).tolist() if token != special.target_end]
        scores = {"log_probability": total, "perplexity": math.exp(min(700.0, -total / len(labels)))}
        output = TextOutput(self.tokenizers.output.decode(best))
        return self._with_attention(example, output, scores, (source, target), attention)

    def _with_attention(
        self,
        example: Mapping[str, Any],
        output: TextOutput,
        scores: Mapping[str, float],
        trace: tuple[list[int], list[int]],
        attention: bool,
    ) -> Prediction:
        maps, token_scores = self._attention(*trace) if attention else (AttentionMaps(), ())
        alignment = alignment_map(maps, self.analysis.get("alignment", {}))
        notes = unknown_note(self.tokenizers.source, example[self.inputs[0].name])
        return Prediction(example, output, scores, maps, token_scores, alignment, trace=trace, notes=notes)
