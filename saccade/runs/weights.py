"""Checkpoint tensors: what a checkpoint holds of networks, optimizers and states, as flat tensors by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from saccade.config import to_json
from saccade.errors import ModelFileError
from saccade.tensor_files import is_finite

Networks = Mapping[str, nn.Module]
Optimizers = Mapping[str, list[torch.optim.Optimizer]]


def weights(networks: Networks) -> dict[str, Tensor]:
    """Return parameters and persistent buffers by name, a tied weight once.

    With several networks each name starts with the name of its network.
    """
    tensors: dict[str, Tensor] = {}
    for network, module in networks.items():
        prefix = "" if len(networks) == 1 else f"{network}."
        tensors |= {prefix + name: value.detach() for name, value in module.named_parameters()}
        persistent = module.state_dict()
        tensors |= {prefix + name: value for name, value in module.named_buffers() if name in persistent}
    return tensors


def config_hash(config: Any) -> str:
    """Return a short hash of a task's config."""
    return hashlib.sha256(json.dumps(to_json(config), sort_keys=True).encode()).hexdigest()[:16]


def check_config(state: Mapping[str, Any], config: Any, where: str) -> None:
    """Refuse weights that were trained with another config, even where the shapes agree."""
    if state.get("config_hash") != config_hash(config):
        raise ModelFileError(f"{where} was trained with other settings than run.json holds now; undo that change")


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor."""
    return {name: tuple(value.shape) for name, value in tensors.items()}


def check(networks: Networks, saved: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Refuse saved weights whose names and shapes are not exactly those of the networks."""
    expected = shapes(weights(networks))
    missing, unexpected = sorted(expected.keys() - saved.keys()), sorted(saved.keys() - expected.keys())
    if missing or unexpected:
        raise ModelFileError(f"{where} does not fit the model: missing {missing[:3]}, unexpected {unexpected[:3]}")
    for name, shape in expected.items():
        if saved[name] != shape:
            raise ModelFileError(f"{where}: {name} must have shape {shape}, but has {saved[name]}")


def check_finite(tensors: Mapping[str, Tensor], where: str) -> None:
    """Refuse saved weights that are not numbers: every output would be wrong."""
    name = next((name for name, value in tensors.items() if not is_finite(value)), None)
    if name is not None:
        raise ModelFileError(
            f"{where}: the tensor '{name}' must be finite, but has NaN or infinite values; choose another checkpoint "
            "with --checkpoint, or train again"
        )


@torch.no_grad()
def restore(networks: Networks, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copy saved weights into networks."""
    check(networks, shapes(tensors), where)
    for name, value in weights(networks).items():
        value.copy_(tensors[name])


def optimizer_tensors(networks: Networks, optimizers: Optimizers) -> dict[str, Tensor]:
    """Return every state tensor of the optimizers, by network/parameter/key."""
    return {
        f"{network}/{name}/{key}": value
        for network, module in networks.items()
        for name, parameter in module.named_parameters()
        for optimizer in optimizers[network]
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizers(networks: Networks, optimizers: Optimizers, tensors: Mapping[str, Tensor]) -> None:
    """Give the optimizers the state that `optimizer_tensors` returned."""
    owner = {
        (network, id(parameter)): optimizer
        for network, group in optimizers.items()
        for optimizer in group
        for parameters in optimizer.param_groups
        for parameter in parameters["params"]
    }
    by_name = {f"{network}/{name}": (network, p) for network, m in networks.items() for name, p in m.named_parameters()}
    for key, value in tensors.items():
        name, _, entry = key.rpartition("/")
        if name not in by_name:
            raise ModelFileError(f"the saved optimizer has a state of '{name}', but the model has no such parameter")
        network, parameter = by_name[name]
        if (network, id(parameter)) not in owner:
            raise ModelFileError(f"the saved optimizer has a state of '{name}', but that parameter is frozen")
        owner[network, id(parameter)].state[parameter][entry] = value.to(parameter.device)  # fused AdamW: its step too


class Stateful(Protocol):
    """A source or a task."""

    def state(self) -> Mapping[str, Tensor] | None: ...

    def load_state(self, state: Mapping[str, Tensor]) -> None: ...


def state_tensors(owners: Mapping[str, Stateful]) -> dict[str, Tensor]:
    """Return a copy of every tensor of the states, by owner/name."""
    states = ((owner, stateful.state() or {}) for owner, stateful in owners.items())
    return {f"{owner}/{name}": value.detach().clone() for owner, state in states for name, value in state.items()}


def restore_states(owners: Mapping[str, Stateful], tensors: Mapping[str, Tensor], where: str) -> None:
    """Give each owner that has a state the one that `state_tensors` returned."""
    for owner, stateful in owners.items():
        prefix = f"{owner}/"
        state = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        if stateful.state() and not state:
            raise ModelFileError(f"{where} must hold the state of the {owner}, but does not")
        if state:
            stateful.load_state(state)
