"""The shapes demo: rendered scenes of coloured shapes, with classes, captions, and questions with their answers."""

import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

from saccade.demo._demo import Demo, DemoFiles, DemoTask
from saccade.demo._files import table, write_files
from saccade.demo._questions import KINDS, ask, describe
from saccade.demo._scenes import SHAPES, Attributes, place_pair, render, sample_attributes, scatter, spread

CLASS_COLOURS = ("red", "green", "blue", "yellow")
HELD_OUT = 5  # one caption in so many is for validation only
GAP = 8.0  # pixels between two objects across, and down, so that nobody doubts which one is left or above
OBJECTS = (1, 1, 1, 2, 2, 2, 3, 3, 4, 4)  # of a picture with questions; of one alone words are learnt first
EXAMPLES = 3  # pictures to show, which are in neither part of the data


def write_classes(folder: Path, *, seed: int = 1, train_rows: int = 9_600, valid_rows: int = 1_200) -> DemoFiles:
    """Write a folder of classes: the colour and the shape of the only large object, among two to four small ones.

    The small ones have the same colours and shapes, so that the class cannot be read off the colours of all pixels. All
    classes are in training: what is new in validation are the pictures.
    """
    classes = [(colour, shape) for colour in CLASS_COLOURS for shape in SHAPES]
    files: dict[str, Callable[[], bytes]] = {}
    for part, number in _numbers(train_rows, valid_rows):
        rng = random.Random(f"{seed} classes {part} {number}")
        colour, shape = rng.choice(classes) if part == "examples" else classes[number % len(classes)]
        others = [sample_attributes(rng, CLASS_COLOURS, "small") for _ in range(rng.randint(2, 4))]
        scene = scatter(rng, [Attributes("large", colour, shape), *others])
        name = f"class-{number}" if part == "examples" else f"{colour}-{shape}/{number:05}"
        files[f"{'' if part == 'examples' else 'classes/'}{part}/{name}.png"] = partial(render, scene)
    write_files(folder, files, "pictures")
    plan = (
        f"{len(classes)} classes, {train_rows:,} pictures for training and {valid_rows:,} others for validation: a "
        "large object, whose colour and shape are the class, among small ones"
    )
    examples = tuple({"image": folder / name} for name in files if name.startswith("examples/"))
    return DemoFiles(folder / "classes", plan, examples)


def write_captions(folder: Path, *, seed: int = 1, train_rows: int = 10_000, valid_rows: int = 1_000) -> DemoFiles:
    """Write the table of pictures and captions, to describe pictures."""
    files = write_image_text(folder, seed=seed, train_rows=train_rows, valid_rows=valid_rows)
    pictures = dict.fromkeys(example["image"] for example in files.examples)
    return replace(files, examples=tuple({"image": picture} for picture in pictures))


def write_image_text(folder: Path, *, seed: int = 1, train_rows: int = 10_000, valid_rows: int = 1_000) -> DemoFiles:
    """Write a table of pictures with two objects and their captions; examples are pairs of three pictures and captions.

    A fifth of all captions is for validation only, and each is there once: no sentence can be repeated from training,
    and a caption has one picture. All objects and relations are in training, so that minutes are enough to learn them.
    """
    rows, files, used = [("image", "caption", "split")], {}, set()
    for part, number in _numbers(train_rows, valid_rows):
        rng = random.Random(f"{seed} captions {part} {number}")
        while True:
            scene = place_pair(rng, (sample_attributes(rng), sample_attributes(rng)), vertical=rng.random() < 0.5)
            caption = describe(scene)
            held_out = zlib.crc32(f"{seed} {caption}".encode()) % HELD_OUT == 0
            if held_out == (part != "train") and (not held_out or caption not in used):
                break
        used.add(caption)
        name = _picture("captions", part, number)
        files[name] = partial(render, scene)
        rows.append((name, caption, part))
    shown = [(folder / name, caption) for name, caption, part in rows if part == "examples"]
    rows = [row for row in rows if row[2] != "examples"]
    write_files(folder, {**files, "captions.csv": partial(table, rows)}, "captions")
    plan = (
        f"{len({row[1] for row in rows[1:]}):,} captions of two objects, {train_rows:,} pictures for training and "
        f"{valid_rows:,} for validation, whose captions are not in the training data"
    )
    every = product((path for path, _ in shown), (caption for _, caption in shown))
    examples: list[dict[str, str | Path]] = [{"image": path, "text": caption} for path, caption in every]
    return DemoFiles(folder / "captions.csv", plan, tuple(examples))


def write_questions(folder: Path, *, seed: int = 1, train_rows: int = 6_000, valid_rows: int = 300) -> DemoFiles:
    """Write a table of pictures with one to four objects, questions about them and answers.

    No question is held out, pictures are: the same question has other answers for other pictures.
    """
    rows, files = [("image", "question", "answer", "split")], {}
    for part, number in _numbers(train_rows, valid_rows):
        rng = random.Random(f"{seed} questions {part} {number}")
        scene = spread(rng, [sample_attributes(rng) for _ in range(rng.choice(OBJECTS))], GAP)
        name = _picture("questions", part, number)
        files[name] = partial(render, scene)
        rows += [(name, question, answer, part) for question, answer in ask(scene, rng)]
    shown = [(folder / name, question) for name, question, _, part in rows if part == "examples"]
    rows = [row for row in rows if row[3] != "examples"]
    write_files(folder, {**files, "questions.csv": partial(table, rows)}, "questions")
    plan = (
        f"{len(rows) - 1:,} questions of {len(KINDS)} kinds with {len({row[2] for row in rows[1:]})} answers, about "
        f"{train_rows:,} pictures for training and {valid_rows:,} others for validation"
    )
    examples: list[dict[str, str | Path]] = [{"image": path, "question": question} for path, question in shown]
    return DemoFiles(folder / "questions.csv", plan, tuple(examples))


def _numbers(train_rows: int, valid_rows: int) -> Iterator[tuple[str, int]]:
    """Yield the parts of the data with the number of each picture."""
    for part, count in (("train", train_rows), ("val", valid_rows), ("examples", EXAMPLES)):
        for number in range(1, count + 1):
            yield part, number


def _picture(kind: str, part: str, number: int) -> str:
    """Return the name of a picture in the folder of the demo."""
    return f"examples/{kind}-{number}.png" if part == "examples" else f"{kind}/{part}-{number:05}.png"


DEMO = Demo(
    "rendered scenes of coloured shapes",
    {
        "image_classification": DemoTask(
            "name the colour and the shape of the only large object in a picture",
            write_classes,
            "attention to the cells of",
            minutes=2,
        ),
        "captioning": DemoTask(
            "describe two objects and how they are arranged",
            write_captions,
            "attention of each word of the caption to the cells of",
            minutes=3,
            settings={"model": {"transformer": {"dropout": 0.0, "embedding_dropout": 0.0}}},  # data without noise
        ),
        "visual_question_answering": DemoTask(
            "answer questions about colours, shapes, sizes, numbers and arrangements of objects",
            write_questions,
            "attention of the question to the cells of",
            minutes=3,
        ),
        "image_text": DemoTask(
            "match pictures of two objects with their captions",
            write_image_text,
            "attention to the cells of",
            minutes=3,
        ),
    },
)
