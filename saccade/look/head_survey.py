"""Heads over a data set: what each head attends to in up to a thousand rows, and what the answers lose without it.

Shapes: H heads, Q queries, K keys, S cells of a picture, each way.
"""

from __future__ import annotations

import base64
import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.config import from_json, settings
from saccade.core import AttentionMap, Axis, Prediction, Progress, Task, ignore_progress
from saccade.core.cancellation import check_cancelled
from saccade.core.serialize import pack
from saccade.core.task import even_sample
from saccade.errors import UsageError, suggest
from saccade.look.explain import Ablation, Explanation
from saccade.look.head_report import HeadExample, HeadReport, HeadSummary, Spread
from saccade.look.labels import visible
from saccade.look.maps import is_self_attention
from saccade.look.patterns import head_patterns
from saccade.look.search import is_word
from saccade.look.view import SAMPLED

MOST_ROWS = 1000
BATCH = 32  # rows predicted together
EXAMPLES = 8  # rows of a head with its largest weights
PICTURE = 24  # cells of the picture of a head, each way
WHOLE = 1 << 22  # weights of a map that is computed once, as a whole


@dataclass(frozen=True)
class SurveySettings:
    """How heads are measured."""

    rows: int = MOST_ROWS
    """most rows; of more an even sample"""
    ablations: int = 24
    """rows, an even sample, on which each head is removed; of a single head all rows"""
    layer: str = ""
    """the map of the only head that is measured; empty: all heads"""
    head: int = 0
    """its number"""

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MOST_ROWS:
            raise UsageError(f"rows must be 1 to {MOST_ROWS:,}, but is {self.rows:,}")
        if not 0 <= self.ablations <= MOST_ROWS:
            raise UsageError(f"ablations must be 0 to {MOST_ROWS:,}, but is {self.ablations:,}")

    def includes(self, layer: str, head: int) -> bool:
        return not self.layer or (self.layer, self.head) == (layer, head)


def survey_heads(
    task: Task,
    inputs: Sequence[Mapping[str, Any]],
    settings: SurveySettings = SurveySettings(),
    progress: Progress = ignore_progress,
) -> HeadReport:
    """Return what the heads of a task attend to in some rows; cancelled between two rows or two ablations."""
    if not inputs:
        raise UsageError("rows must be at least one, but there is none; give texts, or a run with validation data")
    chosen = [inputs[row] for row in even_sample(len(inputs), settings.rows)]
    start = time.perf_counter()
    ablated = set(even_sample(len(chosen), len(chosen) if settings.layer else settings.ablations))
    survey = _Survey(task, settings, ablated if settings.ablations else set())
    for row, prediction in enumerate(_predict(task, chosen)):
        check_cancelled()
        survey.add(row, prediction, partial(_report_part, progress, row, len(chosen)))
        progress((row + 1) / len(chosen))
    return survey.report(chosen, time.perf_counter() - start)


def _report_part(progress: Progress, row: int, rows: int, part: float) -> None:
    progress((row + part) / rows)


def _predict(task: Task, inputs: Sequence[Mapping[str, Any]]) -> Iterator[Prediction]:
    """Yield predictions with attention, in batches; a model that continues a prompt only reads it."""
    names = {setting.name for setting in settings(task.Options)}
    options: dict[str, Any] = {"attention": True} if "attention" in names else {}
    options |= {"max_new_tokens": 0} if "max_new_tokens" in names else {}
    for first in range(0, len(inputs), BATCH):
        yield from task.predict(inputs[first : first + BATCH], from_json(task.Options, options))


class _Survey:
    """Sums over the rows so far."""

    def __init__(self, task: Task, settings: SurveySettings, ablated: set[int]) -> None:
        self._task, self._settings, self._ablated = task, settings, ablated
        self._maps: dict[str, _MapSums] = {}
        self._costs: dict[tuple[str, int], list[float]] = defaultdict(list)
        self._quantity, self._notes = "", dict[str, None]()
        self._labels = _Labels()

    def add(self, row: int, prediction: Prediction, progress: Progress) -> None:
        """Add a row."""
        for name, attention in self._chosen(prediction).items():
            if name not in self._maps:
                self._maps[name] = _MapSums(attention.shape[0])
            self._maps[name].add(row, attention, self._labels)
        if row in self._ablated:
            try:
                self._ablate(prediction, progress)
            except UsageError as error:  # a task that cannot explain its predictions: the report says why
                self._notes[f"no ablation cost: {error}"] = None
                self._ablated = set()

    def _chosen(self, prediction: Prediction) -> Mapping[str, AttentionMap]:
        maps, layer = prediction.attention, self._settings.layer
        if not maps:
            raise UsageError("this model has no attention to show; take one with attention, such as transformer")
        if not layer:
            return maps
        if layer not in maps:
            raise UsageError(f"no attention '{layer}'{suggest(layer, list(maps))}")
        if not 0 <= self._settings.head < maps[layer].shape[0]:
            raise UsageError(f"head must be 0 to {maps[layer].shape[0] - 1} in '{layer}', but is {self._settings.head}")
        return {layer: maps[layer]}

    def _ablate(self, prediction: Prediction, progress: Progress) -> None:
        """Add what the answer of a row loses without each head."""
        explanation, settings = Explanation(self._task, prediction), self._settings
        if not self._quantity:
            trace = self._task.rerun(prediction)
            self._quantity = trace.positions.labels[0] if trace.logits.shape[-1] == 1 else "log-probability"
        if settings.layer:
            effect = explanation.ablate_all([Ablation(settings.layer, settings.head)])
            self._costs[settings.layer, settings.head].append(effect.lost)
            return

        def report(part: float) -> None:
            check_cancelled()
            progress(part)

        for name, values in explanation.importance(report).items():
            for head, value in enumerate(values):
                self._costs[name, head].append(value)

    def report(self, inputs: Sequence[Mapping[str, Any]], seconds: float) -> HeadReport:
        """Return the means over all rows."""
        heads = tuple(
            replace(summary, cost=Spread.of(self._costs[name, head]) if self._costs[name, head] else None)
            for name, sums in self._maps.items()
            for head, summary in enumerate(sums.summaries(name))
            if self._settings.includes(name, head)
        )
        shown = sorted({example.row for summary in heads for example in summary.examples})
        rows = {row: dict(inputs[row]) for row in shown}
        return HeadReport(heads, rows, len(inputs), self._quantity, seconds, tuple(self._notes))


