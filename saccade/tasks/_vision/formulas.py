"""Formulas as pix2tex reads and writes them: pictures of any size, and LaTeX.

Shapes: B rows, N positions, H height, W width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from saccade.core import Role, TokenAxis
from saccade.data.images.decoding import to_pixels
from saccade.data.images.resizing import Resize
from saccade.data.text.latex import compact_latex
from saccade.models.vision.encoder import VisionEncoder
from saccade.pretrained.formula_processor import FormulaProcessor
from saccade.tasks._seq2seq.tokenizers import TargetTokenizer


@dataclass(frozen=True)
class LatexTokenizer(TargetTokenizer):
    """The tokenizer of LaTeX, whose texts have no spaces that mean nothing; a command such as `\\frac` is one word."""

    def decode(self, ids: Sequence[int]) -> str:
        return compact_latex(super().decode(ids))

    def output_axis(self, ids: Sequence[int]) -> TokenAxis:
        return self._axis([*ids, self.end])

    def input_axis(self, ids: Sequence[int]) -> TokenAxis:
        return self._axis([self.start, *ids])

    def _axis(self, ids: Sequence[int]) -> TokenAxis:
        """Return the axis of some tokens; a word starts with a space, or is a special token."""
        raw = self.tokenizer.raw(ids)
        starts = [
            not piece or not before or piece[:1].isspace() for before, piece in zip([b"", *raw], raw, strict=False)
        ]
        return TokenAxis(Role.TARGET, tuple(self.tokenizer.pieces(ids)), tuple(accumulate(starts)))


@dataclass(frozen=True)
class FormulaFormat:
    """How pictures of formulas become the input of pix2tex."""

    processor: FormulaProcessor

    @property
    def resize(self) -> Resize:
        return Resize()

    def read(self, value: bytes | Tensor, name: str = "image") -> Tensor:
        """Return an input as pixels (3, H, W)."""
        return self.processor.apply(to_pixels(value, name), name)

    def sizes(self, value: bytes | Tensor, name: str = "image") -> list[Tensor]:
        """Return an input as pixels (3, H, W) at its own size, then at others."""
        return self.processor.sizes(to_pixels(value, name), name)

    def stack(self, images: Sequence[Tensor], encoder: VisionEncoder) -> tuple[Tensor, Tensor]:
        """Return images (3, H, W) in the upper left corner of a batch (B, 3, H, W), with the real positions (B, N)."""
        height, width = (max(image.shape[side] for image in images) for side in (1, 2))
        pixels = torch.full((len(images), 3, height, width), 255, dtype=torch.uint8)
        cells = torch.zeros(len(images), *encoder.grid(height, width), dtype=torch.bool)
        for row, image in enumerate(images):
            rows, columns = encoder.grid(*image.shape[1:])
            pixels[row, :, : image.shape[1], : image.shape[2]] = image
            cells[row, :rows, :columns] = True
        extra = torch.ones(len(images), len(encoder.extra), dtype=torch.bool)
        return pixels, torch.cat((extra, cells.flatten(1)), dim=1)
