"""Truncated texts: every encoder task says what was cut, and cuts as transformers does."""

import json

import pytest
import torch

from saccade.errors import ModelFileError
from saccade.model import Model

LONG = "the cat sat on the mat " * 10


@pytest.fixture
def files(tmp_path):
    """A data file for each encoder task."""
    words = ["the cat sat on the mat", "a dog ran", "who saw the cat and the dog", "the mat is red"]
    texts = [f"{words[number % 4]} {number}" for number in range(40)]
    contents = {
        "text_classification": "text\tlabel\n" + "".join(f"{text}\t{'ab'[at % 2]}\n" for at, text in enumerate(texts)),
        "regression": "text\tlabel\n" + "".join(f"{text}\t{at / 7}\n" for at, text in enumerate(texts)),
        "sentence_vectors": "".join(f"{text}\t{text} again\t{at / 40}\n" for at, text in enumerate(texts)),
        "tagging": "\n\n".join("\n".join(f"{word} O" for word in text.split()) for text in texts) + "\n",
        "masked_language_model": "".join(f"{text.capitalize()}.\n" for text in texts),
    }
    paths = {name: tmp_path / f"{name}.tsv" for name in contents}
    for name, content in contents.items():
        paths[name].write_text(content)
    qas = [{"id": "1", "question": "who sat?", "answers": [{"text": "cat", "answer_start": 4}]}]
    paragraphs = [{"context": "the cat sat on the mat", "qas": [{**qas[0], "id": str(at)}]} for at in range(20)]
    paths["question_answering"] = tmp_path / "questions.json"
    articles = [{"title": str(at), "paragraphs": [paragraph]} for at, paragraph in enumerate(paragraphs)]
    paths["question_answering"].write_text(json.dumps({"data": articles}))
    return paths


CASES = {
    "text_classification": ({"text": LONG}, "text"),
    "regression": ({"text": LONG}, "text"),
    "sentence_vectors": ({"first": LONG}, "first"),
    "tagging": ({"text": LONG}, "text"),
    "masked_language_model": ({"text": "[MASK] " + LONG}, "text"),
    "question_answering": ({"question": LONG, "context": "the cat sat"}, "question"),
}


@pytest.mark.parametrize("name", CASES)
def test_every_encoder_task_says_what_it_cut(name, files, ready):
    task = ready(name, files[name], "max_length=24", *(["stride=4"] if name == "question_answering" else []))
    inputs, field = CASES[name]
    model = Model(task)
    short = {field: value[: 30 if field != "question" else 8] for field, value in inputs.items()}
    complete, cut = model.predict([short, inputs])
    assert complete.notes == () and "notes" not in complete.to_json()
    (note,) = cut.notes
    tokens = len(task.tokenizer.encode(inputs[field], parse_special=True))
    total, kept = (tokens, 8) if name == "question_answering" else (tokens + 2, 24)
    assert note.startswith(f"cut to {kept} of {total} tokens: {field} '{inputs[field][:20]}")
    assert cut.to_json()["notes"] == [note]


def test_both_texts_of_a_pair_are_named_where_both_are_cut(files, ready):
    task = ready("sentence_vectors", files["sentence_vectors"], "max_length=16")
    prediction = Model(task)(LONG, second="a dog " * 30)
    names = [note.partition(": ")[2].split()[0] for note in prediction.notes]
    assert names == ["first", "second"]


def test_words_without_room_have_no_tag_instead_of_a_wrong_one(files, ready):
    task = ready("tagging", files["tagging"], "max_length=24")
    prediction = Model(task)(LONG)
    words = len(prediction.output.words)
    assert prediction.output.words == tuple(LONG.split()[:words]) and words == len(prediction.output.tags) < 60
    assert prediction.notes[0].endswith(f"; {words} of 60 words have a tag")


@pytest.mark.parametrize("name", CASES)
def test_outputs_that_are_not_finite_never_become_an_answer(name, files, ready):
    task = ready(name, files[name], "max_length=24", *(["stride=4"] if name == "question_answering" else []))
    with torch.no_grad():
        task.model.bert.embedding.weight.fill_(torch.nan)
    with pytest.raises(
        ModelFileError, match=r"^the outputs of the network must be finite, but are not; its weights are"
    ):
        list(Model(task).predict([CASES[name][0]]))
