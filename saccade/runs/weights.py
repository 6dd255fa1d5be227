"""Checkpoint tensors: what a checkpoint holds of networks, optimizers and states, as flat tensors by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeGuard

import torch
from torch import Tensor, nn

from saccade.errors import ModelFileError
from saccade.tensor_files import is_finite

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Networks = Mapping[str, nn.Module]
Optimizers = Mapping[str, list[torch.optim.Optimizer]]
StateShapes = Callable[[torch.optim.Optimizer, Tensor], Mapping[str, torch.Size]]
"""the shape of each state tensor that an optimizer has for a parameter, by name"""


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


def is_sharded(value: Tensor) -> TypeGuard[DTensor]:
    """Whether this process has a shard of a tensor; torch's module, slow to import, is there if a shard is."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def local(value: Tensor) -> Tensor:
    """Return the part of a tensor that this process has: all of it, or its shard."""
    if is_sharded(value):
        shard: Tensor = value.detach().to_local()  # type: ignore[attr-defined]
        return shard
    return value


def check(networks: Networks, saved: Mapping[str, Tensor], where: str) -> None:
    """Refuse saved weights whose names, shapes and types are not exactly those of the networks, or not finite.

    A buffer may hold infinities, as the mask of a custom network does.
    """
    expected = weights(networks)
    missing, unexpected = sorted(expected.keys() - saved.keys()), sorted(saved.keys() - expected.keys())
    if missing or unexpected:
        raise ModelFileError(f"{where} does not fit the model: missing {missing[:3]}, unexpected {unexpected[:3]}")
    buffers = {id(buffer) for module in networks.values() for buffer in module.buffers()}
    for name, value in expected.items():
        _check_tensor(saved[name], value.shape, value.dtype, f"{where}: {name}")
        if id(value) not in buffers:
            _check_finite(saved[name], f"{where}: {name}")


def _check_tensor(value: Tensor, shape: torch.Size, dtype: torch.dtype, name: str) -> None:
    if value.shape != shape:
        raise ModelFileError(f"{name} must have shape {tuple(shape)}, but has {tuple(value.shape)}")
    if value.dtype != dtype:
        raise ModelFileError(f"{name} must be {dtype}, but is {value.dtype}")


def _check_finite(value: Tensor, name: str) -> None:
    if not is_finite(value):
        raise ModelFileError(
            f"{name} must hold finite numbers, but does not; choose another checkpoint with --checkpoint"
        )


def restore(networks: Networks, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copy saved weights into networks, after a check."""
    check(networks, tensors, where)
    assign(networks, tensors)


@torch.no_grad()
def assign(networks: Networks, tensors: Mapping[str, Tensor]) -> None:
    """Copy weights of the same networks into them."""
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


def restore_optimizers(
    networks: Networks, optimizers: Optimizers, tensors: Mapping[str, Tensor], shapes: StateShapes, where: str
) -> None:
    """Give the optimizers the state that `optimizer_tensors` returned; each parameter has all of its state or none."""
    owner = {
        (network, id(parameter)): optimizer
        for network, group in optimizers.items()
        for optimizer in group
        for parameters in optimizer.param_groups
        for parameter in parameters["params"]
    }
    by_name = {f"{network}/{name}": (network, p) for network, m in networks.items() for name, p in m.named_parameters()}
    states: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        name, _, entry = key.rpartition("/")
        states.setdefault(name, {})[entry] = value
    for name, state in states.items():
        if name not in by_name:
            raise ModelFileError(f"{where}: the optimizer has a state of '{name}', but the model has no such parameter")
        network, parameter = by_name[name]
        optimizer = owner.get((network, id(parameter)))
        if optimizer is None:
            raise ModelFileError(f"{where}: the optimizer has a state of '{name}', but that parameter is frozen")
        expected = shapes(optimizer, parameter)
        if state.keys() != expected.keys():
            raise ModelFileError(
                f"{where}: the optimizer must have {', '.join(sorted(expected))} of '{name}', but has "
                f"{', '.join(sorted(state))}"
            )
        for entry, value in state.items():
            dtype = parameter.dtype if expected[entry] == parameter.shape else torch.float32  # its step
            _check_tensor(value, expected[entry], dtype, f"{where}: {entry} of '{name}'")
            _check_finite(value, f"{where}: {entry} of '{name}'")
            optimizer.state[parameter][entry] = value.to(parameter.device)  # fused AdamW: its step too


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
    states: dict[str, dict[str, Tensor]] = {owner: {} for owner in owners}
    for key, value in tensors.items():
        owner, _, name = key.partition("/")
        if owner not in states:
            raise ModelFileError(f"{where} must hold states of {' and '.join(states)}, but holds one of '{owner}'")
        states[owner][name] = value
    for owner, stateful in owners.items():
        state = states[owner]
        if bool(stateful.state()) != bool(state):
            rule = "must hold the state of" if not state else "must not hold a state of"
            raise ModelFileError(f"{where} {rule} the {owner}, but does{' not' if not state else ''}")
        if state:
            try:
                stateful.load_state(state)
            except (LookupError, TypeError, ValueError, RuntimeError) as error:
                raise ModelFileError(f"{where}: the state of the {owner} cannot be restored: {error!r}") from error
