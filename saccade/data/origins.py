"""Origins: the file and line that each row of a dataset comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class RowOrigins:
    """The file and line of each row."""

    files: tuple[Path, ...]
    file_numbers: NDArray[np.int32]
    lines: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lines)

    def file(self, row: int) -> Path:
        """Return the file of a row."""
        return self.files[int(self.file_numbers[row])]

    def describe(self, row: int) -> str:
        """Return the origin of a row for the user: reviews.csv:12."""
        return f"{self.file(row).name}:{int(self.lines[row])}"

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> RowOrigins:
        """Return the origins of some of the rows."""
        chosen = np.asarray(rows, dtype=np.int64)
        return RowOrigins(self.files, self.file_numbers[chosen], self.lines[chosen])


NO_ORIGINS = RowOrigins((), np.zeros(0, np.int32), np.zeros(0, np.int64))
