"""Sampling: cutoffs keep only the most likely tokens, random tokens follow the seed, invalid settings are refused."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from saccade.decode.sampling import Sampling, choose, distribution, penalize

NOTHING = torch.zeros(1, 0, dtype=torch.long)
logits_of = st.lists(st.integers(-64, 64), min_size=2, max_size=20, unique=True).map(
    lambda row: torch.tensor([row]) / 8
)
fair = settings(deadline=None, derandomize=True, max_examples=50)


def drawn(logits: Tensor, sampling: Sampling, seed: int = 1) -> Tensor:
    return choose(logits, torch.zeros(len(logits), 0, dtype=torch.long), sampling, torch.Generator().manual_seed(seed))


@fair
@given(logits_of)
def test_temperature_zero_takes_the_most_likely_token(logits: Tensor) -> None:
    for seed in (1, 2):
        assert torch.equal(drawn(logits, Sampling(temperature=0), seed), logits.argmax(-1))


@fair
@given(logits_of, st.floats(0.1, 3))
def test_without_cutoffs_it_is_the_softmax(logits: Tensor, temperature: float) -> None:
    probs = distribution(logits, Sampling(temperature=temperature))
    torch.testing.assert_close(probs, (logits / temperature).softmax(-1), rtol=1e-4, atol=1e-6)


@fair
@given(logits_of, st.integers(1, 25))
def test_top_k_keeps_the_k_most_likely_tokens(logits: Tensor, count: int) -> None:
    probs = distribution(logits, Sampling(temperature=1, top_k=count))
    best = set(logits[0].topk(min(count, logits.shape[1])).indices.tolist())
    assert set(probs[0].nonzero()[:, 0].tolist()) <= best
    plain = logits.softmax(-1)
    assert all(probs[0, index] >= plain[0, index] * 0.999 for index in best)
    assert float(probs.sum()) == pytest.approx(1, abs=1e-5)


@fair
@given(logits_of, st.floats(0.01, 1.0))
def test_top_p_keeps_the_smallest_set_that_reaches_p(logits: Tensor, top_p: float) -> None:
    probs = distribution(logits, Sampling(temperature=1, top_p=top_p))[0]
    plain = logits.softmax(-1)[0]
    kept = plain[probs > 0]
    assert float(kept.sum()) >= top_p - 1e-4
    if top_p < 1:
        assert float(kept.sum() - kept.min()) < top_p + 1e-4  # without its last token it would not reach
    assert probs.argmax() == plain.argmax()
    assert float(probs.sum()) == pytest.approx(1, abs=1e-5)


@fair
@given(logits_of, st.floats(0, 0.99))
def test_min_p_excludes_tokens_far_below_the_most_likely_one(logits: Tensor, min_p: float) -> None:
    probs = distribution(logits, Sampling(temperature=1, min_p=min_p))[0]
    plain = logits.softmax(-1)[0]
    limit = min_p * float(plain.max())
    for probability, remaining in zip(plain.tolist(), probs.tolist(), strict=True):
        if abs(probability - limit) > 1e-5:
            assert (remaining > 0) == (probability > limit)


@fair
@given(logits_of, st.integers(1, 5), st.floats(0.1, 1), st.floats(0, 0.9))
def test_combined_cutoffs_keep_no_more_than_each_alone(logits: Tensor, count: int, top_p: float, min_p: float) -> None:
    together = distribution(logits, Sampling(temperature=1, top_k=count, top_p=top_p, min_p=min_p))
    for alone in (Sampling(1, top_k=count), Sampling(1, top_p=top_p), Sampling(1, min_p=min_p)):
        assert not ((together > 0) & (distribution(logits, alone) == 0)).any()
    assert float(together.sum()) == pytest.approx(1, abs=1e-5)


def test_cutoffs_apply_to_each_row_separately() -> None:
    logits = torch.tensor([[5.0, 1.0, 0.0], [0.0, 1.0, 5.0]])
    assert distribution(logits, Sampling(temperature=1, top_k=1)).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_draws_follow_the_distribution_and_the_seed() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.0, 3.0]]).expand(4000, 4)
    sampling = Sampling(temperature=1.0, top_k=3)
    shares = torch.bincount(drawn(logits, sampling), minlength=4) / 4000
    torch.testing.assert_close(shares, distribution(logits[:1], sampling)[0], rtol=0, atol=0.03)
    assert torch.equal(drawn(logits, sampling, 5), drawn(logits, sampling, 5))
    assert not torch.equal(drawn(logits, sampling, 5), drawn(logits, sampling, 6))


@fair
@given(logits_of, st.floats(1.01, 5))
def test_a_penalty_lowers_only_used_tokens(logits: Tensor, penalty: float) -> None:
    used = torch.tensor([[0, 1, 0]])  # twice is not worse than once
    penalized = penalize(logits, used, penalty)
    assert torch.equal(penalized[:, 2:], logits[:, 2:])
    for index in (0, 1):
        value = float(logits[0, index])
        assert float(penalized[0, index]) == pytest.approx(value / penalty if value > 0 else value * penalty, rel=1e-4)


def test_penalties_count_more_generated_tokens_than_the_vocabulary_has() -> None:
    logits = torch.tensor([[1.0, 0.9, 0.5]])
    used = torch.tensor([[2, 2, 0, 0, 0, 0, 1]])  # the first two are given
    sampling = Sampling(temperature=0, frequency_penalty=0.2)  # 1 - 4 * 0.2, 0.9 - 0.2, 0.5
    assert choose(logits, used, sampling, torch.Generator(), prompt=2).item() == 1


def test_a_penalty_changes_the_choice() -> None:
    logits, used = torch.tensor([[2.0, 1.9]]), torch.tensor([[0]])
    generator = torch.Generator()
    assert choose(logits, used, Sampling(temperature=0), generator).item() == 0
    assert choose(logits, used, Sampling(temperature=0, repetition_penalty=1.5), generator).item() == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.5}, "temperature must be 0 or more, but is -0.5"),
        ({"top_k": -1}, "top_k must be 0 or more, but is -1"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, but is 0.0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, but is 1.5"),
        ({"min_p": 1.0}, "min_p must be at least 0 and below 1, but is 1.0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be from 0.01 to 100, but is 0.0"),
    ],
)
def test_an_invalid_setting_is_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        Sampling(**settings)  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("row", [[0.0, float("nan")], [float("inf"), 1.0], [-float("inf"), -float("inf")]])
def test_logits_that_are_not_finite_are_refused(row: list[float], temperature: float) -> None:
    with pytest.raises(FloatingPointError, match="the logits of the next token must be finite, but are not"):
        drawn(torch.tensor([row]), Sampling(temperature=temperature))


def test_a_token_can_be_excluded_by_minus_infinity() -> None:
    assert drawn(torch.tensor([[-float("inf"), 1.0]]), Sampling()).tolist() == [1]
