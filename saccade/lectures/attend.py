"""Attend and ..., R12 to R18: captions, gaze, questions, speech, navigation, robots and reading."""

from __future__ import annotations

import json
import random
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saccade.core import AttentionMap, GridAxis
from saccade.demo._morse import RATE
from saccade.lectures import _pictures as pictures
from saccade.lectures._row import Demonstration, Row
from saccade.lectures._training import Trained, Written, train_model
from saccade.look.figure import AttentionFigure
from saccade.look.film import frames
from saccade.look.overlay import OverlayStyle
from saccade.worlds.grid import ACTIONS, MOVES, STOP, GridWorld, Pose, walk
from saccade.worlds.search import shortest_path

THINGS = [f"{colour} {thing}" for colour in ("red", "green", "blue") for thing in ("lamp", "chair")]
STACK = ("dim=32", "depth=1", "heads=2", "hidden=64")


def _write_captions(folder: Path) -> Written:
    rows = [
        (pictures.square(colour, place, shade), [[f"a {colour} square on the {place}"]])
        for colour, place, shade in pictures.scenes(20)
    ]
    return pictures.write_table(folder, ["caption"], rows), None


@cache
def captioner() -> Trained:
    """Return a model that looks at a 3 x 3 grid of a CNN while an LSTM writes the caption."""
    model = ("model.encoder.cnn.widths=[16,16]", "model.encoder.cnn.attention_stage=2", "model.decoder=lstm")
    lstm = ("model.lstm.dim=32", "model.lstm.hidden=48", "model.lstm.dropout=0")
    loop = ("batch_size=32", "label_smoothing=0", "augment.shift=0", "search.beam=1")
    return train_model(_write_captions, "captioning", 120, *model, *lstm, *loop)


def captions(show: Demonstration) -> None:
    """R12: CNN grid h_ij, e_tij, softmax over the grid, c_t: a caption word by word, each with its map."""
    trained = captioner()
    trained.show(show, "exact", "cider", "cider_blind")
    rows, right = [], 0
    for colour, place in product(pictures.COLOURS, pictures.PLACES):
        prediction = trained.model(pictures.square(colour, place, 215))
        rows.append((f"{colour} square, {place} half", prediction.text))
        right += prediction.text == f"a {colour} square on the {place}"
    show.table("captions of new pictures", ("picture", "caption"), rows)
    attention = prediction.attention["attention"]
    show.figure("attention of the last caption", "one map over the grid for each word", AttentionFigure.of(prediction))
    assert isinstance(attention.keys, GridAxis)
    show.equal("grid of the CNN", [attention.keys.rows, attention.keys.columns], [3, 3])
    sums = attention.weights.sum(-1)
    show.close(
        "sum of the weights over the grid, smallest and largest",
        [sums.min().item(), sums.max().item()],
        [1.0, 1.0],
        1e-5,
    )
    show.equal("maps: one for each word", attention.shape[1] >= len(prediction.text.split()), True)
    show.above("captions that are right, of 8", right, 6)
    show.above(
        "CIDEr, relative to a model that sees no picture",
        trained.metrics["cider"] / max(trained.metrics["cider_blind"], 1e-9),
        1.5,
    )


def gaze(show: Demonstration) -> None:
    """R13: attention as a moving gaze: one position for each word, as a film."""
    trained = captioner()
    prediction = trained.model(pictures.square("green", "right", 215))
    figure = AttentionFigure.of(prediction)
    shown = frames(figure.shown("gif"), OverlayStyle())
    rows = [(frame.label, *(frame.gaze or (-1.0, -1.0)), frame.milliseconds) for frame in shown]
    show.table("the film", ("word", "gaze, x", "gaze, y", "milliseconds"), rows)
    show.figure("maps of the words", prediction.text, figure)
    show.equal("one gaze for each word", [frame.label.strip() for frame in shown], prediction.text.split())
    inside = all(frame.gaze is not None and min(frame.gaze) >= 0 and max(frame.gaze) <= 1 for frame in shown)
    show.holds("every gaze is a position in the picture", inside)
    show.above("positions that the gaze visits", len({frame.gaze for frame in shown}), 1)
    content = figure.render("gif")
    show.holds("the film is a GIF: saccade look RUN PICTURE --out film.gif", content.startswith(b"GIF8"))


