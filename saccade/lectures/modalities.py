"""R68: language, vision, speech, graphs and control each had their own method; one attention class serves them all.

Shapes: T positions, F features, D width.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from saccade.core import AttentionMap, GridAxis
from saccade.lectures._modalities import EDGES, MODALITIES, SENTENCE, Example, Modality
from saccade.lectures._row import Demonstration, Row, Shown
from saccade.look.overlay import OverlayStyle
from saccade.models.graph.transformer import GraphTransformer, GraphTransformerConfig
from saccade.models.policy.policy import Policy, PolicyConfig, Scale
from saccade.models.speech.encoders import ConvolutionalConfig, ConvolutionalEncoder
from saccade.models.text.gpt import GPT, GPTConfig
from saccade.models.vision.vit import ViT, ViTConfig
from saccade.nn.attention import Attention
from saccade.nn.linear import Linear
from saccade.nn.masks import Graph, Mask
from saccade.nn.positions import Sinusoidal
from saccade.nn.probe import RecordedRow, watch
from saccade.nn.transformer import TransformerConfig

DIM, STEPS, LR, SEED = 32, 400, 0.01, 1
POSITION = 0.1  # weight of the positional encoding
LAYERS = 2  # of each model that is counted
VISIBLE = 0.5  # of what the mask allows, while training
ABOUT = (
    "Each input is a sequence of vectors. The same network reads all of them: a linear layer, positions, the class "
    "Attention, a linear layer. It is trained to rebuild each position from the others. The weights of queries and "
    "keys start equal, so that a position attends to others like it even before training. Only the mask says what a "
    "modality allows: all others, neighbours in a graph, or the past."
)


class Reader(nn.Module):
    """Rebuilds every position of a sequence from those that it may see."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.embed = Linear(features, DIM)
        self.position = Sinusoidal(DIM)
        self.attention = Attention(DIM, 1)
        with torch.no_grad():  # queries and keys start alike, so that like positions attend to each other
            self.attention.qkv.weight[DIM : 2 * DIM] = self.attention.qkv.weight[:DIM]
            self.attention.qkv.bias.zero_()
        self.head = Linear(DIM, features)

    def forward(self, features: Tensor, mask: Mask) -> Tensor:
        """Return the rebuilt features (1, T, F)."""
        x = self.embed(features) + POSITION * self.position(0, features.shape[1], features.device)
        rebuilt: Tensor = self.head(self.attention(x, mask=mask))
        return rebuilt


def train_reader(example: Example) -> Reader:
    """Return a network that has learned to rebuild one example; always the same for the same example."""
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(SEED)
        reader = Reader(example.features.shape[1])
        optimizer = torch.optim.AdamW(reader.parameters(), LR)
        count, width = example.features.shape
        for _ in range(STEPS):
            visible = Graph(torch.rand(count, count) < VISIBLE)  # so that no single position can stand for another
            features = example.features[:, torch.randperm(width)] if example.one_hot else example.features
            loss = (reader(features[None], example.mask & visible) - features).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return reader.eval()


@torch.no_grad()
def read_map(modality: Modality) -> Shown:
    """Return the attention of one modality, read by the probe beside the fused kernel."""
    example = modality.make()
    reader = train_reader(example)
    with watch(reader) as recorder:
        reader(example.features[None], example.mask)
    ((name, recorded),) = recorder.items()
    count, features = example.features.shape
    axis, weights = example.axis, RecordedRow(recorded, 0).rows(0, count)
    about = f"{modality.about}. {count} positions of {features} features."
    style = OverlayStyle(at=example.query, smooth=False)
    return Shown(modality.name, about, AttentionMap(name, weights, axis, axis), style)


