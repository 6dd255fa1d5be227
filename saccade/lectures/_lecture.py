"""Lecture: a statement, and the attention maps and page that show it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from saccade.atomic_io import new_file
from saccade.core import AttentionMap
from saccade.errors import ResourceError, UsageError
from saccade.look.overlay import OverlayStyle


@dataclass(frozen=True)
class Shown:
    """One attention map with its explanation."""

    name: str
    about: str
    attention: AttentionMap
    """(1, queries, keys)"""
    style: OverlayStyle = field(default_factory=OverlayStyle)
    """of attention over an image"""


@dataclass(frozen=True)
class Lecture:
    """A statement of the lectures, shown by maps that are computed when they are asked for."""

    name: str
    statement: str
    run: Callable[[], Sequence[Shown]]
    page: Callable[[Sequence[Shown]], str]
    """returns the maps as one HTML file"""

    def write(self, shown: Sequence[Shown], path: Path) -> None:
        """Write the maps as one HTML file that needs nothing else."""
        if path.suffix.lower() != ".html":
            raise UsageError(f"--out must end on .html, but is '{path}'")
        try:
            with new_file(path) as file:
                file.write(self.page(shown).encode())
        except OSError as error:
            raise ResourceError(f"cannot write {path}: {error.strerror}; choose another file with --out") from error
