"""Text classification: losses and scores by hand, one label or several, one text or two, and every refusal."""

import math
import random

import pytest
import torch

from saccade.config import override
from saccade.core.task import Split
from saccade.errors import DataError, UsageError
from saccade.metrics.classification import confusion
from saccade.tasks.text_classification import ClassConfig, ClassOptions, _table

WORDS = ["red", "blue", "cat", "dog", "sat", "ran", "the", "a", "mat"]


def lines(count=60):
    chance = random.Random(1)
    return [" ".join(chance.choices(WORDS, k=1 + number % 9)) + f" {number}" for number in range(count)]


@pytest.fixture
def animals(tmp_path):
    """Rare cats, more dogs and many without either."""
    path = tmp_path / "animals.tsv"
    labels = ["cat" if number % 10 == 0 else "dog" if number % 3 == 0 else "none" for number in range(60)]
    rows = [f"{text}\t{label}\n" for text, label in zip(lines(), labels, strict=True)]
    path.write_text("text\tlabel\n" + "".join(rows))
    return path


@pytest.fixture
def several(tmp_path):
    path = tmp_path / "several.tsv"
    labels = [("red|cat", "cat", "", "red|dog|cat")[number % 4] for number in range(60)]
    rows = [f"{text}\t{label}\n" for text, label in zip(lines(), labels, strict=True)]
    path.write_text("text\tlabels\n" + "".join(rows))
    return path


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    rows = [f"{text}\t{text[::-1]}\t{'yes' if number % 3 else 'no'}\n" for number, text in enumerate(lines())]
    path.write_text("sentence1\tsentence2\tlabel\n" + "".join(rows))
    return path


def logits_of(opened, alone, text, second=None):
    """The logits of one text by plain steps."""
    vectors = alone(opened, opened.framed(text, second))
    pooled = vectors.mean(0) if opened.config.pool == "mean" else vectors[0]
    return (opened.model.head.weight @ pooled + opened.model.head.bias).tolist()


def chosen(opened, step=0):
    """The rows of the training batch of a step: text, second text, labels."""
    part = opened.parts[Split.TRAIN]
    place = {part.place(row): row for row in range(len(part))}
    (batch,) = opened.batches(Split.TRAIN, 1).at(step)
    rows = [place[name] for name in batch.rows]
    seconds = part.seconds or (None,) * len(part)
    return batch, [(part.texts[row], seconds[row], part.labels[row]) for row in rows]


def surprise(logits, place):
    return math.log(sum(map(math.exp, logits))) - logits[place]


@pytest.mark.parametrize("words", [[], ["pool=first"], ["balanced=true"], ["balanced=true", "pool=first"]])
@torch.no_grad()
def test_the_loss_of_one_label_is_that_of_each_row_alone(ready, alone, animals, words):
    opened = ready("text_classification", animals, *words)
    batch, rows = chosen(opened, 1)
    assert len({len(opened.framed(text)[0]) for text, _, _ in rows}) > 1  # so that there is padding
    given = [labels[0] for labels in opened.parts[Split.TRAIN].labels]
    assert opened.names == ("cat", "dog", "none")
    total = 0.0
    for text, _, (label,) in rows:
        weight = len(given) / (3 * given.count(label)) if "balanced=true" in words else 1.0
        total += weight * surprise(logits_of(opened, alone, text), opened.names.index(label))
    ((player, loss),) = opened.losses(batch)
    assert player == "model"
    assert float(loss) == pytest.approx(total / len(rows), rel=1e-4)


@pytest.mark.parametrize("balanced", [False, True])
@torch.no_grad()
def test_the_loss_of_several_labels_asks_for_each_alone(ready, alone, several, balanced):
    opened = ready("text_classification", several, f"balanced={balanced}")
    assert opened.several and opened.names == ("cat", "dog", "red")
    batch, rows = chosen(opened)
    given = [label for labels in opened.parts[Split.TRAIN].labels for label in labels]
    total = 0.0
    for text, _, labels in rows:
        for name, logit in zip(opened.names, logits_of(opened, alone, text), strict=True):
            share = 1 / (1 + math.exp(-logit))
            weight = len(given) / (3 * given.count(name)) if balanced else 1.0
            total -= weight * math.log(share) if name in labels else math.log(1 - share)
    ((_, loss),) = opened.losses(batch)
    assert float(loss) == pytest.approx(total / (3 * len(rows)), rel=1e-4)


@torch.no_grad()
def test_the_loss_of_pairs_reads_both_texts_in_one_row(ready, alone, pairs):
    opened = ready("text_classification", pairs)
    batch, rows = chosen(opened)
    total = sum(
        surprise(logits_of(opened, alone, text, second), opened.names.index(label)) for text, second, (label,) in rows
    )
    ((_, loss),) = opened.losses(batch)
    assert float(loss) == pytest.approx(total / len(rows), rel=1e-4)


@pytest.mark.parametrize("words", [[], ["balanced=true"]])
@torch.no_grad()
def test_parts_add_up_to_the_whole(ready, animals, whole_and_parts, words):
    whole, one, parts, three = whole_and_parts(lambda *more: ready("text_classification", animals, *more), *words)
    assert (one, three) == (1, 3)
    assert parts == pytest.approx(whole, rel=1e-5)


