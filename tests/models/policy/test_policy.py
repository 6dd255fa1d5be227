"""Policies: distributions equal torch's, a Transformer sees the past alone, and GAIL has the signs of its equations."""

import math

import pytest
import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal, kl_divergence

from saccade.models.policy.distributions import Categorical, DiagonalGaussian
from saccade.models.policy.imitation import Discriminator, TrustRegionPolicy, Value, absorbing_reward, advantages
from saccade.models.policy.policy import MLPConfig, Policy, PolicyConfig, Scale
from saccade.nn.probe import watch
from saccade.nn.transformer import TransformerConfig
from saccade.nn.trust_region import TrustRegionConfig
from tests.nn.test_probe import HEADS, causal, eager_weights, inputs_of, randomised

UNIT = Scale([0.0, 0.0], [1.0, 1.0])
TINY = TransformerConfig(dim=16, depth=2, heads=2, hidden=32)


def test_categorical_equals_torch() -> None:
    torch.manual_seed(0)
    logits, other, actions = torch.randn(5, 4), torch.randn(5, 4), torch.tensor([0, 3, 2, 1, 1])
    ours, theirs = Categorical(logits), TorchCategorical(logits=logits)
    torch.testing.assert_close(ours.log_prob(actions), theirs.log_prob(actions))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    expected = kl_divergence(theirs, TorchCategorical(logits=other))
    torch.testing.assert_close(ours.kl(Categorical(other)), expected)
    drawn = Categorical(logits[:1].expand(40_000, 4)).sample(torch.Generator().manual_seed(1))
    torch.testing.assert_close(drawn.bincount(minlength=4) / 40_000, logits[0].softmax(0), atol=0.01, rtol=0)


def test_gaussian_equals_torch() -> None:
    torch.manual_seed(0)
    mean, log_std, actions = torch.randn(5, 3), torch.randn(3), torch.randn(5, 3)
    ours = DiagonalGaussian(mean, log_std)
    theirs = Independent(Normal(mean, log_std.exp().expand(5, 3)), 1)
    torch.testing.assert_close(ours.log_prob(actions), theirs.log_prob(actions))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    other = DiagonalGaussian(actions, -log_std)
    expected = kl_divergence(theirs, Independent(Normal(actions, (-log_std).exp().expand(5, 3)), 1))
    torch.testing.assert_close(ours.kl(other), expected)


@pytest.mark.parametrize("architecture", ["mlp", "transformer"])
def test_the_future_does_not_change_an_action_and_only_a_transformer_sees_the_past(architecture: str) -> None:
    torch.manual_seed(0)
    policy = Policy(PolicyConfig(architecture=architecture, transformer=TINY), UNIT, labels=3)
    observations = torch.randn(2, 6, 2)
    later, earlier = observations.clone(), observations.clone()
    later[:, 4:] += 1
    earlier[:, 1] += 1
    before = policy.outputs(observations)
    torch.testing.assert_close(policy.outputs(later)[:, :4], before[:, :4])
    changed = (policy.outputs(earlier)[:, 3] - before[:, 3]).abs().max()
    assert bool(changed > 1e-5) == (architecture == "transformer")


def test_padding_after_a_history_changes_nothing() -> None:
    torch.manual_seed(0)
    policy = Policy(PolicyConfig(transformer=TINY), UNIT, labels=3)
    histories = torch.randn(2, 5, 2)
    padded = torch.cat((histories[:, :3], torch.full((2, 2, 2), 9.0)), 1)
    together = policy.act(padded, torch.tensor([3, 2]))
    torch.testing.assert_close(together.logits[0], policy.act(histories[:1, :3], torch.tensor([3])).logits[0])
    torch.testing.assert_close(together.logits[1], policy.act(histories[1:, :2], torch.tensor([2])).logits[0])


def test_attention_over_the_history_is_read_exactly() -> None:
    torch.manual_seed(0)
    policy = Policy(PolicyConfig(transformer=TINY), UNIT, labels=3)
    with watch(policy) as maps:
        policy.outputs(torch.randn(2, 6, 2))
    assert list(maps) == ["encoder.0.self", "encoder.1.self"]
    weights = maps["encoder.1.self"].rows()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 6))
    assert not weights.triu(1).any(), "the future has weight 0"


