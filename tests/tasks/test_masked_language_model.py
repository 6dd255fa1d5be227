"""Masked language model: losses and scores by hand, predictions, next sentences, byte pairs, and errors."""

import json
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from saccade.config import override
from saccade.core import Prediction, Split, TextOutput
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import DataError, UsageError
from saccade.look.explain import Explanation
from saccade.models.text.bert import BertConfig
from saccade.tasks.masked_language_model import (
    FOLLOWS,
    MaskedLanguageModelConfig,
    MaskedLanguageModelOptions,
    Task,
    continues_word,
)

ROBERTA = ("<s>", "</s>", "<mask>", "<pad>", "<unk>")
WORDS = ["the", "cat", "dog", "sat", "ran", "on", "a", "mat", "red", "blue"]


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    rows = [[WORDS[(at * at + place * (at % 7 + 1)) % 10] for place in range(3 + at % 6)] for at in range(120)]
    path.write_text("".join(f"{' '.join(row)}.\n" for row in rows))
    return path


SMALL = ["max_length=24", "batch_tokens=144"]


def nll(logits, target):
    return math.log(sum(map(math.exp, logits))) - logits[target]


def shared(model, ids, vectors, second):
    """Return the sum of all vectors, weighted by the fourth power of the best cosine with the other text, over 20."""
    table, total = model.bert.embedding.weight, torch.zeros(vectors.shape[1])
    for position, token in enumerate(ids):
        others = ids[second:] if position < second else ids[:second]
        cosines = [float(torch.cosine_similarity(table[token], table[other], dim=0)) for other in others]
        total += vectors[position] * max(0.0, *cosines) ** 4 / 20
    return total


@torch.no_grad()
def logits_alone(task, alone, batch):
    """Yield for each row of a batch the logits of its masked tokens and of next sentence prediction."""
    for row in range(len(batch.rows)):
        length = int(batch.inputs.keep[row].sum()) if batch.inputs.keep is not None else batch.inputs.ids.shape[1]
        second = length - int(batch.inputs.segments[row].sum())
        vectors = alone(task, (batch.inputs.ids[row, :length].tolist(), second))
        hidden = [place for place in range(length) if batch.labels[row, place] >= 0]
        words = [(task.model.mlm(vectors[place]).tolist(), int(batch.labels[row, place])) for place in hidden]
        follows = None
        if task.model.next_sentence is not None:
            one, other = vectors[:second].mean(0), vectors[second:].mean(0)
            both = shared(task.model, batch.inputs.ids[row, :length].tolist(), vectors, second)
            follows = task.model.next_sentence.classifier(
                torch.cat((one, other, (one - other).abs(), one * other, both))
            )
        yield words, follows


@pytest.mark.parametrize("next_sentence", [True, False])
@torch.no_grad()
def test_the_loss_is_over_masked_tokens_and_over_pairs(ready, alone, loss_of, book, next_sentence):
    task = ready("masked_language_model", book, *SMALL, f"next_sentence={next_sentence}")
    (batch,) = task.source(Split.TRAIN, 1).at(2)
    assert batch.inputs.keep is not None  # rows of unequal length
    hidden, pairs = [], []
    for row, (words, follows) in enumerate(logits_alone(task, alone, batch)):
        hidden += [nll(logits, label) for logits, label in words]
        pairs += [] if follows is None else [nll(follows.tolist(), int(batch.next_labels[row]))]
    assert len(hidden) == batch.count and len(pairs) == next_sentence * len(batch.rows)
    expected = sum(hidden) / len(hidden) + (sum(pairs) / len(pairs) if next_sentence else 0)
    assert loss_of(task, batch) == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
def test_micro_batches_add_up_to_the_batch_with_unequal_numbers_of_masked_tokens(ready, book, whole_and_parts):
    make = lambda *more: ready("masked_language_model", book, *SMALL, "mask_probability=0.3", *more)  # noqa: E731
    counts = {part.count / len(part.rows) for part in make("micro_batches=3").source(Split.TRAIN, 1).at(0)}
    assert len(counts) > 1
    whole, one, parts, three = whole_and_parts(make)
    assert (one, three) == (1, 3)
    assert parts == pytest.approx(whole, rel=1e-5)


