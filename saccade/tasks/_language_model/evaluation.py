"""Evaluation of a language model in windows of a text: every token is predicted once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from saccade.core.callback import Progress, ignore_progress
from saccade.core.evaluation import Evaluation
from saccade.core.source import Split
from saccade.data.shards import Shard
from saccade.models.text.gpt import GPT
from saccade.tasks._language_model.batch import TextBatch

QUICK_TOKENS = 16_384  # of a quick evaluation


@torch.no_grad()
def evaluate_windows(
    task: Any,
    model: GPT,
    split: Split,
    *,
    reference: GPT | None = None,
    quick: bool = False,
    progress: Progress = ignore_progress,
) -> Evaluation:
    """Evaluate a network of a language model task; notes compare a rounded one with its `reference`."""
    shard, width = task.shards[split], task.config.model.max_positions
    total, exact, agreed, count, seen = 0.0, 0.0, 0, 0, 0
    for fraction, starts in evaluation_windows(shard, width, quick):
        rows = np.stack([shard.ids[start : start + width + 1] for start in starts])
        batch = TextBatch(torch.from_numpy(rows.astype(np.int64)), (), task.learned_labels(shard, starts))
        batch = batch.to(task.device())
        labels = batch.labels.flatten()
        logits = model(batch.ids[:, :-1]).float().flatten(0, 1)
        total += F.cross_entropy(logits, labels, ignore_index=-1, reduction="sum").item()
        if reference is not None:
            expected = reference(batch.ids[:, :-1]).float().flatten(0, 1)
            exact += F.cross_entropy(expected, labels, ignore_index=-1, reduction="sum").item()
            agreed += int((logits.argmax(-1) == expected.argmax(-1))[labels >= 0].sum())
        count += int((labels >= 0).sum())
        seen += labels.numel()
        progress(fraction)
    loss = total / max(1, count)
    values = {"loss": loss, "perplexity": math.exp(min(loss, 700))}
    if task.tokenizer.kind != "wordpiece" and shard.spoken is None:  # word pieces drop spaces, and chats have roles
        values["bits_per_byte"] = loss / math.log(2) * shard.size / shard.bytes
    notes = () if reference is None else (_cost(loss, exact / max(1, count), agreed / max(1, count)),)
    return Evaluation({**values, "tokens": count}, notes=notes, complete=seen == shard.size - 1)


def _cost(loss: float, exact: float, agreement: float) -> str:
    return (
        f"float32: loss {exact:.4f}; rounding the weights costs {(loss / exact - 1) * 100:+.2f}% of it, "
        f"and {agreement:.1%} of the most probable tokens are the same"
    )


def evaluation_windows(shard: Shard, width: int, quick: bool) -> Iterator[tuple[float, list[int]]]:
    """Yield the completed fraction and where a group of windows of equal length starts; together they cover a shard.

    Quick: an even sample of the windows.
    """
    count, rows = (shard.size - 1) // width, max(1, 4096 // width)
    starts = np.arange(count) * width
    if quick:
        starts = starts[:: -(-count * width // QUICK_TOKENS)]
    for first in range(0, len(starts), rows):
        yield min(1.0, (first + rows) / len(starts)), starts[first : first + rows].tolist()
    if shard.size - count * width > 1 and (not quick or len(starts) == count):
        yield 1.0, [count * width]
