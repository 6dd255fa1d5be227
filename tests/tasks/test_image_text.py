"""Images and texts in one space: vectors, similarity, classes by name, retrieval, losses by hand, errors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import saccade
from saccade.config import override
from saccade.core import GridAxis, LabelOutput, NumberOutput, Split, StepAxis, VectorOutput
from saccade.errors import UsageError
from saccade.pretrained.opening import open_pretrained
from saccade.tasks._vision.pairs import Pairs, evaluate_retrieval
from saccade.tasks.image_text import ImageTextOptions, Task
from tests.tasks import scenes
from tests.tasks.battery import SETTINGS

TINY = [setting for setting in SETTINGS["image_text"] if not setting.startswith("augment")]
IMAGE = torch.from_numpy(scenes.draw("red", "bar", "left")).permute(2, 0, 1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return scenes.write_captions(tmp_path)


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return an untrained task with random weights and the data of a folder loaded."""
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))

    def make(data: Path, *overrides: str) -> Task:
        config = override(Task.Config(), [*TINY, *overrides])
        assets = tmp_path / f"assets-{len(list(tmp_path.iterdir()))}"
        assets.mkdir()
        Task.prepare(config, data, assets, base=open_pretrained(config.base) if config.base else None)
        torch.manual_seed(11)
        task = Task.open(config, assets)
        with torch.no_grad():
            for value in task.model.parameters():
                if value.dim() > 1 and value.requires_grad:
                    value.normal_(std=0.3)
        task.model.eval()
        task.load_data(data)
        return task

    return make


def predict(task: Task, inputs: dict[str, Any], **options: Any) -> Any:
    (prediction,) = task.predict([inputs], ImageTextOptions(**options))
    return prediction


def test_an_image_or_a_text_gives_a_vector_and_both_their_similarity(ready: Any, data: Path) -> None:
    task = ready(data)
    image, text = (predict(task, inputs).output for inputs in ({"image": IMAGE}, {"text": "a red bar"}))
    assert isinstance(image, VectorOutput) and isinstance(text, VectorOutput)
    assert [float(output.values.norm()) for output in (image, text)] == pytest.approx([1, 1])
    both = predict(task, {"image": IMAGE, "text": "a red bar"})
    assert isinstance(both.output, NumberOutput) and both.output.name == "similarity"
    assert both.output.value == pytest.approx(float(image.values @ text.values), abs=1e-5)


def test_inputs_of_all_kinds_can_be_mixed(ready: Any, data: Path) -> None:
    task = ready(data)
    inputs = [{"text": "a red bar"}, {"image": IMAGE, "text": "a bar"}, {"image": IMAGE}]
    together = list(task.predict(inputs, ImageTextOptions()))
    for example, prediction in zip(inputs, together, strict=True):
        alone = predict(task, example)
        assert type(prediction.output) is type(alone.output)
        assert dict(prediction.scores) == pytest.approx(dict(alone.scores), abs=1e-5)


def test_classes_are_chosen_by_their_similarity_with_the_image(ready: Any, data: Path) -> None:
    task = ready(data)
    prediction = predict(task, {"image": IMAGE}, classes="red bar, blue square,green bar", template="here is a {}")
    assert isinstance(prediction.output, LabelOutput)
    names = ("red bar", "blue square", "green bar")
    scale = float(task.model.logit_scale.detach().exp())
    logits = [scale * predict(task, {"image": IMAGE, "text": f"here is a {name}"}).output.value for name in names]
    expected = torch.tensor(logits).softmax(-1).tolist()
    assert dict(prediction.output.probabilities) == pytest.approx(dict(zip(names, expected, strict=True)), abs=1e-5)
    assert prediction.text == names[int(np.argmax(logits))]


