"""Optimizers: schedules are pure functions of the step, Muon steps are orthogonal, AdamW is AdamW."""

import math

import pytest
import torch
from torch import nn

from saccade.nn.spectral import normalize_spectrally
from saccade.training.optim import Muon, OptimConfig, build_optimizers, lr_scale, orthogonalise


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 8)
        self.inner = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8, bias=False))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 5, bias=False)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("schedule", ["wsd", "cosine", "linear", "inverse_sqrt", "constant"])
def test_the_warm_up_is_a_straight_line(schedule: str) -> None:
    config = OptimConfig(schedule=schedule, warmup=4)
    assert [lr_scale(config, step, 100) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("schedule", "middle", "last"),
    [
        ("wsd", 1.0, 1 / 50),  # constant until half of the run, then linear decay over 50 steps
        ("cosine", 0.5 - 0.5 * math.cos(math.pi * 50 / 90), 0.5 - 0.5 * math.cos(math.pi / 90)),
        ("linear", 50 / 90, 1 / 90),
        ("inverse_sqrt", math.sqrt(10 / 51), math.sqrt(10 / 100)),
        ("constant", 1.0, 1.0),
    ],
)
def test_schedules_in_the_middle_and_at_the_end(schedule: str, middle: float, last: float) -> None:
    config = OptimConfig(schedule=schedule, warmup=10, cooldown=0.5, floor=0.0)
    assert lr_scale(config, 50, 100) == pytest.approx(middle)
    assert lr_scale(config, 99, 100) == pytest.approx(last)
    assert all(0 <= lr_scale(config, step, 100) <= 1 for step in range(100))


@pytest.mark.parametrize("schedule", ["wsd", "cosine", "linear"])
def test_the_floor_is_where_a_schedule_ends(schedule: str) -> None:
    config = OptimConfig(schedule=schedule, warmup=0, floor=0.1)
    assert lr_scale(config, 1000, 1000) == pytest.approx(0.1)
    falling = [lr_scale(config, step, 1000) for step in range(1001)]
    assert falling == sorted(falling, reverse=True)


@pytest.mark.parametrize("schedule", ["wsd", "cosine", "linear", "constant"])
def test_the_rate_stays_up_while_the_end_is_not_known(schedule: str) -> None:
    assert lr_scale(OptimConfig(schedule=schedule, warmup=2), 10_000, None) == 1.0


@pytest.mark.parametrize("shape", [(3, 12, 12), (2, 8, 32), (2, 32, 8)])
def test_orthogonal_matrices_have_singular_values_near_one(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape) * 1e-3
    result = orthogonalise(matrices)
    assert result.shape == shape
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.4
    assert values.max() < 1.3
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    direction = torch.einsum("nrc,nrc->n", result, left @ right) / min(shape[1:])
    assert (direction > 0.6).all()  # the same directions, not just any orthogonal matrix


def test_a_muon_step_moves_every_direction_alike() -> None:
    weight = nn.Parameter(torch.randn(6, 6))
    before = weight.detach().clone()
    optimizer = Muon([weight], lr=0.5, momentum=0.9, weight_decay=0.0)
    weight.grad = torch.randn(6, 6) * 100
    optimizer.step()
    values = torch.linalg.svdvals((before - weight.detach()) / 0.5)
    assert values.min() > 0.4
    assert values.max() < 1.3


def test_muon_treats_matrices_of_one_shape_as_if_alone() -> None:
    weights = [nn.Parameter(torch.randn(4, 6)) for _ in range(3)]
    alone = [nn.Parameter(weight.detach().clone()) for weight in weights]
    for one, other in zip(weights, alone, strict=True):
        one.grad = torch.randn(4, 6)
        other.grad = one.grad.clone()
    together = Muon(weights, 0.1, 0.9, 0.01)
    for optimizer in (together, *(Muon([weight], 0.1, 0.9, 0.01) for weight in alone)):
        optimizer.step()
    for one, other in zip(weights, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_muon_gets_weights_with_a_spectral_norm_too() -> None:
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Linear(4, 5))
    normalize_spectrally(net)
    optimizers = build_optimizers(OptimConfig(kind="muon"), net)
    (muon,) = (optimizer for optimizer in optimizers if isinstance(optimizer, Muon))
    owned = {id(p) for group in muon.param_groups for p in group["params"]}
    assert owned == {id(layer.parametrizations.weight.original) for layer in net}  # type: ignore[union-attr]


