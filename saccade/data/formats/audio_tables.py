"""Tables of recordings: a column of paths, and columns of texts, labels, speakers and parts.

csv, tsv and jsonl with any of the usual names, Common Voice (path, sentence, client_id) and LJSpeech (id|text|text).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from saccade.core.callback import Progress
from saccade.data.audio.kinds import is_audio_name, is_other_audio_name
from saccade.data.formats.audio_layouts import (
    NAMES_OF_ROLES,
    SPEAKER,
    AudioCollector,
    AudioLayout,
    AudioRows,
    RecordingFinder,
)
from saccade.data.formats.image_layouts import within_folder
from saccade.data.images.trees import Folder
from saccade.data.parts import SPLITS, are_parts, part_of, part_of_file, unknown_part
from saccade.data.settings import HEADERS, AudioSettings
from saccade.data.tables.columns import LABELS, ambiguous_column, are_classes, by_usual_name, sample_columns
from saccade.data.tables.problems import ControlCharacters
from saccade.data.tables.progress import FileProgress
from saccade.data.tables.rows import pick_columns, rows
from saccade.data.tables.sniffing import FORMATS, DataFile, sniff, with_named_columns
from saccade.errors import DataError

FITTING = 0.9  # fraction of the values of a column that are names of recordings
TRIED = 50  # rows whose recordings are looked for
MAX_TABLES = 20  # files of a folder that are looked into
# Usual names of columns, in lower case; the first that a table has is read.
AUDIO = (
    *("audio", "path", "audio_path", "file_name", "filename", "file", "filepath", "file_path", "audio_filepath"),
    *("wav", "wav_path", "wav_filename", "clip", "recording", "sound", "audio_file", "id", "1"),
)
USUAL = {
    "text": (
        *("text", "sentence", "transcript", "transcription", "normalized_transcription", "normalized_text"),
        *("raw_transcription", "utterance", "words", "said"),
    ),
    "label": LABELS,
    SPEAKER: ("speaker", "speaker_id", "client_id", "spk", "reader", "voice"),
}
VALIDATED = "validated"  # file of Common Voice with all sentences that were checked


@dataclass(frozen=True)
class _Columns:
    """The names of the columns that are read; a table without a header has numbers for names, from 1."""

    audio: str
    text: str
    speaker: str = ""
    split: str = ""

    def names(self) -> list[str]:
        return [name for name in (self.audio, self.text, self.speaker, self.split) if name]


class AudioTable(AudioLayout):
    """Tables with a column of paths of recordings; several tables are parts of the data."""

    def __init__(self, path: Path, files: Sequence[DataFile], folder: Path, settings: AudioSettings) -> None:
        self.path, self.files, self._settings = path, tuple(files), settings
        self._finder = RecordingFinder(Folder(folder))

    @property
    def roles(self) -> tuple[str, ...]:
        """What the texts may be by the names of the columns, or by their contents where these say nothing."""
        given = [role for role in NAMES_OF_ROLES if self._settings.column(role)]
        if given:
            return tuple(given)
        file = self.files[0]
        sample = sample_columns(file)
        audio = audio_column(file, sample, self._settings, self._finder)
        free = [name for name in sample if name != audio]
        named = tuple(role for role in NAMES_OF_ROLES if by_usual_name(free, USUAL[role]))
        if len(named) == 1 or (len(named) == 2 and not are_classes(sample[by_usual_name(free, LABELS)])):
            return named[:1]
        if named or file.delimiter == "|":
            return named or ("text",)
        speaker = by_usual_name(free, USUAL[SPEAKER])
        columns = [name for name in free if name != speaker and name.strip().lower() not in SPLITS]
        if len(columns) != 1:
            return ("text", "label")
        return ("label",) if are_classes(sample[columns[0]]) else ("text",)

    def read(self, role: str, settings: AudioSettings, progress: Progress) -> AudioRows:
        collector = AudioCollector(self._finder, role, files=[file.path for file in self.files])
        replaced, total, notes = ControlCharacters(), FileProgress(self.files, progress), []
        for number, file in enumerate(self.files):
            columns = self._columns(file, role, settings)
            names = columns.names()
            file_part = part_of_file(file.path, self.path) if len(self.files) > 1 else None
            folder = within_folder(file.path, self._finder.tree.path)
            for row in rows(file, names, problems=collector.problems, on_bytes=total.of(number), replaced=replaced):
                values = dict(zip(names, row.values, strict=True))
                part = part_of(values[columns.split]) if columns.split else file_part
                if part is None and columns.split:
                    problem = unknown_part(file.path, row.line, columns.split, values[columns.split])
                    collector.problems.add(problem)
                    continue
                collector.add(
                    (number, row.line),
                    values[columns.audio],
                    values[columns.text],
                    speaker=values.get(columns.speaker, ""),
                    part=part,
                    folder=folder,
                )
            notes += [file.describe(), f"recording: column {columns.audio}, {role}: column {columns.text}"]
        return collector.rows(self.path, [*notes, *replaced.notes()])

    def _columns(self, file: DataFile, role: str, settings: AudioSettings) -> _Columns:
        """Return the columns that are read; given ones are not guessed."""
        sample = sample_columns(file)
        given = [name for name in (settings.audio_column, settings.column(role), settings.speaker_column) if name]
        pick_columns(file.path, list(sample), given)
        audio = audio_column(file, sample, settings, self._finder)
        if not audio:
            raise ambiguous_column(file, sample, "recording", "path of a recording", "data.audio_column", [])
        free = [name for name in sample if name.strip() and name != audio]
        split = next((name for name in free if are_parts(name, sample[name])), "")
        speaker = settings.speaker_column or by_usual_name(free, USUAL[SPEAKER])
        free = [name for name in free if name not in (split, speaker)]
        text = settings.column(role) or by_usual_name(free, USUAL[role])
        if not text and (len(free) == 1 or (file.delimiter == "|" and not file.columns)):
            text = free[-1] if free else ""  # the last column of LJSpeech has numbers and abbreviations in words
        if not text:
            raise ambiguous_column(file, sample, role, role, f"data.{role}_column", free if len(free) > 1 else [])
        return _Columns(audio, text, speaker if speaker != text else "", split)


def audio_column(file: DataFile, sample: dict[str, list[str]], settings: AudioSettings, finder: RecordingFinder) -> str:
    """Return the column of the paths of recordings: given, by the names in it, or by its own name; empty if none is."""
    if settings.audio_column:
        return settings.audio_column
    paths = [name for name, values in sample.items() if _are_audio_names(values)]
    if paths or not (finder.by_id or file.delimiter == "|"):
        return by_usual_name(paths, AUDIO) or next(iter(paths), "")
    ids = [
        name
        for name, values in sample.items()
        if values and finder.has_all([value for value in values[:TRIED] if value.strip()])
    ]
    return by_usual_name(ids, AUDIO) or next(iter(ids), "")


def _are_audio_names(values: Sequence[str]) -> bool:
    names = [value.strip() for value in values]
    fitting = sum((is_audio_name(name) or is_other_audio_name(name)) and "://" not in name for name in names)
    return fitting > 0 and fitting >= FITTING * len(values)


def sniff_audio_table(path: Path, settings: AudioSettings) -> DataFile:
    """Return how a table is read: with a header if the names of recordings begin below the first row."""
    file = sniff(path, encoding=settings.encoding or None, header=HEADERS[settings.header])
    if file.format in ("text", "jsonl"):
        return file
    if file.delimiter == "|":  # LJSpeech, whose quotes are those of the text
        named = any(by_usual_name(file.columns, names) for names in (USUAL["text"], AUDIO))
        columns = file.columns if named or file.header_given else ()
        file = replace(file, quoted=False, header=bool(columns), columns=columns, header_unclear=False)
    file = with_named_columns(file, [name for name in map(settings.column, (*NAMES_OF_ROLES, SPEAKER)) if name])
    plain = replace(file, header=False, columns=(), header_unclear=False)
    for values in [] if file.header_given else sample_columns(plain).values():
        if len(values) > 1 and _are_audio_names(values[1:]):
            header = not is_audio_name(values[0].strip())
            sniffed = sniff(path, encoding=file.encoding, header=header) if header != bool(file.columns) else file
            return replace(sniffed, quoted=file.quoted)
    return file


def find_tables(
    path: Path, files: Sequence[Path], folder: Path, settings: AudioSettings, finder: RecordingFinder
) -> AudioTable | None:
    """Return those of some files that are tables of recordings; several must be parts of the data."""
    tables: list[DataFile] = []
    for file in files[:MAX_TABLES]:
        try:
            sniffed = sniff_audio_table(file, settings)
            if sniffed.format != "text" and audio_column(sniffed, sample_columns(sniffed), settings, finder):
                tables.append(sniffed)
        except DataError:  # of several files another one may be the table; a single one is reported below
            if len(files) == 1:
                raise
    parts = [file for file in tables if part_of_file(file.path, path) is not None]
    validated = [file for file in tables if file.path.stem == VALIDATED]
    chosen = tables if len(tables) == 1 else parts or validated or tables
    if len(chosen) > 1 and not parts:
        listed = ", ".join(file.path.name for file in chosen[:5])
        raise DataError(f"{path}: {len(chosen)} tables of recordings ({listed}), expected one; name the one you mean")
    return AudioTable(path, chosen, folder, settings) if chosen else None


def table_format(name: str) -> str | None:
    """Return the format of a table by its name; None for other files."""
    suffixes = name.lower().removesuffix(".gz").rpartition(".")
    return FORMATS.get(f".{suffixes[2]}") if suffixes[1] else None
