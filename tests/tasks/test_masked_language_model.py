"""Masked language model: losses and scores by hand, words filled in, texts that follow, byte pairs, every refusal."""

import json
import math

import pytest
import torch

from saccade.config import override
from saccade.core.task import Split
from saccade.data.text.tokenizers import Tokenizer, train_tokenizer
from saccade.data.text.vocabularies import ROBERTA
from saccade.errors import DataError, UsageError
from saccade.models.text.bert import BertConfig
from saccade.tasks.masked_language_model import FillOptions, MaskedConfig, Task, goes_on

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "a", "mat", "red", "blue"]


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    rows = [[WORDS[(at * at + place * (at % 7 + 1)) % 10] for place in range(3 + at % 6)] for at in range(120)]
    path.write_text("".join(f"{' '.join(row)}.\n" for row in rows))
    return path


SMALL = ["max_length=24", "tokens=144"]


def surprise(logits, place):
    return math.log(sum(map(math.exp, logits))) - logits[place]


def shared(model, ids, vectors, second):
    """A twentieth of the sum of all tokens, each by the fourth power of how like the likest of the other text is."""
    table, total = model.bert.embedding.weight, torch.zeros(vectors.shape[1])
    for place, one in enumerate(ids):
        others = ids[second:] if place < second else ids[:second]
        alike = [float(torch.cosine_similarity(table[one], table[other], dim=0)) for other in others]
        total += vectors[place] * max(0.0, *alike) ** 4 / 20
    return total


@torch.no_grad()
def logits_alone(opened, alone, batch):
    """For each row of a batch the logits of its hidden tokens and of whether its second text follows."""
    for row in range(len(batch.starts)):
        length = int(batch.read.keep[row].sum()) if batch.read.keep is not None else batch.read.ids.shape[1]
        second = length - int(batch.read.segments[row].sum())
        vectors = alone(opened, (batch.read.ids[row, :length].tolist(), second))
        hidden = [place for place in range(length) if batch.labels[row, place] >= 0]
        words = [(opened.model.words(vectors[place]).tolist(), int(batch.labels[row, place])) for place in hidden]
        follows = None
        if opened.model.next is not None:
            one, other = vectors[:second].mean(0), vectors[second:].mean(0)
            both = shared(opened.model, batch.read.ids[row, :length].tolist(), vectors, second)
            follows = opened.model.next.judge(torch.cat((one, other, (one - other).abs(), one * other, both)))
        yield words, follows


@pytest.mark.parametrize("following", [True, False])
@torch.no_grad()
def test_the_loss_is_over_hidden_tokens_and_over_pairs(ready, alone, book, following):
    opened = ready("masked_language_model", book, *SMALL, f"following={following}")
    (batch,) = opened.batches(Split.TRAIN, 1).at(2)
    assert batch.read.keep is not None  # rows of unequal length
    hidden, pairs = [], []
    for row, (words, follows) in enumerate(logits_alone(opened, alone, batch)):
        hidden += [surprise(logits, label) for logits, label in words]
        pairs += [] if follows is None else [surprise(follows.tolist(), int(batch.follows[row]))]
    assert len(hidden) == batch.count and len(pairs) == following * len(batch.starts)
    expected = sum(hidden) / len(hidden) + (sum(pairs) / len(pairs) if following else 0)
    ((_, loss),) = opened.losses(batch)
    assert float(loss) == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
def test_parts_add_up_to_the_whole_though_they_hide_unequal_numbers(ready, book, whole_and_parts):
    make = lambda *more: ready("masked_language_model", book, *SMALL, "share=0.3", *more)  # noqa: E731
    counts = {part.count / len(part.starts) for part in make("parts=3").batches(Split.TRAIN, 1).at(0)}
    assert len(counts) > 1
    whole, one, parts, three = whole_and_parts(make)
    assert (one, three) == (1, 3)
    assert parts == pytest.approx(whole, rel=1e-5)