def test_muon_decays_relative_to_its_rate() -> None:
    weight = nn.Parameter(torch.ones(3, 3))
    weight.grad = torch.zeros(3, 3)
    Muon([weight], lr=0.5, momentum=0.9, weight_decay=0.2).step()
    torch.testing.assert_close(weight.detach(), torch.full((3, 3), 0.9))


def test_muon_gets_linear_weights_but_for_the_head() -> None:
    net = Net()
    _, muon = build_optimizers(OptimConfig(kind="muon"), net)
    owned = {id(p) for group in muon.param_groups for p in group["params"]}
    assert {name for name, p in net.named_parameters() if id(p) in owned} == {"inner.0.weight", "inner.1.weight"}
    assert isinstance(build_optimizers(OptimConfig(kind="muon"), nn.Linear(2, 2, bias=False))[0], Muon)


def test_every_parameter_has_exactly_one_optimizer() -> None:
    for kind in ("muon", "adamw"):
        net = Net()
        optimizers = build_optimizers(OptimConfig(kind=kind), net)
        owned = [id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
        assert sorted(owned) == sorted(id(p) for p in net.parameters())
        assert [type(optimizer) for optimizer in optimizers] == (
            [torch.optim.AdamW, Muon] if kind == "muon" else [torch.optim.AdamW]
        )


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_frozen_parameters_stay_where_they_are(kind: str) -> None:
    net = Net()
    frozen = {"embedding.weight", "inner.1.weight", "norm.bias"}
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name not in frozen)
    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    optimizers = build_optimizers(OptimConfig(kind=kind, weight_decay=0.5), net)
    for _ in range(3):
        for parameter in net.parameters():
            parameter.grad = torch.randn_like(parameter) if parameter.requires_grad else None
        for optimizer in optimizers:
            optimizer.step()
    still = {name for name, parameter in net.named_parameters() if torch.equal(parameter.detach(), before[name])}
    assert still == frozen


def test_only_matrices_decay_and_groups_know_their_peak() -> None:
    net = Net()
    config = OptimConfig(kind="adamw", lr=0.25, weight_decay=0.5)
    (optimizer,) = build_optimizers(config, net)
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in net.named_parameters():
        assert decays[id(parameter)] == (0.5 if parameter.dim() >= 2 else 0.0), name
    assert {group["peak_lr"] for group in optimizer.param_groups} == {0.25}


def test_adamw_equals_the_formula() -> None:
    net = nn.Linear(3, 2)
    config = OptimConfig(kind="adamw", lr=0.1, beta1=0.8, beta2=0.9, weight_decay=0.3)
    (optimizer,) = build_optimizers(config, net)
    weights = {name: parameter.detach().double() for name, parameter in net.named_parameters()}
    means = {name: torch.zeros_like(value) for name, value in weights.items()}
    squares = {name: torch.zeros_like(value) for name, value in weights.items()}
    for turn in range(1, 4):
        for name, parameter in net.named_parameters():
            parameter.grad = torch.randn_like(parameter)
            gradient, decay = parameter.grad.double(), 0.3 if name == "weight" else 0.0
            means[name] = 0.8 * means[name] + 0.2 * gradient
            squares[name] = 0.9 * squares[name] + 0.1 * gradient**2
            step = (means[name] / (1 - 0.8**turn)) / (squares[name] / (1 - 0.9**turn)).sqrt()
            weights[name] = weights[name] * (1 - 0.1 * decay) - 0.1 * step
        optimizer.step()
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.detach().double(), weights[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip": -1.0}, "clip must be 0 or more, but is -1.0"),
        ({"lr": -1.0}, "lr must be 0 or more, but is -1.0"),
        ({"beta1": 1.5}, "beta1 must be at least 0 and below 1, but is 1.5"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1, but is 1.0"),
        ({"cooldown": 2.0}, "cooldown must be between 0 and 1, but is 2.0"),
    ],
)
def test_numbers_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        OptimConfig(**settings)


def test_nearly_flat_matrices_are_made_orthogonal_without_blowing_up():
    """A gradient of one strong direction and a little noise: the weak ones grow, none beyond about 1."""
    strong = torch.randn(4, 64, 1) @ torch.randn(4, 1, 128)
    result = orthogonalise(strong + 0.01 * torch.randn(4, 64, 128))
    assert torch.linalg.svdvals(result).max() < 1.3
