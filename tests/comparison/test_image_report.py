"""The report on image classifiers: intervals, sentences, escaping, and how a real browser shows it."""

import re

import numpy as np
import pytest
import torch

from saccade.comparison import image_report
from saccade.comparison.image_measure import attention_to_json, spread_rows
from saccade.comparison.image_summary import interval, noise, summary, text_table
from saccade.core import AttentionMap, AttentionMaps, GridAxis, Role
from saccade.core.serialize import image_url

EVIL = "</style><script>window.hacked=1</script>"
LABELS = ("cat", "dog", EVIL, "horse", "ship", "truck")


def trained(name, accuracy, *, speed=1000.0, rows=0):
    curve = [
        {
            "step": step,
            "minutes": step / 10,
            "images": 64 * step,
            "accuracy": accuracy * step / 20,
            "loss": 2 - step / 20,
        }
        for step in (10, 20)
    ]
    weights = [[1 / rows**2] * rows] * rows if rows else None
    attention = {"name": "encoder.attention", "query": f"mean of {rows**2} cells", "weights": weights, "extra": {}}
    prediction = {"label": "cat", "probability": 0.87, "attention": attention if rows else None}
    return {
        "name": name,
        "score": "accuracy",
        "scores": {
            "accuracy": accuracy,
            "top5": 99.0,
            "calibration_error": 100 - accuracy,
            "loss": 0.5,
            "images": 1000,
        },
        "signatures": {"accuracy": "accuracy|version:saccade"},
        "parameters": 1234567,
        "steps": 20,
        "minutes": 2.0,
        "images_per_second": speed,
        "epochs": speed / 100,
        "inference_images_per_second": 3 * speed,
        "by_label": {label: {"count": 10 * at + 10, "correct": 5 * at} for at, label in enumerate(LABELS)},
        "curve": curve,
        "losses": [[10, 1.0, 640, 1.5]],
        "pictures": [prediction, {**prediction, "label": EVIL}],
        "assets": {"labels.json": "ab" * 32, "encoder.json": name},
        "fingerprint": "f00d",
        "peak_bytes": 500_000_000,
    }


@pytest.fixture
def result():
    """Three trained models and one that failed."""
    image = image_url(torch.arange(3 * 8 * 8, dtype=torch.uint8).reshape(3, 8, 8))
    models = [
        trained("cnn", 83.0, speed=2000.0),
        trained("cnn+attention", 84.0, rows=4),
        {"name": "hybrid", "failed": {"train": f"its process was killed {EVIL}"}},
        trained("vit", 63.0, speed=1500.0, rows=2),
    ]
    result = {
        "run": {
            "task": "image_classification",
            "data": f"/data/{EVIL}",
            "models": [model["name"] for model in models],
            "overrides": ["train.minutes=5", f"x={EVIL}"],
            "images": [],
            "pictures": [
                {"name": f"cat/1{EVIL}.png", "label": "cat", "row": 3, "file": "", "image": image},
                {"name": "mine.png", "label": "", "row": None, "file": "/mine.png", "image": image},
            ],
            "labels": list(LABELS),
            "size": 8,
            "counts": {"train": 9000, "valid": 1000},
            "created": "2031-01-02T03:04:05+00:00",
            "command": f"saccade compare {EVIL}",
            "notes": ["labels: 6"],
            "settings": {"steps": 0, "epochs": 0.0, "minutes": 5.0},
            "seed": 1,
            "assets": {"labels.json": "ab" * 32},
            "fingerprint": "f00d",
            "machine": {
                "saccade": "0",
                "torch": "2",
                "python": "3",
                "system": "Linux",
                "processor": EVIL,
                "device": "cpu (2 threads)",
            },
        },
        "models": models,
    }
    return {**result, "summary": summary(result)}


def test_the_interval_of_an_accuracy_is_that_of_the_literature():
    """Newcombe 1998, table I: 81 of 263 and 0 of 20."""
    assert interval(100 * 81 / 263, 263) == (pytest.approx(25.53, abs=0.01), pytest.approx(36.62, abs=0.01))
    assert interval(0, 20) == (pytest.approx(0), pytest.approx(16.11, abs=0.01))
    assert interval(100, 20) == (pytest.approx(83.89, abs=0.01), pytest.approx(100))


@pytest.mark.parametrize(("p", "count"), [(0.9, 200), (0.5, 1000), (0.99, 500)])
def test_two_equal_models_differ_by_more_than_the_noise_in_a_twentieth_of_all_cases(p, count):
    pairs = 100 * np.random.default_rng(1).binomial(count, p, (4000, 2)) / count
    beyond = np.mean([abs(first - second) > noise(first, second, count) for first, second in pairs])
    assert 0.02 < beyond < 0.065


def test_a_perfect_model_has_noise_too():
    assert noise(100, 100, 50) > 0


def test_the_summary_names_the_best_model_and_what_is_within_noise(result):
    sentences = summary(result)
    assert sentences[0].startswith("hybrid could not be trained: its process was killed")
    assert sentences[1] == (
        "The CNN + attention is best with 84.0% accuracy, 1.0 points above the CNN; the ViT is last with 63.0%. "
        "Always predicting the most frequent label scores 28.6%."
    )
    assert sentences[2] == (
        "On 1,000 validation images differences below 3.3 points are within noise (95%): "
        "the CNN cannot be told from the best."
    )


def test_the_summary_says_what_convolutions_and_attention_are_worth(result):
    sentences = summary(result)
    without = "Without convolutions the ViT reaches 63.0% with the same budget, 21.0 points below the CNN + attention."
    assert without in sentences
    attention = "Self-attention between its convolutions: the CNN + attention is 1.0 points above the CNN"
    assert f"{attention}, which is within noise." in sentences
    assert not any(line.startswith("Convolutions before the Transformer") for line in sentences)
    assert sentences[-1].startswith("This is one run per model, from scratch")


