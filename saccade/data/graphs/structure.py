"""Structure: positions of nodes that follow from the edges alone: random walks and eigenvectors of the Laplacian.

Shapes: N nodes, K positions.
"""

import numpy as np
from numpy.typing import NDArray

from saccade.errors import DataError

LARGEST = 4000  # nodes of a graph whose positions are computed from a full matrix
SAME = 1e-6  # difference of eigenvalues that count as equal

Ends = tuple[NDArray[np.int64], NDArray[np.int64]]
"""source and target of every edge, both directions"""


def random_walk(ends: Ends, nodes: int, steps: int, origin: str = "the graph") -> NDArray[np.float32]:
    """Return the probability that a random walk from each node is back after 1, 2, ... steps: (N, K).

    https://arxiv.org/abs/2110.07875
    """
    adjacency = _adjacency(ends, nodes, origin)
    walk = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1)
    out, power = np.zeros((nodes, steps), np.float32), np.eye(nodes, dtype=np.float32)
    for step in range(steps):
        power = power @ walk
        out[:, step] = np.diagonal(power)
    return out


def laplacian(ends: Ends, nodes: int, count: int, origin: str = "the graph") -> NDArray[np.float32]:
    """Return eigenvectors of the normalized Laplacian with the smallest eigenvalues above 0: (N, K).

    Their signs are arbitrary, so that a model must not depend on them; those that a small graph lacks are 0. The
    eigenvectors of an eigenvalue that is there several times are arbitrary too: instead of them each node has the root
    mean square of its entries in all of them, which depends on their span alone.
    """
    adjacency = _adjacency(ends, nodes, origin)
    adjacency = np.maximum(adjacency, adjacency.T).astype(np.float64)
    scale = 1 / np.sqrt(np.maximum(adjacency.sum(1), 1))
    values, vectors = np.linalg.eigh(np.eye(nodes) - adjacency * scale[:, None] * scale)
    positive = values > SAME
    values, vectors = values[positive], vectors[:, positive]
    for columns in np.split(np.arange(len(values)), np.flatnonzero(np.diff(values) > SAME) + 1):
        if len(columns) > 1:
            vectors[:, columns] = np.sqrt(np.square(vectors[:, columns]).mean(1, keepdims=True))
    chosen = vectors[:, :count] * np.sqrt(nodes)
    return np.pad(chosen, ((0, 0), (0, count - chosen.shape[1]))).astype(np.float32)


def _adjacency(ends: Ends, nodes: int, origin: str) -> NDArray[np.float32]:
    if nodes > LARGEST:
        message = f"{origin}: {nodes:,} nodes, expected at most {LARGEST:,} for positions of the nodes"
        raise DataError(f"{message}; train without them: model.transformer.position=none")
    source, target = ends
    adjacency = np.zeros((nodes, nodes), np.float32)
    adjacency[target, source] = 1
    return adjacency
