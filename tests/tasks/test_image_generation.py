"""Image generation: any layout of pictures, exact resume with all its buffers, scores, and options of samples."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import saccade
from saccade.config import override
from saccade.core import Split
from saccade.errors import DataError, UsageError
from saccade.tasks._vision.generation import GenerationConfig, SampleOptions, interpolate, latent_vectors, noise_of
from tests.tasks import scenes
from tests.tasks.battery import Trial

SETTINGS = Trial.of("image_generation").settings
LOOP = ["train.device=cpu", "train.precision=float32", "train.steps=4", "train.evaluate_every=4"]


def write_plain(folder, count=40):
    """Grey pictures in one folder, without labels."""
    folder.mkdir()
    for number in range(count):
        Image.fromarray(scenes.draw("red", "bar", "left", number)).convert("L").save(folder / f"{number:03}.png")
    return folder


def train(data, root, *settings):
    overrides = [*SETTINGS, *LOOP, *settings]
    return saccade.train(data, task="image_generation", name="run", root=root, overrides=overrides, progress=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        yield train(scenes.write_colours(folder), folder / "runs")


@pytest.fixture(scope="module")
def model(run):
    return saccade.load(run, device="cpu")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))


# Data


def test_a_plain_folder_of_grey_pictures_trains_without_labels(tmp_path, cache):
    run = train(write_plain(tmp_path / "pictures"), tmp_path / "runs")
    model = saccade.load(run, device="cpu")
    assert model.task.labels == () and model.task.channels == 1
    assert model().output.pixels.shape == (1, 16, 16)
    with pytest.raises(UsageError, match="label must be empty, but is 'red': this model was trained without labels"):
        model(label="red")


def test_labelled_pictures_train_a_conditional_model_of_colours(model):
    assert model.task.labels == ("blue", "green", "red") and model.task.channels == 3
    assert model(label="red").output.pixels.shape == (3, 16, 16)
    with pytest.raises(UsageError, match="no label 'reed'; did you mean 'red'"):
        model(label="reed")


def test_a_table_of_captions_gives_every_picture_once(tmp_path, cache):
    from saccade.data.formats.image_rows import ImageSettings, read_pictures

    folder = scenes.write_captions(tmp_path)
    rows = read_pictures(folder, ImageSettings())
    assert len(rows) == len(set(rows.picture.tolist())) == len(list(folder.glob("*.png")))
    assert rows.texts == {}


def test_a_table_of_paths_alone_is_read(tmp_path, cache):
    from saccade.data.formats.image_rows import ImageSettings, read_pictures

    folder = write_plain(tmp_path / "pictures", 6)
    names = sorted(path.name for path in folder.glob("*.png"))
    (folder / "list.csv").write_text("image\n" + "".join(f"{name}\n" for name in names[:5]))
    rows = read_pictures(folder / "list.csv", ImageSettings())
    assert len(rows) == 5 and rows.notes() == ["list.csv: 5 pictures, read without texts"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["conditional=yes"], "pictures without labels, expected a label for each with conditional=yes"),
        (["data.valid_fraction=0.01"], "1 held-out images, expected at least 4 to compare with; add images"),
    ],
)
def test_data_that_do_not_suffice_are_refused(tmp_path, cache, settings, message):
    with pytest.raises(DataError, match=message):
        train(write_plain(tmp_path / "pictures"), tmp_path / "runs", *settings)
    assert not (tmp_path / "runs" / "run").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("size=12", "size must be 0 or from 16 to 64, but is 12"),
        ("size=30", "size must be a number that can be halved down to 4 to 7 cells, but is 30; try 28"),
        ("batch_size=1", "batch_size must be at least 2, but is 1"),
        ("discriminator_steps=0", "discriminator_steps must be at least 1, but is 0"),
        ("discriminator_lr=-1", "discriminator_lr must be 0 or more, but is -1.0"),
        ("augment.mixup=0.2", "augment.mixup and augment.cutmix must be 0 to generate images"),
        ("model.noise=0", "noise must be at least 1, but is 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(setting, message):
    with pytest.raises(UsageError, match=message):
        override(GenerationConfig(), [setting])


# Training


def test_noise_and_labels_depend_on_the_seed_and_the_step_alone(model):
    task = model.task
    task.load_data(model.data)
    first, again, other = (task.source(Split.TRAIN, seed) for seed in (1, 1, 2))
    first.at(0)
    for name in ("noise", "fake_labels", "pixels"):
        one, same, different = (getattr(source.at(5)[0], name) for source in (first, again, other))
        assert torch.equal(one, same) and not torch.equal(one, different), name
    batch = first.at(5)[0]
    assert batch.noise.shape == (3, 16, 8), "two updates of the discriminator, one of the generator"
    parts = [batch.part(number, 2)[0] for number in range(2)]
    assert sum(map(len, parts)) == len(batch.pixels)


def test_each_network_has_its_own_learning_rates(model):
    config = model.task.config
    assert model.task.optimizer_overrides("generator") == []
    assert model.task.optimizer_overrides("discriminator") == [
        f"lr={config.discriminator_lr}",
        f"matrix_lr={config.discriminator_matrix_lr}",
    ]


def test_resuming_restores_vectors_of_the_spectral_norm_and_the_moving_average(tmp_path, cache, run):
    """A run that stops and resumes has the same bits in all parts, of which the buffers change while training."""

    class Stop(saccade.Callback):
        def on_step(self, record, progress, total):
            if record["step"] == 3:
                raise KeyboardInterrupt

    data = scenes.write_colours(tmp_path)
    settings = [*SETTINGS, *LOOP, "train.save_every=2"]
    with pytest.raises(KeyboardInterrupt):
        saccade.train(
            data,
            task="image_generation",
            name="run",
            root=tmp_path,
            overrides=settings,
            callbacks=[Stop()],
            progress=False,
        )
    resumed = saccade.resume("run", root=tmp_path, progress=False)
    folders = [Path(one.path) / "checkpoints" / "step-000004" for one in (run, resumed)]
    for part in ("model", "average", "optimizer"):
        one, other = (folder / f"{part}.safetensors" for folder in folders)
        assert one.read_bytes() == other.read_bytes(), part
    early, late = (load_file(folders[1].parent / name / "model.safetensors") for name in ("step-000002", "step-000004"))
    vectors = [name for name in late if name.endswith("parametrizations.weight.0.u")]
    assert len(vectors) > 20 and any(not torch.equal(early[name], late[name]) for name in vectors)
    average = load_file(folders[1] / "average.safetensors")
    assert not torch.equal(average["generator.entry.bias"], late["generator.entry.bias"])


# Scores


def test_the_score_stands_between_the_floor_and_an_untrained_generator(model):
    evaluation = model.evaluate()
    values = evaluation.values
    assert 0 <= values["floor"] < values["frechet_distance"]
    assert values["untrained"] > values["floor"] and values["images"] >= 2
    assert values["nearest_ratio"] > 0 and 0 <= values["near_copies"] <= 100
    assert any("not comparable with a published FID" in note for note in evaluation.notes)


def test_real_images_score_like_the_floor_and_copies_are_noticed(model, monkeypatch):
    task = model.task
    task.load_data(model.data)
    train = task.splits[Split.TRAIN]
    from saccade.models.vision.gan import normalized

    def copies(generator, examples, rows):
        return normalized(task._pixels(train, list(range(len(rows)))))

    values = task.evaluate(Split.VALID).values
    monkeypatch.setattr(task, "_generated", copies)
    task._references.clear()
    copied = task.evaluate(Split.VALID).values
    assert copied["frechet_distance"] < values["frechet_distance"]
    assert copied["near_copies"] == 100 and copied["nearest_ratio"] == pytest.approx(0, abs=1e-6)


# Samples


def test_a_seed_gives_the_same_image_and_several_have_the_seeds_that_follow(model):
    one, again = model(seed=5), model(seed=5)
    assert torch.equal(one.output.pixels, again.output.pixels)
    several = model(seed=4, samples=3)
    assert torch.equal(several.alternatives[0].output.pixels, one.output.pixels)
    assert not torch.equal(several.output.pixels, one.output.pixels)
    noise = noise_of(5, 8).tolist()
    label = one.notes[0].removeprefix("label: ")
    assert torch.equal(model(noise, label=label).output.pixels, one.output.pixels)


def test_interpolation_starts_and_ends_at_its_seeds(model):
    path = model(seed=1, to_seed=2, samples=5, label="red")
    images = [path.output.pixels, *(other.output.pixels for other in path.alternatives)]
    ends = [model(seed=seed, label="red").output.pixels for seed in (1, 2)]
    assert len(images) == 5 and torch.equal(images[0], ends[0]) and torch.equal(images[-1], ends[1])
    middle = model(seed=1, to_seed=2, position=0.5, label="red").output.pixels
    assert torch.equal(images[2], middle)


def test_interpolated_noise_keeps_its_length():
    first, last = noise_of(1, 400), noise_of(2, 400)
    middle = interpolate(first, last, 0.5)
    assert float(middle.norm()) == pytest.approx(float(first.norm() + last.norm()) / 2, rel=1e-4)
    assert float(torch.lerp(first, last, 0.5).norm()) < 0.8 * float(middle.norm()), "a straight line would be shorter"
    torch.testing.assert_close(interpolate(first, first, 0.3), first)
    options = SampleOptions(seed=1, to_seed=2, samples=3)
    torch.testing.assert_close(latent_vectors(options, 400)[0], first)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples must be from 1 to 400, but is 0"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"to_seed": -2}, "to_seed must be -1 or a seed"),
        ({"position": 1.5}, "position must be from 0 to 1, but is 1.5"),
    ],
)
def test_options_that_cannot_be_are_refused(model, options, message):
    with pytest.raises(UsageError, match=message):
        model(**options)


def test_noise_of_another_length_or_with_several_samples_is_refused(model):
    with pytest.raises(UsageError, match="noise must have 8 numbers, but has 3"):
        model([0.0, 1.0, 2.0])
    with pytest.raises(UsageError, match="noise gives one image; leave it out to use samples and to_seed"):
        model([0.0] * 8, samples=2)


def test_both_networks_show_where_a_cell_looks(model):
    prediction = model(seed=3)
    assert list(prediction.attention) == ["generator_attention.attention", "discriminator_attention.attention"]
    for attention in prediction.attention.values():
        assert attention.shape == (1, 64, 64) and attention.queries.image is prediction.output.pixels
        torch.testing.assert_close(attention.weights.sum(-1), torch.ones(1, 64))


def test_grey_is_told_from_colour(tmp_path, cache):
    from saccade.data.formats.image_rows import ImageSettings, read_pictures
    from saccade.data.images.decoded import decode_pictures
    from saccade.data.images.resizing import Resize
    from saccade.tasks.image_generation import all_grey

    grey = read_pictures(write_plain(tmp_path / "grey"), ImageSettings())
    assert all_grey(decode_pictures(grey.pictures, Resize("crop", 16)))
    colour = np.array(Image.open(tmp_path / "grey" / "000.png").convert("RGB"))
    colour[0, 0] = (255, 0, 0)
    Image.fromarray(colour).save(tmp_path / "grey" / "zzz.png")
    mixed = read_pictures(tmp_path / "grey", ImageSettings())
    assert not all_grey(decode_pictures(mixed.pictures, Resize("crop", 16)))