def test_the_scores_of_fixed_answers(ready, animals, monkeypatch):
    opened = ready("text_classification", animals)
    part = opened.parts[Split.VALID]
    wanted = [labels[0] for labels in part.labels]
    said = ["none"] * len(wanted)  # all wrong or right by chance, then some put right
    said[0] = wanted[0]
    logits = torch.full((len(wanted), 3), -1.0)
    for row, name in enumerate(said):
        logits[row, opened.names.index(name)] = 2.0
    monkeypatch.setattr(opened, "_logits", lambda *_: logits)
    found = opened.evaluate(Split.VALID)
    right = sum(one == other for one, other in zip(said, wanted, strict=True))
    assert found["accuracy"] == found["f1"] == pytest.approx(100 * right / len(wanted))  # micro F1 of one label each
    each = []
    for name in {*said, *wanted}:
        hits = sum(one == other == name for one, other in zip(said, wanted, strict=True))
        each.append(200 * hits / (said.count(name) + wanted.count(name)))
    assert found["macro_f1"] == pytest.approx(sum(each) / len(each))
    losses = [surprise(row.tolist(), opened.names.index(name)) for row, name in zip(logits, wanted, strict=True)]
    assert found["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert found["rows"] == len(wanted)
    assert set(opened.explained) == {"accuracy", "f1", "macro_f1"}


def test_of_two_labels_the_f1_is_that_of_the_rarer_one(ready, pairs, monkeypatch):
    opened = ready("text_classification", pairs)
    wanted = [labels[0] for labels in opened.parts[Split.VALID].labels]
    assert {"yes", "no"} == set(wanted)
    logits = torch.tensor([[1.0, 0.0]]).repeat(len(wanted), 1)  # always no, which is rare
    monkeypatch.setattr(opened, "_logits", lambda *_: logits)
    found = opened.evaluate(Split.VALID)
    assert found["f1"] == pytest.approx(200 * wanted.count("no") / (len(wanted) + wanted.count("no")))
    assert opened.explained["f1"].startswith("F1|label:no|")


def test_several_labels_are_given_from_the_threshold_on(ready, several, monkeypatch):
    opened = ready("text_classification", several, "threshold=0.7")
    assert opened._labels(torch.tensor([0.7, 0.69, 0.9])) == ("cat", "red")
    assert opened._labels(torch.tensor([0.1, 0.1, 0.1])) == ()
    wanted = opened.parts[Split.VALID].labels
    logits = torch.tensor([[5.0, -5.0, -5.0]]).repeat(len(wanted), 1)  # cat and nothing else
    monkeypatch.setattr(opened, "_logits", lambda *_: logits)
    found = opened.evaluate(Split.VALID)
    hits, total = sum("cat" in one for one in wanted), sum(map(len, wanted))
    assert found["accuracy"] == pytest.approx(100 * sum(one == ("cat",) for one in wanted) / len(wanted))
    assert found["f1"] == pytest.approx(200 * hits / (len(wanted) + total))


@torch.no_grad()
def test_a_batch_answers_as_each_text_alone_and_chances_sum_to_one(ready, alone, animals):
    opened = ready("text_classification", animals)
    part = opened.parts[Split.VALID]
    many = opened._logits(part, range(len(part)), lambda _: None)
    for row, text in enumerate(part.texts):
        assert many[row].tolist() == pytest.approx(logits_of(opened, alone, text), rel=1e-3, abs=1e-4)
        found = opened.predict(text, ClassOptions())
        assert sum(found.scores.values()) == pytest.approx(1)
        assert found.output == next(iter(found.scores)) == opened.names[int(many[row].argmax())]
        assert list(found.scores.values()) == sorted(found.scores.values(), reverse=True)


@torch.no_grad()
def test_several_labels_have_chances_of_their_own(ready, alone, several):
    opened = ready("text_classification", several)
    found = opened.predict("a cat", ClassOptions())
    for name, logit in zip(opened.names, logits_of(opened, alone, "a cat"), strict=True):
        assert found.scores[name] == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-4)
    assert found.output == "|".join(name for name in opened.names if found.scores[name] >= 0.5)


def test_maps_have_the_pieces_of_the_row_on_both_axes(ready, pairs):
    opened = ready("text_classification", pairs)
    found = opened.predict("the cat", ClassOptions(second="a dog", maps=True))
    row, second = opened.framed("the cat", "a dog")
    assert [one.name for one in found.maps] == ["bert.encoder.0.self", "bert.encoder.1.self"]
    for one in found.maps:
        assert one.weights.shape == (2, len(row), len(row))
        torch.testing.assert_close(one.weights.sum(-1), torch.ones(2, len(row)))
        assert one.queries == one.keys
        assert list(one.keys.labels) == opened.tokenizer.pieces(row)
        assert one.keys.labels[0] == "[CLS]" and one.keys.labels[second - 1] == one.keys.labels[-1] == "[SEP]"
    assert not opened.predict("the cat", ClassOptions(second="a dog")).maps


