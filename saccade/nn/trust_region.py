"""Trust-region policy step: conjugate gradient on Fisher-vector products, then a line search on the KL divergence.

TRPO, https://arxiv.org/abs/1502.05477, section 6 and appendix C. Shapes: P parameters, all in one vector.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.nn.kernels import twice_differentiable

Parameters = Mapping[str, Tensor]
Objective = Callable[[Parameters], Tensor]
"""a scalar as a function of parameters by name"""


@dataclass(frozen=True)
class TrustRegionConfig:
    """Size and accuracy of a trust-region step."""

    max_kl: float = 0.01
    """maximum mean KL divergence between the policy before and after a step"""
    damping: float = 0.1
    """added to the diagonal of the Fisher matrix"""
    iterations: int = 10
    """of conjugate gradient"""
    backtracks: int = 10
    """halvings of a step that is too long or does not lower the surrogate loss"""

    def __post_init__(self) -> None:
        if self.max_kl <= 0:
            raise ValueError(f"max_kl must be above 0, but is {self.max_kl}")
        if self.damping < 0:
            raise ValueError(f"damping must be 0 or more, but is {self.damping}")
        for name in ("iterations", "backtracks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")


def trust_region_step(
    surrogate: Objective, kl: Objective, parameters: Parameters, config: TrustRegionConfig
) -> dict[str, Tensor]:
    """Return the change of the parameters that lowers the surrogate loss most within `max_kl`; zeros if none does.

    `kl` is the mean divergence from the policy at `parameters`: its second derivative there is the Fisher matrix F.
    The step is s = sqrt(2 max_kl / x'Fx) x with Fx = -g, halved until the loss falls and the KL is within the limit.
    """
    names, start = list(parameters), {name: value.detach() for name, value in parameters.items()}
    with torch.enable_grad(), twice_differentiable():
        leaves = {name: value.clone().requires_grad_() for name, value in start.items()}
        loss = surrogate(leaves)
        gradient = _flat(torch.autograd.grad(loss, list(leaves.values())))
        kl_gradient = _flat(torch.autograd.grad(kl(leaves), list(leaves.values()), create_graph=True))

    def fisher(vector: Tensor) -> Tensor:
        product = torch.autograd.grad(kl_gradient @ vector, list(leaves.values()), retain_graph=True)
        return _flat(product) + config.damping * vector

    before = float(loss.detach())
    none = {name: torch.zeros_like(value) for name, value in start.items()}
    if not bool(gradient.any()):
        return none
    direction = conjugate_gradient(fisher, -gradient, config.iterations)
    curvature = float(direction @ fisher(direction))
    if not curvature > 0:
        return none
    step = direction * (2 * config.max_kl / curvature) ** 0.5
    with torch.no_grad():
        for _ in range(config.backtracks):
            change = _unflat(step, start)
            candidate = {name: start[name] + change[name] for name in names}
            if float(surrogate(candidate)) < before and float(kl(candidate)) <= config.max_kl:
                return change
            step = step / 2
    return none


def conjugate_gradient(product: Callable[[Tensor], Tensor], b: Tensor, iterations: int) -> Tensor:
    """Return x (P,) with A x = b, where `product` multiplies by the positive definite matrix A."""
    x, residual = torch.zeros_like(b), b.clone()
    direction, squared = b.clone(), b @ b
    for _ in range(iterations):
        if float(squared) <= 1e-20 * float(b @ b):
            break
        along = product(direction)
        length = squared / (direction @ along)
        x, residual = x + length * direction, residual - length * along
        following = residual @ residual
        direction, squared = residual + following / squared * direction, following
    return x


def with_gradient(value: Tensor, parameters: Parameters, gradient: Parameters) -> Tensor:
    """Return a scalar that is `value`, and whose gradient for each parameter is the given tensor."""
    terms = [((parameters[name] - parameters[name].detach()) * grad).sum() for name, grad in gradient.items()]
    return value.detach() + torch.stack(terms).sum()


def _flat(tensors: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _unflat(vector: Tensor, like: Parameters) -> dict[str, Tensor]:
    parts = vector.split([value.numel() for value in like.values()])
    return {name: part.view_as(value) for (name, value), part in zip(like.items(), parts, strict=True)}
