"""Compiled kernels for inference, where Numba is installed."""

from __future__ import annotations

from saccade.decode.runners import numba_installed
from saccade.nn.packed import Kernel
from saccade.nn.transformer import TransformerConfig


def attention_kernel() -> Kernel | None:
    """Return the compiled attention of short rows (the extra `fast`), or None; the first call ever takes seconds."""
    if not numba_installed():
        return None
    from saccade.decode.compiled.emitter import missing_instructions
    from saccade.decode.compiled.rows import attend_rows

    return None if missing_instructions() else attend_rows


def attends_to_segments(config: TransformerConfig, longest: int) -> bool:
    """Whether the compiled attention takes several texts of up to `longest` tokens as one row, in every layer."""
    from saccade.decode.compiled.emitter import LANES
    from saccade.decode.compiled.rows import MAX_KEYS

    plain = not config.window and config.kv_heads in (0, config.heads)
    return plain and config.head_width % LANES == 0 and longest <= MAX_KEYS
