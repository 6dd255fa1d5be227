"""Text classification: losses and scores by hand, one label or several, one text or two, and errors."""

import math
import random

import pytest
import torch

from saccade.config import override
from saccade.core import Split, bind
from saccade.decode import kernels
from saccade.errors import DataError, UsageError
from saccade.metrics.classification import confusion
from saccade.models.text.bert import Bert
from saccade.nn import packed
from saccade.tasks._encoder import task as encoder_task
from saccade.tasks._labels import confusion_table
from saccade.tasks.text_classification import ClassificationConfig

WORDS = ["red", "blue", "cat", "dog", "sat", "ran", "the", "a", "mat"]


def lines(count=60):
    draw = random.Random(1)
    return [" ".join(draw.choices(WORDS, k=1 + number % 9)) + f" {number}" for number in range(count)]


def write_labelled(path, column, labels):
    rows = [f"{text}\t{label}\n" for text, label in zip(lines(), labels, strict=True)]
    path.write_text(f"text\t{column}\n" + "".join(rows))
    return path


@pytest.fixture
def animals(tmp_path):
    """Rare cats, more dogs and many without either."""
    path = tmp_path / "animals.tsv"
    labels = ["cat" if number % 10 == 0 else "dog" if number % 3 == 0 else "none" for number in range(60)]
    return write_labelled(path, "label", labels)


@pytest.fixture
def several(tmp_path):
    path = tmp_path / "several.tsv"
    labels = [("red|cat", "cat", "", "red|dog|cat")[number % 4] for number in range(60)]
    return write_labelled(path, "labels", labels)


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    rows = [f"{text}\t{text[::-1]}\t{'yes' if number % 3 else 'no'}\n" for number, text in enumerate(lines())]
    path.write_text("sentence1\tsentence2\tlabel\n" + "".join(rows))
    return path


def logits_of(task, alone, text, second=None):
    """The logits of one text by plain steps."""
    vectors = alone(task, task.encode(text, second))
    pooled = vectors.mean(0) if task.config.pool == "mean" else vectors[0]
    return (task.model.head.weight @ pooled + task.model.head.bias).tolist()


def chosen(task, step=0):
    """The rows of the training batch of a step: text, second text, labels."""
    part = task.splits[Split.TRAIN]
    row_of = {part.origins.describe(row): row for row in range(len(part))}
    (batch,) = task.source(Split.TRAIN, 1).at(step)
    rows = [row_of[name] for name in batch.rows]
    seconds = part.seconds or (None,) * len(part)
    return batch, [(part.texts[row], seconds[row], part.labels[row]) for row in rows]


def nll(logits, target):
    return math.log(sum(map(math.exp, logits))) - logits[target]


@pytest.mark.parametrize(
    "overrides", [[], ["pool=first"], ["class_weights=balanced"], ["class_weights=balanced", "pool=first"]]
)
@torch.no_grad()
def test_the_loss_of_one_label_is_that_of_each_row_alone(ready, alone, loss_of, animals, overrides):
    task = ready("text_classification", animals, *overrides)
    batch, rows = chosen(task, 1)
    assert len({len(task.encode(text)[0]) for text, _, _ in rows}) > 1  # so that there is padding
    given = [labels[0] for labels in task.splits[Split.TRAIN].labels]
    assert task.labels == ("cat", "dog", "none")
    total = 0.0
    for text, _, (label,) in rows:
        weight = len(given) / (3 * given.count(label)) if "class_weights=balanced" in overrides else 1.0
        total += weight * nll(logits_of(task, alone, text), task.labels.index(label))
    assert loss_of(task, batch) == pytest.approx(total / len(rows), rel=1e-4)
    assert batch.units == sum(len(task.encode(text).ids) for text, _, _ in rows)  # real tokens, without padding


