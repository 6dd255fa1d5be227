"""Layout: positions of the nodes of a graph in the plane, by attraction along edges and repulsion of all nodes.

Fruchterman and Reingold, Graph drawing by force-directed placement, 1991; deterministic.
Shapes: N nodes.
"""

import math

import numpy as np
from numpy.typing import NDArray

LARGE = 400  # nodes of a graph that gets fewer rounds
ROUNDS = 300


def layout(source: NDArray[np.int64], target: NDArray[np.int64], nodes: int) -> list[tuple[float, float]]:
    """Return a point for each node, x and y from 0 to 1."""
    if nodes < 2:
        return [(0.5, 0.5)] * nodes
    rounds = ROUNDS if nodes <= LARGE else max(20, ROUNDS * LARGE**2 // nodes**2)
    angle = np.arange(nodes) * math.pi * (3 - math.sqrt(5))  # a spiral: no two nodes start at one point
    points = np.stack((np.cos(angle), np.sin(angle)), 1) * np.sqrt((np.arange(nodes) + 0.5) / nodes)[:, None]
    ideal = 1.6 / math.sqrt(nodes)
    apart = source != target
    source, target = source[apart], target[apart]
    for step in range(rounds):
        move = np.zeros_like(points)
        for axis in (0, 1):
            difference = points[:, None, axis] - points[None, :, axis]  # (N, N)
            if axis == 0:
                across = difference
        distance2 = across**2 + difference**2 + 1e-6
        force = ideal**2 / distance2
        move[:, 0] = (across * force).sum(1)
        move[:, 1] = (difference * force).sum(1)
        along = points[source] - points[target]
        pull = along * (np.linalg.norm(along, axis=1, keepdims=True) / ideal)
        np.add.at(move, source, -pull)
        np.add.at(move, target, pull)
        move -= points * 0.6 * ideal * math.sqrt(nodes)  # gravity keeps unconnected parts together
        length = np.linalg.norm(move, axis=1, keepdims=True)
        heat = 0.12 * (1 - step / rounds) ** 1.5 + 0.002
        points = points + move / np.maximum(length, 1e-9) * np.minimum(length, heat)
    low, high = points.min(0), points.max(0)
    centred = (points - (low + high) / 2) / max(float((high - low).max()), 1e-9) + 0.5
    return [(round(float(x), 4), round(float(y), 4)) for x, y in centred]