def test_a_gaussian_policy_acts_on_the_scale_of_its_data() -> None:
    policy = Policy(PolicyConfig(architecture="mlp"), UNIT, actions=Scale([10.0], [4.0]))
    with torch.no_grad():
        policy.head.weight.zero_()
    actions = torch.tensor([[[14.0]]])
    torch.testing.assert_close(policy.to_targets(actions), torch.tensor([[[1.0]]]))
    torch.testing.assert_close(
        policy.to_actions(policy.act(torch.zeros(1, 1, 2), torch.tensor([1])).mode()), torch.tensor([[10.0]])
    )
    loss = policy(torch.zeros(1, 1, 2), actions, torch.ones(1, 1, dtype=torch.bool))
    torch.testing.assert_close(loss, torch.tensor(0.5 + 0.5 * math.log(2 * math.pi)))


def test_padded_steps_have_no_loss() -> None:
    torch.manual_seed(0)
    policy = Policy(PolicyConfig(transformer=TINY), UNIT, labels=2)
    observations, actions = torch.randn(1, 4, 2), torch.tensor([[0, 1, 1, 0]])
    keep = torch.tensor([[True, True, False, False]])
    changed = actions.clone()
    changed[0, 2:] = 1 - changed[0, 2:]
    torch.testing.assert_close(policy(observations, actions, keep), policy(observations, changed, keep))
    torch.testing.assert_close(
        policy(observations, actions, keep), policy(observations[:, :2], actions[:, :2], keep[:, :2])
    )


def test_the_discriminator_rises_on_the_policy_and_falls_on_the_expert() -> None:
    """Equation 17, with the sign of the lecture: D is the probability of the policy."""
    torch.manual_seed(0)
    discriminator = Discriminator(MLPConfig(hidden=16), UNIT, labels=2)
    state = torch.zeros(64, 2)
    policy, expert = (state, torch.zeros(64, dtype=torch.int64)), (state, torch.ones(64, dtype=torch.int64))
    optimizer = torch.optim.Adam(discriminator.parameters(), lr=0.01)
    for _ in range(50):
        optimizer.zero_grad()
        discriminator(policy, expert, torch.rand(64, 1), 0.1).backward()
        optimizer.step()
    d_policy, d_expert = (discriminator.cost(*side).exp().mean() for side in (policy, expert))
    assert float(d_policy.detach()) > 0.7 and float(d_expert.detach()) < 0.3


def test_on_one_step_the_policy_moves_to_the_expert() -> None:
    """Equation 18 on a problem of one step: minimising log D makes the expert's action more probable, not less."""
    torch.manual_seed(0)
    state, expert_actions = torch.zeros(256, 2), torch.ones(256, dtype=torch.int64)
    discriminator = Discriminator(MLPConfig(hidden=16), UNIT, labels=2)
    network = TrustRegionPolicy(PolicyConfig(architecture="mlp"), UNIT, labels=2)
    network.trust_region = TrustRegionConfig(max_kl=0.05)
    optimizer = torch.optim.Adam(discriminator.parameters(), lr=0.01)
    lengths = torch.ones(256, dtype=torch.int64)

    def probability() -> float:
        return float(network.act(state[:1, None], lengths[:1]).logits.softmax(-1)[0, 1].detach())

    start = probability()
    for _ in range(15):
        actions = network.act(state[:, None], lengths).sample()
        for _ in range(10):
            optimizer.zero_grad()
            discriminator((state, actions), (state, expert_actions), torch.rand(256, 1), 0.1).backward()
            optimizer.step()
        rewards = -discriminator.cost(state, actions).detach()
        assert bool((rewards > 0).all()), "the reward -log D is positive everywhere"
        loss = network(state[:, None], lengths, actions, rewards - rewards.mean(), 0.0)
        loss.backward()
        with torch.no_grad():
            for value in network.parameters():
                value -= value.grad
                value.grad = None
    assert start == pytest.approx(0.5, abs=0.1) and probability() > 0.9


def test_a_gradient_penalty_lowers_the_slope_of_the_discriminator() -> None:
    slopes = []
    for penalty in (0.0, 10.0):
        torch.manual_seed(0)
        discriminator = Discriminator(MLPConfig(hidden=16), UNIT, labels=2)
        policy, expert = ((torch.full((32, 2), x), torch.zeros(32, dtype=torch.int64)) for x in (-1.0, 1.0))
        optimizer = torch.optim.Adam(discriminator.parameters(), lr=0.01)
        for _ in range(60):
            optimizer.zero_grad()
            discriminator(policy, expert, torch.rand(32, 1), penalty).backward()
            optimizer.step()
        slopes.append(float((discriminator.logits(*policy) - discriminator.logits(*expert)).mean().detach()))
    assert 0 < slopes[1] < slopes[0] / 4


NEVER = torch.zeros(5, 2, dtype=torch.bool)
RETURN = {"discount": 0.9, "decay": 0.8}


