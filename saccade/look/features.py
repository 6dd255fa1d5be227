"""Features: vectors of texts or tokens from chosen layers of an encoder, and which layers to choose for one's own data.

Shapes: N rows, D width.
"""

from __future__ import annotations

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

from saccade.config import override
from saccade.core.task import Progress, Split, Task, quiet
from saccade.errors import UsageError, suggest
from saccade.metrics import classification, tagging
from saccade.models.text.bert import pool
from saccade.pretrained import lora
from saccade.pretrained.quantize import quantize
from saccade.tasks import guess_task, load_task
from saccade.tasks._encoder.layers import LAYERS
from saccade.tasks._encoder.task import EncoderTask

STEPS = 60  # of the small head that judges a choice of layers


@dataclass(frozen=True)
class Vectors:
    """What a text became: its pieces, and one vector for all of it or one for each piece."""

    text: str
    pieces: tuple[str, ...]
    values: Tensor  # (D,) or (T, D)


@dataclass(frozen=True)
class Choice:
    """How good a small head is over a choice of layers."""

    layers: str
    score: float
    width: int


def encoder_of(opened: Task) -> EncoderTask:
    """The task, if it has an encoder."""
    if not isinstance(opened, EncoderTask):
        raise UsageError("features need an encoder such as BERT, but this model has none; take minilm, for example")
    return opened


def vectors(
    opened: EncoderTask, texts: Sequence[str], layers: str = "last", per: Literal["text", "token"] = "text", **how: Any
) -> Iterator[Vectors]:
    """The vectors of some texts in their order; `pool` says what stands for a text, `int8` computes in 8 bits."""
    _check(layers)
    framed = [opened.frame.build(ids, None) for ids in opened.tokenizer.encode_batch(texts)]
    if how.get("int8"):
        lora.merge(opened.model)
        opened.model = quantize(opened.model)
    found: dict[int, Tensor] = {}
    following = 0
    for at, tokens in opened.features(framed, (layers,)):
        found[at] = tokens if per == "token" else pool(tokens[None], None, how.get("pool", "mean"))[0]
        while following in found:
            pieces = tuple(opened.tokenizer.pieces(framed[following][0]))
            yield Vectors(texts[following], pieces, found.pop(following).cpu())
            following += 1


def write(found: Iterable[Vectors], output: Path | None) -> Iterator[str]:
    """Vectors as JSON lines, or into a file: .npy holds one row for each text or token, .jsonl the tokens too."""
    if output is None:
        yield from map(_line, found)
        return
    if output.suffix == ".jsonl":
        with output.open("w", encoding="utf-8") as file:
            file.writelines(f"{_line(one)}\n" for one in found)
    elif output.suffix == ".npy":
        rows = [one.values if one.values.dim() == 2 else one.values[None] for one in found]
        np.save(output, torch.cat(rows).numpy())
    else:
        raise UsageError(f"--output must end on .npy or .jsonl, but is {output}")


def _line(one: Vectors) -> str:
    known = {"text": one.text, "tokens": list(one.pieces)} if one.values.dim() == 2 else {"text": one.text}
    return json.dumps({**known, "vector": one.values.tolist()}, ensure_ascii=False)


def word_distance(opened: EncoderTask, texts: tuple[str, str], word: str, layers: str = "last") -> float:
    """The cosine of the vectors of one word in two texts; 1 would mean that its context does not matter."""
    _check(layers)
    sides = []
    for text in texts:
        row, _ = framed = opened.framed(text)
        wanted = opened.tokenizer.encode(word)
        place = next((at for at in range(len(row)) if row[at : at + len(wanted)] == wanted), None)
        if place is None or not wanted:
            raise UsageError(f"'{word}' must stand in both texts, but is not in '{text}'")
        ((_, tokens),) = opened.features([framed], (layers,))
        sides.append(tokens[place : place + len(wanted)].mean(0))
    return float(torch.cosine_similarity(sides[0], sides[1], dim=0))


