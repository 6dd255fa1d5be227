"""Heads of transformers' encoder classes: sequence classification, token classification and question answering."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from saccade.errors import ModelFileError, UsageError
from saccade.models.text.bert import BertConfig
from saccade.models.text.heads import (
    BertForClassification,
    BertForQuestionAnswering,
    BertForRegression,
    BertForTokenClassification,
    Pooling,
)
from saccade.pretrained.families.family import Family, Names
from saccade.pretrained.families.mapping import weight_and_bias

MAX_LABELS = 100_000
SEQUENCE, TOKENS, ANSWERS = "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"
PRETRAINING = ("ForMaskedLM", "ForPreTraining")
PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")

HeadTask = Literal["text_classification", "regression", "tagging", "question_answering"]


@dataclass(frozen=True)
class Head:
    """The head of an encoder: the task that runs it, and its outputs."""

    task: HeadTask
    labels: tuple[str, ...] = ()
    """names of the outputs, in order; of a number and of answers: none"""
    multi_label: bool = False
    """whether a text can have several labels"""
    pooling: Pooling = "tanh"
    """of a head over one vector for each text"""
    mean: float = 0.0
    deviation: float = 1.0
    """of a number, which is the output times the deviation plus the mean"""

    @property
    def class_suffix(self) -> str:
        """End of the name of transformers' class."""
        return {"tagging": TOKENS, "question_answering": ANSWERS}.get(self.task, SEQUENCE)


@dataclass(frozen=True)
class HeadNames:
    """How a family names its classes and the layers of its heads."""

    class_prefix: str
    pooling: Pooling
    """of the sequence classifier"""
    dense: str
    output: str


HEADS = {
    "bert": HeadNames("Bert", "tanh", "bert.pooler.dense", "classifier"),
    "roberta": HeadNames("Roberta", "tanh", "classifier.dense", "classifier.out_proj"),
    "distilbert": HeadNames("DistilBert", "relu", "pre_classifier", "classifier"),
}


def read_head(path: Path, family: Family, values: Mapping[str, Any]) -> Head | None:
    """Return the head that a config.json describes; None: an encoder alone, or with its pretraining heads."""
    names, listed = HEADS.get(family.name), values.get("architectures")
    name = listed[0] if isinstance(listed, list) and listed else None
    if names is None or not isinstance(name, str) or "For" not in name:
        return None
    known = {names.class_prefix + suffix: suffix for suffix in (SEQUENCE, TOKENS, ANSWERS, *PRETRAINING)}
    if name not in known:
        supported = ", ".join((f"{names.class_prefix}Model", *known))
        raise ModelFileError(
            f"{path}: architectures must be one of {supported}, but is {name[:80]!r}; the head of this class is not "
            "supported"
        )
    suffix = known[name]
    if suffix in PRETRAINING:
        return None
    labels = read_labels(path, values)
    if suffix == TOKENS:
        return Head("tagging", labels)
    if suffix == ANSWERS:
        if len(labels) != 2:
            raise _refusal(path, f"num_labels must be 2 for question answering, but is {len(labels)}")
        return Head("question_answering")
    return _sequence_head(path, values, labels, names)


def _sequence_head(path: Path, values: Mapping[str, Any], labels: tuple[str, ...], names: HeadNames) -> Head:
    problem = values.get("problem_type")
    if problem is not None and problem not in PROBLEM_TYPES:
        raise _refusal(path, f"problem_type must be null, {', '.join(PROBLEM_TYPES)}, but is {str(problem)[:80]!r}")
    if problem == "regression" and len(labels) > 1:
        raise _refusal(path, f"num_labels must be 1 for the problem_type regression, but is {len(labels)}")
    if problem == "single_label_classification" and len(labels) == 1:
        raise _refusal(path, "num_labels must be at least 2 for the problem_type single_label_classification, but is 1")
    if problem == "regression" or (problem is None and len(labels) == 1):
        return Head("regression", pooling=names.pooling)
    return Head("text_classification", labels, problem == "multi_label_classification", names.pooling)


