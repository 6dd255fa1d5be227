"""Batches of a language model: windows of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class TextBatch:
    """Windows of text: `ids` (B, T + 1), of which the first T are inputs and the last T labels."""

    ids: Tensor
    starts: tuple[int, ...]
    learned: Tensor | None = None
    """(B, T) bool: the labels that count; None: all"""

    @property
    def labels(self) -> Tensor:
        """Labels (B, T); -1 where they do not count."""
        labels = self.ids[:, 1:]
        return labels if self.learned is None else labels.masked_fill(~self.learned, -1)

    @property
    def count(self) -> int:
        # A batch of questions alone has the loss 0, with the smallest weight.
        return self.units if self.learned is None else max(1, int(self.learned.sum()))

    @property
    def units(self) -> int:
        return self.ids.shape[0] * (self.ids.shape[1] - 1)

    @property
    def rows(self) -> list[str]:
        return [f"token {start}" for start in self.starts]

    def to(self, device: Any) -> TextBatch:
        learned = None if self.learned is None else self.learned.to(device)
        return TextBatch(self.ids.to(device), self.starts, learned)
