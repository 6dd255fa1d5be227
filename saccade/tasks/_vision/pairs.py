"""Pairs of images and captions: which belong together, and how well one finds the other.

Shapes: N rows, I images, C captions, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from saccade.core import Evaluation, Table
from saccade.metrics.retrieval import CUTOFFS, Retrieval, score_retrieval

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pairs:
    """The image and the caption of each row, by numbers; copies of an image or of a caption have the same one."""

    images: Numbers  # (N,)
    captions: Numbers  # (N,)

    @classmethod
    def of(cls, image_hashes: NDArray[np.uint64], captions: Sequence[str]) -> Pairs:
        """Number the images by their content and the captions by their text."""
        numbers: dict[str, int] = {}
        texts = [numbers.setdefault(" ".join(caption.split()), len(numbers)) for caption in captions]
        return cls(np.unique(image_hashes, return_inverse=True)[1].astype(np.int64), np.array(texts, dtype=np.int64))

    @cached_property
    def _codes(self) -> Numbers:
        """One number for each image with one of its captions, sorted."""
        return np.unique(self.images * (int(self.captions.max()) + 1) + self.captions)

    def match(self, images: Numbers, captions: Numbers) -> NDArray[np.bool_]:
        """Return which of some captions belong to which of some images, in any row: (I, C)."""
        codes = images[:, None] * (int(self.captions.max()) + 1) + captions
        at = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
        matches: NDArray[np.bool_] = self._codes[at] == codes
        return matches

    def candidates(self, most: int) -> tuple[Numbers, Numbers]:
        """Return the first rows of at most `most` different images (0: all), and those of all their captions."""
        _, first = np.unique(self.images, return_index=True)
        first = np.sort(first)
        if most and len(first) > most:
            first = first[:: -(-len(first) // most)]
        own = np.flatnonzero(np.isin(self.images, self.images[first]))
        _, at = np.unique(self.captions[own], return_index=True)
        return first, np.sort(own[at])


def evaluate_retrieval(images: Tensor, captions: Tensor, relevant: NDArray[np.bool_], *, complete: bool) -> Evaluation:
    """Evaluate how well vectors of images (I, D) and of captions (C, D), of length 1, find each other."""
    similarity = images.float().numpy() @ captions.float().numpy().T  # autocast would round a product of tensors
    directions = {
        "text_to_image": score_retrieval(similarity.T, relevant.T),
        "image_to_text": score_retrieval(similarity, relevant),
    }
    recalls = [direction.recall[k].value for direction in directions.values() for k in CUTOFFS]
    chances = [direction.chance_recall[k] for direction in directions.values() for k in CUTOFFS]
    values = {"mean_recall": float(np.mean(recalls)), "chance": float(np.mean(chances))}
    signatures: dict[str, str] = {}
    for name, direction in directions.items():
        scores = {f"{name}_recall_at_{k}": direction.recall[k] for k in CUTOFFS}
        scores[f"{name}_median_rank"] = direction.median_rank
        values |= {key: score.value for key, score in scores.items()}
        signatures |= {key: score.signature for key, score in scores.items()}
    values |= {"images": len(images), "captions": len(captions)}
    return Evaluation(values, signatures, [_table(directions)], complete=complete)


def _table(directions: Mapping[str, Retrieval]) -> Table:
    """Return recall and median rank in both directions, each beside a random order."""
    rows = []
    for name, scores in directions.items():
        recalls = tuple(f"{scores.recall[k].value:.1f}" for k in CUTOFFS)
        chances = tuple(f"{scores.chance_recall[k]:.1f}" for k in CUTOFFS)
        rows.append((name.replace("_", " "), *recalls, f"{scores.median_rank.value:g}"))
        rows.append(("by chance", *chances, f"{scores.chance_rank:g}"))
    return Table("retrieval", ("direction", *(f"recall@{k}" for k in CUTOFFS), "median rank"), tuple(rows))
