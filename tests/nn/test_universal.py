"""Universal Transformer: one layer applied repeatedly, with adaptive halting per token."""

import pytest
import torch
from torch import nn

from saccade.models.seq2seq.interface import Vocabularies
from saccade.models.seq2seq.universal import UniversalConfig, UniversalTranslator
from saccade.nn.masks import Causal
from saccade.nn.transformer import TransformerConfig
from saccade.nn.universal import STEP_SCALE, Universal

CONFIG = TransformerConfig(dim=8, heads=2, hidden=12)


class Constant(nn.Module):
    """A layer that returns the same vector for any input."""

    window = 0

    def forward(self, x, *rest):
        return torch.full_like(x, 3.0)


class Counting(nn.Module):
    """A layer that returns the index of the step in every feature."""

    window = 0

    def forward(self, x, memory, mask, looked, cache, name):
        return torch.full_like(x, float(name.removeprefix("step")) + 1)


def make(steps=4, threshold=0.99, **shape):
    stack = Universal(TransformerConfig(dim=8, heads=2, hidden=12, **shape), steps, threshold)
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.normal_(std=0.5)
    return stack.double().eval()


def parameters(module):
    return sum(value.numel() for value in module.parameters())


@pytest.mark.parametrize("position", ["rotary", "sinusoidal", "learned", "none"])
def test_parameters_do_not_depend_on_the_number_of_steps(position):
    shape = {"dim": 8, "heads": 2, "hidden": 12, "position": position}
    assert len({parameters(Universal(TransformerConfig(**shape), steps)) for steps in (1, 2, 6, 50)}) == 1
    models = [
        UniversalTranslator(UniversalConfig(**shape, depth=depth, decoder_depth=depth + 1), Vocabularies(7, 9))
        for depth in (1, 5)
    ]
    assert parameters(models[0]) == parameters(models[1])


@torch.no_grad()
def test_the_weights_of_the_steps_sum_to_one_for_each_token():
    stack, x = make(steps=5, norm_first=False), torch.randn(3, 6, 8).double()
    stack.layer = Constant()
    torch.testing.assert_close(stack(x)[0], torch.full_like(x, 3.0))


@torch.no_grad()
def test_the_output_is_the_mean_of_the_states_weighted_by_halting():
    """Written out by hand: each step takes its halting probability, the last one what is left."""
    stack, x = make(steps=4, threshold=0.9, norm_first=False, position="none"), torch.randn(2, 7, 8).double()
    stack.layer = Counting()
    out, halting = stack(x)
    for row in range(2):
        for token in range(7):
            state, spent, mean = x[row, token], 0.0, 0.0
            for step in range(4):
                asked = state + STEP_SCALE * stack.step_encoding(step, 1, x.device)[0, 0]
                chance = float(torch.sigmoid(stack.halt(asked)))
                last = spent + chance > 0.9 or step == 3
                mean += (1 - spent if last else chance) * (step + 1)
                if last:
                    break
                spent, state = spent + chance, torch.full((8,), step + 1.0).double()
            assert int(halting.steps[row, token]) == step + 1
            assert float(halting.cost[row, token]) == pytest.approx(step + 1 + 1 - spent)
            torch.testing.assert_close(out[row, token], torch.full((8,), mean).double())


@torch.no_grad()
@pytest.mark.parametrize(("bias", "expected"), [(20.0, 1), (-20.0, 5)])
def test_the_halting_bias_decides_between_the_first_and_the_last_step(bias, expected):
    stack, x = make(steps=5), torch.randn(2, 6, 8).double()
    nn.init.zeros_(stack.halt.weight)
    nn.init.constant_(stack.halt.bias, bias)
    assert (stack(x)[1].steps == expected).all()


@torch.no_grad()
def test_steps_are_within_bounds_and_fewer_with_a_larger_bias():
    stack, x = make(steps=6), torch.randn(4, 9, 8).double()
    means = []
    for bias in (-3.0, -1.0, 1.0, 3.0):
        nn.init.constant_(stack.halt.bias, bias)
        steps = stack(x)[1].steps
        assert steps.min() >= 1 and steps.max() <= 6
        assert torch.equal(steps, steps.round())
        means.append(float(steps.mean()))
    assert means == sorted(means, reverse=True) and means[0] > means[-1]


@torch.no_grad()
def test_a_lower_threshold_stops_earlier():
    torch.manual_seed(3)
    patient = make(steps=6, threshold=0.99)
    hasty = Universal(CONFIG, 6, 0.3).double().eval()
    hasty.load_state_dict(patient.state_dict())
    x = torch.randn(4, 9, 8).double()
    assert hasty(x)[1].steps.mean() < patient(x)[1].steps.mean()


def test_the_gradient_of_the_cost_reduces_the_steps():
    stack, x = make(steps=6), torch.randn(4, 9, 8).double()
    nn.init.zeros_(stack.halt.weight)
    nn.init.constant_(stack.halt.bias, -1.0)
    stack(x)[1].cost.sum().backward()
    assert stack.halt.bias.grad.item() < 0  # going down the slope raises the bias
    assert stack.halt.weight.grad.any()


@torch.no_grad()
@pytest.mark.parametrize("norm_first", [True, False])
def test_one_step_is_one_application_of_the_layer(norm_first):
    stack, x = make(steps=1, norm_first=norm_first), torch.randn(2, 5, 8).double()
    out, halting = stack(x, mask=Causal())
    state = x + STEP_SCALE * stack.step_encoding(0, 1, x.device)
    by_hand = stack.layer(state, None, Causal().lower(5, 5, 0, x.device), None, None, "")
    torch.testing.assert_close(out, stack.norm(by_hand))
    assert (halting.steps == 1).all() and (halting.cost == 2).all()


@torch.no_grad()
def test_a_halted_token_keeps_its_state_while_others_continue():
    """With a diagonal mask, a token has the same output alone and with others."""
    stack, x = make(steps=5, position="none", window=1), torch.randn(1, 6, 8).double()
    out, halting = stack(x)
    assert halting.steps.unique().numel() > 1
    for token in range(6):
        alone, one = stack(x[:, token : token + 1])
        torch.testing.assert_close(alone[:, 0], out[:, token])
        assert one.steps[0, 0] == halting.steps[0, token]


@torch.no_grad()
@pytest.mark.parametrize("position", ["rotary", "sinusoidal", "learned"])
def test_the_output_depends_on_position_and_step(position):
    stack, x = make(steps=2, position=position), torch.randn(1, 5, 8).double()
    assert not torch.allclose(stack(x)[0].flip(1), stack(x.flip(1))[0])
    nowhere = make(steps=2, position="none")
    torch.testing.assert_close(nowhere(x)[0].flip(1), nowhere(x.flip(1))[0])
    steps = torch.cat([stack.step_encoding(step, 1, x.device) for step in range(8)])
    assert (torch.cdist(steps[:, 0], steps[:, 0]) + torch.eye(8) > 0.5).all()
