"""Features: vectors of texts or tokens from chosen layers of an encoder, and a comparison of layers on labelled data.

Shapes: N rows, T tokens, D width.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.atomic_io import new_file
from saccade.config import override
from saccade.core import Progress, Split, Task, ignore_progress
from saccade.errors import ResourceError, UsageError, suggest
from saccade.metrics import classification, tagging
from saccade.models.text.bert import pool as pooled
from saccade.pretrained.adapters import merge_lora
from saccade.pretrained.quantize import quantize
from saccade.tasks import guess_task, load_task
from saccade.tasks._encoder.inputs import EncodedText
from saccade.tasks._encoder.layers import LAYERS
from saccade.tasks._encoder.task import EncoderTask

PROBE_STEPS = 60  # of the linear classifier that compares choices of layers


@dataclass(frozen=True)
class Vectors:
    """The tokens of a text, and one vector for all of it or one for each token."""

    text: str
    tokens: tuple[str, ...]
    values: Tensor  # (D,) or (T, D)
    notes: tuple[str, ...] = ()
    """on a truncated text"""


@dataclass(frozen=True)
class LayerScore:
    """The score of a linear classifier over a choice of layers."""

    layers: str
    score: float
    width: int


def encoder_of(task: Task) -> EncoderTask:
    """Return the task if it has an encoder."""
    if not isinstance(task, EncoderTask):
        raise UsageError("features need an encoder such as BERT, but this model has none; try minilm, for example")
    return task


def vectors(
    encoder: EncoderTask,
    texts: Sequence[str],
    layers: str = "last",
    per: Literal["text", "token"] = "text",
    *,
    pool: Literal["mean", "first"] | None = None,
    int8: bool = False,
) -> Iterator[Vectors]:
    """Yield the vectors of some texts in order.

    `pool`: None is the pooling of the model, which is the mean unless it is one of sentence vectors. `int8` computes
    with a quantized copy of the encoder.
    """
    _check(layers)
    if int8:
        model = quantize(merge_lora(encoder.model))
        encoder = copy.copy(encoder)  # the caller's encoder keeps its network
        encoder.model = model
    encoded = encoder.encode_all("text", texts)
    to_vector = encoder.pool if pool is None else lambda tokens: pooled(tokens[None], None, pool)[0]
    ready: dict[int, Tensor] = {}
    following = 0
    for row, values in encoder.features(encoded, (layers,), to_vector if per == "text" else None):
        ready[row] = values
        while following in ready:
            pieces = tuple(encoder.tokenizer.pieces(encoded[following].ids))
            yield Vectors(texts[following], pieces, ready.pop(following).cpu(), encoded[following].notes)
            following += 1


def write(vectors: Iterable[Vectors], output: Path | None) -> Iterator[str]:
    """Yield vectors as JSON lines, or write a file: .npy has one row for each text or token, .jsonl the tokens too."""
    if output is None:
        yield from map(_line, vectors)
        return
    if output.suffix not in (".jsonl", ".npy"):
        raise UsageError(f"--output must end on .npy or .jsonl, but is {output}")
    try:
        with new_file(output) as file:
            if output.suffix == ".jsonl":
                file.writelines(f"{_line(entry)}\n".encode() for entry in vectors)
            else:
                rows = [entry.values if entry.values.dim() == 2 else entry.values[None] for entry in vectors]
                np.save(file, torch.cat(rows).numpy())
    except OSError as error:
        raise ResourceError(f"cannot write {output}: {error}; choose another file with --output") from error


def _line(entry: Vectors) -> str:
    tokens = {"tokens": list(entry.tokens)} if entry.values.dim() == 2 else {}
    notes = {"notes": list(entry.notes)} if entry.notes else {}
    return json.dumps({"text": entry.text, **tokens, "vector": entry.values.tolist(), **notes}, ensure_ascii=False)


def word_similarity(encoder: EncoderTask, texts: tuple[str, str], word: str, layers: str = "last") -> float:
    """Return the cosine similarity of one word's vectors in two texts; 1: its context makes no difference."""
    _check(layers)
    sides = []
    ids = encoder.tokenizer.encode(word)
    for text in texts:
        encoded = encoder.encode(text)
        row = list(encoded.ids)
        start = next((at for at in range(len(row)) if row[at : at + len(ids)] == ids), None)
        if start is None or not ids:
            raise UsageError(f"'{word}' must occur in both texts, but is not in '{text}'")
        ((_, tokens),) = encoder.features([encoded], (layers,))
        sides.append(tokens[start : start + len(ids)].mean(0))
    return float(torch.cosine_similarity(sides[0], sides[1], dim=0))