def compare_layers(
    opened: EncoderTask, data: Path, task: str = "", words: Sequence[str] = (), advance: Progress = quiet
) -> list[Choice]:
    """A small head over each choice of layers of the frozen encoder, on the user's own data; the best first."""
    task = task or ("tagging" if guess_task(data) == "tagging" else "text_classification")
    sets = [_examples(opened, task, data, split, list(words)) for split in (Split.TRAIN, Split.VALID)]
    done: list[Choice] = []
    for number, layers in enumerate(LAYERS, 1):
        (train, labels), (valid, _) = ((one.vectors(opened, layers), one.labels) for one in sets)
        found = _probe(train, labels, valid)
        done.append(Choice(layers, sets[1].score(found), train.shape[1]))
        advance(number / len(LAYERS))
    return sorted(done, key=lambda choice: -choice.score)


@dataclass(frozen=True)
class _Examples:
    """Rows of a split, where their vectors stand, and their labels."""

    framed: list[tuple[list[int], int]]
    places: list[list[int]] | None
    """tokens of each row that have a label; None: the whole row has one"""
    labels: Tensor
    names: tuple[str, ...]
    entities: bool

    def vectors(self, opened: EncoderTask, layers: str) -> Tensor:
        found: dict[int, Tensor] = {}
        for at, tokens in opened.features(self.framed, (layers,)):
            found[at] = tokens[self.places[at]] if self.places else tokens.mean(0, keepdim=True)
        return torch.cat([found[at] for at in range(len(self.framed))])

    def score(self, found: Tensor) -> float:
        said, wanted = ([self.names[one] for one in side.tolist()] for side in (found, self.labels))
        if not self.entities:
            return classification.accuracy(said, wanted).value
        assert self.places is not None
        ends = list(accumulate(map(len, self.places)))
        sides = [
            [side[end - len(row) : end] for row, end in zip(self.places, ends, strict=True)] for side in (said, wanted)
        ]
        return tagging.score_entities(sides[0], sides[1]).f1.value


def _examples(opened: EncoderTask, task: str, data: Path, split: Split, words: list[str]) -> _Examples:
    """The data of a task with a frozen encoder of ours in place of its own."""
    if task not in ("tagging", "text_classification"):
        raise UsageError(f"layers are compared by tagging or text_classification, but the task is '{task}'")
    kind = load_task(task)
    config = override(kind.Config(), [*words, f"max_length={opened.frame.max_length}", "vocabulary=30000"])
    with tempfile.TemporaryDirectory(prefix="saccade-") as place, torch.device("meta"):
        kind.prepare(config, data, Path(place))
        reader: Any = kind.open(config, Path(place))
        reader.tokenizer, reader.frame = opened.tokenizer, opened.frame
        reader.load_data(data)
    numbers = {name: at for at, name in enumerate(reader.names)}
    part = reader.parts[split]
    if task == "text_classification":
        framed = reader._framed(part, range(len(part)))[0]
        labels = [numbers[labels[0]] for labels in part.labels]
        return _Examples(framed, None, torch.tensor(labels), reader.names, False)
    rows = [reader._frame(sentence.words) for sentence in part.sentences]
    tags = [numbers[tag] for row, one in zip(rows, part.sentences, strict=True) for tag in one.tags[: len(row.places)]]
    framed = [(row.ids, len(row.ids)) for row in rows]
    return _Examples(framed, [row.places for row in rows], torch.tensor(tags), reader.names, reader.score == "f1")


def _probe(train: Tensor, labels: Tensor, valid: Tensor) -> Tensor:
    """What a linear layer, trained on vectors (N, D), says of others: which label each has."""
    mean, deviation = train.mean(0), train.std(0) + 1e-6
    train, valid = (train - mean) / deviation, (valid - mean) / deviation
    weight = torch.zeros(int(labels.max()) + 1, train.shape[1] + 1, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=STEPS, history_size=10, line_search_fn="strong_wolfe")

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