@pytest.mark.parametrize("balanced", [False, True])
@torch.no_grad()
def test_the_loss_of_several_labels_is_the_binary_cross_entropy(ready, alone, loss_of, several, balanced):
    task = ready("text_classification", several, f"class_weights={'balanced' if balanced else 'none'}")
    assert task.multi_label and task.labels == ("cat", "dog", "red")
    batch, rows = chosen(task)
    given = [label for labels in task.splits[Split.TRAIN].labels for label in labels]
    total = 0.0
    for text, _, labels in rows:
        for name, logit in zip(task.labels, logits_of(task, alone, text), strict=True):
            probability = 1 / (1 + math.exp(-logit))
            weight = len(given) / (3 * given.count(name)) if balanced else 1.0
            total -= weight * math.log(probability) if name in labels else math.log(1 - probability)
    assert loss_of(task, batch) == pytest.approx(total / (3 * len(rows)), rel=1e-4)


@torch.no_grad()
def test_the_loss_of_pairs_reads_both_texts_in_one_row(ready, alone, loss_of, pairs):
    task = ready("text_classification", pairs)
    batch, rows = chosen(task)
    total = sum(nll(logits_of(task, alone, text, second), task.labels.index(label)) for text, second, (label,) in rows)
    assert loss_of(task, batch) == pytest.approx(total / len(rows), rel=1e-4)


@pytest.mark.parametrize("overrides", [[], ["class_weights=balanced"]])
@torch.no_grad()
def test_micro_batches_add_up_to_the_batch(ready, animals, whole_and_parts, overrides):
    whole, one, parts, three = whole_and_parts(lambda *more: ready("text_classification", animals, *more), *overrides)
    assert (one, three) == (1, 3)
    assert parts == pytest.approx(whole, rel=1e-5)


