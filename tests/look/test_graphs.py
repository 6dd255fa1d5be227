"""Drawings of graphs: every node and edge with its weight, deterministic, inside the picture."""

import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from saccade.core import AttentionMap, NodeAxis, Role
from saccade.data.graphs.layout import layout
from saccade.look import draw
from saccade.look.picture import png

TITLE = "{http://www.w3.org/2000/svg}title"
EDGES = ((0, 1), (1, 2), (2, 0), (2, 3))


def attention(labels=("a", "b", "c", "<d>")):
    ends = [np.array(side) for side in zip(*EDGES, strict=True)]
    axis = NodeAxis(Role.GRAPH, labels, EDGES, tuple(layout(ends[0], ends[1], 4)))
    weights = torch.tensor([[[0.5, 0.3, 0.2, 0], [0.1, 0.1, 0.8, 0], [0.2, 0.2, 0.2, 0.4], [0, 0, 0.9, 0.1]]])
    return AttentionMap("encoder.0", weights, axis, axis)


def test_an_svg_names_every_edge_and_its_weight():
    text = draw.svg(attention(), "title")
    root = ElementTree.fromstring(text)
    tips = [title.text for title in root.iter(TITLE)]
    assert {"a <- b: 0.300", "b <- a: 0.100", "<d> <- c: 0.900", "c <- <d>: 0.400", "a <- itself: 0.500"} <= set(tips)
    assert text.count('class="a"') == 8 and text.count('class="e"') == 4 and text.count('class="n"') == 4
    strongest = max(re.findall(r'stroke-opacity="([\d.]+)"', text), key=float)
    assert strongest == "1" and "the largest weight is 0.90" in text
    assert text == draw.svg(attention(), "title")


def test_the_rim_of_a_node_is_its_predicted_label():
    plain = attention()
    tags = ("x", "y", "x", "<z>")
    axis = replace(plain.keys, tags=tags)
    text = draw.svg(replace(plain, queries=axis, keys=axis))
    rims = re.findall(r'class="n" [^>]*stroke:(#\w+)', text)
    assert rims[0] == rims[2] and len(set(rims)) == 3, "one colour for each label"
    assert f'fill="{rims[1]}"/><text' in text.replace("\n", "") and ">&lt;z&gt;</text>" in text, "and a legend"
    assert "<d> <- itself: 0.100, predicted <z>" in {title.text for title in ElementTree.fromstring(text).iter(TITLE)}
    with_names = replace(
        plain.keys, nodes=("1", "2", "3", "4", "5", "6"), tags=tuple("abcdef"), edges=(), positions=((0, 0),) * 6
    )
    weights = AttentionMap("encoder.0", torch.eye(6)[None], with_names, with_names)
    assert ">6 f</text>" in draw.svg(weights), "more labels than colours are written"


def test_a_png_is_drawn():
    image = pytest.importorskip("PIL.Image")
    picture = image.open(io.BytesIO(png(attention(), "title")))
    blue = np.asarray(picture.convert("RGB")).astype(int)
    assert picture.size == (1440, 1508)
    assert ((blue[..., 2] - blue[..., 0]) > 100).sum() > 2000


def test_a_layout_is_deterministic_inside_the_square_and_keeps_nodes_apart():
    ring = np.arange(12)
    points = layout(ring, (ring + 1) % 12, 12)
    assert points == layout(ring, (ring + 1) % 12, 12)
    assert all(0 <= part <= 1 for point in points for part in point)
    xy = np.array(points)
    apart = np.linalg.norm(xy[:, None] - xy[None], axis=-1) + np.eye(12)
    neighbours = [apart[n, (n + 1) % 12] for n in range(12)]
    assert apart.min() > 0.1 and max(neighbours) < 0.5
    assert layout(np.zeros(0, int), np.zeros(0, int), 1) == [(0.5, 0.5)]


def test_nodes_with_positions_are_drawn_and_others_are_a_matrix():
    axis = NodeAxis(Role.GRAPH, ("a", "b"))
    plain = AttentionMap("encoder.0", torch.eye(2)[None], axis, axis)
    assert 'class="n"' not in draw.svg(plain) and "a &lt;- b" in draw.svg(plain)
