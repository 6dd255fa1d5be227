"""Variations of published decoder-only models: head width, windows and positions by layer, norms, limits of logits."""

import pytest
import torch

from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.attention import Attention, Dot, Heads, QKNorm
from saccade.nn.probe import watch
from saccade.nn.rotary_scaling import RotaryScaling

SHAPE = {"dim": 16, "depth": 2, "heads": 2, "hidden": 24, "max_positions": 64}
IDS = torch.randint(0, 20, (1, 12), generator=torch.Generator().manual_seed(1))


def model(**changes):
    torch.manual_seed(0)
    network = GPT(GPTConfig(**{**SHAPE, **changes}), 20).eval()
    with torch.no_grad():
        for value in network.parameters():
            value.normal_(std=0.5)
    return network


def test_heads_can_be_wider_than_the_layer():
    attention = Attention(16, Heads(3, 1, 10))
    assert attention.qkv.weight.shape == (3 * 10 + 2 * 10, 16)
    assert attention.out.weight.shape == (16, 30)
    assert attention(torch.randn(2, 5, 16)).shape == (2, 5, 16)


def test_qk_norm_is_the_cosine_times_the_root_of_the_head_width():
    q, k, score = torch.randn(2, 3, 4, 9), torch.randn(2, 3, 4, 9), QKNorm(9)
    cosine = torch.nn.functional.cosine_similarity(q[..., :, None, :], k[..., None, :, :], dim=-1)
    prepared = score(score.prepare(q, 4), score.prepare(k, 0))
    torch.testing.assert_close(prepared, 3 * cosine, atol=1e-4, rtol=1e-4)


def test_gains_of_queries_and_keys_are_separate():
    score = QKNorm(4, gain=True)
    with torch.no_grad():
        score.q_gain.fill_(2.0)
        score.k_gain.fill_(5.0)
    x = torch.randn(1, 3, 5, 4)  # two heads of queries, three of keys
    prepared, plain = score.prepare(x, 2), QKNorm(4).prepare(x, 2)
    torch.testing.assert_close(prepared[:, :, :2], 2 * plain[:, :, :2])
    torch.testing.assert_close(prepared[:, :, 2:], 5 * plain[:, :, 2:])


def test_only_layers_with_a_window_are_limited_to_it():
    network = model(window=3, full_layers=(1,))
    with watch(network) as maps:
        network(IDS)
    windowed, full = (maps[f"decoder.{layer}.self"].rows(0, 12)[0, :, -1] for layer in (0, 1))
    assert torch.count_nonzero(windowed[0]) == 3
    assert torch.count_nonzero(full[0]) == 12


def test_layers_with_a_window_can_have_a_rotary_base_of_their_own():
    network = model(window=3, full_layers=(1,), window_rotary_base=77.0)
    assert network.decoder.get_submodule("0").self.rotate.base == 77.0
    assert network.decoder.get_submodule("1").self.rotate.base == 10000.0


def test_layers_without_positions_do_not_see_the_order_of_earlier_tokens():
    network = model(unrotated_layers=(0,), norm="rms", depth=1)
    swapped = IDS[:, [1, 0, *range(2, 12)]]
    torch.testing.assert_close(network(IDS)[:, -1], network(swapped)[:, -1], atol=1e-4, rtol=1e-4)
    rotary = model(norm="rms", depth=1)
    assert (rotary(IDS)[:, -1] - rotary(swapped)[:, -1]).abs().max() > 0.01


def test_logits_stay_below_the_soft_limit():
    plain, limited = model()(IDS), model(logit_softcap=0.5)(IDS)
    assert limited.abs().max() <= 0.5 < plain.abs().max()
    torch.testing.assert_close(limited, 0.5 * torch.tanh(plain / 0.5))


def test_updates_are_normalized_before_they_are_added():
    network = model(update_norm=True, norm="plain_rms", embedding_norm=False)
    states: list[torch.Tensor] = []
    network.decoder(torch.randn(1, 5, 16), states=states)
    update = states[1] - states[0]
    assert update.square().mean(-1).max() <= 4.001  # two updates, each of root mean square 1


def test_a_scale_of_the_scores_replaces_that_of_the_head_width():
    attention = model(score="scaled_dot", attention_scale=0.25).decoder.get_submodule("0").self
    assert isinstance(attention.score, Dot) and attention.score.factor(8) == 0.25


def test_an_epsilon_of_0_is_0():
    network = model(norm="layer", epsilon=0.0)
    assert network.decoder.norm.eps == 0.0
    assert model(norm="layer").decoder.norm.eps == 1e-5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"full_layers": (2,)}, "full_layers must be from 0 to 1, but one is 2"),
        ({"unrotated_layers": (-1,)}, "unrotated_layers must be from 0 to 1, but one is -1"),
        ({"head_dim": 7}, "head_dim must be even for rotary positions, but is 7"),
        ({"logit_softcap": -1.0}, "logit_softcap must be at least 0, but is -1.0"),
        (
            {"head_dim": 2, "rotary_scaling": RotaryScaling("dynamic", 2.0, 8)},
            "head_dim must be at least 4 for dynamic rotary scaling, but is 2",
        ),
        ({"window_rotary_base": 0.5}, "window_rotary_base must be 0 or above 1, but is 0.5"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        GPTConfig(**{**SHAPE, **changes})