def test_several_templates_are_averaged(ready: Any, data: Path) -> None:
    task = ready(data)
    vectors = task.class_vectors(ImageTextOptions(classes="bar,square", template="a {}|the {} here"))
    texts = [predict(task, {"text": text}).output.values for text in ("a bar", "the bar here")]
    torch.testing.assert_close(vectors[0], torch.nn.functional.normalize((texts[0] + texts[1]) / 2, dim=0))


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ({}, {}, "image or text must be given, but neither is"),
        ({"text": "a bar"}, {"classes": "a,b"}, "image must be given alone to choose from classes, but only a text"),
        ({"image": IMAGE, "text": "a bar"}, {"classes": "a,b"}, "but a text was given too; leave it out"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    ready: Any, data: Path, inputs: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        predict(ready(data), inputs, **options)


def test_wrong_options_and_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="classes must be at least two different names, but is 'cat, cat'"):
        ImageTextOptions(classes="cat, cat")
    with pytest.raises(ValueError, match=r"template must have {} for the name of a class, but is 'a photo'"):
        ImageTextOptions(template="a {}|a photo")
    with pytest.raises(UsageError, match="micro_batches must be 1, since all pairs of a step are compared, but is 2"):
        override(Task.Config(), ["micro_batches=2"])
    with pytest.raises(UsageError, match="batch_size must be at least 2, but is 1"):
        override(Task.Config(), ["batch_size=1"])
    with pytest.raises(UsageError, match=r"augment.shift must be 0 for a frozen encoder, .* but is 2; choose tune=all"):
        override(Task.Config(), ["base=x", "augment.shift=2"])


