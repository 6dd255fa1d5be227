"""Fréchet distance between two sets of feature vectors, and how near generated images are to the training images.

FID (https://arxiv.org/abs/1706.08500) is this distance of the features of an Inception network; with other features the
values are not comparable with it. Shapes: N rows, M other rows, D features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float64]
BLOCK = 4096  # rows that are compared at once


@dataclass(frozen=True)
class Gaussian:
    """Mean (D,) and covariance (D, D) of a set of feature vectors."""

    mean: Vectors
    covariance: Vectors

    @classmethod
    def of(cls, features: Vectors) -> Gaussian:
        """Return the Gaussian with the mean and covariance of features (N, D), of which there are at least two."""
        if len(features) < 2:
            raise ValueError(f"a covariance needs at least 2 rows, but there are {len(features)}")
        centred = features - features.mean(0)
        return cls(features.mean(0), centred.T @ centred / (len(features) - 1))


def frechet_distance(first: Gaussian, second: Gaussian) -> float:
    """Return |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)), at least 0.

    The trace of the root of C1 C2 is the sum of the square roots of the eigenvalues of C1^(1/2) C2 C1^(1/2), which is
    symmetric: both steps are exact for singular covariances too.
    """
    values, vectors = np.linalg.eigh(first.covariance)
    root = (vectors * np.sqrt(values.clip(0))) @ vectors.T
    shared = np.sqrt(np.linalg.eigvalsh(root @ second.covariance @ root).clip(0)).sum()
    traces = np.trace(first.covariance) + np.trace(second.covariance)
    return max(0.0, float(np.square(first.mean - second.mean).sum() + traces - 2 * shared))


def nearest_distances(images: Vectors, others: Vectors) -> Vectors:
    """Return the Euclidean distance of each row (N, D) to the nearest of other rows (M, D): (N,)."""
    squares = np.square(images).sum(1)
    nearest = np.full(len(images), np.inf)
    for first in range(0, len(others), BLOCK):
        block = others[first : first + BLOCK]
        squared = squares[:, None] + np.square(block).sum(1) - 2 * images @ block.T  # (N, block)
        nearest = np.minimum(nearest, squared.min(1))
    distances: Vectors = np.sqrt(nearest.clip(0))
    return distances


@dataclass(frozen=True)
class Novelty:
    """How near generated images are to the training images, beside held-out images."""

    ratio: float
    """median distance to the nearest training image, divided by that of held-out images; far below 1: copies"""
    copies: float
    """% of the images that are nearer to a training image than 99% of the held-out images are"""


def novelty(generated: Vectors, held_out: Vectors, training: Vectors) -> Novelty:
    """Compare the distances of generated and of held-out images (N, D) to the nearest training image."""
    of_generated, of_held_out = (nearest_distances(images, training) for images in (generated, held_out))
    typical = max(float(np.median(of_held_out)), 1e-12)
    near = float(np.quantile(of_held_out, 0.01))
    return Novelty(float(np.median(of_generated)) / typical, 100 * float((of_generated < near).mean()))
