"""Image processors: pixels equal to those of transformers' Pillow classes, round trips, refusals by name."""

import json
import re

import numpy as np
import pytest
import torch

from saccade.errors import ModelFileError
from saccade.models.vision.vit import ViT, ViTConfig
from saccade.pretrained.image_processors import (
    PREPROCESSOR,
    PROCESSOR,
    ImageProcessor,
    read_image_processor,
    write_image_processor,
)

transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")
pytest.importorskip("PIL", reason="decodes pictures; installed with the [images] extra")

CASES = {
    "ViT": [
        {},
        {"size": {"height": 20, "width": 30}, "resample": 3},
        {"size": 17, "resample": 1},
        {"do_resize": False},
        {"size": {"shortest_edge": 20}, "do_center_crop": True, "crop_size": {"height": 16, "width": 18}},
        {"do_normalize": False},
        {"do_rescale": False, "image_mean": [100.0, 110.0, 120.0], "image_std": [50.0, 51.0, 52.0]},
        {"rescale_factor": 1 / 127.5},
    ],
    "DeiT": [{}, {"size": 40, "crop_size": 32}, {"size": 20, "crop_size": 31}, {"do_center_crop": False}],
    "CLIP": [
        {},
        {"size": 24, "crop_size": 24},
        {"size": {"shortest_edge": 25}, "crop_size": {"height": 20, "width": 20}},
        {"size": {"shortest_edge": 9}, "crop_size": {"height": 14, "width": 21}, "resample": 2},
        {"do_resize": False, "crop_size": {"height": 30, "width": 61}},
    ],
    "Siglip": [{}, {"size": {"height": 21, "width": 21}}, {"size": 22}, {"resample": 2}],
}
SHAPES = ((37, 53), (53, 37), (40, 40), (16, 91), (5, 5), (224, 300))


def picture(height, width):
    return np.random.default_rng(height * 100 + width).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(("kind", "values"), [(kind, values) for kind, cases in CASES.items() for values in cases])
def test_pixels_are_those_of_transformers(kind, values, tmp_path):
    theirs = getattr(transformers, f"{kind}ImageProcessorPil")(**values)
    theirs.save_pretrained(tmp_path)
    ours = read_image_processor(tmp_path, {"model_type": kind.lower()})
    encoder = ViT(ViTConfig(dim=8, depth=0, heads=2, hidden=8))
    ours.normalize(encoder)
    for shape in SHAPES:
        pixels = ours.apply(picture(*shape))
        raw = theirs(picture(*shape), do_rescale=False, do_normalize=False, return_tensors="pt")
        assert pixels.dtype == torch.uint8 and torch.equal(pixels, raw.pixel_values[0].to(torch.uint8)), shape
        expected = theirs(picture(*shape), return_tensors="pt").pixel_values
        torch.testing.assert_close(encoder.normalize(pixels[None]), expected.float(), atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize(("kind", "values"), [(kind, values) for kind, cases in CASES.items() for values in cases])
def test_what_is_written_is_read_by_us_and_by_transformers(kind, values, tmp_path):
    first = ImageProcessor.from_json(tmp_path, {"image_processor_type": f"{kind}ImageProcessor", **values}, "")
    write_image_processor(first, tmp_path)
    assert read_image_processor(tmp_path, {}) == first
    theirs = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    assert type(theirs).__name__ == f"{kind}ImageProcessorPil"
    expected = getattr(transformers, f"{kind}ImageProcessorPil")(**values)
    one, other = (processor(picture(30, 44), return_tensors="pt").pixel_values for processor in (theirs, expected))
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_older_files_and_those_of_a_whole_processor_are_read(tmp_path):
    old = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 24, "crop_size": 20, "resample": 3}
    (tmp_path / PREPROCESSOR).write_text(json.dumps(old))
    processor = read_image_processor(tmp_path, {"model_type": "clip"})
    assert (processor.resize, processor.crop, processor.size) == ((24,), (20, 20), 20)
    new = {"image_processor": {"image_processor_type": "SiglipImageProcessorFast", "size": {"height": 9, "width": 7}}}
    (tmp_path / PROCESSOR).write_text(json.dumps(new))
    processor = read_image_processor(tmp_path, {"model_type": "siglip"})
    assert (processor.kind, processor.resize, processor.crop, processor.size) == ("Siglip", (9, 7), (), 7)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"image_processor_type": "BeitImageProcessor"}, "image_processor_type must be one of .*, but is 'BeitImage"),
        ({"resample": 0}, r"resample must be one of 1 \(lanczos\), 2 \(bilinear\), 3 \(bicubic\), but is '0'"),
        ({"resample": True}, "resample must be one of .*, but is 'True'"),
        ({"do_pad": True}, "do_pad must be false, but is true"),
        ({"do_resize": "yes"}, "do_resize must be true or false, but is 'yes'"),
        ({"size": {"longest_edge": 9}}, re.escape('size must be {"height": ..., "width": ...} or')),
        ({"size": 0}, "a side of size must be from 1 to 16,384, but is '0'"),
        ({"size": {"height": 1 << 40, "width": 2}}, "a side of size must be from 1 to 16,384, but is '1099511627776'"),
        ({"image_mean": [0.5, 0.5]}, r"image_mean must be 3 numbers, but is \[0.5, 0.5\]"),
        ({"image_std": [0.5, 0.0, 0.5]}, r"image_std must be positive, but is \[0.5, 0.0, 0.5\]"),
        ({"rescale_factor": -1}, "rescale_factor must be a positive number, but is '-1'"),
        ({"auto_map": {"AutoImageProcessor": "code.X"}}, "auto_map refers to custom code, which is never run"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(values, message, tmp_path):
    (tmp_path / PREPROCESSOR).write_text(json.dumps(values))
    with pytest.raises(ModelFileError, match=message):
        read_image_processor(tmp_path, {"model_type": "vit"})


def test_a_folder_without_a_processor_says_which_file_is_missing(tmp_path):
    with pytest.raises(ModelFileError, match=r"must hold preprocessor_config\.json, but does not"):
        read_image_processor(tmp_path, {"model_type": "vit"})
