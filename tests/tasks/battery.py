"""Tiny settings, generated data and one example for every task of the battery, including tests/examples."""

from __future__ import annotations

import importlib
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from saccade.demo.cartpole import write_cartpole
from saccade.tasks import task_names
from tests.data.audio import sounds
from tests.tasks import graph_data, picture_data, scenes, world_data

EXAMPLES = [f"tests.examples.{path.stem}" for path in sorted((Path(__file__).parents[1] / "examples").glob("[!_]*.py"))]
NAMES = [*task_names(), *EXAMPLES]
PAIRS = [
    *(f"model.transformer.{setting}" for setting in ("dim=32", "depth=1", "decoder_depth=1", "heads=2", "hidden=64")),
    "search.beam=2",
    "batch_tokens=400",
]
GPT = ["model.dim=32", "model.depth=1", "model.heads=2", "model.hidden=64", "model.max_positions=32", "batch_size=8"]
BERT = ["model.dim=32", "model.depth=1", "model.heads=2", "model.hidden=64", "vocabulary_size=60", "batch_tokens=400"]
STACK = ("dim=16", "depth=1", "heads=2", "hidden=32")
CNN = [
    *("encoder.cnn.widths=[8,8]", "encoder.cnn.attention_stage=1", "augment.shift=1", "augment.colour=0.1"),
    *("vocabulary_size=90", "batch_size=32"),
]
DECODER = [f"model.transformer.{setting}" for setting in ("dim=32", "depth=1", "heads=2", "hidden=64")]
SPELLER = [f"model.lstm.{setting}" for setting in ("dim=32", "hidden=32", "dropout=0")]
VIT = [f"model.encoder.vit.{setting}" for setting in ("dim=32", "depth=1", "heads=2", "hidden=64", "patch=4")]
LINES = [f"model.encoder.transformer.{setting}" for setting in ("dim=32", "depth=1", "heads=2", "hidden=64")]
# without batch norm, under which two processes compute other gradients than one
GRAPH = [f"model.transformer.{setting}" for setting in (*STACK, "norm=layer", "positions=4")]
SOUND = [
    *("model.encoder=pyramid", "model.pyramid.hidden=16", "model.pyramid.depth=2", "model.pyramid.dropout=0"),
    *("bands=8", "batch_size=16"),
]
CONVOLUTIONAL = [
    *SPELLER,
    *(f"model.convolutional.transformer.{one}" for one in ("dim=32", "depth=1", "heads=2", "hidden=64", "dropout=0")),
    *("model.convolutional.widths=[8,16]", "bands=16", "batch_size=16", "search.beam=2"),
]
POLICY = [
    *("environment=CartPole-v1", "episodes=20", "model.architecture=transformer", "model.history=4"),
    *(f"model.transformer.{setting}" for setting in STACK),
]
SETTINGS: dict[str, list[str]] = {
    "node_classification": ["batch_size=8", *("model.gat.dropout=0.1", "model.gat.attention_dropout=0.1")],
    "graph_classification": [*GRAPH, "batch_size=16"],
    "graph_regression": [*GRAPH, "batch_size=16"],
    "behaviour_cloning": [*POLICY, "batch_size=64"],
    "adversarial_imitation": [*POLICY, "environments=16", "rollout_steps=64", "batch_size=128", "max_steps=200"],
    "visual_question_answering": [*CNN, *(f"model.question.{setting}" for setting in STACK)],
    "image_classification": [
        "model.architecture=vit",
        *(f"model.vit.{setting}" for setting in STACK),
        *("batch_size=16", "augment.flip=false"),
    ],
    "image_generation": [
        *("model.noise=8", "model.generator_width=8", "model.discriminator_width=16", "batch_size=16", "size=16"),
        "discriminator_steps=2",
    ],
    "image_text": [
        *CNN,
        *(f"{part}.{setting}" for part in ("image", "text") for setting in STACK),
        *("image.dropout=0", "text.dropout=0", "projection=16"),
    ],
    "language_model": GPT,
    "translation": PAIRS,
    "summarisation": [*PAIRS, "search.no_repeat_ngram_size=0"],
    "masked_language_model": [*BERT, "max_length=32", "batch_tokens=512"],
    "question_answering": [*BERT, "max_length=64", "stride=8"],
    # without batch norm, under which two processes compute other gradients than one
    "captioning": [
        *(*DECODER, *VIT, "model.encoder.architecture=vit"),
        *("augment.shift=1", "augment.colour=0.1", "batch_size=16", "search.beam=2"),
    ],
    "instruction_following": [
        *("model.dim=32", "model.heads=2", "model.channels=8", "model.view_width=8", "model.dropout=0"),
        *("vocabulary_size=90", "batch_steps=96", "max_steps=20"),
    ],
    "image_policy": [
        *("encoder.architecture=vit", "encoder.vit.patch=12", *(f"encoder.vit.{setting}" for setting in STACK)),
        *("model.dim=16", "model.heads=2", "model.hidden=32", "batch_size=16", "world=reach", "episodes=4"),
    ],
    # without batch norm
    "speech_recognition": [
        *(*SPELLER, *SOUND, "search.beam=2"),
        *("augment.time_masks=1", "augment.frequency_masks=1", "augment.frequency_mask=1"),
    ],
    "audio_classification": SOUND,
    "reading": [*DECODER, *LINES, "model.encoder.widths=[8,16]", "height=16", "batch_size=16", "search.beam=2"],
}
PAIR = {"first": "the blue cat", "second": "the dog"}
STATES = [[0.01, 0.2, -0.03, -0.3], [0.014, 0.0, -0.036, 0.0], [0.014, 0.2, -0.036, -0.3]]
INPUTS: dict[str, dict[str, Any]] = {
    "behaviour_cloning": {"observations": STATES},
    "adversarial_imitation": {"observations": STATES},
    "language_model": {"prompt": "the cat"},
    "translation": {"source": "the blue cat"},
    "summarisation": {"document": "the blue cat"},
    "masked_language_model": {"text": "the [MASK] sat"},
    "text_classification": {"text": "the blue cat"},
    "regression": PAIR,
    "sentence_vectors": PAIR,
    "tagging": {"text": "the blue cat"},
    "visual_question_answering": {"image": scenes.draw("red", "bar", "left"), "question": "What colour is the bar?"},
    "image_classification": {"image": scenes.draw("red", "bar", "left")},
    "image_generation": {"noise": [0.5, -1.0, 0.0, 1.5, -0.5, 0.25, 1.0, -2.0]},
    "image_text": {"image": scenes.draw("red", "bar", "left"), "text": "a red bar"},
    "question_answering": {"question": "the what?", "context": "the blue cat sat."},
    "captioning": {"image": np.array(picture_data.scene("red", "left"))},
    "reading": {"image": np.array(picture_data.line("bad"))},
    "node_classification": {"graph": graph_data.community_input()},
    "graph_classification": {"graph": graph_data.ring_input()},
    "graph_regression": {"graph": graph_data.ring_input()},
    "instruction_following": {"map": world_data.MAP, "instruction": "go to the red lamp and stop"},
    "image_policy": {"image": world_data.frame()},
    "speech_recognition": {"audio": (torch.from_numpy(sounds.tone("bad")), sounds.RATE)},
    "audio_classification": {"audio": (torch.from_numpy(sounds.tone("b")), sounds.RATE)},
}
WRITERS = {
    "captioning": picture_data.write_captions,
    "instruction_following": world_data.write_instructions,
    "image_policy": world_data.write_frames,
    "reading": picture_data.write_lines,
    "speech_recognition": sounds.write_speech,
    "audio_classification": sounds.write_classes,
    "visual_question_answering": scenes.write_questions,
    "image_classification": scenes.write_colours,
    "image_generation": scenes.write_colours,
    "image_text": scenes.write_captions,
    "node_classification": graph_data.write_communities,
    "graph_classification": graph_data.write_graphs,
    "graph_regression": graph_data.write_numbers,
}
OPTIONS: dict[str, dict[str, Any]] = {"language_model": {"max_new_tokens": 12}}


