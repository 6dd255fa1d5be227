"""Tagging: tags on first pieces, losses and scores by hand, sentences that are cut, and every refusal."""

import math
import random

import pytest
import torch

from saccade.config import override
from saccade.core.task import Split
from saccade.errors import DataError, UsageError
from saccade.tasks.tagging import TagConfig, TagOptions

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


def tag_logits(opened, alone, words):
    """The logits of each word by plain steps: those of its first piece."""
    row, places = [opened.frame.cls_id], []
    for word in words:
        places.append(len(row))
        row += opened.tokenizer.encode(word)
    vectors = alone(opened, ([*row, opened.frame.sep_id], len(row) + 1))
    return [(opened.model.head.weight @ vectors[place] + opened.model.head.bias).tolist() for place in places]


def surprise(logits, place):
    return math.log(sum(map(math.exp, logits))) - logits[place]


def test_tags_stand_at_the_first_piece_of_each_word(ready, names):
    opened = ready("tagging", names, "vocabulary=56")
    assert opened.names == ("O", "B-LOC", "B-PER", "I-PER")
    batches = opened.batches(Split.TRAIN, 1)
    by_place = {f"{one.file.name}:{one.lines[0]}": one for one in opened.parts[Split.TRAIN].sentences}
    (batch,) = batches.at(0)
    assert batch.count == sum(len(by_place[name].words) for name in batch.rows)
    for row, name in enumerate(batch.rows):
        sentence, at = by_place[name], 1
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            pieces = opened.tokenizer.encode(word)
            assert batch.read.ids[row, at : at + len(pieces)].tolist() == pieces
            assert batch.tags[row, at] == opened.names.index(tag)
            assert (batch.tags[row, at + 1 : at + len(pieces)] == -1).all()
            at += len(pieces)
        assert (batch.tags[row, at:] == -1).all() and batch.tags[row, 0] == -1
    assert any(len(opened.tokenizer.encode(word)) > 1 for word in TAGS)  # there are words of several pieces


@torch.no_grad()
def test_the_loss_is_the_mean_over_the_words_of_each_sentence_alone(ready, alone, names):
    opened = ready("tagging", names)
    by_place = {f"{one.file.name}:{one.lines[0]}": one for one in opened.parts[Split.TRAIN].sentences}
    (batch,) = opened.batches(Split.TRAIN, 1).at(0)
    losses = [
        surprise(logits, opened.names.index(tag))
        for one in map(by_place.__getitem__, batch.rows)
        for logits, tag in zip(tag_logits(opened, alone, one.words), one.tags, strict=True)
    ]
    ((_, loss),) = opened.losses(batch)
    assert float(loss) == pytest.approx(sum(losses) / len(losses), rel=1e-4)


@torch.no_grad()
def test_parts_add_up_to_the_whole(ready, names, whole_and_parts):
    whole, one, parts, three = whole_and_parts(lambda *more: ready("tagging", names, *more))
    assert (one, three) == (1, 3)
    assert parts == pytest.approx(whole, rel=1e-5)


def test_the_scores_of_fixed_tags(ready, names, monkeypatch):
    opened = ready("tagging", names)
    part = opened.parts[Split.VALID].sentences
    said = [[tag if tag.endswith("PER") else "O" for tag in one.tags] for one in part]  # every place is missed
    said[0] = ["B-LOC", *said[0][1:]]  # and one person is taken for one
    monkeypatch.setattr(opened, "_tags", lambda *_: [(tags, []) for tags in said])
    scores = opened.evaluate(Split.VALID)
    wanted = sum(tag.startswith("B") for one in part for tag in one.tags)
    people = sum(tag == "B-PER" for one in part for tag in one.tags)
    smith = said[0][1] == "I-PER"  # left alone it is a person by itself, but not the right one
    hits, found = people - 1, people + smith
    precision, recall = hits / found, hits / wanted
    assert scores["precision"] == pytest.approx(100 * precision)
    assert scores["recall"] == pytest.approx(100 * recall)
    assert scores["f1"] == pytest.approx(200 * precision * recall / (precision + recall))
    pairs = [pair for one, tags in zip(part, said, strict=True) for pair in zip(one.tags, tags, strict=True)]
    assert scores["accuracy"] == pytest.approx(100 * sum(one == other for one, other in pairs) / len(pairs))
    assert scores["sentences"] == len(part)


def test_tags_that_are_no_entities_are_scored_by_accuracy(ready, tmp_path):
    path = write(tmp_path / "words.conll", {"went": "VERB", "to": "ADP"}, "NOUN")
    opened = ready("tagging", path)
    assert opened.score == "accuracy"
    assert set(opened.evaluate(Split.VALID)) == {"accuracy", "sentences"}
    assert opened.predict("Anna went", TagOptions()).scores == {}


