"""Small attention maps over an image for tests."""

import torch

from saccade.core import AttentionMap, GridAxis, Role, TokenAxis


def gradient(height=40, width=60):
    """An image without any colour of the heat map: blue and green grow to the right and down."""
    pixels = torch.zeros(3, height, width, dtype=torch.uint8)
    pixels[1] = torch.linspace(0, 120, height)[:, None].byte()
    pixels[2] = torch.linspace(40, 160, width)[None].byte()
    return pixels


def word_map(weights, words, *, rows=2, columns=3, image=None, extra=()):
    """A map (1, words, cells) over an image."""
    grid = GridAxis(Role.IMAGE, rows, columns, gradient() if image is None else image, extra)
    return AttentionMap(
        "cross", torch.as_tensor(weights, dtype=torch.float32)[None], TokenAxis(Role.TARGET, words), grid
    )


def at_cells(cells, rows=2, columns=3):
    """Rows of weights with all the weight on one cell each."""
    weights = torch.zeros(len(cells), rows * columns)
    for number, (row, column) in enumerate(cells):
        weights[number, row * columns + column] = 1.0
    return weights


def self_map(weights, *, rows=2, columns=3, extra=("class",), name="encoder.0.self"):
    """A map (heads, positions, positions) of an image on itself."""
    grid = GridAxis(Role.IMAGE, rows, columns, gradient(), extra)
    weights = torch.as_tensor(weights, dtype=torch.float32)
    return AttentionMap(name, weights if weights.dim() == 3 else weights[None], grid, grid)
