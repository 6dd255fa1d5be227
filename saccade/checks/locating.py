"""Locating a failure: the first module of a network whose outputs differ between two calls that should agree."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from saccade.checks.differences import describe_module, first_difference
from saccade.checks.token_models import TokenModel

Align = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""parts of the outputs of one module in the two calls that should be equal"""


def first_module(view: TokenModel, expected: Callable[[Any], Any], actual: Callable[[Any], Any], align: Align) -> str:
    """Return the first module, in the order of computation, whose outputs differ; a copy of the network is used."""
    copied = view.of(copy.deepcopy(view.root()))
    calls = [_outputs(copied, call) for call in (expected, actual)]
    modules = dict(copied.root().named_modules())
    for name, output in calls[0].items():
        other = calls[1].get(name)
        if other is None or not name:
            continue
        try:
            one, two = align(output, other)
        except (IndexError, RuntimeError):
            continue
        if one.shape == two.shape and one.numel() and first_difference(one, two) is not None:
            return describe_module(name, modules[name])
    return describe_module("", copied.root())


def _outputs(view: TokenModel, call: Callable[[Any], Any]) -> dict[str, Tensor]:
    """Return the last output of every module during a call, in the order in which they returned."""
    outputs: dict[str, Tensor] = {}

    def hook(name: str) -> Callable[..., None]:
        def keep(module: nn.Module, inputs: Any, output: Any) -> None:
            value = output[0] if isinstance(output, tuple) else output
            if isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 1:
                outputs.pop(name, None)
                outputs[name] = value.detach()

        return keep

    handles = [module.register_forward_hook(hook(name)) for name, module in view.root().named_modules()]
    with torch.no_grad():
        call(view)
    for handle in handles:
        handle.remove()
    return outputs
