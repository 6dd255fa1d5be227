"""Complete comparisons of image classifiers: killed and continued, and errors before training."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import saccade
from saccade import api
from saccade.comparison.job import FILE, Trial, compare
from saccade.core.outputs import png
from saccade.errors import UsageError

BATCH = 4
OVERRIDES = ["model.cnn.widths=[8,8]", "model.cnn.heads=2", "model.hybrid.convolution.widths=[8,8]"]
OVERRIDES += [f"model.{name}={value}" for name, value in (("hybrid.transformer.depth", 1), ("vit.depth", 2))]
for part in ("hybrid.transformer", "vit"):
    OVERRIDES += [f"model.{part}.dim=8", f"model.{part}.heads=2", f"model.{part}.hidden=16"]
OVERRIDES += [
    "train.steps=12",
    "train.save_every=2",
    "train.evaluate_every=4",
    "train.device=cpu",
    f"batch_size={BATCH}",
]
OVERRIDES += ["train.precision=float32"]
MODELS = ["cnn", "cnn+attention", "hybrid", "vit"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder for each of three colours, of small pictures with a square of that colour."""
    folder, draw = tmp_path_factory.mktemp("data") / "squares", random.Random(3)
    for label, name in enumerate(("blue", "green", "red")):
        (folder / name).mkdir(parents=True)
        for number in range(40):
            pixels = torch.randint(0, 120, (3, 16, 16), generator=torch.Generator().manual_seed(100 * label + number))
            top, left = draw.randrange(8), draw.randrange(8)
            pixels[2 - label, top : top + 8, left : left + 8] = 250
            (folder / name / f"{number}.png").write_bytes(png(pixels.byte()))
    return folder


def command(data, root, *more):
    here = Path(__file__).parent.parent.parent
    args = [sys.executable, "-m", "saccade", "compare", str(data), "--runs", str(root), *more]
    paths = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    return {"args": args, "env": {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}}


