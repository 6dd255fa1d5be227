"""Networks of generative adversarial imitation learning: discriminator, value network, and policy in a trust region.

GAIL, https://arxiv.org/abs/1606.03476, Algorithm 1. D(s, a) is pushed up on the steps of the policy and down on those
of the expert (equation 17), and the policy minimises log D (equation 18).
Shapes: B steps, T steps of a history, D numbers of an observation, F numbers that describe an action.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from saccade.models.policy.policy import MLP, MLPConfig, Normalize, Policy, Scale
from saccade.nn.kernels import twice_differentiable
from saccade.nn.linear import Linear
from saccade.nn.trust_region import Parameters, TrustRegionConfig, trust_region_step, with_gradient


class Discriminator(nn.Module):
    """The probability D that an observation and an action are those of the policy, not of the expert."""

    def __init__(
        self, config: MLPConfig, observations: Scale, *, labels: int = 0, actions: Scale | None = None
    ) -> None:
        super().__init__()
        self.labels = labels
        self.normalize = Normalize(observations)
        self.normalize_actions = None if actions is None else Normalize(actions)
        features = labels if actions is None else len(actions.mean)
        self.body = MLP(config, len(observations.mean) + features)
        self.head = Linear(config.hidden, 1)

    def features(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return the input (B, D + F): normalized observations, and actions as one-hot or normalized vectors."""
        if self.normalize_actions is None:
            described = F.one_hot(actions, self.labels).to(observations.dtype)
        else:
            described = self.normalize_actions(actions)
        return torch.cat((self.normalize(observations), described), -1)

    def logits(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return the logit of D (B,)."""
        out: Tensor = self.head(self.body(self.features(observations, actions)))[:, 0]
        return out

    def cost(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return log D (B,), which the policy minimises."""
        return F.logsigmoid(self.logits(observations, actions))

    def forward(
        self, policy: tuple[Tensor, Tensor], expert: tuple[Tensor, Tensor], between: Tensor, penalty: float
    ) -> Tensor:
        """Return -E_policy[log D] - E_expert[log(1 - D)] (equation 17), with a gradient penalty.

        The penalty is the squared gradient of the logit (https://arxiv.org/abs/1801.04406) at points `between` (B, 1),
        0 to 1, on lines from steps of the policy to steps of the expert.
        """
        with twice_differentiable():
            fake, real = self.features(*policy), self.features(*expert)
            logits = self.head(self.body(torch.cat((fake, real))))[:, 0]
            loss = F.softplus(-logits[: len(fake)]).mean() + F.softplus(logits[len(fake) :]).mean()
            mixed = torch.lerp(fake, real, between).detach().requires_grad_()
            (grad,) = torch.autograd.grad(self.head(self.body(mixed)).sum(), mixed, create_graph=True)
            return loss + penalty * grad.square().sum(1).mean()


class Value(nn.Module):
    """The expected return of an observation."""

    def __init__(self, config: MLPConfig, observations: Scale) -> None:
        super().__init__()
        self.normalize = Normalize(observations)
        self.body = MLP(config, len(observations.mean))
        self.head = Linear(config.hidden, 1)

    def values(self, observations: Tensor) -> Tensor:
        """Return the value (...) of observations (..., D)."""
        out: Tensor = self.head(self.body(self.normalize(observations)))[..., 0]
        return out

    def forward(self, observations: Tensor, returns: Tensor) -> Tensor:
        """Return the mean squared error against returns (B,)."""
        return F.mse_loss(self.values(observations), returns)


class TrustRegionPolicy(Policy):
    """A policy whose loss has the negative of a TRPO step as its gradient.

    The training loop applies gradients with an optimizer; plain SGD takes that step times its learning rate, the whole
    of it at 1. A schedule that lowers the rate shortens the step: the divergence stays below `max_kl`, about with the
    square of the rate. So the trust region needs no loop of its own, and resuming, DDP and checkpoints work as for any
    network. Set `trust_region` after construction.
    """

    trust_region = TrustRegionConfig()

    def forward(  # type: ignore[override]  # a policy that is trained in another way
        self, histories: Tensor, lengths: Tensor, actions: Tensor, advantages: Tensor, entropy: float
    ) -> Tensor:
        """Return -E[ratio advantage] - `entropy` E[H], where ratio compares the new policy with the present one."""
        targets = self.to_targets(actions)
        with torch.no_grad():
            before = self.act(histories, lengths).detach()
            log_before = before.log_prob(targets)
        parameters, acting = dict(self.named_parameters()), _Acting(self)

        def surrogate(values: Parameters) -> Tensor:
            now = acting.at(values, histories, lengths)
            ratio = (now.log_prob(targets) - log_before).exp()
            loss: Tensor = -(ratio * advantages).mean() - entropy * now.entropy().mean()
            return loss

        def kl(values: Parameters) -> Tensor:
            divergence: Tensor = before.kl(acting.at(values, histories, lengths)).mean()
            return divergence

        # The compiler cannot follow second derivatives. As a decorator, `disable` would import it, which is slow.
        find = torch.compiler.disable(trust_region_step) if torch.compiler.is_compiling() else trust_region_step
        step = find(surrogate, kl, parameters, self.trust_region)
        with torch.no_grad():
            loss = surrogate(parameters)
        return with_gradient(loss, parameters, {name: -change for name, change in step.items()})


class _Acting(nn.Module):
    """`Policy.act` as a forward call, for `functional_call` with other parameters."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def at(self, values: Parameters, histories: Tensor, lengths: Tensor) -> Any:
        """Return the distribution of the policy with other parameters."""
        renamed = {f"policy.{name}": value for name, value in values.items()}
        return functional_call(self, renamed, (histories, lengths))

    def forward(self, histories: Tensor, lengths: Tensor) -> Any:
        return self.policy.act(histories, lengths)


def absorbing_reward(policy_rate: float, expert_rate: float) -> float:
    """Return -log D of the absorbing state that an episode enters when the environment terminates it.

    https://arxiv.org/abs/1809.02925 trains D on that state; here D is in closed form the optimum of equation 17 for a
    state without an observation, the share of the policy in all terminations, from the terminations per step of the
    policy and of the expert. It is log 2 where they terminate equally often, as for any step that D cannot tell apart,
    and 0 for an expert that never does: then ending an episode is the worst that can happen.
    """
    return -math.log(policy_rate / (policy_rate + expert_rate)) if policy_rate else 0.0


def advantages(
    rewards: Tensor,
    values: Tensor,
    following: Tensor,
    ends: tuple[Tensor, Tensor],
    *,
    absorbing: float,
    discount: float,
    decay: float,
) -> Tensor:
    """Return generalised advantage estimates (T, N), https://arxiv.org/abs/1506.02438.

    `values` (T, N) are those of the observations before each step, `following` (T, N) those after it, before another
    episode starts. `ends` are the steps (T, N) that terminated an episode and those after which a time limit cut it.
    After a termination the reward is `absorbing` for ever; a return that stops there would reward surviving with any
    positive reward, whatever is imitated. After a time limit the return goes on with the value of the last
    observation. No return goes on in the next episode.
    """
    terminated, truncated = ends
    following = torch.where(terminated, absorbing / (1 - discount), following)
    errors = rewards + discount * following - values  # (T, N)
    estimates, later = [], torch.zeros_like(errors[0])
    for error, ended in zip(errors.flip(0), (terminated | truncated).flip(0), strict=True):
        later = error + discount * decay * later * ~ended
        estimates.append(later)
    return torch.stack(estimates[::-1])
