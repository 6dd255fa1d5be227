"""Image classification: learns, augments reproducibly, shows exact attention, and is exchanged with transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import saccade
from saccade.config import override
from saccade.core import GridAxis, Split
from saccade.errors import DataError, UsageError
from saccade.models.vision.encoder import VisionEncoder
from saccade.tasks.image_classification import ClassificationConfig, Task
from tests.tasks import scenes

TINY = {
    "cnn": ["model.cnn.widths=[8,16]", "model.cnn.attention_stage=1", "model.cnn.heads=2"],
    "hybrid": [
        "model.hybrid.convolution.widths=[8]",
        "model.hybrid.convolution.attention_stage=1",
        *(f"model.hybrid.transformer.{setting}" for setting in ("dim=16", "depth=1", "heads=2", "hidden=32")),
    ],
    "vit": [f"model.vit.{setting}" for setting in ("dim=16", "depth=2", "heads=2", "hidden=32", "patch=4")],
}
SETTINGS = {
    "cnn": ["model.architecture=cnn", *TINY["cnn"]],
    "cnn+attention": ["model.architecture=cnn+attention", *TINY["cnn"]],
    "hybrid": ["model.architecture=hybrid", *TINY["hybrid"]],
    "vit": ["model.architecture=vit", *TINY["vit"]],
}
COMMON = ["augment.flip=false", "batch_size=24", "train.device=cpu", "train.precision=float32"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scenes.write_classes(tmp_path_factory.mktemp("data"))


def train(data: Path, folder: Path, architecture: str, *overrides: str, **settings: Any) -> saccade.Run:
    chosen = [*SETTINGS[architecture], *COMMON, *overrides]
    return saccade.train(data, root=folder, name="run", overrides=chosen, progress=False, **settings)


@pytest.fixture(scope="module", params=list(SETTINGS))
def run(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> saccade.Run:
    return train(data, tmp_path_factory.mktemp("runs"), request.param, steps=12)


def task_of(run: saccade.Run, data: Path) -> Task:
    task = saccade.load(run, device="cpu").task
    task.load_data(data)
    assert isinstance(task, Task)
    return task


def test_the_task_is_guessed_and_every_architecture_predicts_with_probabilities(run: saccade.Run) -> None:
    model = saccade.load(run, device="cpu")
    image = scenes.draw("red", "square", "left")
    prediction = model(image)
    assert prediction.output.to_json()["labels"][0] in ("left bar", "left square", "right bar", "right square")
    assert sum(prediction.scores.values()) == pytest.approx(1)
    several = model([image, scenes.draw("blue", "bar", "right")])
    assert several[0].scores == pytest.approx(prediction.scores, abs=1e-5)


def test_attention_covers_the_image_and_sums_to_one(run: saccade.Run) -> None:
    model = saccade.load(run, device="cpu")
    prediction = model(scenes.draw("red", "square", "left"), attention=True)
    architecture = model.task.config.model.architecture
    if architecture == "cnn":
        assert not prediction.attention
        with pytest.raises(UsageError, match="has no attention to show"):
            model.attention(scenes.draw("red", "square", "left"))
        return
    for attention in prediction.attention.values():
        assert isinstance(attention.keys, GridAxis) and attention.keys.image is not None
        assert attention.keys.image.shape == (3, 16, 16)
        assert attention.keys.rows * attention.keys.columns + len(attention.keys.extra) == attention.shape[2]
        torch.testing.assert_close(attention.weights.sum(-1), torch.ones(attention.shape[:2]))


def test_the_map_of_a_clicked_pixel_equals_the_eager_weights(data: Path, tmp_path: Path) -> None:
    run = train(data, tmp_path, "cnn+attention", steps=2)
    model = saccade.load(run, device="cpu")
    pixels = scenes.draw("green", "bar", "right")
    prediction = model(pixels, attention=True)
    name, recorded = next(iter(prediction.attention.items()))
    assert name == "encoder.attention.attention"
    encoder = model.task.model.encoder
    with torch.no_grad():
        x = encoder.stem(encoder.normalize(prediction.trace[None]))
        cells = encoder.stage1(x).permute(0, 2, 3, 1).flatten(1, 2)
        layer = encoder.attention.attention
        q, k, _ = layer._project_self(cells, 0)
        eager = layer.weights(q, k, None)[0]
    torch.testing.assert_close(recorded.rows(9, 10), eager[:, 9:10])


def test_the_self_attention_module_changes_nothing_before_training(data: Path) -> None:
    from saccade.models.vision.resnet import ResNet, ResNetConfig

    torch.manual_seed(1)
    config = ResNetConfig(widths=(8, 16), attention_stage=1, heads=2)
    with_attention = ResNet(config, attention=True).eval()
    without = ResNet(config, attention=False).eval()
    without.load_state_dict(with_attention.state_dict(), strict=False)
    pixels = torch.from_numpy(scenes.draw("red", "bar", "left")).permute(2, 0, 1)[None]
    assert torch.equal(with_attention(pixels), without(pixels))


def test_it_learns_to_tell_the_classes(data: Path, tmp_path: Path) -> None:
    run = train(data, tmp_path, "cnn+attention", steps=60)
    assert run.metrics["accuracy"] >= 80  # a guess: 25
    assert run.metrics["top5"] == 100 and 0 <= run.metrics["calibration_error"] <= 100


def test_stem_and_normalization_come_from_the_training_images(run: saccade.Run, data: Path) -> None:
    task = task_of(run, data)
    encoder = task.model.encoder
    assert isinstance(encoder, VisionEncoder)
    pixels = task.splits[Split.TRAIN].pixels(list(range(40)))
    normalized = encoder.normalize(pixels)
    assert normalized.mean().abs() < 0.2 and 0.7 < normalized.std() < 1.3
    convolution = getattr(encoder, "convolution", encoder)
    if hasattr(convolution, "stem"):
        patches = torch.nn.functional.conv2d(normalized, convolution.stem.filters[:12])
        covariance = torch.cov(patches.permute(1, 0, 2, 3).flatten(1))
        strong = covariance.diagonal() > 0.5
        assert strong.any() and (covariance - torch.diag(covariance.diagonal()))[strong][:, strong].abs().max() < 0.3


def test_augmented_batches_depend_on_the_step_alone(data: Path, tmp_path: Path) -> None:
    overrides = [
        "augment.shift=2",
        "augment.operations=1",
        "augment.mixup=0.5",
        "augment.cutmix=0.5",
        "augment.erase=0.3",
    ]
    run = train(data, tmp_path, "vit", *overrides, steps=2)
    task, again = task_of(run, data), task_of(run, data)
    batch, same, other = task.source(Split.TRAIN, 1).at(5)[0], again.source(Split.TRAIN, 1).at(5)[0], None
    assert torch.equal(batch.pixels, same.pixels) and torch.equal(batch.targets, same.targets)
    other = task.source(Split.TRAIN, 2).at(5)[0]
    assert not torch.equal(batch.pixels, other.pixels)
    assert batch.targets.shape[1] == 4 and torch.allclose(batch.targets.sum(1), torch.ones(len(batch.targets)))
    assert task.source(Split.VALID, 1).at(0)[0].targets.dim() == 1, "validation images are not mixed"


def test_mirror_images_are_averaged_where_training_images_are_mirrored(data: Path, tmp_path: Path) -> None:
    run = train(data, tmp_path, "vit", "augment.flip=true", steps=2)
    model = saccade.load(run, device="cpu")
    image = scenes.draw("red", "square", "left")
    assert model(image).scores == pytest.approx(model(np.ascontiguousarray(image[:, ::-1])).scores, abs=1e-5)


def test_unknown_labels_and_a_single_class_are_refused(run: saccade.Run, data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    scenes.write_classes(other)
    (other / "classes" / "left bar").rename(other / "classes" / "a cat")
    with pytest.raises(DataError, match="label 'a cat', expected one of the training images: left bar, left square"):
        saccade.load(run, device="cpu").evaluate(other / "classes")
    single = tmp_path / "single" / "only"
    scenes.write_pictures(single, copies=1)
    (single.parent / "table.csv").write_text("image,label\n" + "".join(f"only/{n:03}.png,x\n" for n in range(12)))
    for data, message in (
        (single.parent / "table.csv", "every label is 'x', expected at least two labels"),
        (single.parent, "every picture is in the class 'only', expected at least two class folders"),
    ):
        with pytest.raises(DataError, match=message):
            saccade.train(data, task="image_classification", root=tmp_path / "runs", steps=1, progress=False)
        (single.parent / "table.csv").unlink(missing_ok=True)


def test_a_shift_as_large_as_the_images_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"augment\.shift must be below the size of the images, 16, but is 16"):
        saccade.train(data, root=tmp_path, steps=1, size=16, augment={"shift": 16})


def test_a_run_is_the_base_of_another_one(data: Path, tmp_path: Path) -> None:
    base = train(data, tmp_path / "base", "vit", steps=2)
    source = saccade.load(base, device="cpu").task.model.encoder.state_dict()
    for tune, changed in (("head", False), ("lora", False), ("all", True)):
        overrides = [f"base={base.path}", f"tune={tune}", *COMMON]
        run = saccade.train(data, root=tmp_path / tune, name="run", overrides=overrides, steps=3, progress=False)
        tuned = saccade.load(run, device="cpu", checkpoint="last").task.model.encoder.state_dict()
        equal = all(torch.equal(tuned[name], value) for name, value in source.items())
        assert equal is not changed
        assert (len(tuned) > len(source)) is (tune == "lora")


def test_a_published_vit_is_exported_and_opened_by_transformers(data: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    published = ["norm=layer", "activation=gelu", "score=scaled_dot", "bias=true", "class_token=true", "pooling=class"]
    published += ["embedding_norm=false", "init=normal", "epsilon=1e-6"]
    overrides = [f"model.vit.{setting}" for setting in published]
    run = train(data, tmp_path, "vit", *overrides, "mirror=false", steps=4)
    model = saccade.load(run, device="cpu")
    model.export(tmp_path / "hf")
    peer = transformers.ViTForImageClassification.from_pretrained(tmp_path / "hf").eval()
    pixels = model.task.format.read(torch.from_numpy(scenes.draw("red", "bar", "left")).permute(2, 0, 1))
    encoder = model.task.model.encoder
    with torch.no_grad():
        expected = peer(pixel_values=encoder.normalize(pixels[None])).logits
        torch.testing.assert_close(model.task.model(pixels[None]), expected, atol=1e-4, rtol=1e-4)
    again = saccade.load(str(tmp_path / "hf"), device="cpu")
    image = scenes.draw("red", "bar", "left")
    assert again(image).scores == pytest.approx(model(image).scores, abs=1e-4)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["label_smoothing=1"], "label_smoothing must be at least 0 and below 1, but is 1"),
        (["batch_size=0"], "batch_size must be at least 1, but is 0"),
        (["tune=head"], "tune must be all without a base, but is head"),
        (["model.cnn.attention_stage=4"], "attention_stage must be 1 to 3, but is 4"),
        (["augment.zoom=2"], "zoom must be from 0 to 0.95, but is 2"),
    ],
)
def test_settings_out_of_range_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        override(ClassificationConfig(), overrides)