def test_the_study_counts_what_was_taken_for_what(ready, animals, several, monkeypatch):
    opened = ready("text_classification", animals)
    wanted = [labels[0] for labels in opened.parts[Split.VALID].labels]
    monkeypatch.setattr(opened, "_logits", lambda *_: torch.tensor([[0.0, 1.0, 0.0]]).repeat(len(wanted), 1))
    table = [[0, wanted.count(name), 0] for name in opened.names]
    assert opened.analyse() == {"confusion": {"labels": ["cat", "dog", "none"], "wanted_by_found": table}}
    assert ready("text_classification", several).analyse() == {}


def test_the_table_of_mistakes_is_shown_with_the_scores(ready, animals, several, monkeypatch):
    opened = ready("text_classification", animals)
    wanted = [labels[0] for labels in opened.parts[Split.VALID].labels]
    monkeypatch.setattr(opened, "_logits", lambda *_: torch.tensor([[0.0, 1.0, 0.0]]).repeat(len(wanted), 1))
    opened.evaluate(Split.VALID)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in opened.remarks]
    assert cells[0] == ["wanted, found as", "cat", "dog", "none"]
    assert cells[2:] == [[f"**{name}**", "0", str(wanted.count(name)), "0"] for name in ("cat", "dog", "none")]
    assert len({len(line) for line in opened.remarks}) == 1  # columns line up
    other = ready("text_classification", several)
    other.evaluate(Split.VALID)
    assert other.remarks == ()


def test_of_many_labels_only_the_most_frequent_mistakes_are_shown():
    names = [f"n{number}" for number in range(20)]
    wanted = [name for name in names for _ in range(5)] + ["a|b"] * 3
    found = [*wanted[:-3], "n0", "n0", "n1"]
    lines = _table(confusion(["n7", *found[1:]], wanted, [*names, "a|b"]))
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert [cells[0], *cells[2:]] == [
        ["wanted", "found as", "times"],
        ["a\\|b", "n0", "2"],
        ["n0", "n7", "1"],
        ["a\\|b", "n1", "1"],
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["threshold=1"], r"^threshold must be above 0 and below 1, but is 1\.0$"),
        (["data.fraction=0"], r"^data\.fraction must be above 0 and below 1, but is 0\.0$"),
        (["max_length=7"], r"^max_length must be at least 8, but is 7$"),
        (["rank=0"], r"^rank must be at least 1, but is 0$"),
        (["tokens=0"], r"^tokens must be at least 1, but is 0$"),
        (["parts=0"], r"^parts must be at least 1, but is 0$"),
        (["vocabulary=0"], r"^vocabulary must be at least 1, but is 0$"),
        (["tune=head"], r"^tune must be all without a base, but is head$"),
        (["pool=last"], r"^pool must be 'mean' or 'first', but is 'last'"),
    ],
)
def test_settings_that_break_a_rule(words, says):
    with pytest.raises(UsageError, match=says):
        override(ClassConfig(), words)


def test_a_pair_needs_its_second_text_and_one_text_has_none(ready, pairs, animals):
    opened = ready("text_classification", pairs)
    with pytest.raises(UsageError, match=r"^a pair needs a second text, but none was given; add second=TEXT, or a tab"):
        opened.predict("a cat", ClassOptions())
    one, other = opened.predict("a cat", ClassOptions(second="a dog")), opened.predict("a cat\ta dog", ClassOptions())
    assert one.scores == other.scores
    says = r"^the training rows had one text each, but two were given; leave out second=TEXT$"
    with pytest.raises(UsageError, match=says):
        ready("text_classification", animals).predict("a cat", ClassOptions(second="a dog"))


def test_rows_without_any_label_cannot_be_scored(ready, several, tmp_path):
    opened = ready("text_classification", several)
    other = tmp_path / "bare.tsv"
    other.write_text("text\tlabels\na cat\t\na dog\t\n")
    with pytest.raises(DataError, match=r"no row of the valid part has a label, expected one at least"):
        opened.load_data(other, whole=True)


def test_other_rows_must_be_like_the_training_rows(ready, pairs, animals, tmp_path):
    opened = ready("text_classification", pairs)
    other = tmp_path / "other.tsv"
    other.write_text("text\tlabel\na cat\tyes\na dog\tno\n")
    says = rf"^{other}: one text in a row, expected two texts as in the training rows; name the columns with --column"
    with pytest.raises(DataError, match=says):
        opened.load_data(other, whole=True)
    other.write_text("text\tlabel\na cat\tcat\na dog\tdgo\n")
    with pytest.raises(DataError, match=rf"{other.name}:3: label 'dgo', expected one of the training rows: cat, dog"):
        ready("text_classification", animals).load_data(other, whole=True)


def test_a_file_with_nothing_to_hold_back_is_refused(ready, tmp_path):
    path = tmp_path / "few.tsv"
    path.write_text("text\tlabel\n" + "the same cat\tyes\nthe same cat\tno\n" * 4)
    with pytest.raises(DataError, match=rf"^{path}: 1 row that differs from others, expected at least 2"):
        ready("text_classification", path)