def _write_questions(folder: Path) -> Written:
    draw, rows = random.Random(3), []
    for number in range(160):
        left, right = draw.sample(list(pictures.COLOURS), 2)
        asked = [["What is on the left?", left], ["What is on the right?", right]]
        rows.append((pictures.both(left, right, 200 + number % 50, 16), asked))
    return pictures.write_table(folder, ["question", "answer"], rows), None


def questions(show: Demonstration) -> None:
    """R14: question and picture -> answer and map; the map changes when the question changes."""
    question = tuple(f"model.question.{setting}" for setting in ("dim=16", "depth=1", "heads=2", "hidden=32"))
    cnn = ("encoder.cnn.widths=[8,8]", "encoder.cnn.attention_stage=1")
    trained = train_model(
        _write_questions,
        "visual_question_answering",
        160,
        *cnn,
        *question,
        *("vocabulary_size=90", "batch_size=32", "train.optim.warmup=5", "augment.shift=0"),
    )
    trained.show(show, "accuracy", "prior")
    picture = pictures.both("red", "blue", 215, 16)
    rows, shares = [], {}
    for side, colour in (("left", "red"), ("right", "blue")):
        prediction = trained.model(picture, f"What is on the {side}?")
        shares[side] = _left_share(prediction.attention)
        rows.append((f"What is on the {side}?", prediction.text, shares[side]))
        show.equal(f"red left, blue right: what is on the {side}?", prediction.text, colour)
        show.figure(f"What is on the {side}?", prediction.text, AttentionFigure.of(prediction))
    show.table("one picture, two questions", ("question", "answer", "weight on the left half"), rows)
    show.above("accuracy, %", trained.metrics["accuracy"], 95)
    show.above(
        "the map moves: weight on the left half, left question - right question", shares["left"] - shares["right"], 0.1
    )