def test_a_clear_winner_is_called_one(result):
    result["models"][0] = trained("cnn", 99.0)
    assert summary(result)[2].endswith(": the best is better than all others.")


def test_the_speed_is_compared_by_training_and_by_inference(result):
    sentences = summary(result)
    assert (
        "The CNN trains on 2,000 images per second, 2.0 times as many as the CNN + attention: 20.0 and 10.0 epochs."
        in sentences
    )
    assert any("The CNN classifies 6,000 images per second, the CNN + attention 3,000;" in line for line in sentences)


def test_one_model_alone_is_not_compared(result):
    result["models"] = result["models"][:1]
    assert summary(result) == []


def test_the_table_for_the_terminal_is_aligned(result):
    lines = text_table(result)
    assert lines[0].startswith("model ") and "top-5" in lines[0] and lines[0].endswith("peak MB")
    assert "81.6-86.1" in lines[2] and "99.0" in lines[2]
    assert re.fullmatch(r"hybrid\s+failed", lines[3])
    assert len({line.index("1,234,567") for line in (lines[1], lines[2], lines[4])}) == 1


def test_top_5_is_left_out_where_it_says_nothing(result):
    result["run"]["labels"] = ["cat", "dog"]
    assert "top-5" not in text_table(result)[0]
    assert "Top\u20115" not in image_report.page(result)


def test_the_page_has_every_section_and_names_no_other_file(result):
    text = image_report.page(result)
    for title in ("Models", "Learning curves", "Accuracy by label", "Where the models look", "Setup"):
        assert f"<h2>{title}</h2>" in text
    assert text.count('class="blank">no attention') == 2  # the CNN, on both pictures
    assert text.count("encoder.<wbr>attention<br>largest 1.0 x the mean") == 4
    assert not re.search(r"https?:|href=|@import|url\(|src=\"(?!data:image/png;base64,)", text)
    assert "img-src data:; style-src 'sha256-" in text


def test_a_prediction_is_marked_right_or_wrong_only_where_the_label_is_known(result):
    text = image_report.page(result)
    assert text.count('<span class="right">✓ cat 87%</span>') == 3
    assert "✗" not in text  # the picture of the user has no label
    result["run"]["pictures"][0]["label"] = "dog"
    assert image_report.page(result).count('<span class="wrong">✗ cat 87%</span>') == 3


def test_every_text_is_escaped(result):
    text = image_report.page(result)
    assert EVIL not in text and "<script" not in text
    assert text.count("<style>") == text.count("</style>") == 1


def test_the_best_of_each_score_is_bold_and_a_failure_is_shown(result):
    text = image_report.page(result)
    assert '<td class="best">84.0</td><td>81.6-86.1</td>' in text
    assert '<th scope="col">Top\u20115</th>' in text
    assert '<td class="best">16.0</td>' in text  # the lowest calibration error
    assert "its process was killed &lt;/style&gt;" in text


def test_of_many_labels_those_are_listed_on_which_the_models_differ_most(result):
    for model in result["models"]:
        if "scores" in model:
            hard = 1 if model["name"] == "vit" else 9
            model["by_label"] = {f"label{at}": {"count": 10, "correct": hard if at == 77 else 5} for at in range(100)}
    text = image_report.page(result)
    assert "report.json has all 100." in text
    rows = re.findall(r'<th scope="row">(label\d+)</th>', text)
    assert len(rows) == image_report.LABELS and rows[0] == "label77"


def test_pictures_are_of_labels_that_are_spread_over_all():
    assert spread_rows(["b", "a", "a", "c"], 4) == [1, 0, 3]
    assert spread_rows([f"{at % 10}" for at in range(100)], 4) == [0, 3, 6, 9]


def test_the_attention_of_the_class_position_is_shown_where_there_is_one():
    axis = GridAxis(Role.IMAGE, 1, 2, extra=("class",))
    weights = torch.tensor([[[0.2, 0.3, 0.5], [0, 1, 0], [0, 0, 1]], [[0.4, 0.5, 0.1], [0, 1, 0], [0, 0, 1]]])
    maps = [AttentionMap("0", torch.eye(3)[None], axis, axis), AttentionMap("1", weights, axis, axis)]
    json = attention_to_json(AttentionMaps(maps))
    assert (json["name"], json["query"]) == ("1", "class")
    assert json["weights"] == [[pytest.approx(0.4), pytest.approx(0.3)]]
    assert json["extra"] == {"class": pytest.approx(0.3)}
    assert attention_to_json(AttentionMaps()) is None


def test_without_a_class_position_the_attention_is_the_mean_of_all_cells():
    axis = GridAxis(Role.IMAGE, 2, 1)
    json = attention_to_json(AttentionMaps([AttentionMap("0", torch.tensor([[[1.0, 0.0], [0.5, 0.5]]]), axis, axis)]))
    assert json["weights"] == [[0.75], [0.25]] and json["query"] == "mean of 2 cells"


@pytest.mark.parametrize("width", [1100, 400])
def test_the_page_fits_a_browser_without_errors(browser, result, tmp_path, width):
    file, errors = tmp_path / "report.html", []
    file.write_text(image_report.page(result), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme="dark")
    tab = context.new_page()
    tab.on("console", lambda message: errors.append(message.text))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(file.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(21, 24, 28)"
    sizes = tab.evaluate("[...document.images].map(x => x.naturalWidth)")
    assert sorted(sizes) == [8, 8, *[image_report.SIDE] * 4]
    assert tab.evaluate("window.hacked") is None
    assert not errors
    context.close()
