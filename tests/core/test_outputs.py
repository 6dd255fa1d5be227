"""Outputs: each renders itself as text, JSON and a page element, and no text becomes markup."""

import base64
import io
import json

import pytest
import torch
from PIL import Image as Pillow

from saccade.core import ActionsOutput, ImageOutput, LabelOutput, NumberOutput, Output, SpanOutput
from saccade.core.outputs import TagOutput, TextOutput, VectorOutput

EVIL = "<script>x</script>"
OUTPUTS = [
    TextOutput(EVIL),
    LabelOutput((EVIL,), {EVIL: 0.9, "b": 0.1}),
    SpanOutput(EVIL, 2, 2 + len(EVIL), 0.7, f"a {EVIL} b"),
    TagOutput((EVIL, "b"), ("O", EVIL), (0.5, 0.5)),
    NumberOutput(0.123456, "cosine"),
    VectorOutput(torch.arange(12.0)),
    ImageOutput(torch.zeros(3, 2, 4, dtype=torch.uint8)),
    ActionsOutput((EVIL, "left"), 3.0),
]


def test_every_output_class_is_here():
    own = {output for output in Output.__subclasses__() if output.__module__ == Output.__module__}
    assert {type(output) for output in OUTPUTS} == own


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: output.kind)
def test_an_output_renders_itself(output):
    assert str(output) == output.text and output.text
    assert json.loads(json.dumps(output.to_json()))["kind"] == output.kind
    assert "<script>" not in output.to_html()


def test_outputs_as_text_and_json():
    label, tags = OUTPUTS[1], OUTPUTS[3]
    assert label.to_json()["probabilities"] == {EVIL: 0.9, "b": 0.1}
    assert LabelOutput(("a", "b"), {}).text == "a|b"
    assert TagOutput(("Ann", "ran"), ("B-PER", "O"), (0.9, 0.8)).text == "Ann/B-PER ran/O"
    assert tags.to_json()["probabilities"] == [0.5, 0.5]
    assert SpanOutput("Ann", 3, 6, 0.7, "By Ann.").to_html() == "<p>By <mark>Ann</mark>.</p>"
    assert NumberOutput(0.123456).text == "0.1235" and NumberOutput(0.123456).to_json()["value"] == 0.123456
    assert VectorOutput(torch.tensor([0.5, 1.0])).to_json()["vector"] == [0.5, 1.0]
    assert ActionsOutput(("up",), 1.5).to_json()["return"] == 1.5


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_an_image_is_the_png_of_its_pixels(channels):
    pixels = torch.randint(0, 256, (channels, 5, 7), dtype=torch.uint8)
    png = base64.b64decode(ImageOutput(pixels).to_json()["png"])
    decoded = Pillow.open(io.BytesIO(png))
    assert decoded.size == (7, 5) and decoded.mode == {1: "L", 3: "RGB", 4: "RGBA"}[channels]
    flat = pixels.permute(1, 2, 0).flatten().tolist()
    assert list(decoded.tobytes()) == flat


def test_an_image_of_other_channels_is_refused():
    with pytest.raises(ValueError, match="an image must have 1, 3 or 4 channels, but has 2"):
        ImageOutput(torch.zeros(2, 3, 3, dtype=torch.uint8)).to_html()
