"""Viterbi decoding: the best allowed sequence equals brute force over all sequences."""

from itertools import pairwise, product

import pytest
import torch

from saccade.decode.tags import viterbi


@pytest.mark.parametrize("words", [1, 2, 5])
@pytest.mark.parametrize("seed", range(8))
def test_the_best_allowed_sequence_is_returned(words, seed):
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randn(words, 4, generator=draw)
    transitions = torch.rand(5, 5, generator=draw) < 0.6
    transitions[0], transitions[:, 0] = True, True  # a tag that may follow and precede every other
    sequences = [tags for tags in product(range(4), repeat=words) if allowed(tags, transitions)]
    best = max(sequences, key=lambda tags: sum(float(scores[at, tag]) for at, tag in enumerate(tags)))
    assert tuple(viterbi(scores, transitions).tolist()) == best


def allowed(tags, transitions):
    return all(transitions[a, b] for a, b in pairwise((4, *tags, 4)))


def test_without_restrictions_each_tag_is_the_argmax():
    scores = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.4]])
    assert viterbi(scores, torch.ones(3, 3, dtype=torch.bool)).tolist() == [1, 0, 1]


def test_no_words_have_no_tags():
    assert viterbi(torch.zeros(0, 3), torch.ones(4, 4, dtype=torch.bool)).tolist() == []
