"""Transcripts: lines of the name of a recording and what is said in it, as LibriSpeech and Kaldi have them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from saccade.core.callback import Progress
from saccade.data.formats.audio_layouts import AudioCollector, AudioLayout, AudioRows, RecordingFinder
from saccade.data.images.trees import Tree
from saccade.data.parts import part_of
from saccade.data.settings import AudioSettings
from saccade.data.tables.problems import Problem, Problems

LIBRISPEECH = ".trans.txt"
UTTERANCE = re.compile(r"(\d+)-\d+-\d+")  # speaker, chapter and number
PARTS = re.compile(r"(train|dev|test)-(clean|other)(-\d+)?")  # folders of LibriSpeech
SNIFFED, FITTING = 50, 0.9  # lines that decide whether a file is a transcript, and the fraction of them that fit
MAX_TEXTS = 20  # text files that are looked into


class Transcripts(AudioLayout):
    """Files of lines: the name or path of a recording, blanks, and what is said in it."""

    def __init__(self, tree: Tree, names: Sequence[str]) -> None:
        self.tree, self.path, self._names = tree, tree.path, tuple(names)

    @property
    def roles(self) -> tuple[str, ...]:
        return ("text",)

    def read(self, role: str, settings: AudioSettings, progress: Progress) -> AudioRows:
        if role != "text":
            raise self.refuse_role(role, "transcripts")
        collector = AudioCollector(RecordingFinder(self.tree), role)
        for number, (name, content) in enumerate(sorted(self.tree.contents(self._names))):
            collector.files.append(self.path / name)
            folder = str(PurePosixPath(name).parent)
            part = _part(name)
            encoding = settings.encoding or "utf-8-sig"
            for line, text in text_lines(content, self.path / name, collector.problems, encoding):
                recording, _, said = text.partition("\t") if "\t" in text else text.partition(" ")
                speaker = UTTERANCE.fullmatch(recording)
                collector.add(
                    (number, line),
                    recording,
                    said,
                    speaker=speaker[1] if speaker else "",
                    part=part,
                    folder="" if folder == "." else folder,
                )
            progress((number + 1) / len(self._names))
        return collector.rows(self.path, [f"{self.path.name}: {len(self._names):,} files of transcripts"])


class Kaldi(AudioLayout):
    """A folder with wav.scp (id and path), text (id and what is said) and perhaps utt2spk (id and speaker)."""

    def __init__(self, tree: Tree, folder: str) -> None:
        self.tree, self.path, self._folder = tree, tree.path, folder

    @property
    def roles(self) -> tuple[str, ...]:
        return ("text",)

    def read(self, role: str, settings: AudioSettings, progress: Progress) -> AudioRows:
        if role != "text":
            raise self.refuse_role(role, "transcripts of Kaldi")
        names = [f"{self._folder}{name}" for name in ("wav.scp", "text", "utt2spk")]
        contents = dict(self.tree.contents([name for name in names if name in self.tree.names]))
        collector = AudioCollector(RecordingFinder(self.tree), role, files=[self.path / name for name in names])
        encoding = settings.encoding or "utf-8-sig"
        paths, texts, speakers = (
            _table(contents.get(name, b""), self.path / name, collector.problems, encoding) for name in names
        )
        for key, (line, text) in texts.items():
            if key not in paths:
                what, step = f"no recording of '{key}'", "add it, or delete the line"
                where = f"a line in '{self.path / names[0]}'"
                collector.problems.add(Problem(self.path / names[1], line, None, what, where, step))
                continue
            path_line, path = paths[key]
            if path.rstrip().endswith("|"):
                step = "write the recordings to files, and their paths into wav.scp"
                what = f"a command '{path[:60]}'"
                collector.problems.add(Problem(self.path / names[0], path_line, None, what, "the path of a file", step))
                continue
            collector.add((1, line), path, text, speaker=speakers.get(key, (0, ""))[1])
        progress(1.0)
        return collector.rows(self.path, [f"{self.path.name}: Kaldi, {len(texts):,} utterances"])


def find_transcripts(tree: Tree, finder: RecordingFinder) -> AudioLayout | None:
    """Return the transcripts of a folder or archive; None if it has none."""
    names = [name for name in tree.names if name.endswith(LIBRISPEECH)]
    if names:
        return Transcripts(tree, names)
    scripts = [name for name in tree.names if PurePosixPath(name).name == "wav.scp"]
    folders = [name.removesuffix("wav.scp") for name in scripts if name.removesuffix("wav.scp") + "text" in tree.names]
    if folders:
        return Kaldi(tree, folders[0])
    texts = [name for name in tree.names if name.lower().endswith(".txt") and "/" not in name]
    if 0 < len(texts) <= MAX_TEXTS:
        names = [name for name, content in tree.contents(texts) if _fits(content, finder)]
        return Transcripts(tree, names) if names else None
    return None


def _fits(content: bytes, finder: RecordingFinder) -> bool:
    """Whether the first lines of a file start with names of recordings."""
    lines = [line for line in content[:100_000].decode("utf-8", "replace").split("\n") if line.strip()][:SNIFFED]
    matches = finder.match(line.split()[0] for line in lines)
    fitting = [line for line in lines if matches[line.split()[0]].place is not None]
    return any(len(line.split()) > 1 for line in fitting) and len(fitting) >= FITTING * len(lines)


def _part(name: str) -> int | None:
    """Return the part of the data by the folders or the name of a file: dev-clean, train.txt."""
    for part in (*PurePosixPath(name).parts[:-1], PurePosixPath(name).stem):
        match = PARTS.fullmatch(part)
        found = part_of(match[1] if match else part)
        if found is not None:
            return found
    return None


def text_lines(content: bytes, file: Path, problems: Problems, encoding: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are not empty, with their numbers; those that cannot be decoded are problems."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        try:
            text = line.decode(encoding).strip()
        except UnicodeDecodeError as error:
            step = "save it as UTF-8, or name its encoding with data.encoding"
            problems.add(Problem(file, number, error.start + 1, "not UTF-8", "a text in UTF-8", step))
            continue
        if text:
            yield number, text


def _table(content: bytes, file: Path, problems: Problems, encoding: str) -> Mapping[str, tuple[int, str]]:
    """Return the line and the text of each id of a file of Kaldi."""
    table: dict[str, tuple[int, str]] = {}
    for number, line in text_lines(content, file, problems, encoding):
        key, *text = line.split(maxsplit=1)
        table[key] = (number, "".join(text))
    return table
