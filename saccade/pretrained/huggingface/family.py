"""Family: what must be known of a kind of foreign model to read and write it, one short file each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import nn

from saccade.pretrained.huggingface.parts import Part

Names = frozenset[str]
Activation = Literal["relu", "squared_relu", "gelu", "gelu_tanh", "silu", "swiglu"]
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}


@dataclass(frozen=True)
class Family:
    """A kind of model: its config.json as a typed schema, its names, and our model of it."""

    name: str
    """the model_type of a config.json"""
    schema: type[Any]
    shape: Callable[[Any, Names], Any]
    """a schema and the names of ours that the file can fill -> our config"""
    describe: Callable[[Any, int], dict[str, Any]]
    """our config and the size of the vocabulary -> config.json"""
    build: Callable[[Any, int, Names], nn.Module]
    """our config, the size of the vocabulary and the names that can be filled -> our model"""
    body: Callable[[Any], list[Part]]
    """the parts that stand under a prefix in a model with a head"""
    head: list[Part]
    prefix: str
    """theirs, in a model with a head"""
    under: str
    """ours"""
    architecture: Callable[[Names], str]
    """the class of transformers for a model of ours with these names"""
    unused: tuple[str, ...] = ()
    """endings of names that hold nothing learned"""

    def parts(self, config: Any, *, bare: bool = False) -> list[Part]:
        """All tensors by their full names; `bare`: of a model without a head, which has no prefix."""
        prefix = "" if bare else self.prefix
        inner = [
            replace(part, ours=self.under + part.ours, theirs=tuple(prefix + name for name in part.theirs))
            for part in self.body(config)
        ]
        return [*inner, *self.head]


def activation(name: str) -> Activation:
    """Our name of an activation of transformers."""
    if name not in ACTIVATIONS:
        raise ValueError(f"the activation must be one of {', '.join(ACTIVATIONS)}, but is {name!r}")
    return ACTIVATIONS[name]


def backwards(name: str) -> str:
    """Their name of an activation of ours."""
    found = next((theirs for theirs, ours in ACTIVATIONS.items() if ours == name), None)
    if found is None:
        raise ValueError(f"transformers has no activation for model.activation={name}")
    return found
