"""Means of the tokens of texts by a frozen BERT: computed once, on all cores, and kept in the cache.

Shapes: N texts, D width.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from saccade.core import Progress, ignore_progress
from saccade.data.batching import length_groups
from saccade.data.cache import EntryWriter, Record, cached
from saccade.models.text.bert import Bert, pool
from saccade.tasks._parallel import parallel_map
from saccade.tasks._vision.features import hash_weights
from saccade.tasks._vision.texts import EncodedColumn

ROWS, POSITIONS = 64, 1 << 10  # of a batch: fits into the cache of a core

Means = NDArray[np.float16]


def token_means(bert: Bert, texts: EncodedColumn, progress: Progress = ignore_progress) -> Means:
    """Return the mean of the token vectors of each text (N, D), from the cache if it is there."""
    device = next(bert.parameters()).device

    @torch.no_grad()
    def compute(rows: list[int]) -> tuple[list[int], Means]:
        inputs = texts.pad(rows)
        keep = None if inputs.keep is None else inputs.keep.to(device)
        means = pool(bert(inputs.ids.to(device), keep), keep, "mean")
        half: Means = means.to(torch.float16).cpu().numpy()
        return rows, half

    def build(writer: EntryWriter) -> Record:
        lengths = [len(texts[row].ids) for row in range(len(texts))]
        groups = list(length_groups(lengths, ROWS, POSITIONS))
        out, done = np.empty((len(texts), bert.config.dim), np.float16), 0
        for rows, means in parallel_map(compute, groups) if device.type == "cpu" else map(compute, groups):
            out[rows] = means
            done += len(rows)
            progress(done / len(texts))
        writer.array("means", "float16").write(out)
        return {}

    training = bert.training
    bert.eval()  # a new network is in training mode until the loop has it
    try:
        reader = texts.reader
        ends = [list(reader.before), list(reader.after), reader.max_length]
        entry = cached("text-means", [texts.tokens.fingerprint(), ends, hash_weights(bert)], build)
    finally:
        bert.train(training)
    return entry.arrays["means"].reshape(-1, bert.config.dim)
