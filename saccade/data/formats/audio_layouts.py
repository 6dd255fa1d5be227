"""Layouts of audio data: how recordings and the texts that belong to them are stored, and the rows read from them."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress
from saccade.data.audio.kinds import is_audio_name, is_other_audio_name
from saccade.data.audio.recordings import EncodedRecordings, Recordings
from saccade.data.fingerprints import hash_lines
from saccade.data.formats.image_layouts import text_column
from saccade.data.images.trees import Tree
from saccade.data.origins import RowOrigins
from saccade.data.settings import AudioSettings
from saccade.data.tables.problems import BadRows, Problem, Problems, did_you_mean
from saccade.data.texts import Texts

SPEAKER = "speaker"
NAMES_OF_ROLES = {"text": "what is said in it", "label": "a class"}
LISTED = 5000  # names that are compared with one that was not found


@dataclass(frozen=True, eq=False)
class RecordingOrigins:
    """Origins of rows that have no line in a file: each is a recording."""

    recordings: Recordings
    numbers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)

    def describe(self, row: int) -> str:
        """Return the origin of a row for the user: yes/1.wav."""
        return "/".join(Path(self.recordings.name(int(self.numbers[row]))).parts[-2:])

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> RecordingOrigins:
        """Return the origins of some of the rows."""
        return RecordingOrigins(self.recordings, self.numbers[np.asarray(rows, dtype=np.int64)])


@dataclass(frozen=True, eq=False)
class AudioRows:
    """Rows of audio data: row n is the recording number `recording[n]`, with a text for each role."""

    recordings: Recordings
    recording: NDArray[np.int64]
    """number of the recording of each row"""
    texts: Mapping[str, Texts]
    """by role: text or label, and speaker where the data name speakers"""
    parts: NDArray[np.int8] | None
    """0 training, 1 validation, 2 test, where the data say so"""
    origins: RowOrigins | RecordingOrigins
    path: Path
    """the file or folder that was read"""
    read_notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.recording)

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> AudioRows:
        """Return some of the rows; the recordings stay the same, and keep their numbers."""
        chosen = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            recording=self.recording[chosen],
            texts={role: texts.take(chosen) for role, texts in self.texts.items()},
            parts=None if self.parts is None else self.parts[chosen],
            origins=self.origins.take(chosen),
        )

    def fingerprint(self) -> str:
        """Return a hash of the texts and of which recording each belongs to; that of the sounds is of their own."""
        numbers = [self.recording.tobytes().hex(), "" if self.parts is None else self.parts.tobytes().hex()]
        texts = (text for role in sorted(self.texts) for text in (role, *self.texts[role]))
        return hash_lines([*numbers, *texts])


class AudioLayout(abc.ABC):
    """Audio data in one of the layouts, before all of it is read."""

    path: Path

    @property
    @abc.abstractmethod
    def roles(self) -> tuple[str, ...]:
        """What the texts may be: text, label, or both where only the user can know; empty if there are none."""

    @abc.abstractmethod
    def read(self, role: str, settings: AudioSettings, progress: Progress) -> AudioRows:
        """Return all rows with the texts of this role; problems are raised together."""

    def refuse_role(self, role: str, what: str) -> BadRows:
        """Return the error for data that do not have the texts of this role."""
        expected = f"{NAMES_OF_ROLES[role]} for each recording"
        step = "choose another task, or give a table with the paths of the recordings and these texts"
        return BadRows([Problem(self.path, None, None, what, expected, step)])


class RecordingFinder:
    """Finds the recordings of a folder or archive by the names that a table, list or transcript uses for them."""

    def __init__(self, tree: Tree, *, by_id: bool = True) -> None:
        """`by_id`: whether a table may name recordings without their suffix."""
        self.tree, self.by_id = tree, by_id
        self._numbers: dict[str, int] = {}

    @cached_property
    def _index(self) -> dict[str, str | None]:
        """Paths of recordings by all ends of them, with and without the suffix; None where several have the same."""
        index: dict[str, str | None] = {}
        for name in filter(is_audio_name, self.tree.names):
            parts = PurePosixPath(name).parts
            for first in range(len(parts)):
                written = "/".join(parts[first:])
                for key in (written, written.rpartition(".")[0]):
                    index[key] = name if index.get(key, name) == name else None
        return index

    def find(self, name: str, folder: str = "") -> str | None:
        """Return the path of a recording within the tree; None if there is none, or several.

        The paths of a table may start at another folder, and ids have no suffix. `folder`: that of the table.
        """
        written = name.strip().replace("\\", "/")
        parts = [part for part in PurePosixPath(written).parts if part not in (".", "/")]
        for first in range(len(parts)):
            key = "/".join(parts[first:])
            found = self._index.get(f"{folder}/{key}" if folder else key) or self._index.get(key)
            if found is not None:
                return found
        return None

    def number(self, name: str) -> int:
        """Return the number of a recording, by its path within the tree."""
        return self._numbers.setdefault(name, len(self._numbers))

    def reason(self, name: str) -> tuple[str, str, str]:
        """Return what is wrong with a name that is not that of one recording, what was expected, and what to do."""
        file = PurePosixPath(name.strip().replace("\\", "/")).name
        if self._index.get(file, "") is None:
            return f"several recordings are called '{file}'", "one", "write the path from the folder of the table"
        if is_other_audio_name(file):
            step = "convert the recordings to WAV or FLAC, for example: ffmpeg -i INPUT OUTPUT.flac"
            return f"'{name[:200]}' is in a format that is not decoded", "WAV, FLAC, OGG or MP3", step
        near = did_you_mean(file, [PurePosixPath(key).name for key in list(self._index)[:LISTED]])
        where = f"a recording in '{self.tree.path}'{near}"
        return f"no recording '{name[:200]}'", where, "correct the path, or delete the row"

    def recordings(self) -> Recordings:
        """Return all recordings that have a number."""
        return EncodedRecordings(self.tree.pictures(list(self._numbers)))


@dataclass
class AudioCollector:
    """Gathers rows whose recordings are found by their names."""

    finder: RecordingFinder
    role: str
    problems: Problems = field(default_factory=Problems)
    files: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rows: list[tuple[int, str, str, int, int, int]] = []

    def add(
        self,
        place: tuple[int, int],
        name: str,
        text: str,
        *,
        speaker: str = "",
        part: int | None = None,
        folder: str = "",
    ) -> None:
        """Add a row, or the problem with it; `place`: number of the file and line, 0 where it has no lines."""
        file, line = place
        where = (self.files[file], line or None, None)
        path = self.finder.find(name, folder)
        if path is None:
            self.problems.add(Problem(*where, *self.finder.reason(name)))
        elif not text.strip():
            what, step = f"the {self.role} of '{name}' is empty", "fill it in or delete the row"
            self.problems.add(Problem(*where, what, "some text in every row", step))
        else:
            number = self.finder.number(path)
            self._rows.append((number, text.strip(), speaker.strip(), -1 if part is None else part, file, line))

    def rows(self, path: Path, notes: Iterable[str] = ()) -> AudioRows:
        """Return the rows, or raise all problems."""
        if not self._rows and not self.problems.count:
            what, step = "no rows", "name a file with data in it"
            self.problems.add(Problem(self.files[0] if self.files else path, None, None, what, "at least one", step))
        self.problems.check()
        numbers, texts, speakers, parts, files, lines = zip(*self._rows, strict=True)
        recordings, recording = self.finder.recordings(), np.array(numbers, np.int64)
        columns = {self.role: text_column(texts)}
        if all(speakers):
            columns[SPEAKER] = text_column(speakers)
        by_line = RowOrigins(tuple(self.files), np.array(files, np.int32), np.array(lines, np.int64))
        return AudioRows(
            recordings,
            recording,
            columns,
            np.array(parts, np.int8) if min(parts) >= 0 else None,
            by_line if all(lines) else RecordingOrigins(recordings, recording),
            path,
            tuple(notes),
        )