def test_advantages_are_those_of_the_definition() -> None:
    torch.manual_seed(0)
    rewards, values = torch.randn(5, 2), torch.randn(6, 2)
    ours = advantages(rewards, values[:-1], values[1:], (NEVER, NEVER), absorbing=7.0, **RETURN)
    errors = [rewards[t] + 0.9 * values[t + 1] - values[t] for t in range(5)]
    for t in range(5):
        expected = sum((0.72**later) * errors[t + later] for later in range(5 - t))
        torch.testing.assert_close(ours[t], expected)


def test_after_a_termination_the_reward_is_that_of_the_absorbing_state() -> None:
    rewards, values, following = torch.randn(5, 2), torch.randn(5, 2), torch.randn(5, 2)
    terminated = NEVER.clone()
    terminated[1] = True
    ours = advantages(rewards, values, following, (terminated, NEVER), absorbing=0.3, **RETURN)
    last = rewards[1] + 0.9 * 0.3 / (1 - 0.9) - values[1]
    torch.testing.assert_close(ours[1], last)  # nothing of the next episode
    torch.testing.assert_close(ours[0], rewards[0] + 0.9 * following[0] - values[0] + 0.72 * last)


def test_after_a_time_limit_the_return_goes_on_with_the_value_of_the_last_observation() -> None:
    rewards, values, following = torch.randn(5, 2), torch.randn(5, 2), torch.randn(5, 2)
    truncated = NEVER.clone()
    truncated[1] = True
    ours = advantages(rewards, values, following, (NEVER, truncated), absorbing=0.3, **RETURN)
    last = rewards[1] + 0.9 * following[1] - values[1]
    torch.testing.assert_close(ours[1], last)  # nothing of the next episode
    torch.testing.assert_close(ours[0], rewards[0] + 0.9 * following[0] - values[0] + 0.72 * last)


def test_a_policy_that_ends_as_often_as_the_expert_is_not_rewarded_for_surviving() -> None:
    """The measured trap: with a return that stops at a fall, a constant positive reward would teach to survive.

    Where D cannot tell steps apart, the reward of each is log 2; that of ending as often as the expert is the same.
    """
    log2 = math.log(2)
    assert absorbing_reward(0.05, 0.05) == pytest.approx(log2)
    assert absorbing_reward(0.01, 0.05) > log2 > absorbing_reward(0.1, 0.05)
    assert absorbing_reward(0.05, 0.0) == 0, "the expert never ends an episode"
    assert absorbing_reward(0.0, 0.05) == 0, "not used: no step of the policy ends one"
    rewards, values = torch.full((8, 1), log2), torch.full((8, 1), log2 / (1 - 0.9))
    terminated = torch.arange(8)[:, None] % 3 == 0
    never = torch.zeros_like(terminated)

    def estimate(expert_rate: float) -> torch.Tensor:
        absorbing = absorbing_reward(0.05, expert_rate)
        return advantages(rewards, values, values, (terminated, never), absorbing=absorbing, **RETURN)

    torch.testing.assert_close(estimate(0.05), torch.zeros(8, 1), atol=1e-5, rtol=0)
    at_fall, others = estimate(0.0)[terminated], estimate(0.0)[~terminated]
    assert bool((at_fall < -log2).all()) and bool((others <= 0).all()), "an expert that never falls: a fall is bad"
    assert bool((estimate(0.2)[terminated] > 0).all()), "an expert that falls more often: a fall is good"


def test_the_value_network_learns_returns() -> None:
    torch.manual_seed(0)
    value, observations = Value(MLPConfig(), UNIT), torch.randn(128, 2)
    optimizer = torch.optim.Adam(value.parameters(), lr=0.01)
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = value(observations, observations.sum(1))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 20


@pytest.mark.parametrize("length", [1, 5])
def test_the_probe_reads_the_weights_of_an_eager_computation(length: int) -> None:
    torch.manual_seed(0)
    shape = TransformerConfig(dim=16, depth=2, heads=HEADS, hidden=32)
    policy = randomised(Policy(PolicyConfig(transformer=shape), UNIT, labels=3)).eval()
    inputs = inputs_of(policy)
    with watch(policy) as maps, torch.no_grad():
        policy.act(torch.randn(3, length, 2), torch.full((3,), length))
    assert list(maps) == list(inputs) == ["encoder.0.self", "encoder.1.self"]
    for name, recorded in maps.items():
        expected = eager_weights(policy.get_submodule(name), inputs[name][0], None, causal)
        torch.testing.assert_close(recorded.rows(), expected, atol=1e-6, rtol=0)