def test_the_scores_are_those_of_the_rows_alone(ready, alone, book):
    task = ready("masked_language_model", book, *SMALL)
    batches = task.source(Split.VALID, 0)
    rows = min(2000, batches.examples.per_epoch)
    assert rows <= 32  # one batch
    batch = batches.collate([batches.examples.at(position) for position in range(rows)], 0)
    losses, right, follow, labels = [], 0, 0, []
    for row, (words, follows) in enumerate(logits_alone(task, alone, batch)):
        losses += [nll(logits, label) for logits, label in words]
        right += sum(max(range(len(logits)), key=logits.__getitem__) == label for logits, label in words)
        follow += int(follows.argmax()) == int(batch.next_labels[row])
        labels += [label for _, label in words]
    scores = task.evaluate(Split.VALID)
    assert scores["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    assert scores["accuracy"] == pytest.approx(100 * right / len(losses))
    assert scores["next_sentence"] == pytest.approx(100 * follow / rows)
    ids = task.splits[Split.VALID].rows.ids.tolist()
    usual = max(sorted(set(ids)), key=ids.count)
    assert scores["most_frequent"] == pytest.approx(100 * labels.count(usual) / len(labels))
    assert (scores["masked_tokens"], scores["rows"]) == (len(labels), rows)
    assert scores.complete and task.evaluate(Split.VALID, quick=True) == scores  # small enough to be quick


@torch.no_grad()
def test_tokens_are_filled_in_with_probabilities_that_sum_to_one(ready, alone, predict, book):
    task = ready("masked_language_model", book, *SMALL)
    found = predict(task, {"text": "the [MASK] sat."}, n_best=10_000, attention=True)
    row, second, _ = task.encode("the [MASK] sat.", parse_special=True)
    position = row.index(task.template.mask_id)
    probabilities = task.model.mlm(alone(task, (row, second))[position]).softmax(-1)
    assert sum(found.scores.values()) == pytest.approx(1, abs=1e-4)
    assert len(found.scores) == task.tokenizer.size
    for number, probability in enumerate(probabilities.tolist()):
        assert found.scores[task.tokenizer.token(number)] == pytest.approx(probability, abs=1e-5)
    best = next(iter(found.scores))
    assert found.scores[best] == max(found.scores.values())
    row[position] = task.tokenizer.id(best)
    assert found.text == task.tokenizer.decode(row)
    assert [one.weights.shape for one in found.attention.values()] == [(2, len(row), len(row))] * 2
    assert found.attention["bert.encoder.0.self"].keys.labels[position] == "[MASK]"


def test_several_masks_are_numbered_and_a_second_text_may_follow(ready, predict, book):
    task = ready("masked_language_model", book, *SMALL)
    found = predict(task, {"text": "the [MASK] [MASK].", "second": "a dog ran."}, n_best=2)
    assert [name.split()[0] for name in found.scores] == ["1", "1", "2", "2", "follows"]
    assert 0 < found.scores["follows"] < 1
    only = predict(task, {"text": "the cat sat.", "second": "a dog ran."})
    assert set(only.scores) == {"follows"} and only.text == "the cat sat. a dog ran."


def test_of_two_texts_without_a_mask_the_order_is_explained(ready, predict, book):
    task = ready("masked_language_model", book, *SMALL)
    answer = predict(task, {"text": "the cat", "second": "a dog"}, attention=True)
    trace = task.rerun(answer, layers=True)
    follows = float(trace.logits.detach().softmax(-1)[0, 0])
    assert follows == pytest.approx(answer.scores["follows"], abs=1e-5)
    assert trace.output_name(0) == "follows" and trace.positions.labels == ("second text",)
    torch.testing.assert_close(trace.layers[-1][1], trace.logits)
    assert Explanation(task, answer).ablate(next(iter(answer.attention)), head=0).before[0].answer in FOLLOWS


def test_a_text_without_a_mask_cannot_be_explained(ready, book):
    task = ready("masked_language_model", book, *SMALL)
    with pytest.raises(UsageError, match=r"^text must hold \[MASK\] to be explained, but has none; put it in place of"):
        task.rerun(Prediction({}, TextOutput(""), trace=task.encode("the cat")))


def test_many_texts_are_filled_in_as_each_alone(ready, batched_as_alone, book):
    task = ready("masked_language_model", book, *SMALL)
    examples = [{"text": f"the [MASK] {'sat on a ' * (number % 4)}[MASK]"} for number in range(12)]
    examples[3] = {"text": "the cat sat.", "second": "a [MASK] ran."}
    answers = batched_as_alone(task, examples, n_best=3)
    assert [len(answer.scores) for answer in answers] == [6, 6, 6, 4, *[6] * 8]


@pytest.mark.parametrize("cores", [1, 3])
def test_two_threads_may_use_one_model_at_once(ready, book, cores):
    task, before = ready("masked_language_model", book, *SMALL), torch.get_num_threads()
    examples = [{"text": f"the [MASK] {'sat on a mat ' * (number % 3)}"} for number in range(300)]
    expected = [dict(one.scores) for one in task.predict(examples, task.Options())]
    torch.set_num_threads(cores)
    try:
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda _: list(task.predict(examples, task.Options())), range(4)))
            maps = list(pool.map(lambda row: task.attention(task.encode(examples[row]["text"])), range(20)))
    finally:
        torch.set_num_threads(before)
    for answer in answers:
        assert [dict(one.scores) for one in answer] == [pytest.approx(scores, rel=1e-4) for scores in expected]
    for row, attention in enumerate(maps):
        length = len(task.encode(examples[row]["text"]).ids)
        assert [one.weights.shape for one in attention.values()] == [(2, length, length)] * 2
    assert not task.model.training


