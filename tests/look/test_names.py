"""Titles of maps: layers by number, stacks where there are several, other names as they are."""

import pytest

from saccade.look.names import map_titles


@pytest.mark.parametrize(
    ("names", "titles"),
    [
        (["bert.encoder.3.self", "bert.encoder.4.self"], ["Layer 3 · self-attention", "Layer 4 · self-attention"]),
        (["decoder.11.self"], ["Layer 11 · self-attention"]),
        (
            ["alignment", "encoder.2.self", "decoder.1.self", "decoder.1.cross", "rollout"],
            [
                "Alignment",
                "Encoder 2 · self-attention",
                "Decoder 1 · self-attention",
                "Decoder 1 · cross-attention",
                "Attention rollout",
            ],
        ),
        (
            ["text.encoder.0.self", "vision.encoder.0.self"],
            ["Text encoder 0 · self-attention", "Vision encoder 0 · self-attention"],
        ),
        (["encoder.encoder.0.self", "decoder.0.cross"], ["Encoder 0 · self-attention", "Decoder 0 · cross-attention"]),
        (["encoder.0", "encoder.1"], ["Layer 0", "Layer 1"]),
        (
            ["encoder.0.self", "decoder.0.cross", "window.2.decoder.0.cross"],
            ["Encoder 0 · self-attention", "Decoder 0 · cross-attention", "Window 2 · Decoder 0 · cross-attention"],
        ),
        (["words", "view1", "generator_attention.attention"], ["words", "view1", "generator_attention.attention"]),
    ],
)
def test_maps_have_titles(names, titles):
    assert list(map_titles(names).values()) == titles
