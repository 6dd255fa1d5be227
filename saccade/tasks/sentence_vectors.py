"""Sentence vectors: one vector per text, trained on pairs so that similar texts have similar vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.core.attention import AttentionMaps
from saccade.core.axes import Role, StepAxis
from saccade.core.callback import Progress, ignore_progress
from saccade.core.evaluation import Evaluation, Metric
from saccade.core.fields import Text
from saccade.core.outputs import NumberOutput, Output, VectorOutput
from saccade.core.prediction import ForwardTrace, Prediction
from saccade.core.pretrained import Pretrained
from saccade.core.source import Split
from saccade.core.task import InputLength
from saccade.data.formats.labelled import Labelled, LabelSet
from saccade.data.formats.pair_files import PairFiles, find_pairs
from saccade.data.formats.pairs import empty_note, read_pairs
from saccade.data.settings import HEADERS
from saccade.data.tables.numbers import is_number
from saccade.errors import DataError, UsageError
from saccade.metrics import classification
from saccade.models.text.heads import SentenceEncoder, SimilarityLoss
from saccade.models.text.pooling import PoolingMode, SentencePooling
from saccade.pretrained.sentence_transformers import SentenceModules
from saccade.tasks._encoder.inputs import EncodedText, check_outputs
from saccade.tasks._encoder.labelled import LabelledConfig, LabelledSettings, LabelledTask
from saccade.tasks._encoder.task import pretrained_length

COMPONENT = "component along its own vector"  # what explanations of a single text explain
NEAREST_ROWS = 1000  # rows compared with all others at once
POOLING: Mapping[str, PoolingMode] = {"mean": "mean", "first": "cls"}


@dataclass(frozen=True)
class SentenceVectorsConfig(LabelledConfig):
    """All settings of sentence vectors except those of the training loop."""

    pool: Literal["mean", "first"] = "mean"
    """pooling of token vectors: the mean over the tokens, or the first token"""
    scale: float = 20.0
    """factor of the cosine similarities in the contrastive loss (inverse temperature)"""
    contrast: float = 0.0
    """pairs whose similarity, scaled to 0..1, is at least this are also used in the contrastive loss; 0: none"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale <= 0:
            raise ValueError(f"scale must be above 0, but is {self.scale}")
        if not 0 <= self.contrast <= 1:
            raise ValueError(f"contrast must be from 0 to 1, but is {self.contrast}")
        if self.contrast and self.micro_batches > 1:
            rule = "micro_batches must be 1 with contrast, which compares all texts of a step"
            raise ValueError(f"{rule}, but is {self.micro_batches}")


@dataclass(frozen=True)
class SentenceVectorsOptions:
    """Options of a prediction."""

    attention: bool = False
    """keep the attention of every layer and head, of the first text"""


