"""Captioning: several captions of a picture, the blind control, frozen encoders, attention on the grid, learning."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import saccade
from saccade.config import override
from saccade.core import GridAxis, Pretrained, Role, Split, TokenAxis
from saccade.errors import UsageError
from saccade.metrics.captions import score_captions
from saccade.models.vision.vit import ViT, ViTConfig
from saccade.pretrained.image_processors import ImageProcessor
from saccade.tasks import captioning
from saccade.tasks._vision import features
from saccade.tasks.captioning import CaptionConfig, CaptionOptions, Task, exact_captions
from tests.tasks import picture_data
from tests.tasks.battery import DECODER, VIT
from tests.tasks.untrained import open_untrained

SMALL = [*DECODER, *VIT, "model.encoder.architecture=vit", "batch_size=16"]
LSTM = ["model.decoder=lstm", "model.lstm.dim=16", "model.lstm.hidden=16"]
FROZEN = ViTConfig(dim=12, depth=1, heads=2, hidden=16, image_size=16, patch=4, class_token=True)


def pretrained() -> Pretrained:
    torch.manual_seed(5)
    encoder = ViT(FROZEN)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return Pretrained(encoder, FROZEN, ImageProcessor((16,), (16, 16)), None, "image_classification")


def make(folder: Path, *overrides: str) -> Task:
    """Return an untrained model with large random weights, so that its captions vary."""
    data, assets = picture_data.write_captions(folder, 40), folder / "assets"
    assets.mkdir()
    return open_untrained(Task, override(CaptionConfig(), [*SMALL, *overrides]), data, assets, std=0.4)[0]


def make_frozen(folder: Path, *overrides: str) -> Task:
    data, assets = picture_data.write_captions(folder, 40), folder / "assets"
    assets.mkdir()
    config = override(CaptionConfig(), [*SMALL, "base=somewhere", *overrides])
    Task.prepare(config, data, assets, base=pretrained())
    task = Task.open(config, assets)
    task.load_data(data)
    return task


@pytest.fixture(scope="module", params=["transformer", "lstm"])
def task(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Task]:
    yield make(tmp_path_factory.mktemp("captions"), *(LSTM if request.param == "lstm" else []))


def picture(colour: str = "red", place: str = "left") -> dict[str, Any]:
    return {"image": torch.from_numpy(np.array(picture_data.scene(colour, place))).permute(2, 0, 1)}


# Data


def test_a_batch_has_a_caption_of_each_row_and_predicts_its_end(task: Task) -> None:
    examples = task.splits[Split.TRAIN]
    (batch,) = task.source(Split.TRAIN, 1).at(0)
    assert batch.pixels.dtype == torch.uint8 and batch.pixels.shape[1:] == (3, 16, 16)
    assert batch.units == len(batch.pixels) == len(batch.rows) and batch.keep.all()
    origins = [examples.rows.origins.describe(row) for row in range(len(examples))]
    for at, origin in enumerate(batch.rows):
        row = origins.index(origin)
        real = batch.labels[at] >= 0
        assert batch.labels[at][real].tolist() == [*examples.tokens[row].tolist(), task.target.end]
        assert batch.inputs[at, 0] == task.target.start
        assert batch.pictures[at] == examples.rows.picture[row]
    assert batch.count == int((batch.labels >= 0).sum())


def test_all_captions_of_a_picture_are_in_the_same_part(task: Task) -> None:
    train, valid = (set(task.splits[split].rows.picture.tolist()) for split in (Split.TRAIN, Split.VALID))
    assert train and valid and not train & valid


def test_captions_are_lower_case_unless_told_otherwise(tmp_path: Path) -> None:
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    for folder in (lower, upper):
        folder.mkdir()
    first, second = make(lower), make(upper, "lowercase=false")
    ids = first.target.tokenizer.encode("A RED square")
    assert first.target.decode(ids) == "a red square"
    assert second.target.decode(second.target.tokenizer.encode("A red square")) == "A red square"


def test_pictures_whose_captions_name_sides_are_not_mirrored(tmp_path: Path) -> None:
    data, assets = picture_data.write_captions(tmp_path, 40), tmp_path / "assets"
    assets.mkdir()
    notes = Task.prepare(override(CaptionConfig(), SMALL), data, assets)
    assert "100% of the texts say left or right: images are not mirrored in training" in notes
    assert not Task.open(override(CaptionConfig(), SMALL), assets).config.augment.flip
    rows = [(picture_data.scene(colour, "left"), [f"something {colour}"]) for colour in picture_data.COLOURS] * 4
    plain = picture_data.write_rows(tmp_path / "plain", rows, "caption")
    notes = Task.prepare(override(CaptionConfig(), SMALL), plain, assets)
    assert not any("mirrored" in note for note in notes)
    assert Task.open(override(CaptionConfig(), SMALL), assets).config.augment.flip


# Frozen encoders


def test_a_frozen_encoder_is_run_once_for_each_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    calls = []
    encode = ViT.forward

    def counted(self: ViT, pixels: torch.Tensor, **settings: Any) -> torch.Tensor:
        calls.append(len(pixels))
        return encode(self, pixels, **settings)

    monkeypatch.setattr(ViT, "forward", counted)
    task = make_frozen(tmp_path)
    assert sum(calls) == 40, "no picture is mirrored, as captions say left and right"
    again = Task.open(task.config, tmp_path / "assets")
    again.load_data(tmp_path / "scenes")
    task.evaluate(Split.VALID)
    for step in range(3):
        list(task.losses(task.source(Split.TRAIN, 1).at(step)[0], task.networks()))
    assert sum(calls) == 40
    assert not any(value.requires_grad for value in task.model.encoder.parameters())


def test_features_are_what_the_encoder_computes(tmp_path: Path) -> None:
    task = make_frozen(tmp_path)
    (batch,) = task.source(Split.VALID, 1).at(0)
    assert batch.pixels.dtype == torch.float16 and batch.pixels.shape[1:] == (1 + 16, 12)
    examples = task.splits[Split.VALID]
    pixels = task.centred(examples.images.batch(np.array(batch.pictures)))
    with torch.no_grad():
        expected = task.model.encoder.eval()(pixels)
    torch.testing.assert_close(batch.pixels.float(), expected, atol=2e-3, rtol=2e-3)
    task.model.eval()
    with torch.no_grad():
        from_pixels = task.model(pixels, batch.keep, batch.inputs)
        from_features = task.model(batch.pixels, batch.keep, batch.inputs)
    torch.testing.assert_close(from_features, from_pixels, atol=1e-2, rtol=1e-2)


def test_half_of_the_features_are_of_mirrored_pictures_by_the_seed(tmp_path: Path) -> None:
    task = make_frozen(tmp_path)
    images = task.splits[Split.TRAIN].images
    both = features.grid_features(task.model.encoder, images, task.format, mirror=True)
    assert both.mirrored is not None
    flipped = task.centred(images.batch([3])).flip(3)
    with torch.no_grad():
        expected = task.model.encoder.eval()(flipped)[0]
    torch.testing.assert_close(torch.from_numpy(np.array(both.mirrored[3])).float(), expected, atol=2e-3, rtol=2e-3)
    numbers = np.arange(40)
    first, again, other = (both.batch(numbers, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    mirrored = sum(torch.equal(first[at], torch.from_numpy(np.array(both.mirrored[at]))) for at in range(40))
    plain = sum(torch.equal(first[at], torch.from_numpy(np.array(both.vectors[at]))) for at in range(40))
    assert mirrored + plain == 40 and 10 < mirrored < 30
    assert torch.equal(both.batch(numbers), torch.from_numpy(np.array(both.vectors)))


def test_other_weights_or_another_size_have_other_features(tmp_path: Path) -> None:
    task = make_frozen(tmp_path)
    before = features.hash_weights(task.model.encoder)
    assert before == features.hash_weights(task.model.encoder)
    with torch.no_grad():
        next(task.model.encoder.parameters())[0, 0] += 1
    assert features.hash_weights(task.model.encoder) != before


def test_a_pretrained_encoder_can_be_trained_on_whole_or_by_adapters(tmp_path: Path) -> None:
    for name in ("all", "lora"):
        (tmp_path / name).mkdir()
        task = make_frozen(tmp_path / name, f"tune={name}")
        trained = {n for n, value in task.model.encoder.named_parameters() if value.requires_grad}
        assert trained and all("lora" in n for n in trained) == (name == "lora")
        (batch,) = task.source(Split.TRAIN, 1).at(0)
        assert batch.pixels.dtype == torch.uint8
        assert any(entry.startswith("train.optim.lr=") for entry in Task.train_defaults(task.config))


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="tune must be head without a base, but is lora"):
        CaptionConfig(tune="lora")
    with pytest.raises(
        UsageError, match=r"augment\.shift must be 0 for a frozen encoder, .* but is 2; choose tune=all"
    ):
        override(CaptionConfig(), ["base=x", "augment.shift=2"])
    with pytest.raises(ValueError, match="label_smoothing must be at least 0 and below 1, but is 1"):
        CaptionConfig(label_smoothing=1)
    with pytest.raises(ValueError, match="vocabulary_size must be at least 0, but is -1"):
        CaptionConfig(vocabulary_size=-1)


# Evaluation


def test_a_caption_is_compared_with_all_captions_of_its_picture(task: Task) -> None:
    evaluation = task.evaluate(Split.VALID)
    assert evaluation.values.keys() == captioning.METRICS.keys()
    examples = task.splits[Split.VALID]
    pictures = list(dict.fromkeys(examples.rows.picture.tolist()))
    assert evaluation["images"] == len(pictures) < len(examples)
    texts = examples.rows.texts["caption"]
    owners = examples.rows.picture.tolist()
    references = [[texts[row] for row, owner in enumerate(owners) if owner == picture] for picture in pictures]
    assert {len(captions) for captions in references} == {2}
    images = [task.example_source(examples, owners.index(picture)) for picture in pictures]
    outputs = [one.text for one in task.predict([{"image": image} for image in images], CaptionOptions())]
    assert evaluation["cider"] == pytest.approx(score_captions(outputs, references)["cider"].value)
    assert evaluation["exact"] == exact_captions(outputs, references).value
    blind = task.blind_caption(task.config.search)
    expected = score_captions([blind] * len(pictures), references)["cider"].value
    assert evaluation["cider_blind"] == pytest.approx(expected)
    assert any(f"'{blind}'" in note for note in evaluation.notes)
    assert evaluation.signatures["cider"].startswith("cider:D")


def test_the_blind_control_depends_on_no_evaluated_picture(task: Task) -> None:
    before = task.blind_caption(task.config.search)
    copy = Task(task.config, task.format, task.target, task.max_length, task.model)
    copy.splits = {**task.splits, Split.VALID: task.splits[Split.TRAIN]}
    assert copy.blind_caption(task.config.search) == before
    copy.splits = {Split.VALID: task.splits[Split.VALID]}
    assert isinstance(copy.blind_caption(task.config.search), str), "an evaluation has no training pictures"


def test_exact_captions_ignore_case_and_spaces() -> None:
    score = exact_captions(["a red  square", "a dog"], [["A blue square", "A red square "], ["a cat"]])
    assert score.value == 50 and "case:lower" in score.signature


# Predictions


def test_every_word_attends_to_the_grid_of_its_picture(task: Task) -> None:
    (prediction,) = task.predict([picture()], CaptionOptions(beam=3, n_best=2))
    assert len(prediction.alternatives) == 1
    alignment = prediction.alignment
    assert alignment is not None and alignment.shape[0] == 1
    assert isinstance(alignment.queries, TokenAxis) and alignment.queries.role == Role.TARGET
    assert isinstance(alignment.keys, GridAxis) and (alignment.keys.rows, alignment.keys.columns) == (4, 4)
    assert alignment.keys.image is not None and torch.equal(alignment.keys.image, picture()["image"])
    words = len(alignment.queries)
    assert words == len(prediction.trace[1]), "the end of the caption has no place in the picture"
    torch.testing.assert_close(alignment.weights.sum(-1), torch.ones(1, words))
    cross = [attention for attention in prediction.attention.values() if attention.queries.role == Role.TARGET]
    assert {attention.keys.role for attention in cross} <= {Role.IMAGE, Role.TARGET}
    inner = prediction.attention["encoder.encoder.0.self"]
    assert isinstance(inner.queries, GridAxis) and inner.shape[1:] == (16, 16)


def test_a_stream_gives_the_prediction_with_attention_to_the_cells(task: Task) -> None:
    for options in (CaptionOptions(beam=1), CaptionOptions(beam=3)):
        (prediction,) = task.predict([picture("blue", "right")], options)
        tokens = list(task.stream(picture("blue", "right"), options))
        assert "".join(token.text for token in tokens) == prediction.text
        assert tokens[0].prompt == prediction.alignment.keys.labels
        weights = list(tokens[-1].attention.values())[-1]
        assert weights.shape[2] == 16
        last = weights.rows(0, 1)
        torch.testing.assert_close(last.sum(-1), torch.ones_like(last[..., 0]))


def test_a_given_caption_is_scored_and_a_prefix_continued(task: Task) -> None:
    (scored,) = task.predict([picture()], CaptionOptions(target="a red square on the left"))
    assert scored.scores["log_probability"] < 0 and scored.scores["perplexity"] > 1
    (continued,) = task.predict([picture()], CaptionOptions(prefix="on the right"))
    assert continued.text.startswith("on the right")


def test_the_analysis_names_a_head_that_the_alignment_shows(task: Task) -> None:
    analysis = task.analyse()
    assert analysis["alignment"]["name"] in ("attention", "decoder.0.cross")
    copy = Task(task.config, task.format, task.target, task.max_length, task.model)
    copy.analysis = analysis
    (prediction,) = copy.predict([picture()], CaptionOptions())
    assert prediction.alignment is not None and prediction.alignment.name == analysis["alignment"]["name"]


# Learning


def test_captions_of_scenes_are_learned_from_pixels(tmp_path: Path) -> None:
    data = picture_data.write_captions(tmp_path, 160, captions=1)
    settings = [*SMALL, "train.steps=120", "train.device=cpu", "label_smoothing=0"]
    run = saccade.train(data, task="captioning", root=tmp_path, overrides=settings, progress=False)
    assert run.metrics["exact"] >= 90
    assert run.metrics["cider"] > 2 * run.metrics["cider_blind"]
    model = saccade.load(run)
    assert model(picture_data.scene("green", "right")).text == "a green square on the right"
