"""Scale and tools, R69 to R74: pretraining, the published table, cost, Hugging Face checkpoints, the view itself."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade import api
from saccade.core import GridAxis, NodeAxis, TimeAxis, TokenAxis
from saccade.lectures import _models, bert
from saccade.lectures import _texts as texts
from saccade.lectures._models import KINDS
from saccade.lectures._row import Demonstration, Row
from saccade.lectures._training import new_folder, train_model
from saccade.look.figure import AttentionFigure
from saccade.planning import published
from saccade.planning.cost import Cluster
from saccade.planning.hardware import DEVICES
from saccade.planning.shapes import ARCHITECTURES

LABELS = 16
LOADED = r"(?:src|href)=.?https?:[^ >]*"


def pretraining(show: Demonstration) -> None:
    """R69: pretrain on much text, fine-tune on few labels: better than the same labels from scratch."""
    base = bert.pretrained()

    def write(folder: Any) -> Any:
        return texts.write_topics(folder, LABELS), texts.write_topics(folder, 200, 5, "valid.csv")

    loop = ("batch_tokens=400",)
    tuned = train_model(write, "text_classification", 40, f"base={base.path}", *loop, *bert.TUNE)
    scratch = train_model(write, "text_classification", 40, *bert.SHAPE, *loop, "train.optim.warmup=5")
    rows = [("pretrained, then fine-tuned", tuned.metrics["accuracy"]), ("from scratch", scratch.metrics["accuracy"])]
    show.note(f"1. $ {base.command}\n2. $ {tuned.command}\n   $ {scratch.command}")
    show.table(f"accuracy with {LABELS} labels, %", ("model", "accuracy"), rows)
    show.above("fine-tuned - scratch, %", tuned.metrics["accuracy"] - scratch.metrics["accuracy"], 5)


@cache
def scaling_table() -> dict[str, dict[str, Any]]:
    """Return the published table as `saccade plan` counts it from the shapes, by name."""
    return {row["title"]: row for row in published.table(0.3)}


STATED = (65e6, 213e6, 110e6, 340e6, 340e6, 355e6, 1.5e9, 8.3e9, 17e9, 175e9, 280e9)
# What is counted from the shapes, where it is not what the table states, and why: T3 to T5
COUNTED = {0: 63.1e6, 1: 214.2e6, 2: 109.5e6, 3: 335.1e6, 4: 360.3e6, 5: 355.4e6, 6: 1.5576e9, 9: 174.6e9, 10: 279.7e9}
ROUNDED = {7: 8.32e9, 8: 17.18e9}  # Megatron-LM and Turing-NLG, of whose shapes not everything is published


def published_table(show: Demonstration) -> None:
    """R70: the parameters of eleven models, counted from their shapes alone."""
    rows = list(scaling_table().values())
    columns = ("model", "layers", "width", "heads", "counted, M", "stated, M", "difference, %")
    table = [
        (
            r["title"],
            r["layers"],
            r["width"],
            r["heads"],
            r["parameters"] / 1e6,
            r["stated"] / 1e6,
            100 * r["difference"],
        )
        for r in rows
    ]
    show.table("scaling up Transformers", columns, table)
    show.equal("rows", len(rows), 11)
    show.close(
        "stated parameters, millions", [row["stated"] / 1e6 for row in rows], [value / 1e6 for value in STATED], 1e-6
    )
    for at, expected in COUNTED.items():
        show.close(
            f"{rows[at]['title']}: counted, M", rows[at]["parameters"] / 1e6, expected / 1e6, 0.001 * expected / 1e6
        )
    for at, expected in ROUNDED.items():
        show.close(
            f"{rows[at]['title']}: counted, B", rows[at]["parameters"] / 1e9, expected / 1e9, 0.03 * expected / 1e9
        )
    gopher = rows[10]
    show.close(
        "Gopher without its relative positions, 12 L d^2 + embeddings, B", gopher["usual_count"] / 1e9, 258.3, 0.5
    )
    for row in rows:
        if row["reason"]:
            show.note(f"{row['title']}: {row['reason']}")


def training_cost(show: Demonstration) -> None:
    """R71: chips x hours x price: Gopher, $3,768,320; T6: 920 hours are 38.33 days."""
    training = ARCHITECTURES["gopher"].training
    assert training is not None and training.hours is not None
    cluster = Cluster(DEVICES[training.device], training.count, price=training.price)
    rows = [
        (cluster.count, hours, cluster.price, cluster.dollars(hours), about)
        for hours, about in ((training.hours, "as published"), (38.0 * 24, "38 days to the hour"))
    ]
    show.table("Gopher", ("chips", "hours", "dollars per chip and hour", "dollars", ""), rows)
    show.close("chips x hours x price, dollars", rows[0][3], 3768320.0, 1e-6)
    show.close("hours that cost as much, in days", rows[0][3] / cluster.dollars(24.0), 38.33, 0.01)
    show.close("38 days to the hour would be, dollars", rows[1][3], 3735552.0, 1e-6)


def training_time(show: Demonstration) -> None:
    """R72: the time of training from FLOPs and a stated utilisation: the order of magnitude of what was published."""
    rows = [row for row in scaling_table().values() if row.get("published_hours") and row.get("estimated_hours")]
    table = [
        (
            r["title"],
            r["hardware"],
            r["published_hours"],
            r["estimated_hours"],
            r["estimated_hours"] / r["published_hours"],
        )
        for r in rows
    ]
    show.table(
        f"hours at {rows[0]['utilisation']:.0%} of the peak",
        ("model", "hardware", "published", "estimated", "ratio"),
        table,
    )
    show.above("models with a published time", len(rows), 3)
    for title, _, _, _, ratio in table:
        show.between(f"{title}: estimated / published", ratio, 0.1, 10)


def checkpoints(show: Demonstration) -> None:
    """R73: a model is saved as a Hugging Face folder and loaded again: equal logits."""
    llama = ("activation=swiglu", "norm=rms", "position=rotary", "score=scaled_dot", "embedding_norm=false")
    shape = ("dim=32", "depth=2", "heads=2", "hidden=64", "max_positions=64", *llama)
    trained = train_model(
        lambda folder: (texts.write_documents(folder, 200), None),
        "language_model",
        40,
        "batch_size=8",
        *(f"model.{setting}" for setting in shape),
        *("data.tokenizer=bpe", "data.vocabulary_size=400"),
    )
    folder = new_folder() / "hf"
    notes = trained.model.export(folder)
    loaded = api.load(folder, device="cpu")
    show.note(f"$ {trained.command}\n$ saccade export RUN hf")
    show.table("files", ("file", "bytes"), [(path.name, path.stat().st_size) for path in sorted(folder.iterdir())])
    for note in notes:
        show.note(note)
    prompt = "the captain sails"
    one, two = (model(prompt, temperature=0, max_new_tokens=8).text for model in (trained.model, loaded))
    show.equal("the same greedy text", two, one)
    config = json.loads((folder / "config.json").read_text())
    show.equal("architecture in config.json", config["architectures"], ["LlamaForCausalLM"])
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        logits = [model.task.networks()["model"](ids) for model in (trained.model, loaded)]
    show.same("logits, saved and loaded by saccade", logits[0], logits[1], 1e-4)
    if importlib.util.find_spec("transformers") is None:
        show.note("transformers is not installed, so that its logits were not compared: pip install transformers")
    else:
        show.same("logits, loaded by transformers", _logits_of_transformers(folder, ids), logits[0], 1e-4)
    html = trained.model(prompt, max_new_tokens=3, attention=True)._repr_html_()
    show.holds("in a notebook a prediction shows its attention", "<iframe" in html)


def _logits_of_transformers(folder: Path, ids: Tensor) -> Tensor:
    """Return what the model of a folder computes in transformers, which is no part of this package."""
    transformers = importlib.import_module("transformers")
    network = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    with torch.no_grad():
        logits: Tensor = network.eval()(ids).logits
    return logits


def visualisation(show: Demonstration) -> None:
    """R74: one page, any model, any layer and head, self and cross, text, image, sound and graph."""
    show.note(
        "Five models, trained for two steps by the ordinary command, so that there is something to see, but nothing "
        "was learned. All layers and heads of each are read beside the fused kernel, drawn and put on one page."
    )
    models = [_models.read(kind) for kind in KINDS]
    maps = [item for model in models for item in model.maps]
    kinds = {"text": TokenAxis, "image": GridAxis, "sound": TimeAxis, "graph": NodeAxis}
    for name, axis in kinds.items():
        show.above(f"maps over {name}", sum(isinstance(item.keys, axis) for item in maps), 0)
    crossing = [item.queries.role != item.keys.role for item in maps]
    show.equal("self-attention and cross-attention among them", [False in crossing, True in crossing], [True, True])
    rows = []
    for model in models:
        heads = sum(item.shape[0] for item in model.maps)
        drawn, page = _drawn(show, model), AttentionFigure.of(model.prediction).page()
        show.equal(
            f"{model.kind.name}: maps and heads of all layers", [len(model.maps), heads], [model.layers, model.heads]
        )
        show.equal(
            f"{model.kind.name}: layers on its page", sum(f'"{item.name}"' in page for item in model.maps), model.layers
        )
        show.equal(f"{model.kind.name}: addresses that the page loads", re.findall(LOADED, page), [])
        keys = ", ".join(sorted({type(item.keys).__name__ for item in model.maps}))
        rows.append((model.kind.name, keys, len(model.maps), heads, drawn, len(page)))
    show.table("one view for all", ("model", "keys", "layers", "heads", "bytes of SVG", "bytes of the page"), rows)
    for model in models:
        show.figure(model.kind.name, f"{len(model.maps)} layers", AttentionFigure.of(model.prediction))


def _drawn(show: Demonstration, model: _models.Read) -> int:
    """Draw every layer and head of a model, check what is drawn, and return the bytes of all pictures."""
    size, difference, sums = 0, 0.0, []
    for item in model.maps:
        for head, weights in enumerate(item.weights):
            figure = AttentionFigure.of(model.prediction, item.name, head, pieces=True)
            difference = max(difference, (figure.attention.weights[0] - weights).abs().max().item())
            sums += [weights.sum(-1).min().item(), weights.sum(-1).max().item()]
            size += len(figure.render("svg"))
    show.equal(
        f"{model.kind.name}: largest difference of a drawn weight from that of its layer and head", difference, 0.0
    )
    show.close(f"{model.kind.name}: smallest and largest sum of a row", [min(sums), max(sums)], [1.0, 1.0], 1e-4)
    return size


PLAN = "saccade plan --table"
ROWS = (
    Row("R69", "Pretrain on much text, fine-tune on your task", pretraining, 20),
    Row("R70", "Scaling up Transformers: eleven models counted from their shapes", published_table, 10, also=PLAN),
    Row("R71", "Gopher: 4096 chips x 920 hours x $1 = $3,768,320", training_cost, also=PLAN),
    Row("R72", "Training time from FLOPs and a stated utilisation", training_time, 10, also=PLAN),
    Row("R73", "Hugging Face checkpoints in and out; notebooks", checkpoints, 15),
    Row(
        "R74",
        "Attention visualisation: any model, layer, head and modality",
        visualisation,
        6,
        extras=("images", "audio"),
        page="look",
    ),
)