class _Labels:
    """Which positions of an axis are words, computed once for all layers."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Axis, Tensor]] = {}  # by id, which no other axis has while it is kept

    def words(self, axis: Axis) -> Tensor:
        if id(axis) not in self._kept:
            if len(self._kept) > 4:  # of the rows before
                self._kept.clear()
            words = torch.tensor([is_word(label) for label in axis.labels], dtype=torch.bool)
            self._kept[id(axis)] = (axis, words)
        return self._kept[id(axis)][1]


class _MapSums:
    """The sums of all heads of one map."""

    def __init__(self, heads: int) -> None:
        self._patterns = [Counter[str]() for _ in range(heads)]
        self._scores = [defaultdict[str, list[float]](list) for _ in range(heads)]
        self._entropy: list[list[float]] = [[] for _ in range(heads)]
        self._distance: list[list[float]] = [[] for _ in range(heads)]
        self._examples: list[list[tuple[float, int, HeadExample]]] = [[] for _ in range(heads)]
        self._picture, self._count = torch.zeros(heads, PICTURE, PICTURE), 0

    def add(self, row: int, attention: AttentionMap, labels: _Labels) -> None:
        heads, queries, keys = attention.shape
        if not queries or not keys:
            return
        if heads * queries * keys <= WHOLE:
            attention = replace(attention, source=attention.weights.float().cpu())
        same = is_self_attention(attention)
        for head, pattern in enumerate(head_patterns(attention)):
            self._patterns[head][pattern.name] += 1
            self._entropy[head].append(pattern.entropy)
            if same:
                self._distance[head].append(pattern.distance)
            for name, score in pattern.scores.items():
                self._scores[head][name].append(score)
        step = max(1, -(-queries // SAMPLED))
        weights = attention.rows(0, queries, step=step).float().cpu()
        self._picture += F.adaptive_max_pool2d(weights[None], (PICTURE, PICTURE))[0]
        self._count += 1
        for head, example in enumerate(_strongest(row, attention, weights, step, labels)):
            heap = self._examples[head]
            (heapq.heappush if len(heap) < EXAMPLES else heapq.heappushpop)(heap, (example.weight, -row, example))

    def summaries(self, name: str) -> Iterator[HeadSummary]:
        """Yield the means of every head."""
        for head, counts in enumerate(self._patterns):
            if not counts:
                continue
            picture = self._picture[head] / self._count
            yield HeadSummary(
                map=name,
                head=head,
                patterns=dict(counts.most_common()),
                scores={kind: sum(values) / len(values) for kind, values in self._scores[head].items()},
                entropy=Spread.of(self._entropy[head]),
                distance=Spread.of(self._distance[head]) if self._distance[head] else None,
                cost=None,
                examples=tuple(entry for _, _, entry in sorted(self._examples[head], reverse=True)),
                picture=base64.b64encode(pack(picture.sqrt(), "uint8")).decode(),
                columns=PICTURE,
            )


def _strongest(row: int, attention: AttentionMap, weights: Tensor, step: int, labels: _Labels) -> Iterable[HeadExample]:
    """Return the largest weight (H, Q, K) of each head between two words; without two words, of any two tokens."""
    queries = labels.words(attention.queries)[::step]
    allowed = queries[:, None] & labels.words(attention.keys)[None]
    if is_self_attention(attention):
        allowed &= (torch.arange(len(queries)) * step)[:, None] != torch.arange(len(attention.keys))[None]
    if not bool(allowed.any()):
        allowed = torch.ones_like(allowed)
    values, at = (weights * allowed).flatten(1).max(-1)
    for weight, cell in zip(values.tolist(), at.tolist(), strict=True):
        query, key = cell // len(attention.keys) * step, cell % len(attention.keys)
        names = (visible(attention.queries.labels[query]), visible(attention.keys.labels[key]))
        yield HeadExample(row, query, key, *names, weight)
