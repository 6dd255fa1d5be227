"""Sampling: cuts keep the likeliest and nothing else, chance follows its seed, mistakes are named."""

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
def test_temperature_zero_takes_the_likeliest(logits: Tensor) -> None:
    for seed in (1, 2):
        assert torch.equal(drawn(logits, Sampling(temperature=0), seed), logits.argmax(-1))


@fair
@given(logits_of, st.floats(0.1, 3))
def test_without_cuts_it_is_the_softmax(logits: Tensor, temperature: float) -> None:
    found = distribution(logits, Sampling(temperature=temperature))
    torch.testing.assert_close(found, (logits / temperature).softmax(-1), rtol=1e-4, atol=1e-6)


@fair
@given(logits_of, st.integers(1, 25))
def test_top_k_keeps_the_k_likeliest(logits: Tensor, count: int) -> None:
    found = distribution(logits, Sampling(temperature=1, top_k=count))
    best = set(logits[0].topk(min(count, logits.shape[1])).indices.tolist())
    assert set(found[0].nonzero()[:, 0].tolist()) <= best
    plain = logits.softmax(-1)
    assert all(found[0, index] >= plain[0, index] * 0.999 for index in best)
    assert float(found.sum()) == pytest.approx(1, abs=1e-5)


@fair
@given(logits_of, st.floats(0.01, 1.0))
def test_top_p_keeps_the_smallest_set_that_reaches_p(logits: Tensor, share: float) -> None:
    found = distribution(logits, Sampling(temperature=1, top_p=share))[0]
    plain = logits.softmax(-1)[0]
    kept = plain[found > 0]
    assert float(kept.sum()) >= share - 1e-4
    if share < 1:
        assert float(kept.sum() - kept.min()) < share + 1e-4  # without its last token it would not reach
    assert found.argmax() == plain.argmax()
    assert float(found.sum()) == pytest.approx(1, abs=1e-5)


@fair
@given(logits_of, st.floats(0, 0.99))
def test_min_p_leaves_out_what_is_far_below_the_likeliest(logits: Tensor, share: float) -> None:
    found = distribution(logits, Sampling(temperature=1, min_p=share))[0]
    plain = logits.softmax(-1)[0]
    limit = share * float(plain.max())
    for probability, left in zip(plain.tolist(), found.tolist(), strict=True):
        if abs(probability - limit) > 1e-5:
            assert (left > 0) == (probability > limit)


@fair
@given(logits_of, st.integers(1, 5), st.floats(0.1, 1), st.floats(0, 0.9))
def test_cuts_together_keep_less_than_each_alone(logits: Tensor, count: int, share: float, least: float) -> None:
    together = distribution(logits, Sampling(temperature=1, top_k=count, top_p=share, min_p=least))
    for alone in (Sampling(1, top_k=count), Sampling(1, top_p=share), Sampling(1, min_p=least)):
        assert not ((together > 0) & (distribution(logits, alone) == 0)).any()
    assert float(together.sum()) == pytest.approx(1, abs=1e-5)


def test_rows_are_cut_each_for_itself() -> None:
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
def test_a_penalty_lowers_what_was_used_and_nothing_else(logits: Tensor, penalty: float) -> None:
    used = torch.tensor([[0, 1, 0]])  # twice is not worse than once
    found = penalize(logits, used, penalty)
    assert torch.equal(found[:, 2:], logits[:, 2:])
    for index in (0, 1):
        value = float(logits[0, index])
        assert float(found[0, index]) == pytest.approx(value / penalty if value > 0 else value * penalty, rel=1e-4)


def test_a_penalty_changes_the_choice() -> None:
    logits, used = torch.tensor([[2.0, 1.9]]), torch.tensor([[0]])
    generator = torch.Generator()
    assert choose(logits, used, Sampling(temperature=0), generator).item() == 0
    assert choose(logits, used, Sampling(temperature=0, repetition_penalty=1.5), generator).item() == 1


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"temperature": -0.5}, "temperature must be 0 or more, but is -0.5"),
        ({"top_k": -1}, "top_k must be 0 or more, but is -1"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, but is 0.0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, but is 1.5"),
        ({"min_p": 1.0}, "min_p must be at least 0 and below 1, but is 1.0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be from 0.01 to 100, but is 0.0"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError) as caught:
        Sampling(**settings)  # type: ignore[arg-type]
    assert str(caught.value) == says
