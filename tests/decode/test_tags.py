"""Tags: the best allowed row equals the best of all rows tried one by one."""

from itertools import pairwise, product

import pytest
import torch

from saccade.decode.tags import viterbi


@pytest.mark.parametrize("words", [1, 2, 5])
@pytest.mark.parametrize("seed", range(8))
def test_the_best_allowed_row_is_found(words, seed):
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randn(words, 4, generator=draw)
    joins = torch.rand(5, 5, generator=draw) < 0.6
    joins[0], joins[:, 0] = True, True  # a tag that goes with all
    rows = [row for row in product(range(4), repeat=words) if allowed(row, joins)]
    best = max(rows, key=lambda row: sum(float(scores[at, tag]) for at, tag in enumerate(row)))
    assert tuple(viterbi(scores, joins).tolist()) == best


def allowed(row, joins):
    whole = (4, *row, 4)
    return all(joins[one, other] for one, other in pairwise(whole))


def test_where_all_may_stand_together_each_is_its_own_best():
    scores = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.4]])
    assert viterbi(scores, torch.ones(3, 3, dtype=torch.bool)).tolist() == [1, 0, 1]


def test_no_words_have_no_tags():
    assert viterbi(torch.zeros(0, 3), torch.ones(4, 4, dtype=torch.bool)).tolist() == []