def compare_layers(
    encoder: EncoderTask,
    data: Path,
    task: str = "",
    overrides: Sequence[str] = (),
    progress: Progress = ignore_progress,
) -> list[LayerScore]:
    """Train a linear classifier over each choice of layers of the frozen encoder on a labelled file; the best first."""
    task = task or ("tagging" if guess_task(data, overrides) == "tagging" else "text_classification")
    splits = [_examples(encoder, task, data, split, list(overrides)) for split in (Split.TRAIN, Split.VALID)]
    scores: list[LayerScore] = []
    for number, layers in enumerate(LAYERS, 1):
        train, valid = (split.vectors(encoder, layers) for split in splits)
        predictions = _probe(train, splits[0].labels, valid)
        scores.append(LayerScore(layers, splits[1].score(predictions), train.shape[1]))
        progress(number / len(LAYERS))
    return sorted(scores, key=lambda result: -result.score)


@dataclass(frozen=True)
class _Examples:
    """Encoded rows of a split, the positions of their labels, and the labels."""

    encoded: list[EncodedText]
    positions: list[list[int]] | None
    """tokens of each row that have a label; None: the whole row has one"""
    labels: Tensor
    names: tuple[str, ...]
    entities: bool

    def vectors(self, encoder: EncoderTask, layers: str) -> Tensor:
        rows: dict[int, Tensor] = {}
        for row, tokens in encoder.features(self.encoded, (layers,)):
            rows[row] = tokens[self.positions[row]] if self.positions else tokens.mean(0, keepdim=True)
        return torch.cat([rows[row] for row in range(len(self.encoded))])

    def score(self, predictions: Tensor) -> float:
        predicted, expected = ([self.names[label] for label in side.tolist()] for side in (predictions, self.labels))
        if not self.entities:
            return classification.accuracy(predicted, expected).value
        assert self.positions is not None
        ends = list(accumulate(map(len, self.positions)))
        sides = [
            [side[end - len(row) : end] for row, end in zip(self.positions, ends, strict=True)]
            for side in (predicted, expected)
        ]
        return tagging.score_entities(sides[0], sides[1]).f1.value


def _examples(encoder: EncoderTask, task: str, data: Path, split: Split, overrides: list[str]) -> _Examples:
    """Return the data of a task, encoded with the tokenizer of another encoder."""
    if task not in ("tagging", "text_classification"):
        raise UsageError(f"layers are compared by tagging or text_classification, but the task is '{task}'")
    kind = load_task(task)
    fixed = [f"max_length={encoder.template.max_length}", "vocabulary_size=30000"]
    config = override(kind.Config(), [*overrides, *fixed])
    with tempfile.TemporaryDirectory(prefix="saccade-") as assets, torch.device("meta"):
        kind.prepare(config, data, Path(assets))
        reader: Any = kind.open(config, Path(assets))
        reader.tokenizer, reader.template = encoder.tokenizer, encoder.template
        reader.load_data(data)
    numbers = {name: number for number, name in enumerate(reader.labels)}
    rows = reader.splits[split]
    if task == "text_classification":
        labels = [numbers[labels[0]] for labels in rows.labels]
        return _Examples(list(reader.encoded(split)[0]), None, torch.tensor(labels), reader.labels, False)
    words = reader.encoded(split)
    pairs = zip(words, rows.sentences, strict=True)
    tags = [numbers[tag] for row, sentence in pairs for tag in sentence.tags[: len(row.positions)]]
    positions = [list(row.positions) for row in words]
    return _Examples([row.text for row in words], positions, torch.tensor(tags), reader.labels, reader.entities)


def _probe(train: Tensor, labels: Tensor, valid: Tensor) -> Tensor:
    """Train a linear classifier on vectors (N, D) and return the labels it predicts for others."""
    mean, deviation = train.mean(0), train.std(0) + 1e-6
    train, valid = (train - mean) / deviation, (valid - mean) / deviation
    weight = torch.zeros(int(labels.max()) + 1, train.shape[1] + 1, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=PROBE_STEPS, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(F.linear(train, weight[:, :-1], weight[:, -1]), labels)
        value = value + 1e-4 * weight[:, :-1].square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    return F.linear(valid, weight[:, :-1], weight[:, -1]).argmax(-1)


def _check(layers: str) -> None:
    if layers not in LAYERS:
        raise UsageError(f"no choice of layers '{layers}'{suggest(layers, list(LAYERS))}")