def all_modalities(show: Demonstration) -> None:
    """R68: the maps of all modalities, read by networks with the same attention class."""
    lines = len(inspect.getsource(Attention).splitlines())
    show.note(ABOUT)
    show.note(f"{Attention.__module__}.{Attention.__qualname__}, {lines} lines, serves all {len(MODALITIES)} maps.")
    maps = {modality.name: read_map(modality) for modality in MODALITIES}
    for item in maps.values():
        show.map(item.name, item.about, item.attention, item.style)
    rows = []
    for name, network in _product_models().items():
        layers: list[Any] = [part for part in network.modules() if hasattr(part, "weights") and hasattr(part, "heads")]
        rows.append((name, type(network).__name__, len(layers), sum(layer.heads for layer in layers)))
        kinds = sorted({f"{type(layer).__module__}.{type(layer).__qualname__}" for layer in layers})
        show.equal(
            f"{name}: classes of its attention layers", kinds, [f"{Attention.__module__}.{Attention.__qualname__}"]
        )
        show.equal(f"{name}: attention layers", len(layers), LAYERS)
        others = [module for module in network.modules() if isinstance(module, nn.MultiheadAttention)]
        show.equal(f"{name}: attention layers of torch", len(others), 0)
    show.table(
        "the models that are trained on files of each kind", ("input", "model", "attention layers", "heads"), rows
    )
    _check_maps(show, {name: item.attention.weights[0] for name, item in maps.items()}, maps["vision"])


def _product_models() -> dict[str, nn.Module]:
    """Return a model of each modality as the tasks build them, with `LAYERS` layers."""
    size: dict[str, Any] = {"dim": 16, "depth": LAYERS, "heads": 2, "hidden": 32}
    stack, state = TransformerConfig(**size), Scale((0.0, 0.0), (1.0, 1.0))
    return {
        "language": GPT(GPTConfig(**size), 20),
        "vision": ViT(ViTConfig(**size, image_size=8, patch=4)),
        "speech": ConvolutionalEncoder(ConvolutionalConfig(widths=(8, 8), transformer=stack), 16),
        "graphs": GraphTransformer(GraphTransformerConfig(**size), 3, 1),
        "control": Policy(PolicyConfig(transformer=stack), state, labels=2),
    }


def _check_maps(show: Demonstration, weights: dict[str, Tensor], vision: Shown) -> None:
    """Check what each map must show: copies of a word, cells of a disc, frames of a pitch, neighbours, the past."""
    words = SENTENCE.split()
    repeated = [at for at, word in enumerate(words) if words.count(word) == 2]
    copies = sum(words[int(weights["language"][at].argmax())] == words[at] for at in repeated)
    show.equal("language: words that occur twice look most at their copy", copies, len(repeated))
    axis, at = vision.attention.queries, vision.style.at
    assert isinstance(axis, GridAxis) and axis.image is not None and at is not None
    best = int(weights["vision"][at[0] * axis.columns + at[1]].argmax())
    side = axis.image.shape[1] // axis.rows
    top, left = (side * cell + side // 2 for cell in divmod(best, axis.columns))
    show.equal("vision: colour where a cell of a disc looks most", axis.image[:, top, left].tolist(), [230, 60, 50])
    first, second = [0, 1, 2, 7, 8, 9], [4, 5, 10, 11, 12]  # frames within a tone
    own = min(float(weights["speech"][frames][:, frames].sum(1).min()) for frames in (first, second))
    show.above("speech: weight of a frame on frames of its pitch, at least", own, 0.8)
    edges = {*EDGES, *((b, a) for a, b in EDGES)}
    seen = {(int(a), int(b)) for a, b in torch.nonzero(weights["graphs"])}
    show.equal("graphs: pairs with a weight that are no edge, and edges without", len(seen ^ edges), 0)
    show.equal(
        "control: largest weight on the present or the future", float(weights["control"].triu().abs().max()), 0.0
    )


TITLE = "Speech, vision, language, graphs and control: one attention class for all of them"
ROWS = (Row("R68", TITLE, all_modalities, 6.0),)
