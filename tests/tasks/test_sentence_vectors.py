"""Sentence vectors: cosines and contrasts by hand, with numbers and without, partners found, and every refusal."""

import json
import math
import random

import numpy as np
import pytest
import torch

from saccade.config import override
from saccade.core.task import Split
from saccade.errors import DataError, UsageError
from saccade.tasks.sentence_vectors import VectorConfig, VectorOptions

WORDS = ["red", "blue", "cat", "dog", "sat", "ran", "mat"]


def sides(count=50):
    chance = random.Random(4)
    return [
        [" ".join(chance.choices(WORDS, k=2 + chance.randrange(7))) + f" {at}" for _ in "12"] for at in range(count)
    ]


@pytest.fixture
def measured(tmp_path):
    path = tmp_path / "measured.tsv"
    rows = [f"{one}\t{two}\t{1 + at % 5}\n" for at, (one, two) in enumerate(sides())]
    path.write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    return path


@pytest.fixture
def alike(tmp_path):
    """Pairs of texts without a number."""
    path = tmp_path / "alike.tsv"
    path.write_text("".join(f"{one}\t{two}\n" for one, two in sides()))
    return path


def directions(opened, alone, batch):
    """The vectors of length 1 of both texts of each row of a batch, each text read alone."""
    part = opened.parts[Split.TRAIN]
    place = {part.place(row): row for row in range(len(part))}
    rows = [place[name] for name in batch.rows]
    found = []
    for texts in (part.texts, part.seconds):
        vectors = [alone(opened, opened.framed(texts[row])).mean(0) for row in rows]
        found.append([vector / vector.norm() for vector in vectors])
    return rows, *found


def surprise(logits, place):
    return math.log(sum(map(math.exp, logits))) - logits[place]


@pytest.mark.parametrize("contrast", [0, 0.5])
@torch.no_grad()
def test_with_numbers_the_cosine_is_to_be_the_number(ready, alone, measured, contrast):
    opened = ready("sentence_vectors", measured, f"contrast={contrast}", "scale=3")
    (batch,) = opened.batches(Split.TRAIN, 1).at(0)
    rows, ones, others = directions(opened, alone, batch)
    wanted = [(opened.parts[Split.TRAIN].numbers[row] - 1) / 4 for row in rows]  # 1 to 5 become 0 to 1
    cosines = [[float(one @ other) for other in others] for one in ones]
    expected = sum((cosines[at][at] - wanted[at]) ** 2 for at in range(len(rows))) / len(rows)
    near = [at for at in range(len(rows)) if wanted[at] >= contrast] if contrast else []
    assert bool(near) == bool(contrast)
    if near:
        expected += sum(surprise([3 * value for value in cosines[at]], at) for at in near) / len(near)
    ((_, loss),) = opened.losses(batch)
    assert float(loss) == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
def test_without_numbers_each_text_is_to_find_its_partner_among_all(ready, alone, alike):
    opened = ready("sentence_vectors", alike, "scale=3")
    assert opened.score == "found"
    (batch,) = opened.batches(Split.TRAIN, 1).at(0)
    rows, ones, others = directions(opened, alone, batch)
    assert len(rows) > 2
    total = 0.0
    for at in range(len(rows)):
        total += surprise([3 * float(ones[at] @ other) for other in others], at)
        total += surprise([3 * float(one @ others[at]) for one in ones], at)
    ((_, loss),) = opened.losses(batch)
    assert float(loss) == pytest.approx(total / (2 * len(rows)), rel=1e-4)


@torch.no_grad()
def test_parts_add_up_to_the_whole(ready, measured, whole_and_parts):
    whole, one, parts, three = whole_and_parts(lambda *more: ready("sentence_vectors", measured, *more))
    assert (one, three) == (1, 3)
    assert parts == pytest.approx(whole, rel=1e-5)


def test_the_scores_of_fixed_vectors(ready, measured, monkeypatch):
    opened = ready("sentence_vectors", measured)
    wanted = np.array(opened.parts[Split.VALID].numbers)
    angles = torch.linspace(0, 1, len(wanted))
    found = [torch.stack([torch.ones_like(angles), 0 * angles], -1), torch.stack([angles.cos(), angles.sin()], -1)]
    monkeypatch.setattr(opened, "vectors", lambda *_: found.pop(0))
    scores = opened.evaluate(Split.VALID)
    assert scores["pearson"] == pytest.approx(100 * np.corrcoef(np.cos(angles.numpy()), wanted)[0, 1], abs=1e-3)
    ranks = np.argsort(np.argsort(np.cos(angles.numpy())))
    shared = [np.mean(np.flatnonzero(np.sort(wanted) == number)) for number in wanted]
    assert scores["spearman"] == pytest.approx(100 * np.corrcoef(ranks, shared)[0, 1], abs=1e-3)
    assert scores["rows"] == len(wanted)


