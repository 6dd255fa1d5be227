"""Lecture rows R37-R39: fixed and learned positions, added or appended (with trap T12)."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from saccade.nn.positions import Learned, Sinusoidal
from saccade.nn.transformer import Transformer, TransformerConfig

CPU = torch.device("cpu")


def test_r37_twenty_positions_of_512_columns_split_in_two_halves():
    table = Sinusoidal(512)(0, 20, CPU)[0]
    assert table.shape == (20, 512)
    left, right = table[:, :256], table[:, 256:]
    place = torch.arange(20.0)
    torch.testing.assert_close(left[:, 0], place.sin())
    torch.testing.assert_close(right[:, 0], place.cos())
    assert (left[0] == 0).all()
    assert (right[0] == 1).all()
    torch.testing.assert_close(left**2 + right**2, torch.ones(20, 256))
    jump = (table[:, 1:] - table[:, :-1]).abs().mean(0)  # what the eye sees as the edge in the heat map
    assert jump.argmax().item() == 255
    assert right[:, 128:].min() > 0.97
    assert left[:, 128:].abs().max() < 0.2


def test_r37_the_encoding_is_added_to_the_embedding():
    stack = Transformer(TransformerConfig(dim=512, depth=1, heads=8, position="sinusoidal"))
    entered = []
    stack.get_submodule("0").register_forward_pre_hook(lambda _, args: entered.append(args[0]))
    x = torch.randn(2, 20, 512)
    stack(x)
    torch.testing.assert_close(entered[0], x + Sinusoidal(512)(0, 20, CPU))


class Appended(nn.Module):
    """Positions as a one-hot vector beside the embedding, brought back to the width by a matrix."""

    def __init__(self, dim, tokens):
        super().__init__()
        self.mix = nn.Linear(dim + tokens, dim, bias=False)
        self.one_hot = torch.eye(tokens)

    def forward(self, x):
        return self.mix(torch.cat((x, self.one_hot.expand(len(x), -1, -1)), dim=-1))


def loss_after_training(position, before=None, steps=60, tokens=6, dim=16):
    """Every input vector is the same; the answer is its position, which only a position can tell."""
    stack = Transformer(
        TransformerConfig(dim=dim, depth=1, heads=2, hidden=32, position=position, max_positions=tokens)
    )
    before, head = before or nn.Identity(), nn.Linear(dim, tokens)
    modules = nn.ModuleList((stack, before, head))
    optimizer = torch.optim.Adam(modules.parameters(), lr=0.01)
    x = torch.ones(1, tokens, dim)
    for _ in range(steps):
        loss = F.cross_entropy(head(stack(before(x)))[0], torch.arange(tokens))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
def test_r38_a_learned_table_and_a_fixed_function_both_train(position):
    assert loss_after_training(position) < 0.1


def test_r38_an_appended_position_trains_and_none_cannot():
    assert loss_after_training("none", Appended(16, 6)) < 0.1
    assert loss_after_training("none") == pytest.approx(math.log(6), abs=1e-3)


def test_t12_learned_positions_are_optional():
    assert [p.shape for p in Learned(20, 512).parameters()] == [(20, 512)]
    assert list(Sinusoidal(512).parameters()) == []


def test_r39_appending_a_one_hot_is_adding_a_vector():
    """W [x; p] = W_I x + W_P p = a + e: column i of W_P is the learned vector of position i.

    Whole numbers, so that every sum is exact in floating point.
    """
    dim, tokens = 4, 5
    appended = Appended(dim, tokens).requires_grad_(False)
    appended.mix.weight.copy_(torch.randint(-5, 6, (dim, dim + tokens)))
    w_i, w_p = appended.mix.weight.split((dim, tokens), dim=1)
    learned = Learned(tokens, dim).requires_grad_(False)
    learned.table.weight.copy_(w_p.T)
    x = torch.randint(-5, 6, (2, tokens, dim)).float()
    assert torch.equal(appended(x), x @ w_i.T + learned(0, tokens, CPU))
    assert w_p.abs().sum() > 0
