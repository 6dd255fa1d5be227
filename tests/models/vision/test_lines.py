"""The encoder of lines: one vector for each column of four pixels, whatever stands beside a line in a batch."""

import pytest
import torch

from saccade.models.vision.lines import LineConfig, LineEncoder, standardize
from saccade.nn.transformer import TransformerConfig


def make(widths: tuple[int, ...] = (4, 8, 8), height: int = 16) -> LineEncoder:
    torch.manual_seed(1)
    shape = TransformerConfig(dim=8, depth=1, heads=2, hidden=12, position="sinusoidal")
    encoder = LineEncoder(LineConfig(widths, shape), height)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return encoder.double().eval()


def lines(*widths: int, height: int = 16) -> list[torch.Tensor]:
    torch.manual_seed(2)
    return [torch.randint(0, 256, (3, height, width), dtype=torch.uint8) for width in widths]


@torch.no_grad()
def test_a_padded_line_has_the_vectors_it_has_alone():
    encoder, (wide, narrow) = make(), lines(32, 20)
    padded = torch.cat((narrow, lines(12)[0]), dim=2)  # with anything behind it
    keep = torch.arange(8) < torch.tensor([8, 5])[:, None]
    together = encoder(torch.stack([wide, padded]), keep=keep)
    torch.testing.assert_close(together[0], encoder(wide[None])[0], atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(together[1, :5], encoder(narrow[None])[0], atol=1e-9, rtol=1e-9)


@torch.no_grad()
def test_every_column_of_pixels_matters_and_each_vector_has_its_position():
    encoder, (line,) = make(), lines(32)
    before = encoder(line[None])
    assert before.shape == (1, 8, 8) and encoder.grid(16, 32) == (1, 8)
    for column in range(32):
        changed = line.clone()
        changed[:, :, column] ^= 128
        assert not torch.allclose(encoder(changed[None]), before)
    blank = encoder(torch.full((1, 3, 16, 64), 200, dtype=torch.uint8))[0]
    assert not torch.allclose(blank[6], blank[9]), "equal columns at different positions"


def test_a_height_that_does_not_halve_is_refused():
    with pytest.raises(ValueError, match="height must be a multiple of 8 for 3 stages, but is 20"):
        make(height=20)
    with pytest.raises(ValueError, match=r"widths must be at least two numbers of channels, but is \[8\]"):
        LineConfig(widths=(8,))


def test_light_text_is_dark_text_and_contrast_does_not_matter():
    (ink,) = lines(24)
    dark = torch.where(ink[None] > 230, 40, 200).to(torch.uint8)  # a tenth of the values is text
    real = torch.ones(1, 1, 1, 24, dtype=torch.bool)
    expected = standardize(dark.double(), real)
    torch.testing.assert_close(standardize(255 - dark.double(), real), expected)
    torch.testing.assert_close(standardize(dark.double() / 2 + 60, real), expected, atol=0.1, rtol=0)
    assert float(expected[dark[:, :1] == 40].mean()) > 1, "the text is positive"
    assert float(standardize(torch.full((1, 3, 16, 24), 90.0), real).abs().max()) == 0


def test_columns_that_are_not_real_do_not_change_the_others():
    (line,) = lines(24)
    real = (torch.arange(24) < 16)[None, None, None]
    padded = standardize(line[None].double(), real)
    torch.testing.assert_close(padded[..., :16], standardize(line[None, :, :, :16].double(), real[..., :16]))
    assert float(padded[..., 16:].abs().max()) == 0
