"""Settings of data that several tasks have: what is held back, and which texts are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from saccade.data.tables.files import DataFile, SplitSettings, find, sniff


@dataclass(frozen=True)
class ValidationSplit:
    """What a run is scored on."""

    valid: str = ""
    """a file of validation data; without it a share of the data is held back"""
    fraction: float = 0.1
    """share of the data held back for validation"""

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise ValueError(f"fraction must be above 0 and below 1, but is {self.fraction}")
        if self.valid:  # a run can be resumed from anywhere
            object.__setattr__(self, "valid", str(Path(self.valid).resolve()))


@dataclass(frozen=True)
class TextSettings(ValidationSplit):
    """Which texts are read."""

    column: str = ""
    """column of a table that holds the text; without it the usual names are tried"""
    encoding: str = ""
    """encoding of the files, where it is not UTF-8"""

    def find(self, data: Path) -> tuple[list[DataFile], list[DataFile] | None]:
        """What the training path and the validation path turn out to be."""
        return self._sniff(data), self._sniff(Path(self.valid)) if self.valid else None

    def split(self) -> SplitSettings:
        """How the held-back share is chosen."""
        return SplitSettings(fraction=self.fraction, column=self.column or None)

    def _sniff(self, path: Path) -> list[DataFile]:
        return [sniff(file, encoding=self.encoding or None) for file in find(path)]
