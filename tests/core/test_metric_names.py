"""Names of metrics: as people write them, in agreement with what every task declares."""

import importlib
import pkgutil

import pytest

import saccade.tasks
from saccade.core import Metric, describe_metric
from saccade.tasks import load_task, task_names


@pytest.mark.parametrize(
    ("name", "label", "unit", "higher"),
    [
        ("bleu", "BLEU", "", True),
        ("chrf", "chrF", "", True),
        ("f1", "F1", "%", True),
        ("rougeL", "ROUGE-L", "", True),
        ("wer", "WER", "%", False),
        ("loss", "Loss", "nats", False),
        ("loss_generator", "Loss, generator", "nats", False),
        ("text_to_image_recall_at_10", "Recall@10, text to image", "%", True),
        ("image_to_text_median_rank", "Median rank, image to text", "", False),
        ("recall_at_1", "Recall@1", "%", True),
        ("my_own_score", "my own score", "", None),
    ],
)
def test_a_metric_is_named_as_people_write_it(name: str, label: str, unit: str, higher: bool | None) -> None:
    assert describe_metric(name, "nats") == Metric(name, higher, unit, label)


def declared() -> list[Metric]:
    """Every metric that a module of a task holds by itself or in a table, and that of each task."""
    metrics = []
    for module in pkgutil.walk_packages(saccade.tasks.__path__, "saccade.tasks."):
        for value in vars(importlib.import_module(module.name)).values():
            entries = value.values() if isinstance(value, dict) else [value]
            metrics += [entry for entry in entries if isinstance(entry, Metric)]
    return metrics + [
        task.metric for task in map(load_task, task_names()) if isinstance(getattr(task, "metric", 0), Metric)
    ]


def test_the_names_agree_with_what_tasks_declare() -> None:
    metrics = [metric for metric in declared() if metric.unit not in ("pairs", "tokens", "images", "recordings")]
    assert len({metric.name for metric in metrics}) > 15
    for metric in metrics:
        named = describe_metric(metric.name, "nats")
        assert named.label[0].isupper() or named.label == "chrF", metric.name
        assert named.higher_is_better == metric.higher_is_better, metric.name
        assert named.unit == "%" if metric.unit.startswith("%") else named.unit != "%", metric.name


@pytest.mark.parametrize(
    ("task", "unit"),
    [("translation", "nats"), ("language_model", "nats"), ("regression", ""), ("image_generation", "")],
)
def test_the_unit_of_a_loss_is_that_of_its_task(task: str, unit: str) -> None:
    assert load_task(task).loss_unit == unit
