"""Trust region: the step equals a dense solve of the Fisher matrix, stays within the KL and lowers the loss."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from saccade.nn.trust_region import (
    TrustRegionConfig,
    conjugate_gradient,
    trust_region_step,
    with_gradient,
)


class Problem:
    """A small softmax policy with a random batch."""

    def __init__(self, rows: int = 64) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
        self.x, self.gains = torch.randn(rows, 3).double(), torch.randn(rows).double()
        self.actions = torch.randint(3, (rows,))
        self.parameters = dict(self.net.named_parameters())
        self.before = self.log_probs(self.parameters).detach()

    def log_probs(self, values: dict[str, Tensor]) -> Tensor:
        return functional_call(self.net, dict(values), (self.x,)).log_softmax(-1)

    def loss(self, values: dict[str, Tensor]) -> Tensor:
        taken = self.actions[:, None]
        ratio = (self.log_probs(values) - self.before).exp().gather(1, taken)[:, 0]
        return -(ratio * self.gains).mean()

    def kl(self, values: dict[str, Tensor]) -> Tensor:
        return (self.before.exp() * (self.before - self.log_probs(values))).sum(-1).mean()

    def dense_step(self, max_kl: float, damping: float) -> np.ndarray:
        """Solve with the Fisher matrix as the mean outer product of the scores, by numpy."""
        names = list(self.parameters)
        scores = np.zeros((len(self.x), 3, sum(value.numel() for value in self.parameters.values())))
        for row in range(len(self.x)):
            for action in range(3):
                log_prob = self.net(self.x[row]).log_softmax(-1)[action]
                grads = torch.autograd.grad(log_prob, [self.parameters[name] for name in names])
                scores[row, action] = torch.cat([grad.flatten() for grad in grads]).numpy()
        probs = self.before.exp().numpy()
        fisher = np.einsum("ra,rai,raj->ij", probs, scores, scores) / len(self.x)
        fisher += damping * np.eye(len(fisher))
        gradient = -(self.gains.numpy()[:, None] * scores[np.arange(len(self.x)), self.actions.numpy()]).mean(0)
        direction = np.linalg.solve(fisher, -gradient)
        return direction * np.sqrt(2 * max_kl / (direction @ fisher @ direction))


def flat(step: dict[str, Tensor]) -> np.ndarray:
    return torch.cat([value.flatten() for value in step.values()]).numpy()


def test_the_step_equals_a_dense_solve_of_the_fisher_matrix() -> None:
    problem, config = Problem(), TrustRegionConfig(max_kl=1e-4, damping=0.1, iterations=60)
    step = trust_region_step(problem.loss, problem.kl, problem.parameters, config)
    np.testing.assert_allclose(flat(step), problem.dense_step(1e-4, 0.1), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("max_kl", [1e-3, 0.01, 0.3])
def test_a_step_lowers_the_loss_within_the_kl_limit(max_kl: float) -> None:
    problem = Problem()
    step = trust_region_step(problem.loss, problem.kl, problem.parameters, TrustRegionConfig(max_kl=max_kl))
    moved = {name: value + step[name] for name, value in problem.parameters.items()}
    assert float(problem.loss(moved).detach()) < float(problem.loss(problem.parameters).detach())
    assert max_kl / 8 < float(problem.kl(moved).detach()) <= max_kl


def test_no_step_is_taken_where_none_helps() -> None:
    problem = Problem()
    stuck = trust_region_step(
        lambda values: problem.loss(values).detach() + 0 * problem.loss(values),
        problem.kl,
        problem.parameters,
        TrustRegionConfig(),
    )
    assert all(not value.any() for value in stuck.values())

    def rises(values: dict[str, Tensor]) -> Tensor:  # everywhere but where it starts
        loss = problem.loss(values)
        return loss if torch.is_grad_enabled() else loss + 1

    assert all(
        not v.any() for v in trust_region_step(rises, problem.kl, problem.parameters, TrustRegionConfig()).values()
    )


def test_conjugate_gradient_solves_a_positive_definite_system() -> None:
    torch.manual_seed(1)
    root = torch.randn(12, 12).double()
    matrix, b = root @ root.t() + torch.eye(12).double(), torch.randn(12).double()
    torch.testing.assert_close(conjugate_gradient(lambda v: matrix @ v, b, 40), torch.linalg.solve(matrix, b))


def test_a_loss_with_a_given_gradient_takes_the_step_with_sgd_of_rate_1() -> None:
    problem = Problem()
    step = trust_region_step(problem.loss, problem.kl, problem.parameters, TrustRegionConfig())
    expected = {name: (value + step[name]).detach() for name, value in problem.parameters.items()}
    value = problem.loss(problem.parameters)
    loss = with_gradient(value, problem.parameters, {name: -change for name, change in step.items()})
    assert float(loss.detach()) == float(value.detach())
    loss.backward()
    torch.optim.SGD(problem.net.parameters(), lr=1).step()
    for name, weight in problem.net.named_parameters():
        torch.testing.assert_close(weight.detach(), expected[name])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_kl": 0.0}, "max_kl must be above 0, but is 0.0"),
        ({"damping": -1.0}, "damping must be 0 or more, but is -1.0"),
        ({"iterations": 0}, "iterations must be at least 1, but is 0"),
    ],
)
def test_settings_are_checked(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrustRegionConfig(**settings)
