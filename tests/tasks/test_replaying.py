"""Replays: an episode of a policy in its environment, step by step."""

import pytest
import torch

from saccade.data.environments import ActionSpace, spaces
from saccade.models.policy.policy import Policy, PolicyConfig, Scale
from saccade.nn.transformer import TransformerConfig
from saccade.tasks._policy.replaying import replay

SPACE = ActionSpace(("0", "1"))
TINY = TransformerConfig(dim=16, depth=1, heads=2, hidden=32)


def play(seed, architecture="transformer"):
    pytest.importorskip("gymnasium")
    torch.manual_seed(1)
    config = PolicyConfig(architecture=architecture, transformer=TINY, history=4)
    policy = Policy(config, Scale([0.0] * 4, [1.0] * 4), labels=2).eval()
    with torch.no_grad():
        return replay(policy, SPACE, "CartPole-v1", config.window, seed)


def test_an_episode_has_actions_probabilities_and_attention_to_its_history():
    episode = play(3)
    assert episode["drawing"] == "cartpole" and episode["end"] in ("terminated", "time limit")
    assert episode["return"] == len(episode["steps"]) > 5  # a reward of 1 for each step
    for number, step in enumerate(episode["steps"]):
        assert step["action"] == SPACE.labels[step["probabilities"].index(max(step["probabilities"]))]
        for heads in step["attention"].values():
            assert len(heads) == 2 and all(len(head) == min(number + 1, 4) for head in heads)
            assert all(sum(head) == pytest.approx(1, abs=1e-4) for head in heads)


def test_the_seed_decides_the_episode_and_a_policy_without_history_has_no_attention():
    assert play(3) == play(3) != play(4)
    assert all(step["attention"] == {} for step in play(3, "mlp")["steps"])


def test_continuous_actions_are_shown_as_the_environment_takes_them():
    pytest.importorskip("gymnasium")
    torch.manual_seed(1)
    config = PolicyConfig(architecture="mlp")
    policy = Policy(config, Scale([0.0] * 3, [1.0] * 3), actions=Scale([9.0], [1.0])).eval()
    with torch.no_grad():
        episode = replay(policy, spaces("Pendulum-v1")[1], "Pendulum-v1", 1, 3)
    assert {tuple(step["action"]) for step in episode["steps"]} == {(2.0,)}, "9 is beyond the bound 2"
