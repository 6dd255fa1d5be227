"""How image tasks read images: as the processor of a pretrained encoder does, or by the sizes of the images."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.config import override
from saccade.core import Image as InputField
from saccade.core import Pretrained, Split
from saccade.data.images.pictures import PictureFiles, PixelPictures
from saccade.errors import DataError, UsageError
from saccade.models.vision.vit import ViT, ViTConfig
from saccade.pretrained.image_processors import ImageProcessor
from saccade.tasks._vision.image_format import ImageFormat, default_size, median_side
from saccade.tasks._vision.processors import format_of
from saccade.tasks.captioning import CaptionConfig
from saccade.tasks.captioning import Task as Captioning
from saccade.tasks.image_classification import ClassificationConfig, Task
from tests.tasks.battery import DECODER

SHAPES = ((40, 57), (57, 40), (33, 90), (70, 31), (36, 36), (12, 25), (37, 44), (45, 38))
PROCESSORS = {
    "ViT, squashed": ImageProcessor((24, 24), (), "bilinear"),
    "DeiT, squashed and cropped": ImageProcessor((30, 30), (24, 24), kind="DeiT"),
    "CLIP": ImageProcessor((24,), (24, 24), kind="CLIP"),
    "EfficientNet": ImageProcessor((32,), (24, 24), "bicubic"),
    "timm, an odd margin": ImageProcessor((27,), (24, 24), "lanczos"),
}
ENCODER = ViTConfig(dim=12, depth=1, heads=2, hidden=16, image_size=24, patch=6, class_token=True)


def base_with(processor: Any) -> Pretrained:
    torch.manual_seed(5)
    encoder = ViT(ENCODER)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return Pretrained(encoder, ENCODER, processor, None, "image_classification")


def write_classes(folder: Path, copies: int = 3) -> dict[str, np.ndarray]:
    """Write pictures of many shapes in two folders; returns their pixels by their paths."""
    rng, pixels = np.random.default_rng(1), {}
    for number, shape in enumerate(SHAPES * copies):
        path = folder / ("cat", "dog")[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels[str(path)] = rng.integers(0, 256, (*shape, 3), dtype=np.uint8)
        Image.fromarray(pixels[str(path)]).save(path)
    return pixels


@pytest.mark.parametrize("name", PROCESSORS)
def test_images_for_a_pretrained_encoder_are_read_as_its_processor_reads_them(name: str, tmp_path: Path) -> None:
    processor, pixels = PROCESSORS[name], write_classes(tmp_path / "data")
    config = override(ClassificationConfig(), ["base=somewhere", "tune=head", "augment.shift=0"])
    (tmp_path / "assets").mkdir()
    Task.prepare(config, tmp_path / "data", tmp_path / "assets", base=base_with(processor))
    task = Task.open(config, tmp_path / "assets")
    task.load_data(tmp_path / "data")
    assert task.format == format_of(processor)
    for examples in task.splits.values():
        rows = list(range(len(examples)))
        stored = task.centred(examples.pixels(rows))
        paths = [examples.rows.pictures.name(number) for number in examples.rows.picture.tolist()]
        assert torch.equal(stored, torch.stack([processor.apply(pixels[path]) for path in paths]))
        assert torch.equal(stored[0], task.format.read(Path(paths[0]).read_bytes())), "predict reads the same"


def test_a_frozen_encoder_sees_the_border_that_its_processor_crops(tmp_path: Path) -> None:
    processor, pixels = PROCESSORS["timm, an odd margin"], write_classes(tmp_path / "data")
    rows = [f"{Path(path).relative_to(tmp_path / 'data')},picture number {n}" for n, path in enumerate(pixels)]
    (tmp_path / "data" / "metadata.csv").write_text("\n".join(["file_name,caption", *rows]))
    (tmp_path / "assets").mkdir()
    base, config = base_with(processor), override(CaptionConfig(), [*DECODER, "base=somewhere"])
    Captioning.prepare(config, tmp_path / "data", tmp_path / "assets", base=base)
    task = Captioning.open(config, tmp_path / "assets")
    task.load_data(tmp_path / "data")
    examples: Any = task.splits[Split.TRAIN]
    number = int(examples.rows.picture[0])
    with torch.no_grad():
        path = examples.rows.pictures.name(number)
        expected = base.network.eval()(replace(processor, resize=(24,)).apply(pixels[path])[None])
    vectors = examples.features.batch(np.array([number])).float()
    torch.testing.assert_close(vectors, expected, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize(
    ("side", "size", "expected"),
    [
        (32, 0, ImageFormat(32, 32)),
        (70, 0, ImageFormat(64, 64)),
        (80, 0, ImageFormat(64, 73)),  # a margin for random crops, as the images are large enough
        (300, 0, ImageFormat(64, 73)),
        (300, 224, ImageFormat(224, 256)),
        (250, 224, ImageFormat(224, 224)),
        (52, 0, ImageFormat(48, 48)),
    ],
)
def test_large_images_are_stored_with_a_margin(side: int, size: int, expected: ImageFormat) -> None:
    pictures = PixelPictures("x.npy", np.zeros((3, side, side + 9), np.uint8), ["x"])
    config = ClassificationConfig(size=size)
    assert Task.choose_format(config, pictures, None) == expected
    chosen = Task.choose_format(override(config, ["base=x"]), pictures, base_with(PROCESSORS["ViT, squashed"]))
    assert chosen.size == (size or 24) and chosen.interpolation == "bilinear"


def test_the_median_side_is_that_of_the_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, shape in enumerate([(20, 30), (50, 40), (44, 90)]):
        Image.fromarray(np.zeros((*shape, 3), np.uint8)).save(tmp_path / f"{number}.png")
    whole = (tmp_path / "2.png").read_bytes()
    (tmp_path / "2.png").write_bytes(whole[:60])  # the header alone
    (tmp_path / "3.png").write_bytes(b"no picture")
    (tmp_path / "4.png").write_bytes(whole[:12])
    names = [*(f"{number}.png" for number in range(5)), "missing.png"]
    assert median_side(PictureFiles(tmp_path, names)) == 40
    assert median_side(PictureFiles(tmp_path, names[3:])) == 64, "decoding refuses all of them"
    assert [default_size(side) for side in (1, 31, 39, 500)] == [1, 31, 32, 64]


def test_all_damaged_images_are_named_in_one_attempt(tmp_path: Path) -> None:
    paths = [Path(path) for path in write_classes(tmp_path / "data")]
    for path in paths[3:13]:
        path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError) as error:
        Task.prepare(ClassificationConfig(), tmp_path / "data", tmp_path)
    named = [line.split(": ")[0] for line in str(error.value).splitlines() if "a damaged PNG picture" in line]
    assert sorted(named) == sorted(map(str, paths[3:13]))


@pytest.mark.parametrize("architecture", ["cnn", "cnn+attention"])
def test_images_too_small_for_the_convolutions_are_refused(architecture: str, tmp_path: Path) -> None:
    write_classes(tmp_path / "data")
    config = override(ClassificationConfig(), [f"model.architecture={architecture}", "size=7"])
    rule = rf"size must be at least 8 for the architecture {re.escape(architecture)}, but the images are read as 7 x 7"
    with pytest.raises(UsageError, match=f"{rule} pixels; set size=8 or more, or choose vit"):
        Task.prepare(config, tmp_path / "data", tmp_path)
    config = override(config, ["size=8"])
    Task.prepare(config, tmp_path / "data", tmp_path)
    task = Task.open(config, tmp_path)
    task.load_data(tmp_path / "data")
    task.model.eval()
    assert task.classify(task.centred(task.splits[Split.VALID].pixels([0]))).shape == (1, 2)


def test_a_long_thin_input_is_refused_by_its_name(tmp_path: Path) -> None:
    Image.new("RGB", (1, 200_000)).save(tmp_path / "thin.png")
    rule = r"1 x 200,000 pixels, resized 64 x 12,800,000, expected at most 64 million after resizing; cut the picture"
    for value, name in ((tmp_path / "thin.png", tmp_path / "thin.png"), (np.zeros((200_000, 1), np.uint8), "image")):
        with pytest.raises(UsageError, match=f"^{name}: {rule}"):
            ImageFormat(64, 64).read(InputField("image").read(value))


def test_a_base_without_square_images_needs_a_size() -> None:
    pictures = PixelPictures("x.npy", np.zeros((3, 40, 40), np.uint8), ["x"])
    config, base = ClassificationConfig(base="x"), base_with(ImageProcessor((20, 30)))
    rule = r"must resize to a square, or crop one, but its size and crop_size are \[20, 30\] and none"
    with pytest.raises(UsageError, match=rule + ".*can be trained from with size=N"):
        Task.choose_format(config, pictures, base)
    assert Task.choose_format(override(config, ["size=24"]), pictures, base) == ImageFormat(24, 27)
