"""Vectors by layer: each choice combines its layers, order is kept, a word differs by its context."""

import json

import numpy as np
import pytest
import torch

from saccade import api
from saccade.errors import UsageError
from saccade.look import features
from saccade.tasks._encoder.layers import LAYERS, combine
from saccade.tasks._parallel import parallel_map

SMALL = [
    "model.dim=16",
    "model.depth=5",
    "model.heads=2",
    "model.hidden=24",
    "vocabulary_size=80",
    "max_length=32",
    "batch_tokens=256",
]
TEXTS = ["the cat sat on a mat .", "a dog", "the dog ran to the cat and sat ."]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    path = folder / "text.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS * 40))
    overrides = [*SMALL, "train.steps=40", "train.device=cpu", "train.evaluate_every=40"]
    run = api.train(path, task="masked_language_model", root=folder / "runs", overrides=overrides, progress=False)
    return api.load(run, device="cpu").task


def test_each_choice_combines_its_layers():
    states = [torch.full((2, 3), float(number)) for number in range(7)]  # embeddings and six layers
    result = {layers: combine(states, layers)[0].tolist() for layers in LAYERS}
    assert result == {
        "first": [0.0] * 3,
        "last": [6.0] * 3,
        "second_to_last": [5.0] * 3,
        "sum": [21.0] * 3,
        "sum_last_4": [18.0] * 3,
        "concat_last_4": [3.0] * 3 + [4.0] * 3 + [5.0] * 3 + [6.0] * 3,
    }


@pytest.mark.parametrize("layers", LAYERS)
@torch.no_grad()
def test_vectors_keep_the_order_and_equal_one_text_alone(encoder, layers):
    many = list(features.vectors(encoder, TEXTS, layers, "token"))
    assert [one.text for one in many] == TEXTS
    for text, one in zip(TEXTS, many, strict=True):
        states: list[torch.Tensor] = []
        row = encoder.encode(text).ids
        encoder.model.bert(torch.tensor([row]), states=states)
        torch.testing.assert_close(one.values, combine(states, layers)[0], atol=1e-5, rtol=1e-4)
        assert list(one.tokens) == encoder.tokenizer.pieces(row)
    means = list(features.vectors(encoder, TEXTS, layers, "text"))
    torch.testing.assert_close(means[2].values, many[2].values.mean(0))
    first = list(features.vectors(encoder, TEXTS, layers, "text", pool="first"))
    torch.testing.assert_close(first[0].values, many[0].values[0])


def test_int8_vectors_do_not_change_the_model(encoder):
    model = encoder.model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    exact = torch.stack([one.values for one in features.vectors(encoder, TEXTS)])
    small = torch.stack([one.values for one in features.vectors(encoder, TEXTS, int8=True)])
    assert encoder.model is model
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.cosine_similarity(exact, small).min() > 0.99
    torch.testing.assert_close(torch.stack([one.values for one in features.vectors(encoder, TEXTS)]), exact)


def test_files_hold_the_vectors(encoder, tmp_path):
    expected = torch.stack([one.values for one in features.vectors(encoder, TEXTS)])
    assert list(features.write(features.vectors(encoder, TEXTS), tmp_path / "a.npy")) == []
    torch.testing.assert_close(torch.from_numpy(np.load(tmp_path / "a.npy")), expected)
    list(features.write(features.vectors(encoder, TEXTS, per="token"), tmp_path / "a.jsonl"))
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    assert all(len(row["tokens"]) == len(row["vector"]) for row in rows)
    assert [json.loads(line)["text"] for line in features.write(features.vectors(encoder, TEXTS), None)] == TEXTS
    with pytest.raises(UsageError, match=r"must end on \.npy or \.jsonl"):
        list(features.write([], tmp_path / "a.txt"))


def test_the_same_word_in_two_contexts_has_two_vectors(encoder):
    pair = (TEXTS[0], TEXTS[2])
    assert features.word_similarity(encoder, pair, "cat", "last") < 0.9999
    assert features.word_similarity(encoder, (TEXTS[0], TEXTS[0]), "cat") == pytest.approx(1, abs=1e-5)
    with pytest.raises(UsageError, match="'mouse' must occur in both texts"):
        features.word_similarity(encoder, pair, "mouse")
    with pytest.raises(UsageError, match="no choice of layers 'lst'; did you mean 'last'"):
        features.word_similarity(encoder, pair, "cat", "lst")


def test_layers_are_compared_on_tags_and_on_classes(encoder, tmp_path):
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "the", "dog", "ran", "to", "the", "cat"]
    tags = tmp_path / "tags.conll"
    lines = "".join(f"{word} {'B-PET' if word in ('cat', 'dog') else 'O'}\n" for word in words)
    tags.write_text("".join(f"x{number} O\n{lines}\n" for number in range(40)))  # no two alike
    result = features.compare_layers(encoder, tags)
    assert {choice.layers for choice in result} == set(LAYERS)
    assert result[0].score == max(choice.score for choice in result) > 95  # the word itself tells
    assert {choice.layers: choice.width for choice in result}["concat_last_4"] == 64
    rows = tmp_path / "rows.csv"
    texts = [f"{'cat' if number % 2 else 'dog'} sat {number}" for number in range(60)]
    rows.write_text("text,label\n" + "".join(f"{text},{text[:3]}\n" for text in texts))
    assert features.compare_layers(encoder, rows)[0].score > 95
    with pytest.raises(UsageError, match="layers are compared by tagging or text_classification"):
        features.compare_layers(encoder, rows, "regression")


@pytest.mark.parametrize("cores", [1, 3])
def test_work_is_spread_over_the_cores_and_keeps_its_order(cores):
    before = torch.get_num_threads()
    torch.set_num_threads(cores)
    try:
        result = list(parallel_map(lambda number: (number * number, torch.get_num_threads()), range(50)))
        assert result == [(number * number, 1) for number in range(50)]
        assert torch.get_num_threads() == cores
        assert list(parallel_map(lambda _: torch.get_num_threads(), range(2))) == [cores] * 2  # too few to be spread
        with pytest.raises(ZeroDivisionError):
            list(parallel_map(lambda number: 1 // (number - 7), range(50)))
        half = parallel_map(str, range(50))
        assert next(half) == "0"
        half.close()
        assert torch.get_num_threads() == cores
    finally:
        torch.set_num_threads(before)


def test_vectors_do_not_depend_on_the_number_of_cores(encoder):
    texts, before = [text for text in TEXTS for _ in range(90)], torch.get_num_threads()
    sides = []
    try:
        for cores in (1, 2):
            torch.set_num_threads(cores)
            sides.append(torch.stack([one.values for one in features.vectors(encoder, texts)]))
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(*sides, atol=1e-6, rtol=1e-5)
