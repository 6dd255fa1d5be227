"""Arrays of recordings in .npz files: int16 samples one after another with their offsets, texts or labels and the rate.

N recordings, T samples of all of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress
from saccade.data.audio.decoding import RATES
from saccade.data.audio.recordings import SampleRecordings
from saccade.data.cache import hash_file
from saccade.data.formats.audio_layouts import SPEAKER, AudioLayout, AudioRows, RecordingOrigins
from saccade.data.formats.image_arrays import OFFSETS, NpzFile
from saccade.data.formats.image_layouts import text_column
from saccade.data.parts import part_of
from saccade.data.settings import AudioSettings

AUDIO = ("audio", "samples", "waveform", "waveforms", "sound", "sounds")
COLUMNS = {
    "text": ("text", "texts", "transcript", "transcripts", "sentence", "sentences"),
    "label": ("label", "labels", "y", "class", "target"),
    SPEAKER: ("speaker", "speakers", "speaker_id"),
}
SPLIT, RATE = ("split", "splits", "part"), ("rate", "sample_rate", "sampling_rate", "sr")


class NpzRecordings(AudioLayout):
    """One .npz file of recordings."""

    def __init__(self, path: Path) -> None:
        self.path, self._file = path, NpzFile(path)

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(role for role in ("text", "label") if self._file.first_of(COLUMNS[role]))

    def read(self, role: str, settings: AudioSettings, progress: Progress) -> AudioRows:
        file = self._file
        if role not in self.roles:
            raise self.refuse_role(role, f"the arrays {', '.join(file.arrays[:20])}")
        recordings = self._recordings()
        count = len(recordings)
        texts = {name: self._texts(name, count) for name in (role, SPEAKER) if file.first_of(COLUMNS[name])}
        empty = next((row for row, text in enumerate(texts[role]) if not text.strip()), None)
        if empty is not None:
            step = "remove the recording, or write what is said in it"
            raise file.refuse(f"the {role} of recording {empty + 1} is empty", "some text for each", step)
        numbers = np.arange(count)
        progress(1.0)
        return AudioRows(
            recordings,
            numbers,
            {name: text_column(column) for name, column in texts.items()},
            self._parts(count),
            RecordingOrigins(recordings, numbers),
            self.path,
            (f"{self.path.name}: {count:,} recordings",),
        )

    def _recordings(self) -> SampleRecordings:
        file, name = self._file, self._file.first_of(AUDIO)
        shape, dtype = file.header(name)
        if dtype != np.int16 or len(shape) != 1:
            step = "scale them to -32,767 to 32,767, convert them and concatenate all recordings"
            raise file.refuse(f"'{name}' has {dtype} values of shape {shape}", "int16 samples (T,)", step)
        rate_name = file.first_of(RATE)
        if not rate_name:
            raise file.refuse("no array 'rate'", "the samples per second", "add it: rate=16000")
        rate = file.small(rate_name).ravel()
        if len(rate) != 1 or rate.dtype.kind not in "iu" or not RATES[0] <= int(rate[0]) <= RATES[1]:
            expected = f"one whole number from {RATES[0]:,} to {RATES[1]:,}"
            raise file.refuse(f"'{rate_name}' is {rate.tolist()[:3]}", expected, "write the file again")
        samples = file.mapped(name).view(np.int16)
        offsets = file.offsets(len(samples), name)
        shortest = int(np.diff(offsets).argmin())
        if offsets[shortest] == offsets[shortest + 1]:
            step = "remove it and its text"
            raise file.refuse(f"recording {shortest + 1} has no samples", "some sound", step)
        return SampleRecordings(self.path, samples, offsets.tolist(), int(rate[0]), [hash_file(self.path), name])

    def _texts(self, role: str, count: int) -> list[str]:
        return self._file.labels(self._file.first_of(COLUMNS[role]), count, "recording")

    def _parts(self, count: int) -> NDArray[np.int8] | None:
        name = self._file.first_of(SPLIT)
        if not name:
            return None
        parts = [part_of(text) for text in self._file.labels(name, count, "recording")]
        known = [part for part in parts if part is not None]
        if len(known) < count:
            wrong = self._file.labels(name, count, "recording")[parts.index(None)]
            expected = "train, valid or test for each recording"
            raise self._file.refuse(f"'{wrong}' in '{name}'", expected, "correct it, or remove the array")
        return np.array(known, np.int8)


def find_npz_recordings(path: Path) -> NpzRecordings | None:
    """Return an .npz file that has an array of samples; None for any other file."""
    if path.suffix.lower() != ".npz" or not path.is_file():
        return None
    layout = NpzRecordings(path)
    has_audio = layout._file.first_of(AUDIO) and OFFSETS in layout._file.arrays
    return layout if has_audio else None
