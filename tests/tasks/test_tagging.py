"""Tagging: tags at first tokens, losses and scores by hand, truncated sentences, and errors."""

import math
import random

import pytest
import torch

from saccade.config import override
from saccade.core import Split, TagOutput
from saccade.errors import DataError, UsageError
from saccade.tasks.tagging import TaggedWords, TaggingConfig

TAGS = {"Anna": "B-PER", "Berta": "B-PER", "Smith": "I-PER", "Rome": "B-LOC", "Paris": "B-LOC"}


def sentences(count=40):
    names, places = ("Anna", "Berta"), ("Rome", "Paris")
    return [
        [names[at % 2], *(["Smith"] if at % 3 else []), "went", "to", places[at % 2], *["again"] * (at % 5), f"{at}"]
        for at in range(count)
    ]


def write(path, tags=TAGS, outside="O"):
    blocks = ["".join(f"{word} {tags.get(word, outside)}\n" for word in words) for words in sentences()]
    path.write_text("\n".join(blocks))
    return path


@pytest.fixture
def names(tmp_path):
    return write(tmp_path / "names.conll")


def tag_logits(task, alone, words):
    """The logits of each word by plain steps: those of its first piece."""
    row, positions = [task.template.cls_id], []
    for word in words:
        positions.append(len(row))
        row += task.tokenizer.encode(word)
    vectors = alone(task, ([*row, task.template.sep_id], len(row) + 1))
    return [(task.model.head.weight @ vectors[position] + task.model.head.bias).tolist() for position in positions]


def nll(logits, target):
    return math.log(sum(map(math.exp, logits))) - logits[target]


def test_tags_are_at_the_first_token_of_each_word(ready, names):
    task = ready("tagging", names, "vocabulary_size=56")
    assert task.labels == ("O", "B-LOC", "B-PER", "I-PER")
    by_name = {f"{one.file.name}:{one.lines[0]}": one for one in task.splits[Split.TRAIN].sentences}
    (batch,) = task.source(Split.TRAIN, 1).at(0)
    assert batch.count == sum(len(by_name[name].words) for name in batch.rows)
    for row, name in enumerate(batch.rows):
        sentence, at = by_name[name], 1
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            pieces = task.tokenizer.encode(word)
            assert batch.inputs.ids[row, at : at + len(pieces)].tolist() == pieces
            assert batch.targets[row, at] == task.labels.index(tag)
            assert (batch.targets[row, at + 1 : at + len(pieces)] == -1).all()
            at += len(pieces)
        assert (batch.targets[row, at:] == -1).all() and batch.targets[row, 0] == -1
    assert any(len(task.tokenizer.encode(word)) > 1 for word in TAGS)  # there are words of several pieces


@torch.no_grad()
def test_the_loss_is_the_mean_over_the_words_of_each_sentence_alone(ready, alone, loss_of, names):
    task = ready("tagging", names)
    by_name = {f"{one.file.name}:{one.lines[0]}": one for one in task.splits[Split.TRAIN].sentences}
    (batch,) = task.source(Split.TRAIN, 1).at(0)
    losses = [
        nll(logits, task.labels.index(tag))
        for one in map(by_name.__getitem__, batch.rows)
        for logits, tag in zip(tag_logits(task, alone, one.words), one.tags, strict=True)
    ]
    assert loss_of(task, batch) == pytest.approx(sum(losses) / len(losses), rel=1e-4)


@torch.no_grad()
def test_micro_batches_add_up_to_the_batch(ready, names, whole_and_parts):
    whole, one, parts, three = whole_and_parts(lambda *more: ready("tagging", names, *more))
    assert (one, three) == (1, 3)
    assert parts == pytest.approx(whole, rel=1e-5)


def test_the_scores_of_fixed_tags(ready, names, monkeypatch):
    task = ready("tagging", names)
    part = task.splits[Split.VALID].sentences
    predicted = [[tag if tag.endswith("PER") else "O" for tag in one.tags] for one in part]  # every location is missed
    predicted[0] = ["B-LOC", *predicted[0][1:]]  # and one person is taken for one
    monkeypatch.setattr(task, "tag", lambda *_: [TaggedWords(tags, []) for tags in predicted])
    scores = task.evaluate(Split.VALID)
    expected = sum(tag.startswith("B") for one in part for tag in one.tags)
    people = sum(tag == "B-PER" for one in part for tag in one.tags)
    smith = predicted[0][1] == "I-PER"  # left alone it is a person by itself, but not the right one
    hits, found = people - 1, people + smith
    precision, recall = hits / found, hits / expected
    assert scores["precision"] == pytest.approx(100 * precision)
    assert scores["recall"] == pytest.approx(100 * recall)
    assert scores["f1"] == pytest.approx(200 * precision * recall / (precision + recall))
    pairs = [pair for one, tags in zip(part, predicted, strict=True) for pair in zip(one.tags, tags, strict=True)]
    assert scores["accuracy"] == pytest.approx(100 * sum(one == other for one, other in pairs) / len(pairs))
    assert scores["sentences"] == len(part)


def test_tags_other_than_entities_are_scored_by_accuracy(ready, predict, tmp_path):
    path = write(tmp_path / "words.conll", {"went": "VERB", "to": "ADP"}, "NOUN")
    task = ready("tagging", path)
    assert task.metric.name == "accuracy"
    assert set(task.evaluate(Split.VALID).values) == {"accuracy", "sentences"}
    assert predict(task, {"text": "Anna went"}).scores == {}


