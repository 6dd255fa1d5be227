"""Weight mappings: how one parameter of ours is composed of tensors of a checkpoint, and split into them again.

Shapes: H heads, E head width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

GetTensor = Callable[[str], Tensor]


@dataclass(frozen=True)
class WeightMapping:
    """One parameter of ours: one or more tensors of the checkpoint, concatenated along their rows."""

    name: str
    """of our parameter"""
    hf_names: tuple[str, ...]
    """of the tensors in the checkpoint"""
    rows: tuple[int, ...] = ()
    """rows of each tensor where there are several"""
    transpose: bool = False
    """the checkpoint stores the matrix as (inputs, outputs)"""
    rotary_heads: tuple[int, ...] = ()
    """for each tensor the number of heads whose rotary pairs are (i, i + E/2) in the checkpoint; 0: no rotary pairs"""
    backwards: bool = False
    """the checkpoint rotates these pairs by negative angles: the elements of a pair are swapped"""
    offset: float = 0.0
    """the checkpoint stores the parameter less this number"""
    squeeze: bool = False
    """the checkpoint stores a vector as a matrix with one row"""
    skip_rows: int = 0
    """leading rows of the checkpoint's tensor that are never used"""
    only_rows: int = 0
    """leading rows of the checkpoint's tensor that are used alone; 0: all"""
    part: tuple[int, int] = (0, 0)
    """rows (first, end) of the checkpoint's tensor, whose others belong to other parameters; (0, 0): all"""
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """shape of each tensor in the checkpoint, and ours where it is another one with the same numbers"""

    def load(self, get: GetTensor) -> Tensor:
        """Compose our parameter from the tensors of the checkpoint."""
        tensors = [get(name) for name in self.hf_names]
        if self.shapes is not None:
            tensors = [reshape(tensor, *self.shapes) for tensor in tensors]
        if self.transpose:
            tensors = [tensor.t() for tensor in tensors]
        if self.rotary_heads:
            tensors = [
                rotate_half_to_interleaved(tensor, heads, self.backwards)
                for tensor, heads in zip(tensors, self.rotary_heads, strict=True)
            ]
        joined = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
        if self.squeeze:
            joined = joined.squeeze(0)
        if self.offset:
            joined = joined + self.offset
        if self.part != (0, 0):
            joined = joined[slice(*self.part)]
        joined = joined[: self.only_rows] if self.only_rows else joined
        return joined[self.skip_rows :] if self.skip_rows else joined

    def store(self, parameter: Tensor) -> dict[str, Tensor]:
        """Split our parameter into the tensors of the checkpoint."""
        if self.offset:
            parameter = parameter - self.offset
        if self.skip_rows:
            parameter = torch.cat((parameter.new_zeros(self.skip_rows, *parameter.shape[1:]), parameter))
        if self.squeeze:
            parameter = parameter[None]
        tensors = list(parameter.split(list(self.rows))) if self.rows else [parameter]
        if self.rotary_heads:
            tensors = [
                interleaved_to_rotate_half(tensor, heads, self.backwards)
                for tensor, heads in zip(tensors, self.rotary_heads, strict=True)
            ]
        if self.transpose:
            tensors = [tensor.t() for tensor in tensors]
        if self.shapes is not None:
            tensors = [reshape(tensor, self.shapes[1], self.shapes[0]) for tensor in tensors]
        return {name: tensor.contiguous() for name, tensor in zip(self.hf_names, tensors, strict=True)}


def reshape(tensor: Tensor, shape: tuple[int, ...], target: tuple[int, ...]) -> Tensor:
    """Return a tensor of a shape in another one with the same numbers."""
    if tensor.shape != shape:
        raise RuntimeError(f"it must be {shape}, but is {tuple(tensor.shape)}")
    return tensor.reshape(target)


def rotate_half_to_interleaved(tensor: Tensor, heads: int, backwards: bool = False) -> Tensor:
    """Reorder rows of q or k with rotary pairs (i, i + E/2) to our pairs (2i, 2i + 1); no heads: unchanged.

    `backwards`: to the pairs (2i + 1, 2i), so that a rotation by a negative angle becomes one by a positive angle.
    """
    if not heads:
        return tensor
    halves = tensor.unflatten(0, (heads, 2, -1))  # (H, 2, E/2, ...)
    interleaved: Tensor = (halves.flip(1) if backwards else halves).transpose(1, 2).flatten(0, 2)
    return interleaved


def interleaved_to_rotate_half(tensor: Tensor, heads: int, backwards: bool = False) -> Tensor:
    """Undo `rotate_half_to_interleaved`."""
    if not heads:
        return tensor
    halves: Tensor = tensor.unflatten(0, (heads, -1, 2)).transpose(1, 2)  # (H, 2, E/2, ...)
    return (halves.flip(1) if backwards else halves).flatten(0, 2)


def weight_and_bias(
    name: str, hf_names: str | Sequence[str], *, rows: tuple[int, ...] = (), transpose: bool = False
) -> list[WeightMapping]:
    """Map the weight and the bias of a linear layer or a norm."""
    layers = (hf_names,) if isinstance(hf_names, str) else hf_names
    return [
        WeightMapping(f"{name}.weight", tuple(f"{layer}.weight" for layer in layers), rows, transpose),
        WeightMapping(f"{name}.bias", tuple(f"{layer}.bias" for layer in layers), rows),
    ]


def to_checkpoint(mappings: Sequence[WeightMapping], parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint from our parameters by name."""
    tensors: dict[str, Tensor] = {}
    for mapping in mappings:
        if mapping.name in parameters:
            for name, tensor in mapping.store(parameters[mapping.name]).items():
                # Several parameters that are parts of one tensor follow each other.
                tensors[name] = torch.cat((tensors[name], tensor)) if name in tensors else tensor
    return tensors
