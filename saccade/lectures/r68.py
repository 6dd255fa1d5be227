"""R68: language, vision, speech, graphs and control each had their own method; one attention class serves them all.

Shapes: T positions, F features, D width.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from html import escape

import torch
from torch import Tensor, nn

from saccade.core import AttentionMap
from saccade.lectures._lecture import Lecture, Shown
from saccade.lectures._modalities import MODALITIES, Example, Modality
from saccade.look.draw import svg
from saccade.look.overlay import OverlayStyle
from saccade.nn.attention import Attention
from saccade.nn.linear import Linear
from saccade.nn.masks import Graph, Mask
from saccade.nn.positions import Sinusoidal
from saccade.nn.probe import RecordedRow, watch

DIM, STEPS, LR, SEED = 32, 400, 0.01, 1
POSITION = 0.1  # weight of the positional encoding
VISIBLE = 0.5  # of what the mask allows, while training
STATEMENT = "Speech, vision, language, graphs and control: one attention class for all of them."
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
def show(modality: Modality) -> Shown:
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


def run() -> list[Shown]:
    """Return the maps of all modalities."""
    return [show(modality) for modality in MODALITIES]


STYLE = """
body{margin:0 auto;max-width:110rem;padding:1.5rem;font:16px/1.5 system-ui,sans-serif;color:#1b1f24;background:#fff}
main{display:grid;gap:1.5rem;grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr));align-items:start}
figure{margin:0;border:1px solid #8884;border-radius:.7rem;padding:1rem}
figcaption{margin-bottom:.5rem}svg{max-width:100%;height:auto}h1{font-size:1.4rem}h2{font-size:1.05rem;margin:0}
p{max-width:60rem}code{font-size:.9em}
@media(prefers-color-scheme:dark){body{color:#e6e8eb;background:#15181c}}
"""


def page(shown: Sequence[Shown]) -> str:
    """Return the maps side by side as one HTML file that needs nothing else."""
    lines = len(inspect.getsource(Attention).splitlines())
    used = f"<code>{Attention.__module__}.{Attention.__qualname__}</code>, {lines} lines, serves all {len(shown)} maps."
    figures = "".join(
        f"<figure><figcaption><h2>{escape(item.name)}</h2>{escape(item.about)}</figcaption>"
        f"{svg(item.attention, '', item.style)}</figure>"
        for item in shown
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(STATEMENT)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{escape(STATEMENT)}</h1><p>{escape(ABOUT)}</p><p>{used}</p><main>{figures}</main></body></html>"
    )


LECTURE = Lecture("R68", STATEMENT, run, page)
