"""WAV files, which every browser plays."""

from __future__ import annotations

import io
import wave

from torch import Tensor


def encode_wave(samples: Tensor, rate: int) -> bytes:
    """Return samples (T,) between -1 and 1 as a WAV file of 16 bits; louder ones are clipped."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes((samples.clamp(-1, 1) * 32767).round().short().numpy().astype("<i2").tobytes())
    return file.getvalue()