def test_copies_of_images_and_captions_belong_together() -> None:
    pairs = Pairs.of(np.array([7, 7, 9, 3], np.uint64), ["a cat", "a dog", "a  cat", "a bird"])
    expected = [[1, 1, 1, 0], [1, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
    assert pairs.match(pairs.images, pairs.captions).astype(int).tolist() == expected
    images, captions = pairs.candidates(0)
    assert images.tolist() == [0, 2, 3] and captions.tolist() == [0, 1, 3]
    images, captions = pairs.candidates(2)
    assert images.tolist() == [0, 3] and captions.tolist() == [0, 1, 3]


@torch.no_grad()
def test_the_loss_compares_all_pairs_of_a_batch_both_ways(ready: Any, data: Path) -> None:
    task = ready(data)
    (batch,) = task.source(Split.TRAIN, 1).at(0)
    assert batch.count == 32
    assert bool(batch.matches.diagonal().all()) and int(batch.matches.sum()) > 32  # equal captions match too
    images, texts = task.image_vectors(batch.pixels), task.text_vectors(batch.inputs)
    logits = (float(task.model.logit_scale.exp()) * images @ texts.t()).tolist()
    matches, total = batch.matches.tolist(), 0.0
    for table, marks in ((logits, matches), (list(zip(*logits, strict=True)), list(zip(*matches, strict=True)))):
        for row, right in zip(table, marks, strict=True):
            top = math.log(sum(map(math.exp, row)))
            total += sum(top - value for value, mark in zip(row, right, strict=True) if mark) / sum(right)
    ((_, loss),) = task.losses(batch, task.networks())
    assert float(loss) == pytest.approx(total / 64, rel=1e-4)


def test_retrieval_is_scored_both_ways_beside_chance() -> None:
    images, captions = torch.eye(4), torch.eye(4)[[0, 0, 1, 2, 2, 3]]
    right = np.eye(4, dtype=bool)[:, [0, 0, 1, 2, 2, 3]]
    perfect = evaluate_retrieval(images, captions, right, complete=True)
    assert perfect["mean_recall"] == 100 and perfect["text_to_image_median_rank"] == 1
    assert perfect["chance"] < 100 and (perfect["images"], perfect["captions"]) == (4, 6)
    wrong = evaluate_retrieval(images, captions.roll(1, 1), right, complete=True)
    assert wrong["text_to_image_recall_at_1"] == 0
    (table,) = perfect.tables
    assert [row[0] for row in table.rows] == ["text to image", "by chance", "image to text", "by chance"]
    assert table.rows[1][1] == "25.0"


def test_captions_that_say_left_and_right_forbid_mirrored_images(ready: Any, data: Path) -> None:
    task = ready(data)
    assert not task.config.augment.flip
    assert Task.Config().augment.flip


def test_maps_of_both_encoders(ready: Any, data: Path) -> None:
    task = ready(data)
    both = predict(task, {"image": IMAGE, "text": "a red bar"}, attention=True).attention
    assert list(both) == ["vision.encoder.0.self", "vision.attention_pool", "text.encoder.0.self"]
    pooled = both["vision.attention_pool"]
    assert isinstance(pooled.queries, StepAxis) and isinstance(pooled.keys, GridAxis)
    torch.testing.assert_close(pooled.weights.sum(-1), torch.ones(pooled.shape[:2]))
    assert list(predict(task, {"text": "a red bar"}, attention=True).attention) == ["text.encoder.0.self"]
    assert "text.encoder.0.self" not in predict(task, {"image": IMAGE}, attention=True).attention


def test_a_single_vector_cannot_be_explained(ready: Any, data: Path) -> None:
    task = ready(data)
    with pytest.raises(UsageError, match="only a similarity or a choice of classes can be explained"):
        task.rerun(predict(task, {"image": IMAGE}))
    trace = task.rerun(predict(task, {"image": IMAGE}, classes="bar,square"), layers=True)
    assert trace.logits.shape == (1, 2) and trace.output_name(1) == "square"
    torch.testing.assert_close(trace.layers[-1][1], trace.logits)


def test_a_frozen_text_encoder_reads_each_caption_once(ready: Any, data: Path, bert_folder: Path) -> None:
    task = ready(data, f"text_base={bert_folder}", "vocabulary_size=8000")
    examples = task.splits[Split.VALID]
    assert not any(value.requires_grad for value in task.model.text.bert.parameters())
    from_cache = task.text_vectors(examples.inputs([0, 1]))
    captions = [examples.rows.texts["caption"][row] for row in (0, 1)]
    for vector, caption in zip(from_cache, captions, strict=True):
        torch.testing.assert_close(vector, predict(task, {"text": caption}).output.values, atol=5e-3, rtol=5e-3)
    (batch,) = task.source(Split.TRAIN, 1).at(0)
    assert batch.inputs.ids.shape == (32, 16) and batch.inputs.ids.dtype == torch.float32
    ((_, loss),) = task.losses(batch, task.networks())
    assert loss.requires_grad


def test_a_base_that_reads_no_texts_is_refused(ready: Any, data: Path, marian_folder: Path) -> None:
    with pytest.raises(UsageError, match=r"text_base must be an encoder of texts such as BERT, but .* is a marian"):
        ready(data, f"text_base={marian_folder}")


@pytest.fixture(params=["CLIP", "Siglip"])
def clip_folder(request: pytest.FixtureRequest, dataset: Any, tmp_path: Path) -> Any:
    """A tiny random model of transformers, its class, and a function for its logits of pictures and texts."""
    transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")
    helpers = pytest.importorskip("tests.pretrained.test_image_models")
    tokenizer = helpers.clip_tokenizer(helpers.clip_merges(dataset)[:2000])
    shape = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    ends = dict.fromkeys(("eos_token_id", "pad_token_id"), len(tokenizer) - 1)
    text = {**shape, **ends, "vocab_size": len(tokenizer), "max_position_embeddings": 32}
    config = getattr(transformers, f"{request.param}Config")(
        text_config=text, vision_config={**shape, "image_size": 20, "patch_size": 5}
    )
    model = helpers.randomize(getattr(transformers, f"{request.param}Model")(config))
    folder = tmp_path / "clip"
    model.save_pretrained(folder)
    tokenizer.model_max_length = 32
    tokenizer.save_pretrained(folder)
    size = {"height": 20, "width": 20}
    sizes = {"size": {"shortest_edge": 20}, "crop_size": size} if request.param == "CLIP" else {"size": size}
    images = getattr(transformers, f"{request.param}ImageProcessorPil")(**sizes)
    images.save_pretrained(folder)

    @torch.no_grad()
    def logits(pictures: list[np.ndarray], texts: list[str]) -> torch.Tensor:
        ids = tokenizer(texts, padding="max_length", max_length=32, return_tensors="pt").input_ids
        pixels = images(pictures, return_tensors="pt").pixel_values
        return model(pixel_values=pixels, input_ids=ids).logits_per_image

    return folder, request.param, logits


def test_a_pretrained_model_predicts_as_transformers(clip_folder: Any, tmp_path: Path) -> None:
    folder, kind, reference = clip_folder
    model, picture = saccade.load(folder, device="cpu"), scenes.draw("blue", "square", "right").repeat(2, 0)
    names = ["red bar", "blue square", "dog"]
    expected = reference([picture], [f"a photo of a {name}" for name in names])[0]
    probabilities = expected.softmax(-1) if kind == "CLIP" else expected.sigmoid()
    answer = model(picture, classes=",".join(names))
    assert dict(answer.output.probabilities) == pytest.approx(
        dict(zip(names, probabilities.tolist(), strict=True)), rel=1e-3, abs=1e-4
    )
    both = model(picture, "a photo of a dog")
    assert both.output.value == pytest.approx(
        float(model(picture).output.values @ model(text="a photo of a dog").output.values)
    )
    assert {name.partition(".")[0] for name in both.attention} == {"vision", "text"}
    model.export(tmp_path / "out")
    again = saccade.load(tmp_path / "out", device="cpu")
    assert again(picture, "a photo of a dog").output.value == pytest.approx(both.output.value, abs=1e-5)


@pytest.mark.parametrize("tune", ["all", "lora", "head"])
def test_a_pretrained_model_is_trained_on(
    tune: str, clip_folder: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    folder, _, _ = clip_folder
    settings = [f"base={folder}", f"tune={tune}", "batch_size=16", "max_length=32", "train.steps=4", "train.device=cpu"]
    run = saccade.train(data, task="image_text", root=tmp_path / "runs", overrides=settings, progress=False)
    before, after = (saccade.load(path, device="cpu").task.to_pretrained().network for path in (folder, run.path))
    changed = {
        name.partition(".")[0]
        for name, value in after.named_parameters()
        if not torch.equal(value, before.get_parameter(name))
    }
    assert ("vision" in changed) == ("text" in changed) == (tune != "head")
    assert "text_projection" in changed


def test_a_second_text_encoder_is_refused(ready: Any, data: Path, clip_folder: Any) -> None:
    folder, _, _ = clip_folder
    with pytest.raises(UsageError, match="text_base must be left out where base is a model of images and texts"):
        ready(data, f"base={folder}", f"text_base={folder}", "max_length=32")


def test_a_frozen_image_encoder_sees_each_image_once(ready: Any, data: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")
    shape = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 40}
    config = transformers.ViTConfig(**shape, image_size=16, patch_size=4, num_labels=3)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    size = {"height": 16, "width": 16}
    transformers.ViTImageProcessorPil(size=size).save_pretrained(tmp_path / "vit")
    task = ready(data, f"base={tmp_path / 'vit'}")
    assert task.frozen and not any(value.requires_grad for value in task.backbone.parameters())
    examples = task.splits[Split.VALID]
    stored = examples.stored(examples.rows.picture[:2])
    assert stored.shape == (2, 17, 24) and stored.dtype == torch.float16
    from_cache = task.image_vectors(stored)
    for row, vector in enumerate(from_cache):
        pixels = task.format.read(examples.images[int(examples.rows.picture[row])])
        torch.testing.assert_close(vector, task.image_vectors(pixels[None])[0], atol=5e-3, rtol=5e-3)
    (batch,) = task.source(Split.TRAIN, 1).at(0)
    assert batch.pixels.shape == (32, 17, 24)
    ((_, loss),) = task.losses(batch, task.networks())
    assert loss.requires_grad


def test_a_model_learns_to_find_captions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    data = scenes.write_captions(tmp_path)
    settings = [*TINY, "train.steps=300", "train.device=cpu", "train.evaluate_every=100"]
    run = saccade.train(data, task="image_text", root=tmp_path / "runs", overrides=settings, progress=False)
    assert run.metrics["mean_recall"] > run.metrics["chance"] + 15
    model = saccade.load(run.path, device="cpu")
    names = ",".join(f"{colour} square" for colour in scenes.COLOURS)
    answers = [
        model(scenes.draw(colour, "square", side, 900), classes=names, template="Here is a {}.").text
        for colour in scenes.COLOURS
        for side in scenes.SIDES
    ]
    expected = [f"{colour} square" for colour in scenes.COLOURS for _ in scenes.SIDES]
    assert sum(map(str.__eq__, answers, expected)) >= 4  # of 6; by chance 2