def test_the_scores_of_fixed_answers(ready, animals, monkeypatch):
    task = ready("text_classification", animals)
    part = task.splits[Split.VALID]
    expected = [labels[0] for labels in part.labels]
    predicted = ["none"] * len(expected)  # mostly wrong, then some put right
    predicted[0] = expected[0]
    logits = torch.full((len(expected), 3), -1.0)
    for row, name in enumerate(predicted):
        logits[row, task.labels.index(name)] = 2.0
    monkeypatch.setattr(task, "logits", lambda *_: logits)
    found = task.evaluate(Split.VALID)
    right = sum(one == other for one, other in zip(predicted, expected, strict=True))
    assert found["accuracy"] == found["f1"] == pytest.approx(100 * right / len(expected))  # micro F1 of one label each
    each = []
    for name in {*predicted, *expected}:
        hits = sum(one == other == name for one, other in zip(predicted, expected, strict=True))
        each.append(200 * hits / (predicted.count(name) + expected.count(name)))
    assert found["macro_f1"] == pytest.approx(sum(each) / len(each))
    losses = [nll(row.tolist(), task.labels.index(name)) for row, name in zip(logits, expected, strict=True)]
    assert found["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert found["rows"] == len(expected)
    assert set(found.signatures) == {"accuracy", "f1", "macro_f1"}


@pytest.mark.parametrize(
    "names, overrides, positive",
    [
        (("no", "yes"), [], "yes"),
        (("1", "0"), [], "1"),  # 0 is more frequent
        (("0", "1"), [], "1"),  # 0 is rarer
        (("no", "yes"), ["positive_label=no"], "no"),
        (("cat", "dog"), [], "cat"),  # the rarer one where the names do not say
    ],
)
def test_of_two_labels_the_f1_is_that_of_the_positive_one(
    ready, pairs, monkeypatch, tmp_path, names, overrides, positive
):
    rare, frequent = names
    lines = [line.rsplit("\t", 1) for line in pairs.read_text().splitlines()]
    renamed = [f"{texts}\t{ {'no': rare, 'yes': frequent}.get(label, label) }\n" for texts, label in lines]
    path = tmp_path / "renamed.tsv"
    path.write_text("".join(renamed))
    task = ready("text_classification", path, *overrides)
    expected = [labels[0] for labels in task.splits[Split.VALID].labels]
    column = task.labels.index(positive)
    logits = torch.zeros(len(expected), 2)
    logits[:, column] = 1.0  # always the positive one
    monkeypatch.setattr(task, "logits", lambda *_: logits)
    found = task.evaluate(Split.VALID)
    assert found["f1"] == pytest.approx(200 * expected.count(positive) / (len(expected) + expected.count(positive)))
    assert found.signatures["f1"].startswith(f"F1|positive:{positive}|")


@pytest.mark.parametrize("file", ["pairs", "animals"])
def test_a_positive_label_that_is_none_of_two_is_refused(ready, request, file):
    message = "positive_label must be one of two labels, but is 'maybe' and the labels are: "
    with pytest.raises(UsageError, match=message):
        ready("text_classification", request.getfixturevalue(file), "positive_label=maybe")


def test_labels_with_at_least_the_threshold_are_assigned(ready, several, monkeypatch):
    task = ready("text_classification", several, "threshold=0.7")
    assert task.assigned(torch.tensor([0.7, 0.69, 0.9])) == ("cat", "red")
    assert task.assigned(torch.tensor([0.1, 0.1, 0.1])) == ()
    expected = task.splits[Split.VALID].labels
    logits = torch.tensor([[5.0, -5.0, -5.0]]).repeat(len(expected), 1)  # cat and nothing else
    monkeypatch.setattr(task, "logits", lambda *_: logits)
    found = task.evaluate(Split.VALID)
    hits, total = sum("cat" in one for one in expected), sum(map(len, expected))
    assert found["accuracy"] == pytest.approx(100 * sum(one == ("cat",) for one in expected) / len(expected))
    assert found["f1"] == pytest.approx(200 * hits / (len(expected) + total))


@torch.no_grad()
def test_a_batch_answers_as_each_text_alone_and_probabilities_sum_to_one(ready, alone, batched_as_alone, animals):
    task = ready("text_classification", animals)
    part = task.splits[Split.VALID]
    many = task.logits(list(task.encoded(Split.VALID)[0]))
    answers = batched_as_alone(task, [{"text": text} for text in part.texts])
    for row, (text, found) in enumerate(zip(part.texts, answers, strict=True)):
        assert many[row].tolist() == pytest.approx(logits_of(task, alone, text), rel=1e-3, abs=1e-4)
        assert sum(found.scores.values()) == pytest.approx(1)
        assert found.text == next(iter(found.scores)) == task.labels[int(many[row].argmax())]
        assert list(found.scores.values()) == sorted(found.scores.values(), reverse=True)
        assert found.output.probabilities == found.scores and found.output.labels == (found.text,)


@torch.no_grad()
def test_texts_go_through_the_encoder_in_batches_of_similar_length(ready, animals, monkeypatch):
    task = ready("text_classification", animals)
    shapes = []
    forward = task.model.bert.forward
    monkeypatch.setattr(
        task.model.bert, "forward", lambda ids, *more: (shapes.append(ids.shape), forward(ids, *more))[1]
    )
    texts = [{"text": "red cat " * (1 + number % 2 * 9)} for number in range(200)]
    answers = list(task.predict(texts, task.Options()))
    assert [answer.inputs for answer in answers] == texts
    assert sum(rows for rows, _ in shapes) == 200
    assert len(shapes) <= 5 and min(shapes, key=lambda shape: shape[1])[0] == 64  # the short ones are not padded


def test_the_last_of_many_batches_are_halved(ready, animals, monkeypatch):
    task = ready("text_classification", animals)
    monkeypatch.setitem(encoder_task.BATCH_POSITIONS, "cpu", 8)
    texts, sizes = task.encode_all("text", ["red cat"] * 40), []

    def compute(model, inputs, rows):
        sizes.append(len(rows))
        return rows

    assert task.run_all(texts, compute) == list(range(40))
    assert sum(sizes) == 40
    assert sorted(sizes) == [1] * 8 + [2] * 16


@pytest.mark.parametrize("numba", [True, False])
def test_many_texts_run_on_a_packed_copy_with_the_same_result(ready, animals, monkeypatch, numba):
    task, networks = ready("text_classification", animals), set()
    monkeypatch.setattr(encoder_task, "packing_pays", lambda: True)
    monkeypatch.setattr(packed, "MIN_WEIGHTS", 1)
    if not numba:
        monkeypatch.setattr(kernels, "numba_installed", lambda: False)
    texts = task.encode_all("text", ["red cat", "blue dog " * 5, "red"] * 4)
    expected = task.logits(texts)

    def compute(model, inputs, rows):
        networks.add(model)
        return model(inputs)

    monkeypatch.setattr(encoder_task, "MIN_PACKED", 1)
    torch.testing.assert_close(torch.stack(task.run_all(texts, compute)), expected, rtol=1e-4, atol=1e-5)
    (network,) = networks
    assert network is not task.model and packed.original(network) is task.model


def test_features_of_many_texts_are_computed_without_padding(ready, pairs, monkeypatch):
    pytest.importorskip("numba", reason="the extra 'fast' is not installed")
    shape = ["model.dim=32", "model.heads=2", "model.position=learned", "model.score=scaled_dot"]
    task, rows = ready("text_classification", pairs, *shape), []
    monkeypatch.setattr(encoder_task, "packing_pays", lambda: True)
    texts = [task.encode("red cat", "a dog"), task.encode("blue dog " * 5), task.encode("red")] * 4
    expected = dict(task.features(texts))
    forward = Bert.forward
    monkeypatch.setattr(encoder_task, "MIN_PACKED", 1)
    monkeypatch.setattr(Bert, "forward", lambda *args, **named: (rows.append(args[4]), forward(*args, **named))[1])
    for row, vectors in task.features(texts):
        torch.testing.assert_close(vectors, expected[row], rtol=1e-4, atol=1e-5)
    assert sum(len(lengths) for lengths in rows) == len(texts)


@torch.no_grad()
def test_several_labels_have_independent_probabilities(ready, alone, predict, several):
    task = ready("text_classification", several)
    found = predict(task, {"text": "a cat"})
    for name, logit in zip(task.labels, logits_of(task, alone, "a cat"), strict=True):
        assert found.scores[name] == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-4)
    assert found.output.labels == tuple(name for name in task.labels if found.scores[name] >= 0.5)
    assert found.text == "|".join(found.output.labels)