def test_the_scores_are_those_of_the_rows_alone(ready, alone, book):
    opened = ready("masked_language_model", book, *SMALL)
    batches = opened.batches(Split.VALID, 0)
    rows = min(2000, batches.examples.per_epoch)
    assert rows <= 32  # one batch
    batch = batches.make([batches.examples.at(place) for place in range(rows)], 0)
    losses, right, follow, labels = [], 0, 0, []
    for row, (words, follows) in enumerate(logits_alone(opened, alone, batch)):
        losses += [surprise(logits, label) for logits, label in words]
        right += sum(max(range(len(logits)), key=logits.__getitem__) == label for logits, label in words)
        follow += int(follows.argmax()) == int(batch.follows[row])
        labels += [label for _, label in words]
    scores = opened.evaluate(Split.VALID)
    assert scores["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    assert scores["accuracy"] == pytest.approx(100 * right / len(losses))
    assert scores["next_sentence"] == pytest.approx(100 * follow / rows)
    ids = opened.sentences[Split.VALID].rows.ids.tolist()
    usual = max(sorted(set(ids)), key=ids.count)
    assert scores["most_frequent"] == pytest.approx(100 * labels.count(usual) / len(labels))
    assert (scores["hidden"], scores["rows"]) == (len(labels), rows)


@torch.no_grad()
def test_words_are_filled_in_with_chances_that_sum_to_one(ready, alone, book):
    opened = ready("masked_language_model", book, *SMALL)
    found = opened.predict("the [MASK] sat.", FillOptions(best=10_000, maps=True))
    row, second = opened.framed("the [MASK] sat.", parse_special=True)
    place = row.index(opened.frame.mask_id)
    chances = opened.model.words(alone(opened, (row, second))[place]).softmax(-1)
    assert sum(found.scores.values()) == pytest.approx(1, abs=1e-4)
    assert len(found.scores) == opened.tokenizer.size
    for number, chance in enumerate(chances.tolist()):
        assert found.scores[opened.tokenizer.token(number)] == pytest.approx(chance, abs=1e-5)
    best = next(iter(found.scores))
    assert found.scores[best] == max(found.scores.values())
    row[place] = opened.tokenizer.id(best)
    assert found.output == opened.tokenizer.decode(row)
    assert [one.weights.shape for one in found.maps] == [(2, len(row), len(row))] * 2
    assert found.maps[0].keys.labels[place] == "[MASK]"


def test_several_masks_are_numbered_and_a_second_text_may_follow(ready, book):
    opened = ready("masked_language_model", book, *SMALL)
    found = opened.predict("the [MASK] [MASK].", FillOptions(best=2, second="a dog ran."))
    assert [name.split()[0] for name in found.scores] == ["1", "1", "2", "2", "follows"]
    assert 0 < found.scores["follows"] < 1
    only = opened.predict("the cat sat.", FillOptions(second="a dog ran."))
    assert set(only.scores) == {"follows"} and only.output == "the cat sat. a dog ran."


def roberta(tmp_path):
    """A tokenizer of byte pairs with RoBERTa's marks, of which <mask> takes the space before it."""
    path = tmp_path / "roberta.json"
    train_tokenizer("bpe", [" ".join(WORDS) * 3, "catsup matter"], 320, ROBERTA).save(path)
    inner = json.loads(path.read_text())
    for token in inner["added_tokens"]:
        token["lstrip"] = token["content"] == "<mask>"
    path.write_text(json.dumps(inner))
    return Tokenizer.load(path)


def test_the_mask_of_roberta_swallows_the_space_before_it(tmp_path):
    tokenizer = roberta(tmp_path)
    mask = tokenizer.specials["<mask>"]
    expected = [*tokenizer.encode("the"), mask, *tokenizer.encode(" sat")]
    for text in ("the <mask> sat", "the<mask> sat", "the  \t<mask> sat"):
        assert tokenizer.encode(text, parse_special=True) == expected
    assert tokenizer.encode(" <mask>", parse_special=True) == [mask]
    first = tokenizer.encode("the </s> sat", parse_special=True)  # other marks leave it
    assert first == [*tokenizer.encode("the "), tokenizer.specials["</s>"], *tokenizer.encode(" sat")]
    assert mask not in tokenizer.encode("the <mask> sat")


def test_whole_words_are_hidden_among_byte_pairs_too(tmp_path):
    tokenizer = roberta(tmp_path)
    config = MaskedConfig(words=True, max_length=24, share=0.2)
    opened = Task(config, tokenizer, BertConfig(dim=8, depth=1, heads=1, hidden=8))
    row, _ = opened.frame.build(tokenizer.encode("the zzz sat on blueish mats."))
    raw = [piece.decode() for piece in tokenizer.raw(row)]
    assert any(goes_on(tokenizer, token) for token in row)
    words = []
    for place, piece in enumerate(raw):
        if not piece:
            continue
        if not words or piece.startswith(" ") or piece == ".":
            words.append(set())
        words[-1].add(place)
    assert max(map(len, words)) > 1
    for seed in range(40):
        _, labels = opened.masker.hide(row, seed)
        hidden = {place for place, label in enumerate(labels) if label >= 0}
        assert hidden and all(not hidden & word or word <= hidden for word in words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["share=0"], r"^share must be above 0 and below 1, but is 0\.0$"),
        (["share=1"], r"^share must be above 0 and below 1, but is 1\.0$"),
        (["data.fraction=1"], r"^data\.fraction must be above 0 and below 1, but is 1\.0$"),
        (["recipe=half"], r"^recipe must be 'mixed' or 'plain', but is 'half'"),
    ],
)
def test_settings_that_break_a_rule(words, says):
    with pytest.raises(UsageError, match=says):
        override(MaskedConfig(), words)


def test_what_breaks_a_rule_is_refused(ready, book, tmp_path):
    with pytest.raises(UsageError, match=r"^best must be at least 1, but is 0$"):
        override(FillOptions(), ["best=0"])
    opened = ready("masked_language_model", book, *SMALL, "following=false")
    says = r"^the text must hold \[MASK\] where a word is hidden, but has none; or give second=TEXT$"
    with pytest.raises(UsageError, match=says):
        opened.predict("the cat sat.", FillOptions())
    says = r"^second must be left out, but was given: this model has not learnt which texts follow$"
    with pytest.raises(UsageError, match=says):
        opened.predict("the [MASK] sat.", FillOptions(second="a dog ran."))
    short = tmp_path / "short.txt"
    short.write_text("the cat sat. The dog ran. A mat.\n")
    says = rf"^{short}: the valid part must have at least 2 sentences, but has 1; give more text, or --valid FILE$"
    (tmp_path / "valid.txt").write_text("the cat\n")
    with pytest.raises(DataError, match=says):
        ready("masked_language_model", short, *SMALL, f"data.valid={tmp_path / 'valid.txt'}")
    unmasked = train_tokenizer("bpe", ["the cat"], 300, ["[CLS]", "[SEP]"])
    says = r"^the tokenizer must have \[MASK\] or <mask>, but has neither; take another base$"
    with pytest.raises(UsageError, match=says):
        Task(MaskedConfig(), unmasked, BertConfig(dim=8, depth=1, heads=1, hidden=8))
