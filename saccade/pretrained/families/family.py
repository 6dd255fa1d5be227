"""Family: everything needed to read and write one model_type of transformers; each family is one short file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from saccade.nn.layers import Activation
from saccade.pretrained.families.mapping import WeightMapping

Names = frozenset[str]
"""names of our parameters that a file can fill, or that a network has"""
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "relu": "relu",
    "relu2": "squared_relu",
    "silu": "silu",
    "swish": "silu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "quick_gelu",
}
GATED: dict[Activation, Activation] = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh", "relu": "reglu"}
"""the gated feed-forward layer by the activation of its gate"""


@dataclass(frozen=True)
class Family:
    """A model family: the fields of its config.json, its weight names, its processor and the task that runs it."""

    name: str
    """the model_type of config.json"""
    fields: type[Any]
    """the fields of config.json that are read, as a dataclass; a value it does not allow is refused"""
    config: type[Any]
    """class of our config"""
    task: Callable[[Names], str]
    """the task that can run a network with these parameters as it is"""
    read_config: Callable[[Any, Names], Any]
    """(fields, names the file can fill) -> our config; ValueError: not supported"""
    write_config: Callable[[Any, nn.Module], dict[str, Any]]
    """(our config, network) -> config.json; ValueError: this family cannot express it"""
    build: Callable[[Any, Any, Names], nn.Module]
    """(our config, fields, names the file can fill) -> network with random weights"""
    body: Callable[[Any], list[WeightMapping]]
    """our config -> the weights that have a prefix in a network with a head"""
    head: tuple[WeightMapping, ...]
    """the weights of the heads"""
    prefix: str
    """of the body in transformers' classes with a head"""
    network_prefix: str
    """of the body in our network"""
    architecture: Callable[[Names], str]
    """names of our parameters -> class of transformers"""
    read_processor: Callable[[Path, Mapping[str, Any]], Any]
    """(folder, config.json) -> processor"""
    write_processor: Callable[[Any, Path], None] | None
    """(processor, folder); None: this family can be read only"""
    prepare: Callable[[nn.Module, Any], None] = lambda network, processor: None
    """(network, processor): give the network what it needs of the processor, such as the mean of pixels"""
    generation_config: Callable[[Any], dict[str, Any]] = lambda _: {}
    """processor -> generation_config.json; empty: none is written"""
    copies: tuple[tuple[str, str], ...] = ()
    """where embeddings are tied: tensors with the one that each must equal if both are stored"""
    renames: tuple[tuple[str, str], ...] = ()
    """parts of names that some checkpoints have instead of those in the mappings: (theirs, that of the mappings)"""
    ignored: tuple[str, ...] = ()
    """suffixes of tensors that hold nothing learned, or a copy of another tensor"""

    def mappings(self, config: Any, *, bare: bool = False) -> list[WeightMapping]:
        """Return all weights with their full names; `bare`: without a prefix, as in a network without a head."""
        prefix = "" if bare else self.prefix
        body = [
            replace(
                mapping,
                name=self.network_prefix + mapping.name,
                hf_names=tuple(prefix + name for name in mapping.hf_names),
            )
            for mapping in self.body(config)
        ]
        return [*body, *self.head]


def read_activation(name: str) -> Activation:
    """Return our name for an activation of transformers."""
    if name not in ACTIVATIONS:
        raise ValueError(f"the activation must be one of {', '.join(ACTIVATIONS)}, but is {name!r}")
    return ACTIVATIONS[name]


def read_gated_activation(name: str) -> Activation:
    """Return our name for a gated feed-forward layer whose gate has an activation of transformers."""
    activation = read_activation(name)
    if activation not in GATED:
        raise ValueError(f"the activation of a gated layer must not be {name!r}, which is not supported")
    return GATED[activation]


def write_gated_activation(name: str) -> str:
    """Return transformers' name for the activation of the gate of a feed-forward layer of ours."""
    gate = next((activation for activation, gated in GATED.items() if gated == name), None)
    if gate is None:
        raise ValueError(f"activation must be gated, but is {name}")
    return write_activation(gate)


def write_activation(name: str) -> str:
    """Return transformers' name for an activation of ours."""
    hf_name = next((theirs for theirs, ours in ACTIVATIONS.items() if ours == name), None)
    if hf_name is None:
        raise ValueError(f"transformers has no activation for model.activation={name}")
    return hf_name