def test_maps_have_the_tokens_of_the_row_on_both_axes(ready, predict, pairs):
    task = ready("text_classification", pairs)
    found = predict(task, {"first": "the cat", "second": "a dog"}, attention=True)
    row, second, _ = task.encode("the cat", "a dog")
    assert list(found.attention) == ["bert.encoder.0.self", "bert.encoder.1.self"]
    for one in found.attention.values():
        assert one.weights.shape == (2, len(row), len(row))
        torch.testing.assert_close(one.weights.sum(-1), torch.ones(2, len(row)))
        assert one.queries == one.keys
        assert list(one.keys.labels) == task.tokenizer.pieces(row)
        assert one.keys.labels[0] == "[CLS]" and one.keys.labels[second - 1] == one.keys.labels[-1] == "[SEP]"
    assert not predict(task, {"first": "the cat", "second": "a dog"}).attention


def test_the_confusion_matrix_comes_with_the_scores(ready, animals, several, monkeypatch):
    task = ready("text_classification", animals)
    expected = [labels[0] for labels in task.splits[Split.VALID].labels]
    monkeypatch.setattr(task, "logits", lambda *_: torch.tensor([[0.0, 1.0, 0.0]]).repeat(len(expected), 1))
    (table,) = task.evaluate(Split.VALID).tables
    assert table.columns == ("expected, predicted as", "cat", "dog", "none")
    assert table.rows == tuple((name, "0", str(expected.count(name)), "0") for name in ("cat", "dog", "none"))
    assert not ready("text_classification", several).evaluate(Split.VALID).tables


def test_a_complete_evaluation_needs_no_analysis(ready, animals, monkeypatch):
    task = ready("text_classification", animals)
    rows = []
    forward = task.model.forward
    monkeypatch.setattr(task.model, "forward", lambda inputs: (rows.append(len(inputs.ids)), forward(inputs))[1])
    task.evaluate(Split.VALID)
    task.analyse()
    assert sum(rows) == len(task.splits[Split.VALID])


