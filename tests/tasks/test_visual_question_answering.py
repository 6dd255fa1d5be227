"""Visual question answering: batches, answers of several people, scores, maps that follow the question, errors."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import saccade
from saccade.config import override
from saccade.core import GridAxis, Split, StepAxis, TokenAxis
from saccade.errors import DataError
from saccade.look.figure import AttentionFigure
from saccade.tasks.visual_question_answering import Task, answer_type, frequent_answers, group_by_image, type_table
from tests.tasks import scenes
from tests.tasks.battery import SETTINGS

TINY = [setting for setting in SETTINGS["visual_question_answering"] if not setting.startswith("augment")]


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
                value.normal_(std=0.3)
        task.model.eval()
        task.load_data(data)
        return task

    return make


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return scenes.write_questions(tmp_path)


def write_rows(folder: Path, rows: list[tuple[str, str]]) -> Path:
    """Write a picture for each question with its answers."""
    folder.mkdir()
    for number in range(len(rows)):
        Image.fromarray(scenes.draw("red", "bar", "left", number)).save(folder / f"{number}.png")
    table = [(f"{number}.png", *row) for number, row in enumerate(rows)]
    return scenes.write_table(folder, ("file_name", "question", "answer"), table)


def test_questions_on_one_picture_share_its_pixels(ready: Any, data: Path) -> None:
    task = ready(data)
    examples = task.splits[Split.TRAIN]
    names = {examples.rows.origins.describe(row): row for row in range(len(examples))}
    source = task.source(Split.TRAIN, 1)
    (batch,) = source.at(0)
    rows = [names[name] for name in batch.rows]
    assert len(rows) == batch.count == len(batch.targets) == 32 and len(batch.pixels) == 8
    assert torch.equal(batch.pixels.repeat_interleave(4, 0), task.centred(examples.pixels(rows)))
    seen = [name for step in range(source.per_epoch) for part in source.at(step) for name in part.rows]
    assert sorted(seen) == sorted(names)


@torch.no_grad()
def test_questions_that_fill_up_those_of_an_image_do_not_count(ready: Any, data: Path) -> None:
    task = ready(data)
    examples = task.splits[Split.TRAIN]
    groups = group_by_image(examples.rows.picture)
    rows = [*groups[0], *groups[1][:1], *groups[2][:2]]
    batch = task.collate(examples, rows)
    assert batch.count == len(batch.rows) == 7
    assert len(batch.targets) == len(batch.inputs.ids) == 12 and len(batch.pixels) == 3
    batch = task.augmented(batch, 1)
    each = [next(task.losses(task.augmented(task.collate(examples, [row]), 1), task.networks()))[1] for row in rows]
    ((_, loss),) = task.losses(batch, task.networks())
    torch.testing.assert_close(loss, sum(each) / 7)


@torch.no_grad()
def test_micro_batches_give_the_loss_of_the_whole_batch(ready: Any, data: Path) -> None:
    whole, parts = ready(data), ready(data, "micro_batches=3")
    parts.model.load_state_dict(whole.model.state_dict())
    losses = []
    for task in (whole, parts):
        batches = task.source(Split.TRAIN, 1).at(0)
        total = sum(batch.count for batch in batches)
        values = [float(next(task.losses(batch, task.networks()))[1]) * batch.count / total for batch in batches]
        losses.append(sum(values))
    assert len(parts.source(Split.TRAIN, 1).at(0)) == 3
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_answers_are_counted_by_what_they_mean() -> None:
    rows = ["two\n2\nTwo.", "a dog", "dog\nDog\ncat", "the cat"]
    answers, coverage = frequent_answers(rows, 2)
    assert answers == ["2", "dog"]
    assert coverage == pytest.approx(6 / 8)
    assert frequent_answers(["yes", "Yes", "yes", "no"], 5) == (["yes", "no"], 1.0)


def test_targets_are_the_fractions_of_people_who_gave_an_answer(ready: Any, tmp_path: Path) -> None:
    rows = [(f"Is it {number}?", "yes") for number in range(10)] + [(f"Or {number}?", "no") for number in range(9)]
    task = ready(write_rows(tmp_path / "rows", rows))
    assert task.answers == ("yes", "no")
    expected = torch.tensor([[1, 0], [0.75, 0.25], [0, 1], [0, 0]])
    assert torch.equal(task.targets(["yes", "Yes\nyes\nno\nyes\nmaybe", "No.", "a dog"]), expected)


def test_accuracy_and_prior_by_hand(ready: Any, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = ready(data)
    examples = task.splits[Split.VALID]
    expected = list(examples.rows.texts["answer"])
    logits = torch.nn.functional.one_hot(torch.tensor([task.answers.index(answer) for answer in expected])) * 9.0
    logits[0] = logits[0].roll(1)
    monkeypatch.setattr(Task, "logits", lambda *_: logits)
    evaluation = task.evaluate(Split.VALID)
    assert evaluation["accuracy"] == pytest.approx(100 * (1 - 1 / len(expected)))
    right = [answer == prior for answer, prior in zip(expected, task.prior(Split.VALID), strict=True)]
    assert evaluation["prior"] == pytest.approx(100 * sum(right) / len(right))
    assert 20 < evaluation["prior"] < 90
    (table,) = evaluation.tables
    assert table.columns == ("answer", "questions", "accuracy", "prior")
    assert sum(int(row[1]) for row in table.rows) == len(expected) == evaluation["questions"]
    assert evaluation.complete


def test_a_score_without_training_data_has_no_prior(ready: Any, data: Path) -> None:
    task = ready(data)
    task.load_data(data, eval_only=True)
    assert "prior" not in task.evaluate(Split.VALID).values


def test_types_of_answers() -> None:
    assert answer_type(["yes", "no", "yes"]) == "yes or no"
    assert answer_type(["two"]) == answer_type(["12"]) == "number"
    assert answer_type(["a dog", "dog"]) == "other"
    table = type_table({"accuracy": ["yes", "3", "no"]}, [["yes"], ["2"], ["yes"]])
    assert table.rows == (("yes or no", "2", "50.0"), ("number", "1", "0.0"))


def test_a_batch_of_questions_is_answered_as_each_alone(ready: Any, data: Path) -> None:
    task = ready(data)
    examples = task.splits[Split.VALID]
    rows = list(range(0, len(examples), 3))
    together = task.logits(examples, rows)
    for at, row in enumerate(rows[:6]):
        torch.testing.assert_close(together[at : at + 1], task.logits(examples, [row]), atol=1e-4, rtol=1e-4)


def test_maps_have_the_axes_of_the_question_the_answer_and_the_image(ready: Any, data: Path) -> None:
    task, picture = ready(data), scenes.draw("red", "bar", "left")
    image = torch.from_numpy(picture).permute(2, 0, 1)
    (answer,) = task.predict([{"image": image, "question": "Which side is it on?"}], task.Options(attention=True))
    for name, attention in answer.attention.items():
        torch.testing.assert_close(attention.weights.sum(-1), torch.ones(attention.shape[:2]))
        if name.endswith(".self"):
            continue
        assert isinstance(attention.keys, GridAxis) and (attention.keys.rows, attention.keys.columns) == (4, 4)
        assert torch.equal(attention.keys.image, image)
        assert isinstance(attention.queries, StepAxis if name.startswith("hop") else TokenAxis)
    assert answer.attention["hop2"].queries.labels == ("answer",)
    assert answer.alignment.name == "hop2"  # what a page opens with: the answer over the picture
    assert "side" in answer.attention["question.0.cross"].queries.labels


def test_a_film_shows_the_words_of_the_question_unless_a_layer_is_chosen(ready: Any, data: Path) -> None:
    task, picture = ready(data), torch.from_numpy(scenes.draw("red", "bar", "left")).permute(2, 0, 1)
    (answer,) = task.predict([{"image": picture, "question": "Which side is it on?"}], task.Options(attention=True))
    figure = AttentionFigure.of(answer)
    words = [name for name in answer.attention if name.startswith("question.") and name.endswith(".cross")]
    assert figure.shown("png").name == "hop2" and figure.shown("gif").name == words[-1]
    with Image.open(io.BytesIO(figure.render("gif"))) as film:
        shown = film.info["comment"].decode().splitlines()
        assert film.n_frames == len(shown) and {"which", "side", "is", "it", "on"} <= set(shown)
    chosen = AttentionFigure.of(answer, "hop1")
    assert chosen.shown("gif").name == "hop1"
    with Image.open(io.BytesIO(chosen.render("gif"))) as film:
        assert film.n_frames == 1


def test_long_questions_are_cut_with_a_note(ready: Any, data: Path) -> None:
    task, image = ready(data, "max_length=8"), torch.zeros(3, 16, 16, dtype=torch.uint8)
    (answer,) = task.predict([{"image": image, "question": "is it on the left side? " * 9}], task.Options())
    assert answer.notes[0].startswith("cut to 8 of ")


def test_the_map_follows_the_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two squares of different colours: the gaze goes to the half that the question names."""
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(1)
    folder, rows = tmp_path / "pairs", []
    folder.mkdir()
    for number in range(240):
        colours = rng.permutation(list(scenes.COLOURS))[:2]
        halves = [
            scenes.draw(colour, "square", side, number) for colour, side in zip(colours, scenes.SIDES, strict=True)
        ]
        pixels = np.concatenate([halves[0][:, :8], halves[1][:, 8:]], axis=1)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        rows += [(f"{number}.png", f"What is on the {side}?", colours[at]) for at, side in enumerate(scenes.SIDES)]
    scenes.write_table(folder, ("file_name", "question", "answer"), rows)
    settings = [*TINY, "train.steps=160", "train.device=cpu", "train.optim.warmup=5", "train.evaluate_every=160"]
    run = saccade.train(
        folder, task="visual_question_answering", root=tmp_path / "runs", overrides=settings, progress=False
    )
    assert run.metrics["accuracy"] > 95 > 60 > run.metrics["prior"]
    model = saccade.load(run.path, device="cpu")
    share = {"left": [], "right": []}
    for number in range(12):
        for side, shares in share.items():
            answer = model(folder / f"{number}.png", f"What is on the {side}?")
            weights = sum(a.weights.mean(0)[-1] for name, a in answer.attention.items() if name.startswith("hop"))
            cells = weights.view(4, 4)
            shares.append(float(cells[:, :2].sum() / cells.sum()))
    assert np.mean(share["left"]) > np.mean(share["right"]) + 0.2


def test_one_answer_is_nothing_to_learn(ready: Any, tmp_path: Path) -> None:
    rows = [(f"Is it {number}?", "Yes") for number in range(10)]
    with pytest.raises(DataError, match=r"every answer is 'Yes', expected at least two answers; add questions"):
        ready(write_rows(tmp_path / "rows", rows))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("answers=1", "answers must be at least 2, but is 1"),
        ("max_length=4", "max_length must be at least 8, but is 4"),
        ("tune=lora", "tune must be head without a base, but is lora"),
        ("model.hops=0", "model.hops must be at least 1, but is 0"),
    ],
)
def test_wrong_settings_are_refused(setting: str, message: str) -> None:
    with pytest.raises(saccade.errors.UsageError, match=message):
        override(Task.Config(), [setting])


def test_rows_are_grouped_by_their_picture(ready: Any, data: Path) -> None:
    rows = ready(data).splits[Split.TRAIN].rows
    groups = group_by_image(rows.picture)
    assert sorted(row for group in groups for row in group) == list(range(len(rows)))
    assert all(len({rows.picture[row] for row in group}) == 1 for group in groups)
    assert len(groups) == len(np.unique(rows.picture))
