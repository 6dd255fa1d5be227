"""Links in model folders: a downloaded folder must not make us read files outside of it."""

from __future__ import annotations

import os
from pathlib import Path

from saccade.errors import ModelFileError

BLOBS, SNAPSHOTS = "blobs", "snapshots"  # of the hub's own cache: snapshots/<revision>/<file> -> ../../blobs/<hash>


def check_links(folder: Path) -> None:
    """Refuse a folder with a link that leaves it, also in a subfolder; the hub's own cache has links to blobs."""
    root = Path(os.path.realpath(folder))
    allowed = [root]
    if root.parent.name == SNAPSHOTS:
        allowed.append(root.parent.parent / BLOBS)
    try:
        for parent, folders, files in os.walk(root):
            for path in (Path(parent, name) for name in (*folders, *files)):
                if path.is_symlink():
                    _check_target(folder / path.relative_to(root), Path(os.path.realpath(path)), allowed)
            if Path(parent) != root:
                folders.clear()  # nothing is read below
    except OSError as error:
        raise ModelFileError(f"{folder} cannot be read: {error.strerror}; check its permissions") from error


def _check_target(link: Path, target: Path, allowed: list[Path]) -> None:
    if not any(target.is_relative_to(place) for place in allowed):
        raise ModelFileError(
            f"{link} must not lead out of its folder, but is a link to {target}; copy the file instead"
        )