def test_a_quick_evaluation_of_a_sample_is_not_complete(ready, animals, monkeypatch):
    task = ready("text_classification", animals)
    assert task.evaluate(Split.VALID, quick=True).complete
    monkeypatch.setattr("saccade.tasks._encoder.labelled.QUICK_ROWS", 2)
    assert not task.evaluate(Split.VALID, quick=True).complete
    assert task.evaluate(Split.VALID).complete


def test_of_many_labels_only_the_most_frequent_mistakes_are_shown():
    names = [f"n{number}" for number in range(20)]
    expected = [name for name in names for _ in range(5)] + ["a|b"] * 3
    predicted = [*expected[:-3], "n0", "n0", "n1"]
    table = confusion_table(confusion(["n7", *predicted[1:]], expected, [*names, "a|b"]))
    assert table.columns == ("expected", "predicted as", "count")
    assert table.rows == (("a|b", "n0", "2"), ("n0", "n7", "1"), ("a|b", "n1", "1"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["threshold=1"], r"^threshold must be above 0 and below 1, but is 1\.0$"),
        (["class_weights=some"], r"^class_weights must be 'none' or 'balanced', but is 'some'"),
        (["data.valid_fraction=0"], r"^data\.valid_fraction must be above 0 and below 1, but is 0\.0$"),
        (["max_length=7"], r"^max_length must be at least 8, but is 7$"),
        (["rank=0"], r"^rank must be at least 1, but is 0$"),
        (["batch_tokens=0"], r"^batch_tokens must be at least 1, but is 0$"),
        (["micro_batches=0"], r"^micro_batches must be at least 1, but is 0$"),
        (["vocabulary_size=0"], r"^vocabulary_size must be at least 1, but is 0$"),
        (["tune=head"], r"^tune must be all without a base, but is head$"),
        (["pool=last"], r"^pool must be 'mean', 'first', 'tanh' or 'relu', but is 'last'"),
    ],
)
def test_invalid_settings_are_refused(overrides, message):
    with pytest.raises(UsageError, match=message):
        override(ClassificationConfig(), overrides)


def test_the_inputs_are_those_of_the_training_rows(ready, pairs, animals):
    task = ready("text_classification", pairs)
    assert [(field.name, field.optional) for field in task.inputs] == [("first", False), ("second", False)]
    with pytest.raises(UsageError, match=r"^second must be given, but is not; this model takes first, second$"):
        bind(task.inputs, ["a cat\ta dog"])  # a tab is part of a text
    task = ready("text_classification", animals)
    assert [(field.name, field.optional) for field in task.inputs] == [("text", False)]
    with pytest.raises(UsageError, match=r"^no input 'second'; this model takes text$"):
        bind(task.inputs, ["a cat"], {"second": "a dog"})


def test_rows_without_any_label_cannot_be_scored(ready, several, tmp_path):
    task = ready("text_classification", several)
    other = tmp_path / "bare.tsv"
    other.write_text("text\tlabels\na cat\t\na dog\t\n")
    with pytest.raises(DataError, match=r"no validation row has a label, expected one at least"):
        task.load_data(other, eval_only=True)


def test_other_rows_must_be_like_the_training_rows(ready, pairs, animals, tmp_path):
    task = ready("text_classification", pairs)
    other = tmp_path / "other.tsv"
    other.write_text("text\tlabel\na cat\tyes\na dog\tno\n")
    message = rf"^{other}: one text in a row, expected two texts as in the training rows; name the columns with data"
    with pytest.raises(DataError, match=message):
        task.load_data(other, eval_only=True)
    other.write_text("text\tlabel\na cat\tcat\na dog\tdgo\n")
    with pytest.raises(DataError, match=rf"{other.name}:3: label 'dgo', expected one of the training rows: cat, dog"):
        ready("text_classification", animals).load_data(other, eval_only=True)


def test_a_file_too_small_for_a_validation_split_is_refused(ready, tmp_path):
    path = tmp_path / "few.tsv"
    path.write_text("text\tlabel\n" + "the same cat\tyes\nthe same cat\tno\n" * 4)
    with pytest.raises(DataError, match=rf"^{path}: 1 distinct row, expected at least 2"):
        ready("text_classification", path)
