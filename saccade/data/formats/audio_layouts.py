"""Layouts of audio data: how recordings and the texts that belong to them are stored, and the rows read from them."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress
from saccade.data.audio.kinds import is_audio_name, is_other_audio_name, is_raw_name
from saccade.data.audio.recordings import EncodedRecordings, Recordings
from saccade.data.fingerprints import hash_lines
from saccade.data.formats.image_layouts import text_column
from saccade.data.images.pictures import Pictures
from saccade.data.images.trees import Tree
from saccade.data.origins import RowOrigins
from saccade.data.parts import complete_parts
from saccade.data.path_matching import PathIndex, PathMatch, match_paths
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

    def __init__(self, tree: Tree, *, by_id: bool = True, is_recording: Callable[[str], bool] = is_audio_name) -> None:
        """`by_id`: whether a table may name recordings without their suffix; `is_recording`: by the name of a file."""
        self.tree, self.by_id, self._is_recording = tree, by_id, is_recording
        self._numbers: dict[str, int] = {}

    @cached_property
    def _index(self) -> PathIndex[str]:
        return PathIndex((name, name) for name in filter(self._is_recording, self.tree.names))

    def match(self, names: Iterable[str], folder: str = "") -> dict[str, PathMatch[str]]:
        """Return the recording that each of the names in one table or list means; `folder`: that of the table."""
        return match_paths(names, folder, lambda key, rule: self._index.find(key, rule.stem))

    def has_all(self, names: Sequence[str]) -> bool:
        """Whether every one of some names is that of a recording."""
        return all(match.place is not None for match in self.match(names).values())

    def number(self, name: str) -> int:
        """Return the number of a recording, by its path within the tree."""
        return self._numbers.setdefault(name, len(self._numbers))

    def reason(self, name: str, match: PathMatch[str]) -> tuple[str, str, str]:
        """Return what is wrong with a name that is not that of one recording, what was expected, and what to do."""
        file = PurePosixPath(name.strip().replace("\\", "/")).name
        if match.same_as:
            what = f"'{name[:200]}' and '{match.same_as[:200]}' would both be the recording '{match.end}'"
            return what, "a recording for each", "put the recordings into the folders that the table names"
        if self._index.is_ambiguous(match.end):
            return f"several recordings are called '{match.end}'", "one", "write the path from the folder of the table"
        if is_other_audio_name(file) or is_raw_name(file):
            step = "convert the recordings to WAV or FLAC, for example: ffmpeg -i INPUT OUTPUT.flac"
            return f"'{name[:200]}' is in a format that is not decoded", "WAV, FLAC, OGG or MP3", step
        near = did_you_mean(file, self._index.names(LISTED))
        where = f"a recording in '{self.tree.path}'{near}"
        return f"no recording '{name[:200]}'", where, "correct the path, or delete the row"

    def recordings(self) -> Recordings:
        """Return all recordings that have a number."""
        return EncodedRecordings(self.files())

    def files(self) -> Pictures:
        """Return the files of all recordings that have a number; they are read as pictures are."""
        return self.tree.pictures(list(self._numbers))


class _NamedRow(NamedTuple):
    """A row whose recording has a name and is not found yet."""

    file: int
    line: int
    folder: str
    name: str
    text: str
    speaker: str
    part: int


@dataclass
class AudioCollector:
    """Gathers rows whose recordings are found by their names."""

    finder: RecordingFinder
    role: str
    problems: Problems = field(default_factory=Problems)
    files: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pending: list[_NamedRow] = []
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
        """Add a row; its recording is found when all rows are known.

        `place`: number of the file and line, 0 where it has no lines. `folder`: that of the file, within the tree.
        """
        self._pending.append(_NamedRow(*place, folder, name, text, speaker, -1 if part is None else part))

    def _find(self, rows: Sequence[_NamedRow]) -> None:
        """Find the recordings of the rows of one file, or the problems with them."""
        matches = self.finder.match((row.name for row in rows), rows[0].folder)
        for row in rows:
            where = (self.files[row.file], row.line or None, None)
            match = matches[row.name]
            if match.place is None:
                self.problems.add(Problem(*where, *self.finder.reason(row.name, match)))
            elif not row.text.strip():
                what, step = f"the {self.role} of '{row.name}' is empty", "fill it in or delete the row"
                self.problems.add(Problem(*where, what, "some text in every row", step))
            else:
                number = self.finder.number(match.place)
                self._rows.append((number, row.text.strip(), row.speaker.strip(), row.part, row.file, row.line))

    def rows(self, path: Path, notes: Iterable[str] = ()) -> AudioRows:
        """Return the rows, or raise all problems."""
        if not self._pending and not self.problems.count:
            what, step = "no rows", "name a file with data in it"
            self.problems.add(Problem(self.files[0] if self.files else path, None, None, what, "at least one", step))
        for _, group in groupby(self._pending, key=lambda row: row.file):
            self._find(list(group))
        self.problems.check()
        numbers, texts, speakers, parts, files, lines = zip(*self._rows, strict=True)
        recordings, recording = self.finder.recordings(), np.array(numbers, np.int64)
        columns = {self.role: text_column(texts)}
        if all(speakers):
            columns[SPEAKER] = text_column(speakers)
        by_line = RowOrigins(tuple(self.files), np.array(files, np.int32), np.array(lines, np.int64))
        origins = by_line if all(lines) else RecordingOrigins(recordings, recording)
        named_parts, part_notes = complete_parts(parts, origins.describe)
        return AudioRows(recordings, recording, columns, named_parts, origins, path, (*notes, *part_notes))
