"""Compiling: torch.compile of networks, and a trial that leaves no trace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import cast

import torch
from torch import nn

from saccade.core import Task


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
    """Put the networks in train mode for a block; everywhere else they are in eval mode."""
    for network in networks.values():
        network.train()
    try:
        yield
    finally:
        for network in networks.values():
            network.eval()
