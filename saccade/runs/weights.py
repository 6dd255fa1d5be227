"""What a checkpoint holds of networks and optimizers, as flat tensors by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from saccade.config import to_json
from saccade.errors import ModelFileError

Players = Mapping[str, nn.Module]
Optimizers = Mapping[str, list[torch.optim.Optimizer]]


def weights(networks: Players) -> dict[str, Tensor]:
    """Parameters and buffers by name; a tied weight once. With several networks the name begins with the player."""
    found: dict[str, Tensor] = {}
    for player, module in networks.items():
        prefix = "" if len(networks) == 1 else f"{player}."
        found |= {prefix + name: value.detach() for name, value in module.named_parameters()}
        kept = module.state_dict()
        found |= {prefix + name: value for name, value in module.named_buffers() if name in kept}
    return found


def settings_hash(config: Any) -> str:
    """The settings of a task in a few letters."""
    return hashlib.sha256(json.dumps(to_json(config), sort_keys=True).encode()).hexdigest()[:16]


def check_settings(state: Mapping[str, Any], config: Any, where: str) -> None:
    """Refuse weights that were trained with other settings, even where the shapes agree."""
    if state.get("settings") != settings_hash(config):
        raise ModelFileError(f"{where} was made with other settings than run.json holds now; undo that change")


def check(networks: Players, tensors: Mapping[str, Tensor], where: str) -> None:
    """Refuse saved weights that are not of exactly the same names and shapes as the networks."""
    own = weights(networks)
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if missing or extra:
        raise ModelFileError(f"{where} does not fit the model: missing {missing[:3]}, not known {extra[:3]}")
    for name, value in own.items():
        if value.shape != tensors[name].shape:
            raise ModelFileError(
                f"{where}: {name} must have shape {tuple(value.shape)}, but has {tuple(tensors[name].shape)}"
            )


@torch.no_grad()
def restore(networks: Players, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copy saved weights into networks."""
    check(networks, tensors, where)
    for name, value in weights(networks).items():
        value.copy_(tensors[name])


def optimizer_tensors(networks: Players, optimizers: Optimizers) -> dict[str, Tensor]:
    """Every tensor the optimizers remember, as player/parameter/what."""
    found: dict[str, Tensor] = {}
    for player, module in networks.items():
        for name, parameter in module.named_parameters():
            for optimizer in optimizers[player]:
                for what, value in optimizer.state.get(parameter, {}).items():
                    found[f"{player}/{name}/{what}"] = value
    return found


def restore_optimizers(networks: Players, optimizers: Optimizers, tensors: Mapping[str, Tensor]) -> None:
    """Give the optimizers back what `optimizer_tensors` took."""
    owner = {
        (player, id(parameter)): optimizer
        for player, group in optimizers.items()
        for optimizer in group
        for parameters in optimizer.param_groups
        for parameter in parameters["params"]
    }
    by_name = {f"{player}/{name}": (player, p) for player, m in networks.items() for name, p in m.named_parameters()}
    for key, value in tensors.items():
        name, _, what = key.rpartition("/")
        if name not in by_name:
            raise ModelFileError(f"the saved optimizer knows '{name}', the model does not")
        player, parameter = by_name[name]
        owner[player, id(parameter)].state[parameter][what] = value.to(parameter.device)  # fused AdamW: its step too
