"""To-text task: base class of tasks that write a text about an image or a sound: search, attention and explanations.

Shapes: B rows, N positions of the encoder, T tokens, V vocabulary.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saccade.core import (
    AttentionMap,
    AttentionMaps,
    Axis,
    Batch,
    ForwardTrace,
    GeneratedToken,
    OutputLayer,
    Prediction,
    Progress,
    Split,
    StreamControl,
    Task,
    TextOutput,
    ignore_progress,
)
from saccade.data.batching import BucketedBatches, length_groups, padded_budget
from saccade.data.lengths import save_max_target_length
from saccade.data.text.alphabets import UNKNOWN
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.text.unknown_words import unit, unknown_id, unknown_note
from saccade.data.texts import Texts
from saccade.data.tokenization import tokenize
from saccade.decode.search import Hypothesis, Search
from saccade.metrics.alignment import choose_alignment_head, cross_attention, strip_ends
from saccade.models.seq2seq.interface import Seq2SeqLoss
from saccade.models.seq2seq.to_text import ToText
from saccade.nn.probe import RecordedRow, record
from saccade.nn.transformer import layer_outputs
from saccade.tasks._seq2seq.attention import alignment_map, is_cross
from saccade.tasks._seq2seq.searching import POSITIONS, ROWS, cut_note, pack_for, search_memory, stream_memory
from saccade.tasks._seq2seq.settings import TranslationOptions
from saccade.tasks._seq2seq.tokenizers import TargetTokenizer

ALIGNMENT_ROWS = 50  # that determine which head shows best where the model looks
CHUNK = 256  # inputs searched before the first predictions are yielded
TOKENIZER = "tokenizer.json"

SourceBatch = tuple[Tensor, Tensor]
"""sources, as the encoder of the network reads them, with their real positions (B, N)"""


class ToTextTask(Task):
    """A task whose network writes a text about its only input; its only role is the name of that text.

    The examples of a split have `rows` with their texts and origins, `tokens` and `lengths`.
    """

    Options: ClassVar[type[Any]] = TranslationOptions
    roles: ClassVar[tuple[str, ...]]

    model: ToText
    target: TargetTokenizer
    max_length: int
    """maximum number of generated tokens"""
    splits: dict[Split, Any]

    # Data

    @classmethod
    def write_tokenizer(
        cls, tokenizer: Tokenizer, texts: Texts, assets: Path, seconds: NDArray[np.float64] | None = None
    ) -> None:
        """Write the tokenizer of the texts to the assets, and how long a generated text may be.

        `seconds`: the length of the recording of each text, to which the maximum is then proportional.
        """
        tokenizer.save(assets / TOKENIZER)
        save_max_target_length(tokenize(texts, tokenizer).lengths, assets, seconds)

    def unknown_note(self, split: Split, name: str) -> list[str]:
        """Return a note for the user on the tokens of a split that are not in the vocabulary."""
        tokenizer, tokens = self.target.tokenizer, self.splits[split].tokens
        unknown = unknown_id(tokenizer)
        total = 0 if unknown is None else int(tokens.count(unknown).sum())
        what = f"{total:,} of {int(tokens.lengths.sum()):,} {unit(tokenizer)} of the {name} {self.roles[0]}s"
        return [f"{what} are unknown, all read as {UNKNOWN}"] if total else []

    def source(self, split: Split, seed: int) -> BucketedBatches:
        examples, config = self.splits[split], self.config
        return BucketedBatches(
            examples,
            lambda indices: self.collate(examples, indices),
            budget=padded_budget(examples.lengths, config.batch_size),
            seed=seed,
            micro_batches=config.micro_batches,
            augment=self.augmented if split == Split.TRAIN else self.unchanged,
        )

    @abc.abstractmethod
    def collate(self, examples: Any, indices: list[int]) -> Any:
        """Return a batch of some rows, as they are stored: source, keep, inputs, labels and count."""

    def target_tensors(self, examples: Any, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the inputs (B, T) of the decoder for some rows, and its labels: the same shifted by one, -1 padded."""
        tokens = torch.from_numpy(examples.tokens.pad(indices, before=[self.target.start], after=[self.target.end]))
        return tokens[:, :-1].clamp_min(0), tokens[:, 1:]

    @abc.abstractmethod
    def augmented(self, batch: Any, seed: int) -> Batch:
        """Return a batch with its sources changed at random."""

    def unchanged(self, batch: Any, seed: int) -> Batch:
        """Return a batch with its sources as they are evaluated."""
        result: Batch = batch
        return result

    @abc.abstractmethod
    def stack(self, sources: Sequence[Tensor]) -> SourceBatch:
        """Return sources, as they are evaluated, in one batch."""

    @abc.abstractmethod
    def example_source(self, examples: Any, index: int) -> Tensor:
        """Return the source of a row as it is evaluated."""

    @abc.abstractmethod
    def read_input(self, value: Any, options: Any) -> Tensor:
        """Return an input as a source."""

    def length(self, source: Tensor) -> int:
        """Return the length of a source; those of similar length are searched together."""
        return source.shape[-1]

    @abc.abstractmethod
    def source_axis(self, source: Tensor, positions: int) -> Axis:
        """Return the axis of the positions of the encoder over a source."""

    @abc.abstractmethod
    def source_positions(self, source: Tensor) -> int:
        """Return the number of positions of the encoder over a source."""

    # Training and inference

    def losses(self, batch: Any, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        loss = self.loss_weights()
        yield "model", networks["model"](batch.source, batch.keep, batch.inputs, batch.labels, loss)

    def loss_weights(self) -> Seq2SeqLoss:
        """Return the weights of the terms of the training loss."""
        return Seq2SeqLoss(self.config.label_smoothing)

    @torch.no_grad()
    def mean_loss(self, examples: Any, indices: Sequence[int]) -> float:
        """Return the cross-entropy of the texts of some rows per token, without smoothing."""
        total, count = 0.0, 0
        for group in length_groups(examples.lengths[np.asarray(indices)].tolist(), ROWS, POSITIONS):
            batch: Any = self.unchanged(self.collate(examples, [indices[at] for at in group]), 0)
            batch = batch.to(self.device())
            total += float(self.model(batch.source, batch.keep, batch.inputs, batch.labels)) * batch.count
            count += batch.count
        return total / count

    @torch.no_grad()
    def search(
        self,
        positions: Sequence[int],
        load: Callable[[list[int]], SourceBatch],
        settings: Search,
        *,
        prefix: Sequence[int] = (),
        progress: Progress = ignore_progress,
    ) -> list[list[Hypothesis]]:
        """Return the best texts of sources that `load` returns by their numbers; `positions`: how many each has."""
        device, model = self.device(), pack_for(self.model, len(positions), settings)
        results: dict[int, list[Hypothesis]] = {}
        for group in length_groups(positions, ROWS, POSITIONS):
            source, keep = load(group)
            memory = model.encode(source.to(device), keep.to(device))
            limits = [self.limit(prefix, positions[number]) for number in group]
            hypotheses = search_memory(model, memory, self.target, settings, limits, prefix)
            results.update(zip(group, hypotheses, strict=True))
            progress(len(results) / len(positions))
        return [results[number] for number in range(len(positions))]

    def outputs(
        self, examples: Any, indices: Sequence[int], settings: Search, progress: Progress = ignore_progress
    ) -> list[str]:
        """Return the text that is generated for the source of each row."""

        def load(group: list[int]) -> SourceBatch:
            batch: Any = self.unchanged(self.collate(examples, [indices[at] for at in group]), 0)
            return batch.source, batch.keep

        positions = self.positions(examples, indices)
        hypotheses = self.search(positions, load, replace(settings, n_best=1), progress=progress)
        return [self.target.decode(best.ids) for best, *_ in hypotheses]

    def positions(self, examples: Any, indices: Sequence[int]) -> list[int]:
        """Return the number of positions of each row; rows of similar numbers are searched together."""
        return [1] * len(indices)

    def encode(self, name: str, text: str) -> list[int]:
        """Return the ids of the text of an option."""
        return self.target.tokenizer.encode(text) if text else []

    def limit(self, prefix: Sequence[int], positions: int) -> int:
        """Return the maximum number of tokens that are generated after a prefix for a source of this length."""
        return self.max_length

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        for first in range(0, len(inputs), CHUNK):
            yield from self._predict(inputs[first : first + CHUNK], options)

    def _predict(self, examples: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        """Yield the predictions for examples whose sources fit into memory together."""
        tokenizer = self.target.tokenizer
        notes = unknown_note(tokenizer, options.target or options.prefix)
        (name,) = (field.name for field in self.inputs)
        sources = [self.read_input(example[name], options) for example in examples]
        if options.target:
            target = self.encode("target", options.target)
            for example, source in zip(examples, sources, strict=True):
                yield replace(self._score_target(example, source, target, options.attention), notes=notes)
            return
        prefix = self.encode("prefix", options.prefix)
        lengths = list(map(self.length, sources))
        hypotheses = self.search(
            lengths, lambda group: self.stack([sources[at] for at in group]), options, prefix=prefix
        )
        for example, source, group in zip(examples, sources, hypotheses, strict=True):
            best, *others = [self._prediction(example, source, target, options.attention) for target in group]
            yield replace(best, alternatives=tuple(others), notes=(*notes, *cut_note(group[0])))

    def stream(
        self, inputs: Mapping[str, Any], options: Any, control: StreamControl | None = None
    ) -> Iterator[GeneratedToken]:
        source = self.read_input(next(iter(inputs.values())), options)
        prefix = self.encode("prefix", options.prefix)
        given = prefix if control is None or not control.given else list(control.given)
        with torch.no_grad():
            memory = self.model.encode(*self._source(source))
        labels = self.source_axis(source, memory.values.shape[1]).labels
        yield from stream_memory(
            self.model,
            memory,
            self.target,
            options,
            max(1, self.limit(prefix, self.length(source)) - (len(given) - len(prefix))),
            labels,
            prefix=given,
            attention=options.attention,
        )

    def sample(self) -> str:
        examples = self.splits[Split.VALID]
        rows = list(dict.fromkeys((0, len(examples) // 2)))
        outputs = self.outputs(examples, rows, replace(self.config.search, beam=1, n_best=1))
        texts = examples.rows.texts[self.roles[0]]
        return "\n".join(f"{texts[row]} -> {output}" for row, output in zip(rows, outputs, strict=True))

    # Attention and explanations

    def example_input(self, examples: Any, index: int) -> Any:
        """Return the input of a row, which pages show."""
        return self.example_source(examples, index)

    def attention_snapshot(self) -> list[Prediction]:
        examples = self.splits[Split.VALID]
        predictions = []
        for row in dict.fromkeys((0, len(examples) // 2)):
            source, target = self.example_source(examples, row), examples.tokens[row].tolist()
            inputs = {self.inputs[0].name: self.example_input(examples, row)}
            predictions.append(self._score_target(inputs, source, target, attention=True))
        return predictions

    def analyse(self) -> dict[str, Any]:
        """Return the head that shows best where the model looks for each word of validation texts."""
        examples = self.splits[Split.VALID]
        rows = range(0, len(examples), max(1, len(examples) // ALIGNMENT_ROWS))
        maps = [self._attention(self.example_source(examples, row), examples.tokens[row].tolist()) for row in rows]
        sentences = [[strip_ends(attention) for attention in cross_attention(one)] for one in maps]
        return {"alignment": vars(choose_alignment_head(sentences))}

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        source, target = prediction.trace
        with layer_outputs(self.model.decoder, layers) as states:
            logits = self.model(*self._source(source), self._ids(target))[0]  # (T, V)
            by_layer = tuple((f"decoder.{at}", self.model.head(x)[0]) for at, x in enumerate(states))
        return ForwardTrace(
            logits,
            (*target, self.target.end),
            self.target.output_axis(target),
            (self.source_axis(source, self.source_positions(source)), self.target.input_axis(target)),
            lambda token: self.target.tokenizer.pieces([token])[0],
            by_layer,
            OutputLayer("decoder", self.model.head),
        )

    def _source(self, source: Tensor) -> SourceBatch:
        """Return one source as a batch on the device of the network."""
        batch, keep = self.stack([source])
        return batch.to(self.device()), keep.to(self.device())

    def _ids(self, target: Sequence[int]) -> Tensor:
        return torch.tensor([[self.target.start, *target]], device=self.device())

    @torch.no_grad()
    def _attention(self, source: Tensor, target: list[int]) -> AttentionMaps:
        """Return every attention map of one source with its text."""
        with record(self.model) as recorder:
            self.model(*self._source(source), self._ids(target))
        words, inputs = self.target.output_axis(target), self.target.input_axis(target)
        maps = []
        for name, recorded in recorder.items():
            queries, keys = (self.source_axis(source, count) for count in recorded.shape[2:])
            if not name.startswith("encoder."):
                queries, keys = (words, keys) if is_cross(name) else (inputs, inputs)
            maps.append(AttentionMap(name, RecordedRow(recorded, 0), queries, keys))
        return AttentionMaps(maps)

    def _prediction(
        self, example: Mapping[str, Any], source: Tensor, hypothesis: Hypothesis, attention: bool
    ) -> Prediction:
        scores = {"log_probability": hypothesis.log_probability, "score": hypothesis.score}
        output = TextOutput(self.target.decode(hypothesis.ids))
        return self._with_attention(example, output, scores, (source, list(hypothesis.ids)), attention)

    @torch.no_grad()
    def _score_target(
        self, example: Mapping[str, Any], source: Tensor, target: list[int], attention: bool
    ) -> Prediction:
        """Return the most likely token after each prefix of a given text, and the probability of the text."""
        log_probs = self.model(*self._source(source), self._ids(target)).log_softmax(-1)[0]  # (T, V)
        labels = torch.tensor([*target, self.target.end], device=log_probs.device)
        total = float(log_probs.gather(1, labels[:, None]).sum())
        best = [token for token in log_probs.argmax(-1).tolist() if token != self.target.end]
        scores = {"log_probability": total, "perplexity": math.exp(min(700.0, -total / len(labels)))}
        return self._with_attention(example, TextOutput(self.target.decode(best)), scores, (source, target), attention)

    def _with_attention(
        self,
        example: Mapping[str, Any],
        output: TextOutput,
        scores: Mapping[str, float],
        trace: tuple[Tensor, list[int]],
        attention: bool,
    ) -> Prediction:
        maps = self._attention(*trace) if attention else AttentionMaps()
        alignment = alignment_map(maps, self.analysis.get("alignment", {}))
        return Prediction(example, output, scores, maps, alignment=alignment, trace=trace)
