"""Compiling: torch.compile of networks, and trials that leave no trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from saccade.core import Task
from saccade.core.callback import Log
from saccade.training.precision import fastest

Context = Callable[[], contextlib.AbstractContextManager[Any]]


def compile_networks(networks: Mapping[str, nn.Module], backend: str) -> dict[str, nn.Module]:
    """Return compiled forms of the networks, which share all their parameters."""
    return {name: cast(nn.Module, torch.compile(network, backend=backend)) for name, network in networks.items()}


@contextlib.contextmanager
def unchanged(task: Task, networks: Mapping[str, nn.Module]) -> Iterator[None]:
    """Put buffers and the state of the task back after a trial, and clear its gradients."""
    buffers = [(buffer, buffer.clone()) for network in networks.values() for buffer in network.buffers()]
    state = {name: value.clone() for name, value in task.state().items()}
    try:
        yield
    finally:
        for buffer, value in buffers:
            buffer.copy_(value)
        for network in networks.values():
            network.zero_grad(set_to_none=True)
        if state:
            task.load_state(state)


@contextlib.contextmanager
def training_mode(networks: Mapping[str, nn.Module]) -> Iterator[None]:
    """Put the networks in train mode for a block; everywhere else they are in eval mode.

    The flag is set as `train` and `eval` do, without a call for each module, since that happens in every step.
    """
    attributes = [module.__dict__ for network in networks.values() for module in network.modules()]
    for module in attributes:
        module["training"] = True
    try:
        yield
    finally:
        for module in attributes:
            module["training"] = False


def loss_of(task: Task, batch: Any, networks: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Return the loss of every network on one batch, without an update between them."""
    return dict(task.losses(batch, networks))


def try_losses(
    task: Task, batch: Any, networks: Mapping[str, nn.Module], compiled: Mapping[str, nn.Module], context: Context
) -> None:
    """Compute losses and gradients of one batch with compiled networks: that shows whether they work."""
    with unchanged(task, networks), training_mode(networks), context():
        for loss in loss_of(task, batch, compiled).values():
            loss.backward()


def compile_or_report(
    task: Task, batch: Any, networks: Mapping[str, nn.Module], backend: str, context: Context, log: Log
) -> dict[str, nn.Module]:
    """Return compiled networks that were tried on a batch; none, and the reason in the log, where that fails."""
    try:
        compiled = compile_networks(networks, backend)
        try_losses(task, batch, networks, compiled, context)
    except Exception as error:  # noqa: BLE001 - the compiler may fail in any way; the plain form always works
        log(f"torch.compile does not work here ({type(error).__name__}); training without it")
        return {}
    return compiled


def seconds_of_step(task: Task, batch: Any, networks: Mapping[str, nn.Module], context: Context) -> float:
    """Return how long losses and gradients of one batch take in a context."""

    def step() -> None:
        with context():
            losses = loss_of(task, batch, networks)
        sum(losses.values()).backward()  # type: ignore[union-attr]

    with unchanged(task, networks), training_mode(networks):
        return fastest(step)
