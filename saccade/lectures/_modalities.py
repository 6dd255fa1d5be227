"""One example of each modality as a sequence of vectors: a sentence, a picture, a sound, a graph and states.

Shapes: T positions, F features. A modality is an entry of the table `MODALITIES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.core import Axis, GridAxis, NodeAxis, Role, StepAxis, TimeAxis, TokenAxis
from saccade.nn.masks import Causal, Graph, Mask

SENTENCE = "the black cat saw the dog and the dog saw the black bird"
NAMES = 40  # of words; most of them are not in the sentence
SIDE, PATCH = 40, 5  # pixels of the picture and of a cell of it
RATE, FRAME, BANDS = 8000, 600, 20  # samples a second, samples of a frame, bands of the spectrogram
TONES = (440.0, 1250.0, 440.0, 1250.0)  # Hz, one after another
EDGES = ((0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (3, 4), (4, 5), (4, 6), (5, 6), (5, 7), (6, 7))
STEPS = 20


@dataclass(frozen=True)
class Example:
    """A sequence of vectors, who may see whom, and what its positions are."""

    features: Tensor
    """(T, F)"""
    mask: Mask
    axis: Axis
    query: tuple[int, int] | None = None
    """over a picture: row and column of the cell whose attention is shown"""
    one_hot: bool = False
    """whether a vector only names what is at its position: then the names are exchanged while training"""


@dataclass(frozen=True)
class Modality:
    """A kind of input and one example of it."""

    name: str
    about: str
    make: Callable[[], Example]


def others(count: int) -> Graph:
    """Every position sees all others, but not itself."""
    return Graph(~torch.eye(count, dtype=torch.bool))


def sentence() -> Example:
    """Words, as one-hot vectors."""
    words = SENTENCE.split()
    vocabulary = sorted(set(words))
    features = 4 * torch.eye(NAMES)[[vocabulary.index(word) for word in words]]
    return Example(features, others(len(words)), TokenAxis(Role.TEXT, tuple(words)), one_hot=True)


def picture() -> Example:
    """Cells of a picture of two discs and a square, as their pixels."""
    rows, columns = (torch.arange(SIDE).float() + 0.5 for _ in range(2))

    def disc(row: float, column: float) -> Tensor:
        return ((rows[:, None] - row) ** 2 + (columns - column) ** 2).sqrt() < 6

    pixels = torch.tensor([40.0, 60.0, 120.0])[:, None, None].expand(3, SIDE, SIDE).clone()
    pixels[:, disc(10, 10) | disc(30, 30)] = torch.tensor([230.0, 60.0, 50.0])[:, None]
    pixels[:, 25:35, 5:15] = torch.tensor([240.0, 220.0, 90.0])[:, None, None]
    cells = pixels.unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH)  # (3, R, C, patch, patch)
    count = SIDE // PATCH
    features = cells.permute(1, 2, 0, 3, 4).reshape(count * count, -1) / 127.5 - 1
    axis = GridAxis(Role.IMAGE, count, count, pixels.byte())
    return Example(features, others(count * count), axis, query=(2, 2))


def sound() -> Example:
    """Frames of a sound of two tones in turn, as the logarithm of the energy in bands of equal width."""
    seconds = torch.arange(RATE // 4) / RATE  # of one tone
    samples = torch.cat([torch.sin(2 * math.pi * tone * seconds) for tone in TONES])
    frames = samples.unfold(0, FRAME, FRAME) * torch.hann_window(FRAME)  # (T, samples)
    energy = torch.fft.rfft(frames).abs().square()[:, : FRAME // 4]  # up to 2 kHz
    bands = torch.nn.functional.adaptive_avg_pool1d(energy[:, None], BANDS)[:, 0]
    logarithm = torch.log10(bands + 1e-3)
    features = (logarithm - logarithm.mean()) / logarithm.std()
    return Example(features, others(len(features)), TimeAxis(Role.AUDIO, len(features), FRAME / RATE))


def graph() -> Example:
    """Nodes of two communities, as the community of each with noise; a node sees its neighbours alone."""
    count = 1 + max(max(edge) for edge in EDGES)
    adjacency = torch.zeros(count, count, dtype=torch.bool)
    for first, second in EDGES:
        adjacency[first, second] = adjacency[second, first] = True
    community = (torch.arange(count) > 3).long()
    noise = torch.randn(count, 6, generator=torch.Generator().manual_seed(1))
    features = torch.cat((2 * torch.eye(2)[community], 0.3 * noise), 1)
    places = tuple(
        (0.3 + 0.4 * int(group) + 0.16 * math.cos(1.6 * node), 0.5 + 0.3 * math.sin(1.6 * node))
        for node, group in enumerate(community)
    )
    axis = NodeAxis(Role.GRAPH, tuple("ABCDEFGHIJ"[:count]), EDGES, places)
    return Example(features, Graph(adjacency), axis)


def states() -> Example:
    """Positions and velocities of a pendulum; a step sees earlier steps alone."""
    state, rows = [1.0, 0.0], []
    for _ in range(STEPS):
        rows.append(list(state))
        state[1] -= 0.6 * state[0]
        state[0] += 0.6 * state[1]
    features = torch.tensor(rows)
    axis = StepAxis(Role.STATE, tuple(f"step {number}" for number in range(1, STEPS + 1)))
    return Example(features / features.std(0), Causal() & others(STEPS), axis)


MODALITIES = (
    Modality("language", "13 words; each looks for the same word elsewhere", sentence),
    Modality("vision", "64 cells of a picture; a cell inside a disc looks at the inside of both discs", picture),
    Modality("speech", "13 frames of a sound of two tones in turn; each looks at frames of its own pitch", sound),
    Modality("graphs", "8 nodes; each looks at its neighbours alone, most at those of its community", graph),
    Modality(
        "control",
        "20 states of a pendulum; each looks back, also at the same phase one swing before",
        states,
    ),
)
