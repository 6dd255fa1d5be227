"""Compiled decoding: the step of a language model on a CPU, compiled from Python by Numba; needs the extra `fast`.

Compiled code is kept in the user's cache, in a folder of its own for each version of these files.
"""

import hashlib
import os
from pathlib import Path

import numba


def _cache_folder() -> Path:
    """Return the folder for compiled code: Numba itself notices only changes of the file that is called."""
    sources = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        sources.update(path.read_bytes())
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "saccade" / "numba" / sources.hexdigest()[:16]


def _writable(folder: Path) -> bool:
    """Whether compiled code can be kept in a folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


CACHED = True
"""whether compiled code is kept: where no folder can be written it is compiled in every process"""
if not os.environ.get("NUMBA_CACHE_DIR"):
    CACHED = _writable(_cache_folder())
    numba.config.CACHE_DIR = str(_cache_folder()) if CACHED else ""