@dataclass(frozen=True)
class Trial:
    """A task with its settings and an example."""

    name: str
    settings: list[str]
    inputs: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str) -> Trial:
        if name in EXAMPLES:
            module = importlib.import_module(name)
            return cls(name, module.SETTINGS, module.example_inputs())
        return cls(name, SETTINGS.get(name, BERT), INPUTS[name], OPTIONS.get(name, {}))

    def write_data(self, folder: Path) -> Path:
        """Write a small file that the task can learn from."""
        if self.name in EXAMPLES:
            data: Path = importlib.import_module(self.name).write_data(folder)
            return data
        if self.name in WRITERS:
            return WRITERS[self.name](folder)
        if "environment=CartPole-v1" in self.settings:
            return write_cartpole(folder, episodes=6).train
        draw = random.Random(3)
        words = ["red", "blue", "cat", "dog", "sat", "ran", "the", "a"]
        lines = [" ".join(draw.choices(words, k=8)) + "." for _ in range(300)]
        path, lines = _format(self.name, folder, lines, draw)
        path.write_text("".join(line + "\n" for line in lines))
        return path


def _format(name: str, folder: Path, lines: list[str], draw: random.Random) -> tuple[Path, list[str]]:
    """Return the path and the lines of a file in the format of a task."""
    if name in ("translation", "summarisation"):
        return folder / "pairs.tsv", [f"{line}\t{line.upper()}" for line in lines]
    if name == "text_classification":
        return folder / "rows.tsv", [
            "text\tlabel",
            *(f"{line}\t{'pet' if 'cat' in line else 'none'}" for line in lines),
        ]
    if name in ("regression", "sentence_vectors"):
        others = [line if draw.random() < 0.5 else draw.choice(lines) for line in lines]
        pairs = zip(lines, others, strict=True)
        rows = [f"{first}\t{second}\t{len(set(first) & set(second)) / 10}" for first, second in pairs]
        return folder / "rows.tsv", ["sentence1\tsentence2\tscore", *rows]
    if name == "tagging":
        tags = {"cat": "B-PET"}
        sentences = ([f"{word} {tags.get(word, 'O')}" for word in line.strip(".").split()] for line in lines)
        return folder / "words.conll", [line for sentence in sentences for line in (*sentence, "")]
    if name == "question_answering":
        articles = [_article(number, line) for number, line in enumerate(lines)]
        return folder / "questions.json", [json.dumps({"data": articles})]
    return folder / "text.txt", lines


def _article(number: int, line: str) -> dict[str, Any]:
    """Return an article of one paragraph with one question, whose answer is the word after "the"."""
    start = line.find("the ") + 4
    answers = [{"text": line[start:].split()[0].strip("."), "answer_start": start}] if 4 <= start < len(line) else []
    question = {"id": str(number), "question": "the what?", "answers": answers, "is_impossible": not answers}
    return {"title": str(number), "paragraphs": [{"context": line, "qas": [question]}]}
