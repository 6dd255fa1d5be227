"""Generation: with the cache as without it, past the end of the context, row by row."""

from itertools import islice

import pytest
import torch
from torch import Tensor

from saccade.decode.generate import generate
from saccade.decode.sampling import Sampling, penalise
from saccade.models.text.gpt import GPT, GPTConfig

CONTEXT = 12
GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def model() -> GPT:
    torch.manual_seed(0)
    net = GPT(GPTConfig(dim=16, depth=2, heads=2, hidden=32, max_positions=CONTEXT), 11)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return net.eval()


def taken(model: GPT, ids: Tensor, count: int, sampling: Sampling, seed: int = 1) -> Tensor:
    return torch.stack(list(islice(generate(model, ids, CONTEXT, sampling, seed), count)), dim=1)


@torch.no_grad()
def by_hand(model: GPT, ids: Tensor, count: int) -> Tensor:
    """Greedy without a cache: all that is in the context is read again for every token."""
    window, made = ids[:, -CONTEXT:], []
    for _ in range(count):
        if window.shape[1] > CONTEXT:
            window = torch.cat((ids, *made), dim=1)[:, -(CONTEXT // 2) :]
        made.append(model(window)[:, -1:].argmax(-1))
        window = torch.cat((window, made[-1]), dim=1)
    return torch.cat(made, dim=1)


@pytest.mark.parametrize("length", [1, 5, CONTEXT - 1, CONTEXT, 3 * CONTEXT])
def test_a_cache_changes_nothing_also_past_the_context(model: GPT, length: int) -> None:
    ids = torch.randint(11, (2, length), generator=torch.Generator().manual_seed(length))
    assert torch.equal(taken(model, ids, 40, GREEDY), by_hand(model, ids, 40))


def test_rows_do_not_see_each_other(model: GPT) -> None:
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    together = taken(model, ids, 20, GREEDY)
    for row in range(2):
        assert torch.equal(together[row], taken(model, ids[row : row + 1], 20, GREEDY)[0])


def test_chance_follows_the_seed_alone(model: GPT) -> None:
    ids = torch.tensor([[1, 2, 3]])
    first = taken(model, ids, 30, Sampling(temperature=1), seed=4)
    torch.rand(3)
    assert torch.equal(first, taken(model, ids, 30, Sampling(temperature=1), seed=4))
    assert not torch.equal(first, taken(model, ids, 30, Sampling(temperature=1), seed=5))


def test_a_penalty_looks_at_the_prompt_and_at_what_was_made(model: GPT) -> None:
    made = taken(model, torch.tensor([[1, 2]]), 8, Sampling(temperature=0, repetition_penalty=3.0))
    used = torch.tensor([[1, 2]])
    for _ in range(8):
        with torch.no_grad():
            logits = model(used)[:, -1]
        used = torch.cat((used, penalise(logits, used, 3.0).argmax(-1, keepdim=True)), dim=1)
    assert torch.equal(made, used[:, 2:])
    assert not torch.equal(made, taken(model, torch.tensor([[1, 2]]), 8, GREEDY))


def test_no_gradient_is_kept(model: GPT) -> None:
    assert not taken(model, torch.tensor([[1]]), 3, GREEDY).requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_context_of_one_token() -> None:
    torch.manual_seed(0)
    net = GPT(GPTConfig(dim=8, depth=1, heads=1, hidden=8, max_positions=1), 5).eval()
    made = list(islice(generate(net, torch.tensor([[1, 2]]), 1, GREEDY, 1), 4))
    assert len(made) == 4
