"""One small model of each kind of input, trained for two steps by the ordinary command: there is attention to see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from saccade.core import AttentionMap, Prediction
from saccade.demo._morse import RATE
from saccade.demo.communities import write_communities
from saccade.lectures import _pictures as pictures
from saccade.lectures import _texts as texts
from saccade.lectures._training import Written, train_model
from saccade.nn.attention import Attention

STEPS = 2
STACK = ("dim=16", "depth=2", "heads=2", "hidden=32")


@dataclass(frozen=True)
class Kind:
    """A kind of model: its task, its data, its settings and an input."""

    name: str
    task: str
    write: Callable[[Path], Written]
    settings: tuple[str, ...]
    make_input: Callable[[], Any]


@dataclass(frozen=True)
class Read:
    """A prediction of a model with the attention of all of its layers."""

    kind: Kind
    prediction: Prediction
    layers: int
    """attention layers of its network"""
    heads: int
    """of all these layers"""

    @property
    def maps(self) -> list[AttentionMap]:
        return list(self.prediction.attention.values())


def _write_pairs(folder: Path) -> Written:
    path = folder / "pairs.tsv"
    path.write_text("we are eating bread\testamos comiendo pan\nwe are reading\testamos leyendo\n")
    return path, path


def _sound() -> tuple[torch.Tensor, int]:
    return torch.from_numpy(pictures.tones("dacb", 999)).float(), RATE


def _people() -> dict[str, Any]:
    """Return two triangles of people that one edge joins."""
    pairs = ((0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3))
    likes = ("chess", "choir", "garden", "rowing", "theatre")
    nodes = [
        {"id": f"p{n}", **{f"likes_{name}": float(n // 3 == at) for at, name in enumerate(likes)}} for n in range(6)
    ]
    return {"nodes": nodes, "edges": [{"source": f"p{a}", "target": f"p{b}"} for a, b in pairs]}


KINDS = (
    Kind(
        "translation",
        "translation",
        _write_pairs,
        (*(f"model.transformer.{setting}" for setting in (*STACK, "decoder_depth=2")), "data.tokenizer=words"),
        lambda: "we are eating bread",
    ),
    Kind(
        "language model",
        "language_model",
        lambda folder: (texts.write_documents(folder, 60), None),
        (*(f"model.{setting}" for setting in STACK), "model.max_positions=32", "batch_size=4"),
        lambda: "the captain",
    ),
    Kind(
        "picture classifier",
        "image_classification",
        lambda folder: (pictures.write_classes(folder, 3), None),
        ("model.architecture=vit", *(f"model.vit.{setting}" for setting in (*STACK, "patch=4")), "augment.flip=false"),
        lambda: pictures.square("green", "right", 215),
    ),
    Kind(
        "speech recognition",
        "speech_recognition",
        lambda folder: (pictures.write_tones(folder, 20), None),
        (
            *("model.encoder=convolutional", "model.convolutional.widths=[8,16]", "bands=16", "search.beam=1"),
            *(f"model.convolutional.transformer.{setting}" for setting in STACK),
            *("model.decoder=transformer", *(f"model.transformer.{setting}" for setting in STACK)),
        ),
        _sound,
    ),
    Kind(
        "node classifier",
        "node_classification",
        lambda folder: (write_communities(folder, members=12).train, None),
        (),
        _people,
    ),
)


def read(kind: Kind) -> Read:
    """Train a model of a kind for two steps and return its prediction with all of its attention."""
    model = train_model(kind.write, kind.task, STEPS, *kind.settings).model
    (network,) = model.task.networks().values()
    layers = [module for module in network.modules() if isinstance(module, Attention)]
    return Read(kind, model(kind.make_input(), attention=True), len(layers), sum(layer.heads for layer in layers))
