"""Parts: how a tensor of ours is put together of tensors of another library, and taken apart again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Get = Callable[[str], Tensor]


@dataclass(frozen=True)
class Part:
    """One tensor of ours: the rows of one or more of theirs, one after the other."""

    ours: str
    theirs: tuple[str, ...]
    rows: tuple[int, ...] = ()
    """how many rows each of several tensors has"""
    turned: bool = False
    """they keep the matrix the other way round"""
    halves: tuple[int, ...] = ()
    """heads of each tensor whose rotary pairs are halves of the head, not neighbours; 0: not turned"""
    row: bool = False
    """they keep a vector as a matrix of one row"""
    skip: int = 0
    """rows of theirs that are never used, before ours"""

    def bring(self, get: Get) -> Tensor:
        """Their tensors as ours."""
        found = [get(name) for name in self.theirs]
        if self.turned:
            found = [tensor.t() for tensor in found]
        if self.halves:
            found = [neighbours(tensor, heads) for tensor, heads in zip(found, self.halves, strict=True)]
        joined = found[0] if len(found) == 1 else torch.cat(found)
        if self.row:
            joined = joined.squeeze(0)
        return joined[self.skip :] if self.skip else joined

    def give(self, tensor: Tensor) -> dict[str, Tensor]:
        """Ours as their tensors."""
        if self.skip:
            tensor = torch.cat((tensor.new_zeros(self.skip, *tensor.shape[1:]), tensor))
        if self.row:
            tensor = tensor[None]
        found = list(tensor.split(list(self.rows))) if self.rows else [tensor]
        if self.halves:
            found = [halves(piece, heads) for piece, heads in zip(found, self.halves, strict=True)]
        if self.turned:
            found = [piece.t() for piece in found]
        return {name: piece.contiguous() for name, piece in zip(self.theirs, found, strict=True)}


def neighbours(tensor: Tensor, heads: int) -> Tensor:
    """Rows of q or k that pair feature i with i + E/2, in our order of neighbouring pairs; heads 0: as they are."""
    if not heads:
        return tensor
    turned: Tensor = tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
    return turned


def halves(tensor: Tensor, heads: int) -> Tensor:
    """The other way."""
    if not heads:
        return tensor
    turned: Tensor = tensor.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)
    return turned


def both(ours: str, theirs: str | tuple[str, ...], *, rows: tuple[int, ...] = (), turned: bool = False) -> list[Part]:
    """The weight and the bias of a layer."""
    names = (theirs,) if isinstance(theirs, str) else theirs
    return [
        Part(f"{ours}.weight", tuple(f"{name}.weight" for name in names), rows, turned),
        Part(f"{ours}.bias", tuple(f"{name}.bias" for name in names), rows),
    ]


def collect(parts: list[Part], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All of theirs out of a state of ours."""
    found: dict[str, Tensor] = {}
    for part in parts:
        if part.ours in state:
            found |= part.give(state[part.ours])
    return found