def _left_share(attention: object) -> float:
    """Return the share of the weights of all hops over the image that lies on its left half."""
    maps: dict[str, AttentionMap] = dict(attention)  # type: ignore[call-overload]
    hops = [item for name, item in maps.items() if name.startswith("hop")]
    weights: Tensor = torch.stack([item.weights.mean(0)[-1] for item in hops]).sum(0)
    axis = hops[0].keys
    assert isinstance(axis, GridAxis)
    cells = weights[-axis.rows * axis.columns :].view(axis.rows, axis.columns)
    return float(cells[:, : axis.columns // 2].sum() / cells.sum())


def speech(show: Demonstration) -> None:
    """R15: listen, attend and spell: a sound -> letters, with the map of time and letters, which is monotone."""
    trained = train_model(
        lambda folder: (pictures.write_tones(folder), None),
        "speech_recognition",
        150,
        *("model.encoder=pyramid", "model.pyramid.hidden=24", "model.pyramid.depth=2", "model.pyramid.dropout=0"),
        *("model.decoder=lstm", "model.lstm.dim=32", "model.lstm.hidden=48", "model.lstm.dropout=0"),
        *(
            "bands=16",
            "batch_size=24",
            "search.beam=1",
            "augment.time_masks=0",
            "augment.frequency_masks=0",
            "augment.speed=0",
        ),
    )
    trained.show(show, "cer", "wer")
    word = "dacb"
    prediction = trained.model((torch.from_numpy(pictures.tones(word, 999)).float(), RATE))
    figure = AttentionFigure.of(prediction)
    show.figure(f"a sound of four tones: {word}", "letters (rows) over time", figure)
    weights = figure.attention.weights[0]
    frames_of = torch.arange(weights.shape[1], dtype=torch.float32)
    centres = ((weights * frames_of).sum(-1) / weights.sum(-1))[: len(word)]
    seconds = centres * prediction.attention[figure.attention.name].keys.seconds_per_frame  # type: ignore[attr-defined]
    show.table("when each letter is heard", ("letter", "second"), list(zip(word, seconds.tolist(), strict=False)))
    show.equal("spelled", prediction.text.lower(), word)
    show.below("character error rate, %", trained.metrics["cer"], 15)
    show.holds("the map is monotone: every letter is heard after the one before", bool((centres.diff() > 0).all()))


def _episode(draw: random.Random) -> dict[str, object]:
    """Return a walk in a room with two objects: the instruction names one of them, before which the walker stops."""
    size = 5
    cells = [(row, column) for row in range(1, size + 1) for column in range(1, size + 1)]
    (start, first, second), names = draw.sample(cells, 3), draw.sample(THINGS, 2)
    rows = [["#"] * (size + 2), *(["#", *"." * size, "#"] for _ in range(size)), ["#"] * (size + 2)]
    for sign, (row, column) in zip("AB", (first, second), strict=True):
        rows[row][column] = sign
    world = GridWorld(
        tuple("".join(row) for row in rows), dict(zip("AB", names, strict=True)), Pose(*start, draw.randrange(4))
    )
    row, column = first

    def faces(pose: Pose) -> bool:
        down, across = MOVES[pose.heading].tolist()
        return (pose.row + down, pose.column + across) == (row, column)

    actions = [*(shortest_path(world.open(), world.start, faces) or []), STOP]
    *_, goal = walk(world.open(), world.start, actions)
    text = f"{draw.choice(('go', 'walk'))} to the {names[0]} and stop"
    return {
        **world.to_json(),
        "instruction": text,
        "actions": [ACTIONS[action] for action in actions],
        "goal": [goal.row, goal.column],
    }


def _write_walks(folder: Path) -> Written:
    draw = random.Random(6)
    for name, count in (("walks.jsonl", 1500), ("valid.jsonl", 60)):
        (folder / name).write_text("".join(json.dumps(_episode(draw)) + "\n" for _ in range(count)))
    return folder / "walks.jsonl", folder / "valid.jsonl"


def walking(show: Demonstration) -> None:
    """R16: listen, attend and walk: an instruction -> moves in a grid world, with the words of each move."""
    trained = train_model(
        _write_walks,
        "instruction_following",
        200,
        "model.dim=48",
        "model.heads=2",
        "model.dropout=0",
        *("model.channels=16", "vocabulary_size=90", "batch_steps=500", "max_steps=20"),
    )
    trained.show(show, "success", "exact")
    episode = _episode(random.Random(99))
    prediction = trained.model(
        {key: episode[key] for key in ("map", "legend", "start", "goal")}, str(episode["instruction"])
    )
    show.table("a new walk", ("instruction", "moves"), [(str(episode["instruction"]), prediction.text)])
    figure = AttentionFigure.of(prediction)
    show.figure("attention of each move to the words", "moves (rows) over words", figure)
    show.close("weights of the first move sum to", figure.attention.weights[0, 0].sum().item(), 1.0, 1e-4)
    show.above("goal reached, % of new instructions", trained.metrics["success"], 60)


CELLS, CELL = 4, 4  # places of the crane, and pixels of a place
COMMANDS = ("left", "right", "grip")


def crane(hand: int, target: int, other: int) -> pictures.Pixels:
    """Return a picture: a crane above, below it the red box that it must grip, and a blue one."""
    pixels = np.full((CELLS * CELL, CELLS * CELL, 3), 220, np.uint8)
    pixels[1:6, hand * CELL + 1 : hand * CELL + 3] = 40
    for place, colour in ((target, "red"), (other, "blue")):
        pixels[11:15, place * CELL : place * CELL + CELL] = pictures.COLOURS[colour]
    return pixels


def _command(hand: int, target: int) -> str:
    return "grip" if hand == target else "left" if target < hand else "right"


def _write_crane(folder: Path) -> Written:
    draw, rows = random.Random(8), []
    for episode in range(80):
        hand, (target, other) = draw.randrange(CELLS), draw.sample(range(CELLS), 2)
        for step in range(CELLS):
            command = _command(hand, target)
            rows.append((crane(hand, target, other), [[str(episode), str(step), command]]))
            if command == "grip":
                break
            hand += -1 if command == "left" else 1
    return pictures.write_table(folder, ["episode", "step", "action"], rows), None


def robot(show: Demonstration) -> None:
    """R17: show, attend and interact: a picture -> a command of a crane, with the map over the picture."""
    trained = train_model(
        _write_crane,
        "image_policy",
        200,
        "encoder.architecture=cnn",
        "encoder.cnn.widths=[16,16]",
        *("encoder.cnn.attention_stage=2", "model.dim=32", "model.heads=2", "model.hidden=64", "batch_size=32"),
        *("augment.shift=0", "augment.flip=false"),
    )
    trained.show(show, "accuracy")
    scenes = [(h, t, o) for h in range(CELLS) for t in range(CELLS) for o in range(CELLS) if t != o]
    reached = sum(_grips(trained, *scene) for scene in scenes)
    prediction = trained.model(crane(3, 0, 2))
    show.figure("hand right, red box left", f"command: {prediction.text}", AttentionFigure.of(prediction))
    show.equal("hand at place 4, red box at place 1: command", prediction.text, "left")
    show.table("all scenes, played to the end", ("scenes", "red box gripped"), [(len(scenes), reached)])
    show.above("task success, %", 100 * reached / len(scenes), 80)


def _grips(trained: Trained, hand: int, target: int, other: int) -> bool:
    """Play a scene by the commands of the model; return whether it grips the red box."""
    for _ in range(2 * CELLS):
        command = trained.model([crane(hand, target, other)])[0].text
        if command == "grip":
            return hand == target
        hand = max(0, min(CELLS - 1, hand + (-1 if command == "left" else 1)))
    return False


def _write_words(folder: Path) -> Written:
    draw = random.Random(4)
    words = ["".join(draw.choices("abcde", k=draw.randint(1, 4))) for _ in range(400)]
    return pictures.write_table(folder, ["text"], [(pictures.line(word), [[word]]) for word in words]), None


def reading(show: Demonstration) -> None:
    """R18: show, attend and read: a picture of text -> a string; the map moves along the text."""
    decoder = tuple(f"model.transformer.{setting}" for setting in STACK)
    lines = tuple(f"model.encoder.transformer.{setting}" for setting in STACK)
    weak = ("augment.shift=0.5", "augment.slant=0.05", "augment.contrast=0.1", "augment.noise=5")
    trained = train_model(
        _write_words,
        "reading",
        250,
        *decoder,
        *lines,
        *weak,
        *("model.encoder.widths=[8,16]", "height=16", "batch_size=16", "search.beam=2", "ctc=1.25"),
    )
    trained.show(show, "cer", "exact")
    prediction = trained.model(pictures.line("dabe"))
    show.figure("dabe", "letters over the picture", AttentionFigure.of(prediction))
    assert prediction.alignment is not None
    columns = torch.arange(prediction.alignment.shape[2], dtype=torch.float32)
    centres = (prediction.alignment.weights[0] * columns).sum(-1)
    rows = list(zip(prediction.text, centres.tolist(), strict=False))
    show.table("where each letter is read", ("letter", "column of the grid"), rows)
    show.equal("read", prediction.text, "dabe")
    show.below("character error rate, %", trained.metrics["cer"], 12)
    show.holds("the gaze moves from left to right", bool((centres.diff() > 0).all()))


IMAGES = ("images",)
ROWS = (
    Row(
        "R12",
        "Image captioning: show, attend and tell",
        captions,
        8,
        extras=IMAGES,
        also="saccade demo shapes --task captioning",
    ),
    Row(
        "R13",
        "Fovea and saccades: attention as a moving gaze",
        gaze,
        8,
        extras=IMAGES,
        also="saccade demo shapes --task captioning",
    ),
    Row(
        "R14",
        "Visual question answering: the map follows the question",
        questions,
        8,
        extras=IMAGES,
        also="saccade demo shapes --task visual_question_answering",
    ),
    Row("R15", "Speech: listen, attend and spell", speech, 12, extras=("audio",), also="saccade demo morse"),
    Row("R16", "Listen, attend and walk: text -> navigation", walking, 15, also="saccade demo maze"),
    Row(
        "R17",
        "Show, attend and interact: picture -> robot commands",
        robot,
        15,
        extras=IMAGES,
        also="saccade demo maze --task image_policy",
    ),
    Row(
        "R18",
        "Show, attend and read: picture of text -> string",
        reading,
        12,
        extras=IMAGES,
        also="saccade demo text-lines",
    ),
)