def roberta(tmp_path):
    """A byte-level BPE tokenizer with RoBERTa's special tokens, of which <mask> includes the space before it."""
    path = tmp_path / "roberta.json"
    train_tokenizer("bpe", [" ".join(WORDS) * 3, "catsup matter"], 320, ROBERTA).save(path)
    inner = json.loads(path.read_text())
    for token in inner["added_tokens"]:
        token["lstrip"] = token["content"] == "<mask>"
    path.write_text(json.dumps(inner))
    return Tokenizer.load(path)


def test_the_mask_token_of_roberta_includes_the_space_before_it(tmp_path):
    tokenizer = roberta(tmp_path)
    mask = tokenizer.specials["<mask>"]
    expected = [*tokenizer.encode("the"), mask, *tokenizer.encode(" sat")]
    for text in ("the <mask> sat", "the<mask> sat", "the  \t<mask> sat"):
        assert tokenizer.encode(text, parse_special=True) == expected
    assert tokenizer.encode(" <mask>", parse_special=True) == [mask]
    first = tokenizer.encode("the </s> sat", parse_special=True)  # other marks leave it
    assert first == [*tokenizer.encode("the "), tokenizer.specials["</s>"], *tokenizer.encode(" sat")]
    assert mask not in tokenizer.encode("the <mask> sat")


def test_whole_words_are_masked_with_byte_pairs_too(tmp_path):
    tokenizer = roberta(tmp_path)
    config = MaskedLanguageModelConfig(whole_words=True, max_length=24, mask_probability=0.2)
    task = Task(config, tokenizer, BertConfig(dim=8, depth=1, heads=1, hidden=8))
    row, _ = task.template.build(tokenizer.encode("the zzz sat on blueish mats."))
    raw = [piece.decode() for piece in tokenizer.raw(row)]
    assert any(continues_word(tokenizer, token) for token in row)
    words = []
    for place, piece in enumerate(raw):
        if not piece:
            continue
        if not words or piece.startswith(" ") or piece == ".":
            words.append(set())
        words[-1].add(place)
    assert max(map(len, words)) > 1
    for seed in range(40):
        _, labels = task.masker.mask(row, seed)
        hidden = {place for place, label in enumerate(labels) if label >= 0}
        assert hidden and all(not hidden & word or word <= hidden for word in words)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["mask_probability=0"], r"^mask_probability must be above 0 and below 1, but is 0\.0$"),
        (["mask_probability=1"], r"^mask_probability must be above 0 and below 1, but is 1\.0$"),
        (["data.valid_fraction=1"], r"^data\.valid_fraction must be above 0 and below 1, but is 1\.0$"),
        (["masking=half"], r"^masking must be '80_10_10' or 'mask_only', but is 'half'"),
    ],
)
def test_invalid_settings_are_refused(overrides, message):
    with pytest.raises(UsageError, match=message):
        override(MaskedLanguageModelConfig(), overrides)


def test_invalid_inputs_are_refused(ready, predict, book, tmp_path):
    with pytest.raises(UsageError, match=r"^n_best must be at least 1, but is 0$"):
        override(MaskedLanguageModelOptions(), ["n_best=0"])
    task = ready("masked_language_model", book, *SMALL, "next_sentence=false")
    message = r"^text must hold \[MASK\] where a token is to be filled in, but has none; or give second$"
    with pytest.raises(UsageError, match=message):
        predict(task, {"text": "the cat sat."})
    message = r"^second must be left out, but was given: this model does not predict next sentences$"
    with pytest.raises(UsageError, match=message):
        predict(task, {"text": "the [MASK] sat.", "second": "a dog ran."})
    short = tmp_path / "short.txt"
    short.write_text("the cat sat. The dog ran. A mat.\n")
    message = (
        rf"^{short}: the valid split must have at least 2 sentences, but has 1; give more text, or data.valid=FILE$"
    )
    (tmp_path / "valid.txt").write_text("the cat\n")
    with pytest.raises(DataError, match=message):
        ready("masked_language_model", short, *SMALL, f"data.valid={tmp_path / 'valid.txt'}")
    unmasked = train_tokenizer("bpe", ["the cat"], 300, ["[CLS]", "[SEP]"])
    message = r"^the tokenizer must have \[MASK\] or <mask>, but has neither; take another base$"
    with pytest.raises(UsageError, match=message):
        Task(MaskedLanguageModelConfig(), unmasked, BertConfig(dim=8, depth=1, heads=1, hidden=8))


@pytest.mark.parametrize("pairs", ["true", "false"])
def test_paragraphs_without_punctuation_are_trained_and_scored_on(ready, tmp_path, pairs):
    path = tmp_path / "notes.txt"
    path.write_text("\n\n".join(" ".join(WORDS[(at * at + n) % 10] for at in range(900)) for n in range(4)))
    task = ready("masked_language_model", path, *SMALL, f"next_sentence={pairs}")
    source = task.source(Split.TRAIN, 1)
    assert source.examples.per_epoch > 2 * len(task.splits[Split.TRAIN])
    steps = [source.at(step) for step in range(source.per_epoch + 2)]
    assert {row for batches in steps for batch in batches for row in batch.rows} >= {"sentence 0", "sentence 1"}
    assert task.evaluate(Split.VALID)["rows"] > len(task.splits[Split.VALID])
