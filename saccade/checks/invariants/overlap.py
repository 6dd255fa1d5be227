"""No validation example is among the training data."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.checks.report import Outcome, Status, passed, skipped
from saccade.checks.subject import Subject
from saccade.core import Split
from saccade.data.sentence_rows import Sentences

ORDER = 180
SUMMARY = "validation examples are not in the training data"
MANY = 0.1  # of the validation examples: more is a failure, fewer are a warning
MOST = 20_000  # examples of a split that are read
WINDOW = 32  # tokens of running text that count as an example


def run(subject: Subject) -> Outcome:
    if subject.no_data:
        return skipped(subject.no_data)
    task: Any = subject.task
    if hasattr(task, "shards"):
        return _running_text(task)
    if not hasattr(task.config, "micro_batches"):
        return skipped("the task has no separate examples")
    try:
        training, valid = (dict(_examples(subject, split)) for split in (Split.TRAIN, Split.VALID))
    except ValueError as error:  # of the config: all examples of a step are compared with each other
        return skipped(str(error))
    if not training or not valid:
        return skipped(f"{len(valid):,} validation and {len(training):,} training examples are too few to compare")
    shared = [digest for digest in valid if digest in training]
    if not shared:
        return passed(f"none of {len(valid):,} validation examples is among {len(training):,} training examples")
    first = f"{valid[shared[0]]} is {training[shared[0]]}"
    return _outcome(len(shared), len(valid), first)


def _outcome(shared: int, total: int, example: str) -> Outcome:
    message = f"{shared:,} of {total:,} validation examples ({shared / total:.0%}) are also training examples"
    status: Status = "failed" if shared > MANY * total else "warning"
    where = "the data: remove duplicates before they are split, or give --valid FILE"
    return Outcome(status, message, example, where)


def _examples(subject: Subject, split: Split) -> Iterator[tuple[bytes, str]]:
    """Yield the hash of each example of a split as it is stored, and its origin.

    A micro-batch of one example has no padding.
    """
    task: Any = subject.task
    sentences = getattr(task, "splits", {}).get(split)
    if isinstance(sentences, Sentences):
        yield from _unmasked(sentences, split)
        return
    source = subject.source(split, micro_batches=1 << 20, augment=False)
    read = 0
    for step in range(source.per_epoch):
        for batch in source.at(step):
            if len(batch.rows) != 1:
                raise ValueError(f"{type(task).__module__} has no batches of one example")
            yield _digest(batch), str(batch.rows[0])
            read += 1
            if read >= MOST:
                return


def _unmasked(sentences: Sentences, split: Split) -> Iterator[tuple[bytes, str]]:
    """Yield the hash of the tokens from each sentence on, within its document, before any of them is masked.

    Fewer than `WINDOW` tokens count only if they are a whole document: the last sentence of a text may be a common one.
    """
    rows, document = sentences.rows, sentences.document
    last = rows.ends[np.searchsorted(document, document, side="right") - 1]
    first = np.searchsorted(document, document, side="left")
    for row in range(min(len(sentences), MOST)):
        start = int(rows.starts[row])
        if last[row] - start >= WINDOW or first[row] == row:
            ids = np.asarray(rows.ids[start : min(start + WINDOW, int(last[row]))], dtype=np.int64)
            yield hashlib.sha256(ids.tobytes()).digest(), f"{split} sentence {row}"


def _digest(batch: Any) -> bytes:
    """Return a hash over all tensors of a batch."""
    digest = hashlib.sha256()
    for value in _tensors(batch):
        digest.update(str(tuple(value.shape)).encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.digest()


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name))
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)


def _running_text(task: Any) -> Outcome:
    """Compare windows of running text: every one of the training part, adjacent ones of the validation part."""
    train, valid = (np.asarray(task.shards[split].ids[: MOST * WINDOW]) for split in (Split.TRAIN, Split.VALID))
    if min(len(train), len(valid)) < WINDOW:
        return skipped(
            f"{len(valid):,} validation and {len(train):,} training tokens have no window of {WINDOW} to compare"
        )
    windows = np.lib.stride_tricks.sliding_window_view(train, WINDOW)
    training = {hash(window.tobytes()) for window in windows}
    starts = range(0, len(valid) - WINDOW + 1, WINDOW)
    shared = [start for start in starts if hash(valid[start : start + WINDOW].tobytes()) in training]
    total = len(starts)
    if not shared:
        return passed(f"none of {total:,} windows of {WINDOW} validation tokens is in {len(train):,} training tokens")
    text = task.tokenizer.decode(valid[shared[0] : shared[0] + WINDOW].tolist())
    return _outcome(len(shared), total, f"{text!r:.200}")
