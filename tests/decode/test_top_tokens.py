"""The optimized functions of the search equal those of torch."""

import math

import pytest
import torch

from saccade.decode.search import log_sum_exp, top_tokens


@pytest.mark.parametrize("vocabulary", [5, 4095, 4096, 4223])
@pytest.mark.parametrize("forbidden", [False, True])
def test_top_tokens_equals_topk(vocabulary, forbidden):
    torch.manual_seed(vocabulary)
    logits = torch.randperm(6 * vocabulary).float().view(6, vocabulary)
    logits[0, -1] = logits[1, 0] = 1e6  # the last token stands in no whole group
    if forbidden:
        logits[2, 3:] = -math.inf
    count = 3 if forbidden else 5
    best, token = top_tokens(logits, count)
    expected = logits.topk(count)
    assert torch.equal(best, expected.values)
    assert torch.equal(token, expected.indices)


@pytest.mark.parametrize("rows", [1, 8, 19])
def test_log_sum_exp_equals_torch(rows):
    logits = 50 * torch.randn(rows, 301)
    torch.testing.assert_close(log_sum_exp(logits), logits.logsumexp(-1, keepdim=True))