def read_labels(path: Path, values: Mapping[str, Any], *, number_repeated: bool = False) -> tuple[str, ...]:
    """Return the names of the outputs by number; transformers' default is two, LABEL_0 and LABEL_1.

    number_repeated: a name that occurs again gets its number, as ImageNet has two kinds of crane.
    """
    mapping, count = values.get("id2label"), values.get("num_labels")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= MAX_LABELS):
        raise _refusal(path, f"num_labels must be from 1 to {MAX_LABELS:,}, but is {str(count)[:80]!r}")
    if mapping is None:
        return tuple(f"LABEL_{number}" for number in range(2 if count is None else count))
    if not isinstance(mapping, dict) or not 0 < len(mapping) <= MAX_LABELS:
        raise _refusal(path, f"id2label must map 1 to {MAX_LABELS:,} numbers to names, but is {str(mapping)[:80]!r}")
    if mapping.keys() != {str(number) for number in range(len(mapping))}:
        raise _refusal(path, f"the numbers of id2label must be 0 to {len(mapping) - 1}, but are {_shown(mapping)}")
    if count is not None and count != len(mapping):
        raise _refusal(path, f"num_labels must be the size of id2label ({len(mapping)}), but is {count}")
    labels = tuple(str(mapping[str(number)]) for number in range(len(mapping)))
    if number_repeated:
        first = {label: number for number, label in reversed(list(enumerate(labels)))}
        labels = tuple(
            label if first[label] == number else f"{label} ({number})" for number, label in enumerate(labels)
        )
    if len(set(labels)) < len(labels):
        raise _refusal(path, f"the names of id2label must be different, but are {_shown(labels)}")
    return labels


def _shown(names: Any) -> str:
    return ", ".join(map(str, names))[:80]


def _refusal(path: Path, rule: str) -> ModelFileError:
    return ModelFileError(f"{path}: {rule}; this variant of the head is not supported")


def with_head(family: Family, head: Head) -> Family:
    """Return a family that reads and writes networks with this head."""
    names = HEADS[family.name]
    mappings = weight_and_bias("head", "qa_outputs" if head.task == "question_answering" else "classifier")
    if head.class_suffix == SEQUENCE:
        mappings = [*weight_and_bias("dense", names.dense), *weight_and_bias("head", names.output)]

    def build(config: BertConfig, fields: Any, _: Names) -> nn.Module:
        return build_network(head, config, fields.vocab_size)

    return replace(
        family,
        task=lambda _: head.task,
        build=build,
        head=tuple(mappings),
        architecture=lambda _: names.class_prefix + head.class_suffix,
    )


def build_network(head: Head, config: BertConfig, vocabulary: int) -> nn.Module:
    """Return an encoder with a head and random weights."""
    if head.task == "tagging":
        return BertForTokenClassification(config, vocabulary, len(head.labels))
    if head.task == "question_answering":
        return BertForQuestionAnswering(config, vocabulary)
    if head.task == "regression":
        return BertForRegression(config, vocabulary, pooling=head.pooling)
    return BertForClassification(
        config, vocabulary, len(head.labels), pooling=head.pooling, multi_label=head.multi_label
    )


def check_exportable(family: Family, head: Head) -> None:
    """Refuse a head that no class of transformers computes."""
    if family.name not in HEADS:
        raise UsageError(f"transformers has no class for a {head.task} head on a {family.name}")
    names = HEADS[family.name]
    if head.task == "text_classification" and not head.multi_label and len(head.labels) < 2:
        raise UsageError(
            f"a classifier of transformers must have at least 2 labels, but this one has {len(head.labels)}"
        )
    if head.class_suffix == SEQUENCE and head.pooling != names.pooling:
        raise UsageError(
            f"pool must be {names.pooling} for {names.class_prefix}{SEQUENCE} of transformers, but is {head.pooling}; "
            f"train the model with pool={names.pooling} to export it"
        )


def head_fields(head: Head) -> dict[str, Any]:
    """Return the fields of config.json that describe a head."""
    labels = head.labels or {"regression": ("LABEL_0",)}.get(head.task, ("LABEL_0", "LABEL_1"))
    fields: dict[str, Any] = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    if head.class_suffix == SEQUENCE:
        single = "multi_label_classification" if head.multi_label else "single_label_classification"
        fields["problem_type"] = "regression" if head.task == "regression" else single
    return fields


def without_scale(network: nn.Module, head: Head) -> nn.Module:
    """Return a network whose output is the number itself: its mean and deviation become part of the head."""
    if (head.mean, head.deviation) == (0.0, 1.0):
        return network
    scaled = copy.deepcopy(network)
    with torch.no_grad():
        for name in ("head.weight", "head.bias"):
            scaled.get_parameter(name).mul_(head.deviation)
        scaled.get_parameter("head.bias").add_(head.mean)
    return scaled
