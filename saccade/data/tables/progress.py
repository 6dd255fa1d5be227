"""Progress of reading files: bytes read of each file become the fraction of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from saccade.core.callback import Progress
from saccade.data.tables.sniffing import DataFile

BytesRead = Callable[[int], None]
"""called with the number of bytes of one file on disk that have been read"""


class FileProgress:
    """Adds up how far several files have been read."""

    def __init__(self, files: Sequence[DataFile], progress: Progress) -> None:
        self._total = max(1, sum(file.size for file in files))
        self._done = [0] * len(files)
        self._progress = progress

    def of(self, number: int) -> BytesRead:
        """Return the callback for the reader of one of the files."""

        def report(position: int) -> None:
            self._done[number] = position
            self._progress(min(sum(self._done) / self._total, 1.0))

        return report