@pytest.fixture(scope="module")
def killed(data, tmp_path_factory):
    """A comparison of all models that was killed in its second one, then continued."""
    root = tmp_path_factory.mktemp("runs")
    compared = command(data, root, "--name", "all", *OVERRIDES)
    run = root / "all" / "cnn-attention"
    process = subprocess.Popen(**compared, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while not any((run / "checkpoints").glob("step-*[!a-z.]")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = subprocess.run(**compared, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {"folder": root / "all", "done": done, "json": json.loads((root / "all" / "report.json").read_text())}


@pytest.mark.slow
def test_the_data_choose_the_comparison_and_all_numbers_are_in_the_json(killed):
    result = killed["json"]
    assert [model["name"] for model in result["models"]] == MODELS
    assert result["run"]["task"] == "image_classification"
    counts = result["run"]["counts"]
    assert counts["train"] + counts["valid"] == 120
    for model in result["models"]:
        assert {"accuracy", "calibration_error", "loss", "top5"} <= model["scores"].keys()
        assert model["steps"] == 12 and model["epochs"] == pytest.approx(12 * BATCH / counts["train"])
        assert model["images_per_second"] > 0 and model["inference_images_per_second"] > 0
        assert model["parameters"] > 100 and model["peak_bytes"] > 100_000_000
        assert [point["step"] for point in model["curve"]] == [4, 8, 12]
        assert [point["images"] for point in model["curve"]] == [4 * BATCH, 8 * BATCH, 12 * BATCH]
        assert model["assets"]["labels.json"] == result["run"]["assets"]["labels.json"]
        assert model["fingerprint"] == result["run"]["fingerprint"]
    assert len({model["assets"]["encoder.json"] for model in result["models"]}) == 4
    assert result["summary"][-1].startswith("This is one run per model")


@pytest.mark.slow
def test_the_accuracies_of_the_labels_add_up_to_that_of_evaluate(killed):
    for model in killed["json"]["models"]:
        counts = model["by_label"].values()
        total = sum(count["count"] for count in counts)
        assert total == model["scores"]["images"] == killed["json"]["run"]["counts"]["valid"]
        assert 100 * sum(count["correct"] for count in counts) / total == pytest.approx(model["scores"]["accuracy"])


@pytest.mark.slow
def test_every_model_but_the_cnn_has_attention_over_the_pictures(killed):
    pictures = killed["json"]["run"]["pictures"]
    assert [picture["label"] for picture in pictures] == ["blue", "green", "red"]
    cnn, *others = killed["json"]["models"]
    assert [picture["attention"] for picture in cnn["pictures"]] == [None] * 3
    for model in others:
        for picture in model["pictures"]:
            weights = picture["attention"]["weights"]
            assert sum(map(sum, weights)) == pytest.approx(1, abs=1e-3)
            assert 0 <= picture["probability"] <= 1 and picture["label"] in ("blue", "green", "red")
    assert [len(model["pictures"][0]["attention"]["weights"]) for model in others] == [4, 4, 8]


@pytest.mark.slow
def test_an_interrupted_model_equals_an_uninterrupted_one(killed, data, tmp_path):
    overrides = [*OVERRIDES, "model.architecture=cnn+attention"]
    api.train(
        data, task="image_classification", name="cnn-attention", root=tmp_path, overrides=overrides, progress=False
    )

    def losses(folder):
        lines = map(json.loads, (folder / "cnn-attention" / "metrics.jsonl").read_text().splitlines())
        return [(record["step"], record["loss"]) for record in lines if "lr_scale" in record]

    assert losses(killed["folder"]) == losses(tmp_path)
    assert "resuming after step" in killed["done"].stderr


@pytest.mark.slow
def test_the_page_and_the_table_are_written(killed):
    text = (killed["folder"] / "report.html").read_text()
    assert text.count("<section") == 6
    assert text.count('src="data:image/png;base64,') == 3 + 3 * 3
    lines = killed["done"].stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["model", *MODELS]
    assert f"report: {killed['folder'] / 'report.html'}" in killed["done"].stderr


@pytest.mark.slow
def test_a_picture_of_the_user_is_shown_and_belongs_to_the_settings(data, tmp_path):
    picture = tmp_path / "mine.png"
    picture.write_bytes(png(torch.full((3, 20, 30), 90, dtype=torch.uint8)))
    overrides = [*OVERRIDES, "train.steps=2"]
    settings = {"models": ["vit"], "images": [picture], "name": "mine", "root": tmp_path, "progress": False}
    result = saccade.compare(data, overrides=overrides, **settings).result
    (shown,) = result["run"]["pictures"]
    assert (shown["name"], shown["label"], shown["file"]) == ("mine.png", "", str(picture))
    assert len(result["models"][0]["pictures"]) == 1
    with pytest.raises(
        UsageError, match=r"images must be \['.*mine.png'\] to continue the comparison 'mine', but is \[\]"
    ):
        saccade.compare(data, overrides=overrides, **{**settings, "images": ()})


@pytest.mark.parametrize(
    ("trial", "overrides", "message"),
    [
        ({"models": ("cnn", "rnn")}, [], "models must be of cnn, .* for image_classification, but is rnn"),
        ({"sentence": "the cat"}, [], "sentence must not be set for image_classification, but is 'the cat'"),
        ({"probe_minutes": 1}, [], "probe_minutes must not be set for image_classification, but is 1"),
        ({"images": ("nowhere.png",)}, [], "nowhere.png"),
        ({}, ["model.architecture=vit"], "name them with --models"),
        ({}, ["base=minilm"], "base must be empty, .* but is minilm"),
        ({}, ["model.vit.dpth=3"], "did you mean 'model.vit.depth'"),
        ({"task": "captioning"}, [], "task must be translation or image_classification .* but is captioning"),
    ],
)
def test_errors_are_reported_before_anything_is_trained(data, tmp_path, trial, overrides, message):
    with pytest.raises(UsageError, match=message):
        compare(data, Trial(**trial), overrides=[*OVERRIDES, *overrides], root=tmp_path / "runs")
    assert not list(tmp_path.rglob(FILE))


def test_a_file_that_is_no_picture_is_refused_by_name(data, tmp_path):
    (tmp_path / "mine.png").write_text("no picture")
    with pytest.raises(UsageError, match=r"mine\.png: .*; "):
        compare(data, Trial(images=(str(tmp_path / "mine.png"),)), overrides=OVERRIDES, root=tmp_path / "runs")


def test_image_models_are_refused_for_pairs(tmp_path):
    (tmp_path / "pairs.tsv").write_text("a b\tb a\n" * 3)
    with pytest.raises(UsageError, match=r"models must be of rnn, .* for translation, but is vit; .* --task"):
        compare(tmp_path / "pairs.tsv", Trial(("vit",)), root=tmp_path)
    with pytest.raises(UsageError, match="images must not be set for translation"):
        compare(tmp_path / "pairs.tsv", Trial(images=("cat.jpg",)), root=tmp_path)
