"""Folders and archives of recordings: a folder for each class, names with the class, or a text beside each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from saccade.core.callback import Progress
from saccade.data.audio.kinds import is_audio_name, is_other_audio_name
from saccade.data.formats.audio_layouts import AudioCollector, AudioLayout, AudioRows, RecordingFinder
from saccade.data.formats.image_folders import classify
from saccade.data.images.trees import Tree
from saccade.data.settings import AudioSettings
from saccade.data.tables.problems import BadRows, Problem

# Names of a class, a speaker and a number (7_jackson_32), as spoken digits have them; of a speaker and a number within
# the folder of a class (bb05582b_nohash_0), as in Speech Commands.
NUMBERED = re.compile(r"([^_]+)_([^_]+)_(\d+)")
COMMAND = re.compile(r"([0-9a-f]{8})_nohash_\d+")
SIDECARS = (".txt", ".lab", ".normalized.txt")
BACKGROUND = "_background_noise_"  # of Speech Commands: minutes of noise, no class


class ClassFolders(AudioLayout):
    """Recordings in a folder for each class, or with names of a class, a speaker and a number."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.path = tree, tree.path
        self._names = [name for name in tree.names if is_audio_name(name) and BACKGROUND not in name]
        self._labelled, self._loose = classify(self._names)
        stems = [NUMBERED.fullmatch(PurePosixPath(name).stem) for name in self._names]
        labels = {match[1] for match in stems if match is not None}
        self.numbered = len(labels) > 1 and all(stems) and len(labels) < len(stems)

    @property
    def labels(self) -> list[str]:
        """Names of the classes."""
        return sorted({label for _, label, _, _ in self._rows()})

    @property
    def roles(self) -> tuple[str, ...]:
        return ("label",) if len(self.labels) > 1 else ()

    def _rows(self) -> Iterator[tuple[str, str, str, int | None]]:
        """Yield name, class, speaker and part of each recording."""
        if self.numbered:
            for name in self._names:
                label, speaker, _ = PurePosixPath(name).stem.split("_")
                yield name, label, speaker, None
            return
        for item in self._labelled:
            command = COMMAND.fullmatch(PurePosixPath(item.name).stem)
            yield item.name, item.label, command[1] if command else "", item.part

    def read(self, role: str, settings: AudioSettings, progress: Progress) -> AudioRows:
        if role != "label":
            raise self.refuse_role(role, f"{len(self._names):,} recordings in {len(self.labels)} classes")
        if len(self.labels) < 2:
            only = f"every recording is in the class '{self.labels[0]}'" if self.labels else ""
            what = only or "recordings without classes"
            step = "make a folder for each class and move the recordings into it, or name a table of paths and labels"
            raise BadRows([Problem(self.path, None, None, what, "at least two class folders", step)])
        collector = AudioCollector(RecordingFinder(self.tree), role, files=[self.path])
        for name in () if self.numbered else self._loose:
            step = "move it into the folder of its class, or delete it"
            what = "a recording outside of the class folders"
            collector.problems.add(Problem(self.path / name, None, None, what, "a folder for each class", step))
        for name, label, speaker, part in self._rows():
            collector.add((0, 0), name, label, speaker=speaker, part=part)
        progress(1.0)
        counts = f"{self.path.name}: {len(self._names):,} recordings in {len(self.labels):,} classes"
        return collector.rows(self.path, [counts, *skipped_notes(self.tree.names)])


class SidecarTexts(AudioLayout):
    """A text file of the same name beside each recording."""

    def __init__(self, tree: Tree, suffix: str) -> None:
        self.tree, self.path, self._suffix = tree, tree.path, suffix

    @property
    def roles(self) -> tuple[str, ...]:
        return ("text",)

    def read(self, role: str, settings: AudioSettings, progress: Progress) -> AudioRows:
        if role != "text":
            raise self.refuse_role(role, "a text beside each recording")
        names = [name for name in self.tree.names if is_audio_name(name)]
        texts = {stem_of(name) + self._suffix: name for name in names}
        collector = AudioCollector(RecordingFinder(self.tree), role)
        contents = dict(self.tree.contents([name for name in texts if name in set(self.tree.names)]))
        for written, name in texts.items():
            file = self.path / written
            if written not in contents:
                step = "write what is said in the recording, or delete it"
                what = f"no text for '{PurePosixPath(name).name}'"
                collector.problems.add(Problem(self.path / name, None, None, what, f"a file '{file.name}'", step))
                continue
            try:
                text = contents[written].decode(settings.encoding or "utf-8-sig")
            except UnicodeDecodeError as error:
                step = "save it as UTF-8, or name its encoding with data.encoding"
                collector.problems.add(Problem(file, 1, error.start + 1, "not UTF-8", "a text in UTF-8", step))
                continue
            collector.files.append(file)
            collector.add((len(collector.files) - 1, 1), name, " ".join(text.split()))
        progress(1.0)
        return collector.rows(self.path, [f"{self.path.name}: {len(names):,} recordings with a text beside each"])


def stem_of(name: str) -> str:
    """Return a path without its suffix."""
    return name.rpartition(".")[0]


def find_sidecars(tree: Tree) -> SidecarTexts | None:
    """Return recordings with a text beside most of them; None if they have none."""
    names = set(tree.names)
    stems = [stem_of(name) for name in tree.names if is_audio_name(name)]
    for suffix in SIDECARS:
        if sum(stem + suffix in names for stem in stems) > len(stems) / 2:
            return SidecarTexts(tree, suffix)
    return None


def skipped_notes(names: Sequence[str]) -> list[str]:
    """Return a note for the user on recordings that are not decoded, by their names."""
    others = [name for name in names if is_other_audio_name(name)]
    if not others:
        return []
    suffixes = ", ".join(sorted({PurePosixPath(name).suffix.lower() for name in others}))
    count = "1 file" if len(others) == 1 else f"{len(others):,} files"
    return [f"{count} skipped: {suffixes} is not decoded (first: {others[0]}); convert to WAV or FLAC"]
