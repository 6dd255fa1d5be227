"""Compiled kernels for inference, where Numba is installed."""

from __future__ import annotations

from saccade.decode.runners import numba_installed
from saccade.nn.packed import Kernel


def attention_kernel() -> Kernel | None:
    """Return the compiled attention of short rows (the extra `fast`), or None; the first call ever takes seconds."""
    if not numba_installed():
        return None
    from saccade.decode.compiled.emitter import missing_instructions
    from saccade.decode.compiled.rows import attend_rows

    return None if missing_instructions() else attend_rows
