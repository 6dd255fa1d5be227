"""Beam search: against brute force over a tiny vocabulary, its own rules, and models with invalid logits."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.core.cancellation import Cancelled, cancellable
from saccade.decode.search import Search, search

START, END = 0, 1


class Table:
    """A decoder with random logits that depend on the sentence and the complete prefix."""

    def __init__(self, sentences=1, vocabulary=4, seed=0, sharpness=1.0):
        self.sentences = list(range(sentences))
        self.prefixes = [[] for _ in self.sentences]
        self.vocabulary, self.seed, self.sharpness, self.calls = vocabulary, seed, sharpness, 0

    def logits(self, sentence, prefix):
        number = hash((self.seed, sentence, tuple(prefix))) % 2**31
        return torch.randn(self.vocabulary, generator=torch.Generator().manual_seed(number)) * self.sharpness

    def step(self, ids):
        self.calls += 1
        width = len(ids) // len(self.sentences)
        self.prefixes = [[*row, *new] for row, new in zip(self.prefixes, ids.tolist(), strict=True)]
        pairs = enumerate(self.prefixes)
        return torch.stack([self.logits(self.sentences[row // width], prefix) for row, prefix in pairs])

    def reorder(self, rows, sentences):
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]
        if sentences is not None:
            self.sentences = [self.sentences[position] for position in sentences.tolist()]

    def log_probability(self, sentence, ids, ended):
        """Return the log probability of an output, token by token."""
        labels = [*ids, END] if ended else list(ids)
        prefixes = ([START, *labels[:position]] for position in range(len(labels)))
        return sum(
            float(self.logits(sentence, before).log_softmax(-1)[label])
            for before, label in zip(prefixes, labels, strict=True)
        )


def run(table, max_length, settings, prefixes=()):
    return search(table, max_length, start_id=START, end_id=END, settings=settings, prefixes=prefixes)


def outputs(vocabulary, max_length):
    """Yield all outputs: those that end before the maximum length, and those that are cut off there."""
    others = [token for token in range(vocabulary) if token != END]
    for length in range(max_length):
        yield from ((ids, True) for ids in itertools.product(others, repeat=length))
    yield from ((ids, False) for ids in itertools.product(others, repeat=max_length))


@given(st.integers(2, 4), st.integers(1, 4), st.integers(0, 10_000), st.sampled_from([0.0, 0.6, 1.0, 2.0]))
def test_a_wide_beam_equals_brute_force(vocabulary, max_length, seed, penalty):
    table = Table(1, vocabulary, seed)
    wide = Search(beam=200, n_best=200, length_penalty=penalty)
    (hypotheses,) = run(table, [max_length], wide)
    by_hand = {}
    for ids, ended in outputs(vocabulary, max_length):
        value = table.log_probability(0, ids, ended)
        by_hand[ids, ended] = (value, value / (len(ids) + ended) ** penalty)
    assert {(hypothesis.ids, hypothesis.ended) for hypothesis in hypotheses} == set(by_hand)
    assert [hypothesis.score for hypothesis in hypotheses] == sorted(
        (hypothesis.score for hypothesis in hypotheses), reverse=True
    )
    for hypothesis in hypotheses:
        assert (hypothesis.log_probability, hypothesis.score) == pytest.approx(
            by_hand[hypothesis.ids, hypothesis.ended], abs=1e-4
        )
    best = max(by_hand, key=lambda key: by_hand[key][1])
    assert hypotheses[0].score == pytest.approx(by_hand[best][1], abs=1e-4)
    assert sum(math.exp(hypothesis.log_probability) for hypothesis in hypotheses) == pytest.approx(1, abs=1e-4)


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_beam_1_is_greedy_search(seed, vocabulary):
    table = Table(1, vocabulary, seed)
    ((hypothesis,),) = run(table, [6], Search(beam=1))
    ids = [START]
    while len(ids) < 7 and (len(ids) == 1 or ids[-1] != END):
        ids.append(int(table.logits(0, ids).argmax()))
    assert hypothesis.ended == (ids[-1] == END)
    assert list(hypothesis.ids) == (ids[1:-1] if hypothesis.ended else ids[1:])


@given(st.integers(0, 10_000), st.integers(1, 7), st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_many_sentences_at_once_equal_each_alone(seed, beam, max_length):
    settings = Search(beam=beam, n_best=beam)
    together = run(Table(len(max_length), 5, seed), max_length, settings)
    for sentence, limit in enumerate(max_length):
        table = Table(1, 5, seed)
        table.sentences = [sentence]
        assert run(table, [limit], settings) == [together[sentence]]
        assert all(len(hypothesis.ids) + hypothesis.ended <= limit for hypothesis in together[sentence])


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(2, 5))
def test_hypotheses_are_sorted_distinct_and_have_their_true_probability(seed, beam, vocabulary):
    """Also where the beam is wider than the vocabulary: a finished hypothesis is not extended."""
    table = Table(2, vocabulary, seed)
    for sentence, hypotheses in enumerate(run(table, [5, 3], Search(beam=beam, n_best=beam))):
        assert 1 <= len(hypotheses) <= beam
        assert len({(hypothesis.ids, hypothesis.ended) for hypothesis in hypotheses}) == len(hypotheses)
        assert [hypothesis.score for hypothesis in hypotheses] == sorted(
            (hypothesis.score for hypothesis in hypotheses), reverse=True
        )
        for hypothesis in hypotheses:
            assert END not in hypothesis.ids
            assert hypothesis.log_probability == pytest.approx(
                table.log_probability(sentence, hypothesis.ids, hypothesis.ended), abs=1e-4
            )
            assert hypothesis.ended or len(hypothesis.ids) == (5, 3)[sentence]


def test_n_best_returns_the_first_hypotheses():
    many = run(Table(3, 6), [5, 5, 5], Search(beam=6, n_best=6))
    few = run(Table(3, 6), [5, 5, 5], Search(beam=6, n_best=2))
    assert few == [hypotheses[:2] for hypotheses in many]


class Certain(Table):
    """One path of tokens with this probability each, then the end; all other prefixes have uniform logits."""

    def __init__(self, path, probability=0.9, vocabulary=6):
        super().__init__(1, vocabulary)
        self.path, self.probability = [*path, END], probability

    def logits(self, sentence, prefix):
        position = len(prefix) - 1
        probs = torch.full((self.vocabulary,), 1 / self.vocabulary)
        if prefix[1:] == self.path[:position] and position < len(self.path):
            probs = torch.full((self.vocabulary,), (1 - self.probability) / (self.vocabulary - 1))
            probs[self.path[position]] = self.probability
        return probs.log()


def test_search_stops_at_the_end_token_and_at_the_maximum_length():
    ((complete,),) = run(Certain([2, 3, 4, 5]), [20], Search(beam=3))
    assert (complete.ids, complete.ended) == ((2, 3, 4, 5), True)
    assert complete.log_probability == pytest.approx(5 * math.log(0.9), abs=1e-5)
    assert complete.score == pytest.approx(math.log(0.9), abs=1e-6)
    ((short,),) = run(Certain([2, 3, 4, 5]), [3], Search(beam=1))
    assert (short.ids, short.ended) == ((2, 3, 4), False)
    assert short.log_probability == pytest.approx(3 * math.log(0.9), abs=1e-5)


def test_no_step_is_taken_after_the_search_is_finished():
    table = Certain([2, 3])
    run(table, [100], Search(beam=1))
    assert table.calls == 3


class Two(Table):
    """A short output of probability 0.4, and a long one (three tokens and the end) of 0.6 x 0.7 x 0.7 x 0.7."""

    def logits(self, sentence, prefix):
        tokens = prefix[1:]
        probs = torch.full((self.vocabulary,), 1e-6)
        if not tokens:
            probs[END], probs[2] = 0.4, 0.6
        elif tokens == [2] * len(tokens) and len(tokens) < 3:
            probs[2], probs[3] = 0.7, 0.3
        elif tokens == [2, 2, 2]:
            probs[END], probs[3] = 0.7, 0.3
        else:
            probs[END] = 1.0
        return probs.log()


def test_the_length_penalty_decides_between_short_and_long():
    best = {penalty: run(Two(), [8], Search(beam=4, length_penalty=penalty))[0][0] for penalty in (0.0, 2.0)}
    assert best[0.0].ids == ()
    assert best[0.0].score == best[0.0].log_probability == pytest.approx(math.log(0.4), abs=1e-4)
    assert best[2.0].ids == (2, 2, 2)
    assert best[2.0].score == pytest.approx(best[2.0].log_probability / 16)


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 5))
def test_no_ngram_occurs_twice(seed, size, beam):
    table = Table(2, 4, seed, sharpness=0.3)
    for sentence, hypotheses in enumerate(
        run(table, [12, 9], Search(beam=beam, n_best=beam, no_repeat_ngram_size=size))
    ):
        for hypothesis in hypotheses:
            grams = [hypothesis.ids[at : at + size] for at in range(len(hypothesis.ids) - size + 1)]
            assert len(set(grams)) == len(grams)
            assert hypothesis.log_probability == pytest.approx(
                table.log_probability(sentence, hypothesis.ids, hypothesis.ended), abs=1e-3
            )


def test_without_no_repeat_ngram_size_a_model_may_repeat_itself():
    loop = Certain([2] * 10)
    assert run(loop, [8], Search(beam=2))[0][0].ids == (2,) * 8
    assert run(Certain([2] * 10), [8], Search(beam=2, no_repeat_ngram_size=2))[0][0].ids != (2,) * 8


def test_search_ends_where_every_token_would_be_a_repetition():
    ((hypothesis,),) = run(Table(1, 4, sharpness=0.0), [50], Search(beam=1, no_repeat_ngram_size=1))
    assert hypothesis.ended
    assert len(hypothesis.ids) <= 3


@given(st.integers(0, 10_000), st.lists(st.sampled_from([0, 2, 3]), max_size=4), st.integers(1, 5))
def test_a_forced_prefix_is_kept_with_its_true_probability(seed, prefix, beam):
    table = Table(2, 4, seed)
    with_prefix, without = run(table, [6, 6], Search(beam=beam, n_best=beam), [prefix, []])
    assert without == run(Table(2, 4, seed), [6, 6], Search(beam=beam, n_best=beam))[1]
    for hypothesis in with_prefix:
        assert list(hypothesis.ids[: len(prefix)]) == prefix
        assert hypothesis.log_probability == pytest.approx(
            table.log_probability(0, hypothesis.ids, hypothesis.ended), abs=1e-4
        )
    assert len({hypothesis.ids for hypothesis in with_prefix}) == len(with_prefix) > 0


class Broken(Table):
    """The logits of one sentence are not finite from a given step."""

    def __init__(self, value, since, sentences=2):
        super().__init__(sentences, 5)
        self.value, self.since = value, since

    def logits(self, sentence, prefix):
        logits = super().logits(sentence, prefix)
        return torch.full_like(logits, self.value) if sentence == 0 and len(prefix) > self.since else logits


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_raise_and_do_not_loop_forever(value):
    table = Broken(value, since=0)
    with pytest.raises(FloatingPointError, match="scores must be finite, but sentence 1 has none left"):
        run(table, [1000, 6], Search(beam=3))
    assert table.calls <= 6


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_hypotheses_finished_before_a_failure_count_and_other_sentences_are_unaffected(value):
    table = Broken(value, since=3)
    hypotheses = run(table, [1000, 6], Search(beam=3, n_best=3))
    assert table.calls <= 6
    assert hypotheses[1] == run(Table(2, 5), [6, 6], Search(beam=3, n_best=3))[1]
    for hypothesis in hypotheses[0]:
        assert hypothesis.ended and len(hypothesis.ids) <= 3
        assert hypothesis.log_probability == pytest.approx(
            Table(2, 5).log_probability(0, hypothesis.ids, True), abs=1e-4
        )


class Half(Table):
    """All logits after token 2 are nan."""

    def logits(self, sentence, prefix):
        logits = super().logits(sentence, prefix)
        return torch.full_like(logits, math.nan) if 2 in prefix else logits


def test_a_beam_with_nan_does_not_affect_the_others():
    (hypotheses,) = run(Half(1, 5), [5], Search(beam=4, n_best=4))
    assert len(hypotheses) == 4
    assert all(math.isfinite(hypothesis.score) and 2 not in hypothesis.ids[:-1] for hypothesis in hypotheses)


def test_poor_hypotheses_that_end_early_do_not_stop_a_better_unfinished_one():
    """Hypotheses of low probability fill the beams long before the most likely output is finished."""
    path = [2, 3, 4, 5] * 5
    for beam in (2, 3, 5):
        assert run(Certain(path, 0.8), [60], Search(beam=beam))[0][0].ids == tuple(path)


@given(st.integers(0, 10_000), st.integers(2, 5), st.sampled_from([0.0, 1.0, 2.0]))
def test_below_the_maximum_length_no_unfinished_hypothesis_is_better_than_the_result(seed, beam, penalty):
    """An unfinished hypothesis may only win if its score would increase with its length."""
    table = Table(1, 5, seed)
    ((hypothesis,),) = run(table, [30], Search(beam=beam, length_penalty=penalty))
    for row in table.prefixes:
        for token in range(2, 5):
            ids = [*row[1:], token]
            assert table.log_probability(0, ids, False) / len(ids) ** penalty <= hypothesis.score + 1e-5


def test_no_sentences_return_no_hypotheses():
    assert run(Table(0), [], Search()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam": 0}, "beam must be at least 1, but is 0"),
        ({"beam": 1001}, "beam must be at most 1000, but is 1001"),
        ({"n_best": 6}, r"n_best must be at most beam \(5\), but is 6"),
        ({"n_best": 0}, "n_best must be at least 1, but is 0"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size must be at least 0, but is -1"),
        ({"length_penalty": -0.5}, "length_penalty must be from 0 to 10, but is -0.5"),
        ({"length_penalty": math.nan}, "length_penalty must be from 0 to 10, but is nan"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Search(**settings)


def test_a_search_that_is_cancelled_ends_before_its_next_step():
    table = Table(sharpness=0.0)
    with pytest.raises(Cancelled), cancellable(lambda: table.calls == 3):
        search(table, [50], start_id=START, end_id=END, settings=Search(beam=2))
    assert table.calls == 3