class Task(LabelledTask):
    """An encoder whose pooled vectors are compared by their cosine."""

    Config: ClassVar[type[Any]] = SentenceVectorsConfig
    Options: ClassVar[type[Any]] = SentenceVectorsOptions
    summary: ClassVar[str] = "encode a text as a vector, learned from pairs of texts with similarities or without"
    needs: ClassVar[str] = "pairs of texts"
    metric = Metric("spearman", True, "%")
    numeric = True
    separate = True

    def __init__(self, config: Any, tokenizer: Any, shape: Any, label_info: Mapping[str, Any]) -> None:
        super().__init__(config, tokenizer, shape, label_info)
        self.inputs = (Text("first"), Text("second", optional=True, help="a text to compare the first one with"))
        self.model: SentenceEncoder = SentenceEncoder(
            shape,
            tokenizer.size,
            pooling=SentencePooling((POOLING[config.pool],)),
            loss=SimilarityLoss(config.scale, config.contrast),
        )
        self.prompt = ""
        self.scored = "minimum" in label_info  # pairs have similarities; otherwise the task is to retrieve the partner
        self.minimum, self.range = float(label_info.get("minimum", 0)), float(label_info.get("range", 1))
        if not self.scored:
            self.metric = Metric("recall_at_1", True, "%")
            if config.micro_batches > 1:
                rule = "micro_batches must be 1 where pairs have no numbers: all texts of a step are compared"
                raise UsageError(f"{rule}, but is {config.micro_batches}; lower batch_tokens to save memory")

    # Data

    @classmethod
    def describe_labels(cls, train: Labelled, rows: Labelled) -> dict[str, Any]:
        if not len(rows.seconds):
            message = f"{rows.origins.file(0)}: one text in a row, expected two"
            raise DataError(f"{message}; name the column of the second with data.second_column")
        label_info = super().describe_labels(train, rows)
        if not train.numbers:
            return label_info
        minimum, maximum = min(train.numbers), max(train.numbers)
        return {**label_info, "minimum": minimum, "range": (maximum - minimum) or 1.0}

    @classmethod
    def read(
        cls,
        settings: LabelledSettings,
        path: Path,
        labels: LabelSet | None = None,
        progress: Progress = ignore_progress,
    ) -> tuple[Labelled, list[str]]:
        """Return pairs with their numbers, or only pairs if there is no column of numbers."""
        files = None if settings.label_column else cls._find_pairs(settings, path)
        pairs = read_pairs(files, progress=progress) if files is not None else None
        if files is None or pairs is None or all(map(is_number, pairs.targets)):
            return super().read(settings, path, labels, progress)
        rows = Labelled(
            texts=pairs.sources,
            seconds=pairs.targets,
            labels=((),) * len(pairs),
            numbers=(),
            label_set=LabelSet(()),
            origins=pairs.origins,
            cache_notes=pairs.notes,
        )
        return rows, [*files.notes(), *empty_note(pairs.empty), "no numbers: each text learns to retrieve its partner"]

    @classmethod
    def _find_pairs(cls, settings: LabelledSettings, path: Path) -> PairFiles | None:
        """Return two columns or two files of lines; of more columns the named ones, if no other has numbers."""
        source, target = settings.text_column, settings.second_column
        try:
            files = find_pairs(
                path,
                source=source,
                target=target,
                encoding=settings.encoding or None,
                header=HEADERS[settings.header],
            )
        except DataError:  # a table with numbers, or reading it as one reports the error
            return None
        if not files.ignored:
            return files
        try:
            cls.find(settings, path)
        except DataError:
            return files if source and target else None
        return None

    def targets(self, rows: Labelled, indices: Sequence[int]) -> Tensor | None:
        if not self.scored:
            return None
        return (torch.tensor([rows.numbers[row] for row in indices]) - self.minimum) / self.range

    # Inference

    def vectors(self, texts: Sequence[EncodedText], progress: Progress = ignore_progress) -> Tensor:
        """Return the vectors (N, D) of encoded texts, in order."""
        return torch.stack(self.run_all(texts, lambda model, inputs, _: check_outputs(model(inputs)), progress))

    def encode_all(self, name: str, texts: Sequence[str]) -> list[EncodedText]:
        """Encode the texts of one input, each after the prompt if the model has one."""
        return super().encode_all(name, [self.prompt + text for text in texts])

    def pool(self, tokens: Tensor) -> Tensor:
        """Return the vector of a text from the vectors (T, D) of its tokens, as the model is configured."""
        return self.model.pooling(tokens[None], None)[0]

    def input_lengths(self, inputs: Mapping[str, Any], options: SentenceVectorsOptions) -> list[InputLength]:
        """Return the length of each text, which is a sequence of its own."""
        special, limit = self.template.special_count(1), self.template.max_length
        texts = {name: self.prompt + text for name, text in inputs.items() if text}
        return [InputLength(name, self.count_tokens(text) + special, limit) for name, text in texts.items()]

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        rows, indices = self.splits[split], self.evaluated_rows(split, quick)
        if self.prompt:  # the tokens of the cache are without it
            columns = ([side[row] for row in indices] for side in (rows.texts, rows.seconds))
            texts = [text for column in columns for text in self.encode_all("text", column)]
        else:
            texts = [side[row] for side in self.encoded(split) for row in indices]
        first, second = self.vectors(texts, progress).chunk(2)
        if not self.scored:
            retrieved = recall_at_1(first, second, [rows.seconds[row] for row in indices])
            return replace(retrieved, complete=len(indices) == len(rows))
        predicted = torch.cosine_similarity(first, second, dim=-1).tolist()
        expected = [rows.numbers[row] for row in indices]
        scores = {
            "spearman": classification.spearman(predicted, expected),
            "pearson": classification.pearson(predicted, expected),
        }
        values = {name: score.value for name, score in scores.items()}
        signatures = {name: score.signature for name, score in scores.items()}
        return Evaluation({**values, "rows": len(indices)}, signatures, complete=len(indices) == len(rows))

    def predict_rows(
        self, inputs: Sequence[Mapping[str, Any]], options: SentenceVectorsOptions
    ) -> Iterable[Prediction]:
        """Return the vector of each text; with a second text the cosine of the two."""
        seconds = [row for row, example in enumerate(inputs) if example.get("second")]
        texts = self.encode_all("first", [example["first"] for example in inputs])
        others = self.encode_all("second", [inputs[row]["second"] for row in seconds])
        second_texts = dict(zip(seconds, others, strict=True))
        vectors = self.vectors([*texts, *second_texts.values()])
        second_vectors = dict(zip(seconds, vectors[len(texts) :], strict=True))
        for row, example in enumerate(inputs):
            attention = self.attention(texts[row]) if options.attention else AttentionMaps()
            if row not in second_texts:
                output: Output = VectorOutput(vectors[row].cpu())
                yield Prediction(example, output, attention=attention, trace=(texts[row],), notes=texts[row].notes)
                continue
            cosine = float(torch.cosine_similarity(vectors[row], second_vectors[row], dim=-1))
            trace = (texts[row], second_texts[row])
            notes = (*texts[row].notes, *second_texts[row].notes)
            output = NumberOutput(cosine, "cosine")
            yield Prediction(example, output, {"cosine": cosine}, attention, trace=trace, notes=notes)

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        """Recompute the cosine of two texts; of a single text the component along its own vector.

        The cosine of a vector with itself is 1 whatever the text is, so the component is that of the pooled vector
        before it is normalized, along the direction of the predicted one, which stays as it was.
        """
        if len(prediction.trace) == 1:
            return self._component(prediction, layers=layers)

        def to_vector(features: Tensor) -> Tensor:
            return self.model.pooling(features[None], None)

        first, second = (self.trace(text, to_vector, layers=layers) for text in prediction.trace)
        cosine = torch.cosine_similarity(first[0], second[0])[:, None]  # (1, 1)
        pairs = zip(first[2], second[2], strict=True)
        by_layer = tuple((name, torch.cosine_similarity(a, b)[:, None]) for (name, a), (_, b) in pairs)
        positions = StepAxis(Role.LABEL, ("cosine",))
        return ForwardTrace(cosine, (0,), positions, (first[1], second[1]), lambda _: "cosine", by_layer)

    def _component(self, prediction: Prediction, *, layers: bool) -> ForwardTrace:
        """Recompute the component (1, 1) of the vector of one text along the predicted vector."""
        assert isinstance(prediction.output, VectorOutput)
        direction = F.normalize(prediction.output.values.to(self.device()), dim=-1)  # (D,)
        pooling = replace(self.model.pooling, normalize=False)

        def to_component(features: Tensor) -> Tensor:
            return pooling(features[None], None).float() @ direction[:, None]

        component, axis, by_layer = self.trace(prediction.trace[0], to_component, layers=layers)
        positions = StepAxis(Role.LABEL, (COMPONENT,))
        return ForwardTrace(component, (0,), positions, (axis,), lambda _: COMPONENT, by_layer)

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Task:
        network = cls.check_pretrained(pretrained, mlm=False)
        config = SentenceVectorsConfig(max_length=pretrained_length(pretrained))
        label_info = {"labels": [], "multi_label": False, "pairs": True, "minimum": 0.0, "range": 1.0}
        with torch.device("meta"):  # the network exists already
            task = cls(config, pretrained.processor.tokenizer, pretrained.config, label_info)
        modules = pretrained.head if isinstance(pretrained.head, SentenceModules) else SentenceModules()
        prompt = task.tokenizer.encode(modules.prompt) if modules.prompt and not modules.include_prompt else []
        skip = len(task.template.build(prompt)[0]) - 1 if prompt else 0  # the first token belongs to the prompt
        task.model = SentenceEncoder.from_bert(network.bert, SentencePooling(modules.modes, modules.normalize, skip))
        task.prompt, task.family = modules.prompt, pretrained.family
        return task

    def head(self) -> SentenceModules:
        pooling, length = self.model.pooling, self.template.max_length
        return SentenceModules(
            pooling.modes, pooling.normalize, length, prompt=self.prompt, include_prompt=not pooling.skip
        )


def recall_at_1(first: Tensor, second: Tensor, texts: Sequence[str]) -> Evaluation:
    """Evaluate how often the second text of a pair is the one nearest to the first, among those of all pairs."""
    candidates = F.normalize(second, dim=-1).t()
    blocks = F.normalize(first, dim=-1).split(NEAREST_ROWS)
    nearest = [int(row) for block in blocks for row in (block @ candidates).argmax(-1)]
    score = classification.accuracy([texts[row] for row in nearest], texts)  # a copy of the partner counts too
    return Evaluation({"recall_at_1": score.value, "rows": len(texts)}, {"recall_at_1": score.signature})