@torch.no_grad()
def test_many_sentences_are_tagged_as_each_alone(ready, alone, names):
    opened = ready("tagging", names)
    words = [one.words for one in opened.parts[Split.VALID].sentences]
    for sentence, (tags, sure) in zip(words, opened._tags(words), strict=True):
        chances = torch.tensor(tag_logits(opened, alone, sentence)).softmax(-1)
        assert tags == [opened.names[at] for at in chances.argmax(-1).tolist()]
        assert sure == pytest.approx(chances.max(-1).values.tolist(), rel=1e-3)
        found = opened.predict(" ".join(sentence), TagOptions())
        assert found.output == " ".join(f"{word}/{tag}" for word, tag in zip(sentence, tags, strict=True))


def test_the_scores_say_how_sure_the_least_sure_word_of_an_entity_is(ready, names, monkeypatch):
    opened = ready("tagging", names)
    said = ["B-PER", "I-PER", "O", "O", "B-LOC"], [0.9, 0.6, 0.99, 0.99, 0.8]
    monkeypatch.setattr(opened, "_tags", lambda *_: [said])
    found = opened.predict("Anna Smith went to Rome", TagOptions())
    assert found.output == "Anna/B-PER Smith/I-PER went/O to/O Rome/B-LOC"
    assert found.scores == {"Anna Smith (PER)": 0.6, "Rome (LOC)": 0.8}


def test_words_beyond_the_longest_row_are_outside_and_said(ready, names):
    opened = ready("tagging", names, "max_length=8")
    words = ["went"] * 20
    room = (8 - 2) // len(opened.tokenizer.encode("went"))
    ((tags, sure),) = opened._tags([words])
    assert len(tags) == len(sure) == 20
    assert tags[room:] == ["O"] * (20 - room)
    assert sure[room:] == [0.0] * (20 - room) and min(sure[:room]) > 0
    cut = sum(len(opened._frame(one.words).places) < len(one.words) for one in opened.parts[Split.TRAIN].sentences)
    assert cut > 0
    assert opened.load_data(names)[1] == f"{cut:,} sentences have more than 8 tokens: their ends are not read"


def test_a_first_word_longer_than_the_row_keeps_its_tag(ready, tmp_path):
    path = tmp_path / "long.conll"
    words = ["".join(random.Random(at).choices("lpqxyz", k=50)) for at in range(20)]
    path.write_text("".join(f"{word} B-X\nis O\n\n" for word in words))
    opened = ready("tagging", path, "max_length=8", "vocabulary=40")
    assert opened._frame([words[0], "is"]).places == [1]
    (batch,) = opened.batches(Split.TRAIN, 1).at(0)
    assert batch.count == len(batch.rows)
    assert bool(next(opened.losses(batch))[1].isfinite())


def test_tags_follow_each_other_as_in_the_training_data(ready, names, tmp_path):
    opened = ready("tagging", names, "vocabulary=56")
    with torch.no_grad():  # word by word it would say I-PER everywhere
        opened.model.head.weight.zero_()
        opened.model.head.bias.copy_(torch.tensor([0.0, 0.0, 1.0, 5.0]))
    words = ["Anna", "Smith", "went"]
    assert opened._tags([words])[0][0] == ["B-PER", "I-PER", "I-PER"]
    found = opened.predict(" ".join(words), TagOptions())
    assert [opened.names[tag] for tag in opened.rerun(found).chosen] == ["B-PER", "I-PER", "I-PER"]
    loose = write(tmp_path / "loose.conll", {**TAGS, "went": "I-LOC"})  # begins with an I: no rule holds
    opened = ready("tagging", loose, "vocabulary=56")
    with torch.no_grad():
        opened.model.head.weight.zero_()
        opened.model.head.bias.copy_(torch.tensor([0.0, 0.0, 0.0, 1.0, 5.0]))
    assert opened._tags([words])[0][0] == ["I-PER"] * 3


def test_no_words_have_no_tags(ready, names):
    found = ready("tagging", names).predict("  ", TagOptions())
    assert (found.output, found.scores) == ("", {})


def test_maps_have_the_pieces_on_both_axes(ready, names):
    opened = ready("tagging", names)
    found = opened.predict("Anna went", TagOptions(maps=True))
    row = opened._frame(["Anna", "went"]).ids
    assert len(found.maps) == 2
    for one in found.maps:
        assert one.weights.shape == (2, len(row), len(row))
        assert list(one.queries.labels) == list(one.keys.labels) == opened.tokenizer.pieces(row)


def test_what_breaks_a_rule_is_refused(ready, names, tmp_path):
    with pytest.raises(UsageError, match=r"^data\.fraction must be above 0 and below 1, but is 1\.0$"):
        override(TagConfig(), ["data.fraction=1"])
    other = tmp_path / "other.conll"
    other.write_text("Anna B-PER\nran B-LOK\n")
    says = r"other\.conll:2: tag 'B-LOK', expected one of the training sentences: O, B-LOC, B-PER, I-PER; did you mean"
    with pytest.raises(DataError, match=says):
        ready("tagging", names).load_data(other, whole=True)
