"""CMU Sphinx: lists of recordings (NAME.fileids) with their texts (NAME.transcription), as AN4 is published."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from saccade.core.callback import Progress
from saccade.data.audio.kinds import is_audio_name, is_raw_name
from saccade.data.audio.recordings import RawRecordings, Recordings
from saccade.data.formats.audio_layouts import AudioCollector, AudioLayout, AudioRows, RecordingFinder
from saccade.data.formats.audio_transcripts import text_lines
from saccade.data.images.trees import Tree
from saccade.data.parts import part_of_file
from saccade.data.settings import AudioSettings
from saccade.data.tables.problems import Problem

IDS, TEXTS = ".fileids", ".transcription"
LINE = re.compile(r"(?P<text>.*)\((?P<id>[^()\s]+)\)")  # <s> YES </s> (an251-fash-b)
NOT_SPOKEN = {"<s>", "</s>", "<sil>"}
RAW_RATE = 16_000  # of files without a header


class SphinxFinder(RecordingFinder):
    """Finds recordings, or samples without a header where there are no others."""

    def __init__(self, tree: Tree) -> None:
        self.raw = not any(map(is_audio_name, tree.names))
        super().__init__(tree, is_recording=is_raw_name if self.raw else is_audio_name)

    def recordings(self) -> Recordings:
        return RawRecordings(self.files(), RAW_RATE) if self.raw else super().recordings()


class Sphinx(AudioLayout):
    """Pairs of lists: the paths of recordings without their suffix, and what is said in them with the same ids."""

    def __init__(self, tree: Tree, names: Sequence[str]) -> None:
        """`names`: those of the pairs without their suffixes."""
        self.tree, self.path, self._names = tree, tree.path, tuple(names)

    @property
    def roles(self) -> tuple[str, ...]:
        return ("text",)

    def read(self, role: str, settings: AudioSettings, progress: Progress) -> AudioRows:
        if role != "text":
            raise self.refuse_role(role, "transcripts of CMU Sphinx")
        collector = AudioCollector(SphinxFinder(self.tree), role)
        contents = dict(self.tree.contents([name + suffix for name in self._names for suffix in (IDS, TEXTS)]))
        encoding = settings.encoding or "utf-8-sig"
        for number, name in enumerate(self._names):
            collector.files.append(self.path / (name + TEXTS))
            ids = self.path / (name + IDS)
            listed = list(text_lines(contents[name + IDS], ids, collector.problems, encoding))
            self._add(collector, contents[name + TEXTS], listed, encoding)
            progress((number + 1) / len(self._names))
        return collector.rows(self.path, [f"{self.path.name}: CMU Sphinx, {len(self._names)} lists"])

    def _add(self, collector: AudioCollector, content: bytes, listed: Sequence[tuple[int, str]], encoding: str) -> None:
        """Add the rows of the last file of a collector; `listed`: lines and paths of its recordings."""
        number, file = len(collector.files) - 1, collector.files[-1]
        ids, part = file.with_suffix(IDS), part_of_file(file, self.path)
        paths, said = _PathsById([path for _, path in listed]), set[str]()
        for order, (line, text) in enumerate(text_lines(content, file, collector.problems, encoding)):
            match = LINE.fullmatch(text)
            path = None if match is None else paths.find(match["id"], order)
            if match is None or path is None:
                what = f"'{text[:60]}'" if match is None else f"no recording of '{match['id']}'"
                expected = "a text and the id of its recording: TEXT (ID)" if match is None else f"a line in '{ids}'"
                collector.problems.add(Problem(file, line, None, what, expected, "correct it, or delete the line"))
                continue
            said.add(path)
            words = " ".join(word for word in match["text"].split() if word not in NOT_SPOKEN)
            collector.add((number, line), path, words, speaker=PurePosixPath(path).parent.name, part=part)
        for line, path in listed:
            if path not in said:
                what, step = f"no text of '{path}'", "add it, or delete the line"
                collector.problems.add(Problem(ids, line, None, what, f"a line in '{file}'", step))


class _PathsById:
    """Paths of a list by their ids: the path itself, or its name alone."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths, self._known = paths, set(paths)
        self._by_name: dict[str, set[str]] = {}
        for path in paths:
            self._by_name.setdefault(PurePosixPath(path).name, set()).add(path)

    def find(self, id: str, order: int) -> str | None:
        """Return the path of an id; where several have its name, the one at the same place of the list."""
        if id in self._known:
            return id
        named = self._by_name.get(id, set())
        at_place = self._paths[order] if order < len(self._paths) else ""
        return next(iter(named)) if len(named) == 1 else at_place if at_place in named else None


def find_sphinx(tree: Tree) -> Sphinx | None:
    """Return the lists of CMU Sphinx in a folder or archive; None if it has none."""
    texts = {name.removesuffix(TEXTS) for name in tree.names if name.endswith(TEXTS)}
    names = [stem for name in tree.names if name.endswith(IDS) and (stem := name.removesuffix(IDS)) in texts]
    return Sphinx(tree, names) if names else None