def test_found_is_the_share_of_nearest_texts_that_are_the_partner(ready, alike):
    opened = ready("sentence_vectors", alike)
    ones = torch.eye(4)
    others = torch.tensor([[2.0, 0, 0, 0], [0, 0, 3, 0], [0, 1, 0, 0], [0, 0, 0, 9]])  # the middle two are swapped
    assert opened._partners(ones, others, ["a", "b", "c", "d"]) == {"found": 50.0, "rows": 4}
    assert opened._partners(ones, others, ["a", "b", "b", "d"]) == {"found": 100.0, "rows": 4}  # a copy will do
    assert set(opened.evaluate(Split.VALID)) == {"found", "rows"}


@pytest.mark.slow
def test_pairs_without_numbers_are_learnt(tmp_path, monkeypatch):
    from saccade import api

    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "upper.tsv"
    chance = random.Random(6)
    names = ["".join(chance.choices("abcdefgh", k=4)) for _ in range(300)]
    path.write_text("".join(f"{name}\t{name[::-1]}\n" for name in names))
    words = ["model.dim=32", "model.depth=1", "model.heads=2", "model.hidden=48", "vocabulary=60", "tokens=600"]
    loop = ["train.steps=150", "train.device=cpu", "train.evaluate_every=150"]
    scores = api.train(path, [*words, *loop], task="sentence_vectors", root=tmp_path / "runs").scores
    assert scores["found"] > 60  # by chance it would be one of 30


@torch.no_grad()
def test_a_text_becomes_its_vector_and_two_texts_a_cosine(ready, alone, measured):
    opened = ready("sentence_vectors", measured)
    one, other = (alone(opened, opened.framed(text)).mean(0) for text in ("red cat", "the dog ran to a mat"))
    found = opened.predict("red cat", VectorOptions(maps=True))
    assert json.loads(found.output) == pytest.approx(one.tolist(), abs=1e-4)
    assert [read.weights.shape for read in found.maps] == [(2, 4, 4)] * 2
    pair = opened.predict("red cat", VectorOptions(second="the dog ran to a mat"))
    assert pair.scores["cosine"] == pytest.approx(float(torch.cosine_similarity(one, other, dim=0)), abs=1e-5)
    assert pair.output == f"{pair.scores['cosine']:.4f}"
    framed = [opened.framed(text) for text in ("red cat", "the dog ran to a mat")]
    torch.testing.assert_close(opened.vectors(framed), torch.stack([one, other]), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("header", "rows", "words"),
    [
        ("source\ttarget", 2, []),
        ("question\tanswer", 2, []),
        ("id\tq\ta", 3, ["data.column=q", "data.second=a"]),
    ],
)
def test_two_texts_and_no_number_are_pairs_alone(ready, tmp_path, header, rows, words):
    path = tmp_path / "pairs.tsv"
    lines = [f"row{at}x\t{one}\t{two}" if rows == 3 else f"{one}\t{two}" for at, (one, two) in enumerate(sides())]
    path.write_text("\n".join([header, *lines]) + "\n")
    opened = ready("sentence_vectors", path, *words)
    assert not opened.measured
    train, valid = opened.parts[Split.TRAIN], opened.parts[Split.VALID]
    assert len(train) + len(valid) == 50
    known = {(one, two) for one, two in sides()}
    assert all(pair in known for part in (train, valid) for pair in zip(part.texts, part.seconds, strict=True))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["scale=0"], r"^scale must be above 0, but is 0\.0$"),
        (["contrast=1.5"], r"^contrast must be from 0 to 1, but is 1\.5$"),
        (
            ["contrast=0.5", "parts=2"],
            r"^parts must be 1 with contrast, which compares all texts of a step, but is 2$",
        ),
    ],
)
def test_settings_that_break_a_rule(words, says):
    with pytest.raises(UsageError, match=says):
        override(VectorConfig(), words)


def test_what_cannot_be_learnt_from_is_refused(ready, alike, tmp_path):
    says = r"^parts must be 1 where pairs have no numbers: all texts of a step are compared, but is 2; lower tokens"
    with pytest.raises(UsageError, match=says):
        ready("sentence_vectors", alike, "parts=2")
    path = tmp_path / "one.tsv"
    path.write_text("text\tscore\n" + "".join(f"{one}\t{at % 7}\n" for at, (one, _) in enumerate(sides())))
    says = rf"^{path}: one text in a row, expected two; name the second with --second COLUMN$"
    with pytest.raises(DataError, match=says):
        ready("sentence_vectors", path)
    path.write_text("a\tb\tc\n" + "".join(f"{one}\t{two}\t{one}\n" for one, two in sides()))
    with pytest.raises(DataError, match=r"no column looks like a number, expected one column for the label among: a"):
        ready("sentence_vectors", path)
