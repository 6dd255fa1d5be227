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
        Task.prepare(config, data, assets)
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


def test_a_model_learns_to_find_captions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    data = scenes.write_captions(tmp_path)
    settings = [*TINY, "train.steps=120", "train.device=cpu", "train.evaluate_every=60"]
    run = saccade.train(data, task="image_text", root=tmp_path / "runs", overrides=settings, progress=False)
    assert run.metrics["mean_recall"] > run.metrics["chance"] + 15
    model = saccade.load(run.path, device="cpu")
    names = ",".join(f"{colour} {shape}" for colour in scenes.COLOURS for shape in scenes.SHAPES)
    right = 0
    for number, colour in enumerate(scenes.COLOURS):
        answer = model(scenes.draw(colour, "bar", "left", 900 + number), classes=names, template="Here is a {}.")
        right += answer.text == f"{colour} bar"
    assert right >= 2