def tags_of(task, sentences):
    return task.tag([task.encode_words(words) for words in sentences])


@torch.no_grad()
def test_many_sentences_are_tagged_as_each_alone(ready, alone, batched_as_alone, names):
    task = ready("tagging", names)
    words = [one.words for one in task.splits[Split.VALID].sentences]
    answers = batched_as_alone(task, [{"text": " ".join(sentence)} for sentence in words])
    for sentence, (tags, probabilities), found in zip(words, tags_of(task, words), answers, strict=True):
        expected = torch.tensor(tag_logits(task, alone, sentence)).softmax(-1)
        assert tags == [task.labels[at] for at in expected.argmax(-1).tolist()]
        assert probabilities == pytest.approx(expected.max(-1).values.tolist(), rel=1e-3)
        assert found.text == " ".join(f"{word}/{tag}" for word, tag in zip(sentence, tags, strict=True))
        assert isinstance(found.output, TagOutput)
        assert (found.output.words, found.output.tags) == (tuple(sentence), tuple(tags))
        assert found.output.probabilities == pytest.approx(probabilities, rel=1e-3)


def test_the_score_of_an_entity_is_the_lowest_probability_of_its_words(ready, predict, names, monkeypatch):
    task = ready("tagging", names)
    tagged = TaggedWords(["B-PER", "I-PER", "O", "O", "B-LOC"], [0.9, 0.6, 0.99, 0.99, 0.8])
    monkeypatch.setattr(task, "tag", lambda *_: [tagged])
    found = predict(task, {"text": "Anna Smith went to Rome"})
    assert found.text == "Anna/B-PER Smith/I-PER went/O to/O Rome/B-LOC"
    assert found.scores == {"Anna Smith (PER)": 0.6, "Rome (LOC)": 0.8}


def test_words_beyond_the_longest_row_have_no_tag_and_are_reported(ready, names):
    task = ready("tagging", names, "max_length=8")
    words = ["went"] * 20
    room = (8 - 2) // len(task.tokenizer.encode("went"))
    ((tags, probabilities),) = tags_of(task, [words])
    assert len(tags) == len(probabilities) == room and min(probabilities) > 0
    sentences = task.splits[Split.TRAIN].sentences
    cut = sum(len(task.encode_words(one.words).positions) < len(one.words) for one in sentences)
    assert cut > 0
    assert task.load_data(names)[1] == f"{cut:,} sentences have more than 8 tokens and are truncated"


def test_a_first_word_longer_than_the_row_keeps_its_tag(ready, loss_of, tmp_path):
    path = tmp_path / "long.conll"
    words = ["".join(random.Random(at).choices("lpqxyz", k=50)) for at in range(20)]
    path.write_text("".join(f"{word} B-X\nis O\n\n" for word in words))
    task = ready("tagging", path, "max_length=8", "vocabulary_size=40")
    assert task.encode_words([words[0], "is"]).positions == [1]
    (batch,) = task.source(Split.TRAIN, 1).at(0)
    assert batch.count == len(batch.rows)
    assert math.isfinite(loss_of(task, batch))


def test_tags_follow_each_other_as_in_the_training_data(ready, predict, names, tmp_path):
    task = ready("tagging", names, "vocabulary_size=56")
    with torch.no_grad():  # word by word it would be I-PER everywhere
        task.model.head.weight.zero_()
        task.model.head.bias.copy_(torch.tensor([0.0, 0.0, 1.0, 5.0]))
    words = ["Anna", "Smith", "went"]
    assert tags_of(task, [words])[0].tags == ["B-PER", "I-PER", "I-PER"]
    found = predict(task, {"text": " ".join(words)})
    assert [task.labels[tag] for tag in task.rerun(found).chosen] == ["B-PER", "I-PER", "I-PER"]
    loose = write(tmp_path / "loose.conll", {**TAGS, "went": "I-LOC"})  # begins with an I: no rule holds
    task = ready("tagging", loose, "vocabulary_size=56")
    with torch.no_grad():
        task.model.head.weight.zero_()
        task.model.head.bias.copy_(torch.tensor([0.0, 0.0, 0.0, 1.0, 5.0]))
    assert tags_of(task, [words])[0].tags == ["I-PER"] * 3


def test_no_words_have_no_tags(ready, predict, names):
    found = predict(ready("tagging", names), {"text": "  "})
    assert (found.text, found.scores, found.output.tags) == ("", {}, ())


def test_maps_have_the_tokens_on_both_axes(ready, predict, names):
    task = ready("tagging", names)
    found = predict(task, {"text": "Anna went"}, attention=True)
    row = task.encode_words(["Anna", "went"]).ids
    assert len(found.attention) == 2
    for one in found.attention.values():
        assert one.weights.shape == (2, len(row), len(row))
        assert list(one.queries.labels) == list(one.keys.labels) == task.tokenizer.pieces(row)


def test_invalid_inputs_are_refused(ready, names, tmp_path):
    with pytest.raises(UsageError, match=r"^data\.valid_fraction must be above 0 and below 1, but is 1\.0$"):
        override(TaggingConfig(), ["data.valid_fraction=1"])
    other = tmp_path / "other.conll"
    other.write_text("Anna B-PER\nran B-LOK\n")
    message = (
        r"other\.conll:2: tag 'B-LOK', expected one of the training sentences: O, B-LOC, B-PER, I-PER; did you mean"
    )
    with pytest.raises(DataError, match=message):
        ready("tagging", names).load_data(other, eval_only=True)
