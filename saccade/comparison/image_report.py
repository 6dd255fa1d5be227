"""Report of a comparison of image classifiers as one HTML file, without network access or scripts."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from saccade.comparison.image_summary import COLUMNS, HIGHER_IS_BETTER, NAMES, SCORES, score_cells, score_names
from saccade.comparison.page import (
    Model,
    best_cell,
    best_values,
    capitalize,
    collapsed,
    document,
    every_nth,
    failed_cell,
    html,
    learning_curves,
    models_legend,
    note,
    paragraph,
    section,
    setup,
    table,
)
from saccade.core import GridAxis, Role
from saccade.core.serialize import image_url
from saccade.data.images.decoding import decode
from saccade.look.overlay import OverlayStyle, overlay

ROWS = 12  # evaluations in the table of the curves
LABELS = 40  # labels in the table; of more, those on which the models differ most
SIDE = 224  # pixels of an overlay

MODELS_NOTE = """The best value of each score is bold. The 95% interval of the accuracy follows from the number of
validation images (Wilson); there is one run per model, so it does not cover the difference between two seeds. Training
images per second are measured without evaluations, inference images per second on all validation images, as they are
evaluated. An epoch is one pass over the training images. Peak memory is the resident memory of the model's own
process."""
LOOK_NOTE = """Weights of the last attention layer over the picture, the mean of its heads: those of the class position
where the model has one, else the mean over all cells. Attention shows which cells are read, not why a label was chosen.
Pictures are shown as the networks see them. The strongest colour is the largest weight of each map; where it is about
the mean, the model looks everywhere."""


def page(result: dict[str, Any]) -> str:
    """Return the report as one HTML file."""
    settings = result["run"]
    models = list(enumerate(result["models"]))  # the number decides the colour, even if another model has failed
    done = [(at, model) for at, model in models if "scores" in model]
    sections = [
        _overview(result, [model for _, model in done]),
        _curves(done),
        _by_label([model for _, model in done]),
        _looks([model for _, model in done], settings["pictures"]),
        _about(settings, done[0][1]),
    ]
    style = Path(__file__).with_name("image_report.css").read_text(encoding="utf-8")
    return document(result, sections, style=style, images=True)


def _name(model: Model) -> str:
    return html(capitalize(NAMES[model["name"]]))


def _overview(result: dict[str, Any], done: Sequence[Model]) -> str:
    """Return one row for each model."""
    names = score_names(result)
    titles = [html(capitalize(SCORES[name]).replace("-", "\u2011")) for name in names]
    header = ["Model", titles[0], "95% interval", *titles[1:], *(title[0].upper() + title[1:] for title in COLUMNS)]
    best = [best_values([model["scores"][name] for model in done], name in HIGHER_IS_BETTER) for name in names]
    rows = []
    for model in result["models"]:
        if "scores" not in model:
            rows.append([_name(model), failed_cell(model, len(header) - 1)])
            continue
        is_best = [model["scores"][name] in values for name, values in zip(names, best, strict=True)]
        cells = zip(score_cells(model, names), [is_best[0], False, *is_best[1:]], strict=True)
        costs = [cost(model) for cost in COLUMNS.values()]
        rows.append([_name(model), *(best_cell(text, bold) for text, bold in cells), *costs])
    return section("Models", table(header, rows), note(MODELS_NOTE))


def _curves(done: Sequence[tuple[int, Model]]) -> str:
    """Return the charts of validation accuracy and loss against minutes and images."""
    rows = []
    for _, model in done:
        for point in every_nth(model["curve"], ROWS):
            cells = [
                f"{point['step']:,}",
                f"{point['minutes']:.2f}",
                f"{point['images']:,}",
                f"{point['accuracy']:.1f}",
                f"{point['loss']:.3f}",
            ]
            rows.append([_name(model), *cells])
    about = "On a fixed sample of the validation images; the table above is of all of them, with the best checkpoint."
    metrics = {"accuracy": "accuracy (%)", "loss": "loss"}
    return section(
        "Learning curves",
        paragraph(about),
        models_legend(done, NAMES),
        learning_curves(done, NAMES, metrics, ("minutes", "images")),
        collapsed(table(["Model", "Step", "Minutes", "Images", "Accuracy", "Loss"], rows)),
    )


def _by_label(done: Sequence[Model]) -> str:
    """Return the accuracy of each model on each label."""
    accuracies = {
        label: [100 * model["by_label"][label]["correct"] / counts["count"] for model in done]
        for label, counts in done[0]["by_label"].items()
    }
    about = "Accuracy (%) on the validation images of each label; the best is bold."
    if len(accuracies) > LABELS:
        spread = {label: max(values) - min(values) for label, values in accuracies.items()}
        kept = sorted(spread, key=lambda label: -spread[label])[:LABELS]
        accuracies = {label: accuracies[label] for label in kept}
        about += f" The {LABELS} labels on which the models differ most; report.json has all {len(spread):,}."
    rows = []
    for label, values in accuracies.items():
        best = best_values(values, higher_is_better=True)
        cells = [best_cell(f"{value:.1f}", value in best) for value in values]
        rows.append([html(label), f"{done[0]['by_label'][label]['count']:,}", *cells])
    return section("Accuracy by label", paragraph(about), table(["Label", "Images", *map(_name, done)], rows))


def _looks(done: Sequence[Model], pictures: Sequence[dict[str, Any]]) -> str:
    """Return the predictions and the attention of all models on some pictures."""
    rows = []
    for number, picture in enumerate(pictures):
        shown = f'<img src="{html(picture["image"])}" alt="{html(picture["name"])}">'
        label = f"<b>{html(picture['label'])}</b>" if picture["label"] else ""
        cells = [_look(model, picture, model["pictures"][number]) for model in done]
        rows.append([f'{shown}<span class="said">{label}<small>{html(picture["name"])}</small></span>', *cells])
    looks = table(["Picture", *map(_name, done)], rows)
    return section("Where the models look", paragraph(LOOK_NOTE), f'<div class="looks">{looks}</div>')


def _look(model: Model, picture: dict[str, Any], prediction: dict[str, Any]) -> str:
    """Return the cell of a model and a picture: its attention over the picture, and its prediction."""
    text = f"{html(prediction['label'])} {100 * prediction['probability']:.0f}%"
    if picture["label"]:
        right = prediction["label"] == picture["label"]
        text = f'<span class="{"right" if right else "wrong"}">{"✓" if right else "✗"} {text}</span>'
    attention = prediction["attention"]
    if attention is None:
        shown, about = '<span class="blank">no attention</span>', ""
    else:
        alt = f"{NAMES[model['name']]}: {attention['name']}, {attention['query']}"
        shown = f'<img src="{_overlay(picture["image"], attention["weights"])}" alt="{html(alt)}">'
        layer = html(attention["name"]).replace(".", ".<wbr>")
        about = f"<small>{layer}<br>largest {_contrast(attention['weights']):.1f} x the mean</small>"
    return f'<td>{shown}<span class="said">{text}{about}</span></td>'


def _contrast(weights: Sequence[Sequence[float]]) -> float:
    """Return the largest weight as a multiple of the mean: 1 is attention that looks everywhere."""
    flat = [weight for row in weights for weight in row]
    return max(flat) * len(flat) / max(sum(flat), 1e-9)


def _overlay(url: str, weights: Sequence[Sequence[float]]) -> str:
    """Return a picture with weights over its cells as a data URL."""
    pixels = decode(base64.b64decode(url.partition(",")[2]), "picture")
    image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    cells = torch.tensor(weights)
    rows, columns = cells.shape
    axis = GridAxis(Role.IMAGE, rows, columns, image)
    return image_url(overlay(axis, cells, float(cells.max()), (SIDE, SIDE), OverlayStyle()))


def _about(settings: dict[str, Any], model: Model) -> str:
    """Return the data, settings and machine of the comparison."""
    counts, size = settings["counts"], settings["size"]
    facts = {
        "Images": f"{counts['train']:,} for training, {counts['valid']:,} for validation, {size} x {size} pixels, "
        f"{len(settings['labels']):,} labels; fingerprint {settings['fingerprint']}, the same for every model",
        "Scores": "; ".join(f"{name}: {value}" for name, value in model["signatures"].items()),
    }
    return setup(facts, settings)
