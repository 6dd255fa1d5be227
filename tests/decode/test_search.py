"""Beam search: against brute force over a tiny vocabulary, against its own rules, and against models that go wrong."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.decode.search import Search, search

BEGIN, END = 0, 1


class Table:
    """A language by table: the logits after a beginning depend on the sentence and all that was written."""

    def __init__(self, sentences=1, vocabulary=4, seed=0, sharpness=1.0):
        self.sentences = list(range(sentences))
        self.written = [[] for _ in self.sentences]
        self.vocabulary, self.seed, self.sharpness, self.calls = vocabulary, seed, sharpness, 0

    def logits(self, sentence, written):
        number = hash((self.seed, sentence, tuple(written))) % 2**31
        return torch.randn(self.vocabulary, generator=torch.Generator().manual_seed(number)) * self.sharpness

    def step(self, ids):
        self.calls += 1
        width = len(ids) // len(self.sentences)
        self.written = [[*row, *new] for row, new in zip(self.written, ids.tolist(), strict=True)]
        pairs = enumerate(self.written)
        return torch.stack([self.logits(self.sentences[row // width], written) for row, written in pairs])

    def reorder(self, rows, sentences):
        self.written = [self.written[row] for row in rows.tolist()]
        if sentences is not None:
            self.sentences = [self.sentences[place] for place in sentences.tolist()]

    def chance(self, sentence, ids, ended):
        """The log probability of an output, token by token."""
        labels = [*ids, END] if ended else list(ids)
        beginnings = ([BEGIN, *labels[:place]] for place in range(len(labels)))
        return sum(
            float(self.logits(sentence, before).log_softmax(-1)[label])
            for before, label in zip(beginnings, labels, strict=True)
        )


def run(table, max_length, settings, prefixes=()):
    return search(table, max_length, start_id=BEGIN, end_id=END, settings=settings, prefixes=prefixes)


def outputs(vocabulary, max_length):
    """All outputs: those that end before the longest length, and those that are cut there."""
    others = [token for token in range(vocabulary) if token != END]
    for length in range(max_length):
        yield from ((ids, True) for ids in itertools.product(others, repeat=length))
    yield from ((ids, False) for ids in itertools.product(others, repeat=max_length))


@given(st.integers(2, 4), st.integers(1, 4), st.integers(0, 10_000), st.sampled_from([0.0, 0.6, 1.0, 2.0]))
def test_a_beam_wide_enough_finds_what_brute_force_finds(vocabulary, max_length, seed, penalty):
    table = Table(1, vocabulary, seed)
    wide = Search(beam=200, n_best=200, length_penalty=penalty)
    (found,) = run(table, [max_length], wide)
    by_hand = {}
    for ids, ended in outputs(vocabulary, max_length):
        value = table.chance(0, ids, ended)
        by_hand[ids, ended] = (value, value / (len(ids) + ended) ** penalty)
    assert {(one.ids, one.ended) for one in found} == set(by_hand)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    for one in found:
        assert (one.log_probability, one.score) == pytest.approx(by_hand[one.ids, one.ended], abs=1e-4)
    best = max(by_hand, key=lambda key: by_hand[key][1])
    assert found[0].score == pytest.approx(by_hand[best][1], abs=1e-4)
    assert sum(math.exp(one.log_probability) for one in found) == pytest.approx(1, abs=1e-4)


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_one_beam_is_the_loop_of_the_likeliest(seed, vocabulary):
    table = Table(1, vocabulary, seed)
    ((found,),) = run(table, [6], Search(beam=1))
    ids = [BEGIN]
    while len(ids) < 7 and (len(ids) == 1 or ids[-1] != END):
        ids.append(int(table.logits(0, ids).argmax()))
    assert found.ended == (ids[-1] == END)
    assert list(found.ids) == (ids[1:-1] if found.ended else ids[1:])


@given(st.integers(0, 10_000), st.integers(1, 7), st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_many_sentences_at_once_equal_each_alone(seed, beam, max_length):
    settings = Search(beam=beam, n_best=beam)
    together = run(Table(len(max_length), 5, seed), max_length, settings)
    for sentence, most in enumerate(max_length):
        table = Table(1, 5, seed)
        table.sentences = [sentence]
        assert run(table, [most], settings) == [together[sentence]]
        assert all(len(one.ids) + one.ended <= most for one in together[sentence])


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(2, 5))
def test_answers_are_sorted_distinct_end_before_the_end_and_tell_the_truth(seed, beam, vocabulary):
    """Also where the beam is wider than the vocabulary: what has ended does not go on."""
    table = Table(2, vocabulary, seed)
    for sentence, found in enumerate(run(table, [5, 3], Search(beam=beam, n_best=beam))):
        assert 1 <= len(found) <= beam
        assert len({(one.ids, one.ended) for one in found}) == len(found)
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        for one in found:
            assert END not in one.ids
            assert one.log_probability == pytest.approx(table.chance(sentence, one.ids, one.ended), abs=1e-4)
            assert one.ended or len(one.ids) == (5, 3)[sentence]


def test_the_best_few_are_the_first_of_all():
    many = run(Table(3, 6), [5, 5, 5], Search(beam=6, n_best=6))
    few = run(Table(3, 6), [5, 5, 5], Search(beam=6, n_best=2))
    assert few == [found[:2] for found in many]


class Certain(Table):
    """One path of tokens, each with this probability, the end sure after it; else all alike."""

    def __init__(self, path, share=0.9, vocabulary=6):
        super().__init__(1, vocabulary)
        self.path, self.share = [*path, END], share

    def logits(self, sentence, written):
        place = len(written) - 1
        chances = torch.full((self.vocabulary,), 1 / self.vocabulary)
        if written[1:] == self.path[:place] and place < len(self.path):
            chances = torch.full((self.vocabulary,), (1 - self.share) / (self.vocabulary - 1))
            chances[self.path[place]] = self.share
        return chances.log()


def test_it_stops_at_the_end_and_is_cut_at_the_longest():
    ((whole,),) = run(Certain([2, 3, 4, 5]), [20], Search(beam=3))
    assert (whole.ids, whole.ended) == ((2, 3, 4, 5), True)
    assert whole.log_probability == pytest.approx(5 * math.log(0.9), abs=1e-5)
    assert whole.score == pytest.approx(math.log(0.9), abs=1e-6)
    ((short,),) = run(Certain([2, 3, 4, 5]), [3], Search(beam=1))
    assert (short.ids, short.ended) == ((2, 3, 4), False)
    assert short.log_probability == pytest.approx(3 * math.log(0.9), abs=1e-5)


def test_no_step_is_taken_when_all_is_found():
    table = Certain([2, 3])
    run(table, [100], Search(beam=1))
    assert table.calls == 3


class Two(Table):
    """A short output of probability 0.4, and a long one (three tokens and the end) of 0.6 x 0.7 x 0.7 x 0.7."""

    def logits(self, sentence, written):
        rest = written[1:]
        chances = torch.full((self.vocabulary,), 1e-6)
        if not rest:
            chances[END], chances[2] = 0.4, 0.6
        elif rest == [2] * len(rest) and len(rest) < 3:
            chances[2], chances[3] = 0.7, 0.3
        elif rest == [2, 2, 2]:
            chances[END], chances[3] = 0.7, 0.3
        else:
            chances[END] = 1.0
        return chances.log()


def test_the_length_penalty_decides_between_short_and_long():
    best = {penalty: run(Two(), [8], Search(beam=4, length_penalty=penalty))[0][0] for penalty in (0.0, 2.0)}
    assert best[0.0].ids == ()
    assert best[0.0].score == best[0.0].log_probability == pytest.approx(math.log(0.4), abs=1e-4)
    assert best[2.0].ids == (2, 2, 2)
    assert best[2.0].score == pytest.approx(best[2.0].log_probability / 16)


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 5))
def test_no_run_of_tokens_comes_twice(seed, size, beam):
    table = Table(2, 4, seed, sharpness=0.3)
    for sentence, found in enumerate(run(table, [12, 9], Search(beam=beam, n_best=beam, no_repeat_ngram_size=size))):
        for one in found:
            grams = [one.ids[at : at + size] for at in range(len(one.ids) - size + 1)]
            assert len(set(grams)) == len(grams)
            assert one.log_probability == pytest.approx(table.chance(sentence, one.ids, one.ended), abs=1e-3)


def test_without_the_rule_a_model_that_repeats_itself_repeats_itself():
    loop = Certain([2] * 10)
    assert run(loop, [8], Search(beam=2))[0][0].ids == (2,) * 8
    assert run(Certain([2] * 10), [8], Search(beam=2, no_repeat_ngram_size=2))[0][0].ids != (2,) * 8


def test_where_everything_is_a_repetition_it_ends():
    ((found,),) = run(Table(1, 4, sharpness=0.0), [50], Search(beam=1, no_repeat_ngram_size=1))
    assert found.ended
    assert len(found.ids) <= 3


@given(st.integers(0, 10_000), st.lists(st.sampled_from([0, 2, 3]), max_size=4), st.integers(1, 5))
def test_a_forced_beginning_is_kept_with_its_true_probability(seed, prefix, beam):
    table = Table(2, 4, seed)
    both = run(table, [6, 6], Search(beam=beam, n_best=beam), [prefix, []])
    assert both[1] == run(Table(2, 4, seed), [6, 6], Search(beam=beam, n_best=beam))[1]
    for one in both[0]:
        assert list(one.ids[: len(prefix)]) == prefix
        assert one.log_probability == pytest.approx(table.chance(0, one.ids, one.ended), abs=1e-4)
    assert len({one.ids for one in both[0]}) == len(both[0]) > 0


class Broken(Table):
    """Logits of one sentence are no numbers, from a given step on."""

    def __init__(self, value, since, sentences=2):
        super().__init__(sentences, 5)
        self.value, self.since = value, since

    def logits(self, sentence, written):
        found = super().logits(sentence, written)
        return torch.full_like(found, self.value) if sentence == 0 and len(written) > self.since else found


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_model_that_breaks_is_named_and_does_not_loop_for_ever(value):
    table = Broken(value, since=0)
    with pytest.raises(FloatingPointError, match="scores must be finite, but sentence 1 has none left"):
        run(table, [1000, 6], Search(beam=3))
    assert table.calls <= 6


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_was_found_before_a_model_breaks_counts_and_no_other_sentence_is_harmed(value):
    table = Broken(value, since=3)
    found = run(table, [1000, 6], Search(beam=3, n_best=3))
    assert table.calls <= 6
    assert found[1] == run(Table(2, 5), [6, 6], Search(beam=3, n_best=3))[1]
    for one in found[0]:
        assert one.ended and len(one.ids) <= 3
        assert one.log_probability == pytest.approx(Table(2, 5).chance(0, one.ids, True), abs=1e-4)


class Half(Table):
    """After token 2 nothing is a number; elsewhere all is well."""

    def logits(self, sentence, written):
        found = super().logits(sentence, written)
        return torch.full_like(found, math.nan) if 2 in written else found


def test_a_beam_that_breaks_does_not_take_the_others_with_it():
    (found,) = run(Half(1, 5), [5], Search(beam=4, n_best=4))
    assert len(found) == 4
    assert all(math.isfinite(one.score) and 2 not in one.ids[:-1] for one in found)


def test_poor_answers_that_end_early_do_not_stop_a_better_one_that_is_still_written():
    """Three ends of small probability fill the beams long before the likely output is written."""
    path = [2, 3, 4, 5] * 5
    for beam in (2, 3, 5):
        assert run(Certain(path, 0.8), [60], Search(beam=beam))[0][0].ids == tuple(path)


@given(st.integers(0, 10_000), st.integers(2, 5), st.sampled_from([0.0, 1.0, 2.0]))
def test_with_the_longest_far_away_no_live_beginning_is_better_than_the_answer(seed, beam, penalty):
    """Stopping may only be too early where a beginning would have to gain by growing."""
    table = Table(1, 5, seed)
    ((found,),) = run(table, [30], Search(beam=beam, length_penalty=penalty))
    for row in table.written:
        for token in range(2, 5):
            ids = [*row[1:], token]
            assert table.chance(0, ids, False) / len(ids) ** penalty <= found.score + 1e-5


def test_nothing_to_search_for():
    assert run(Table(0), [], Search()) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
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
def test_settings_that_cannot_be_are_refused(wrong, says):
    with pytest.raises(ValueError, match=says):
        Search(**wrong)
