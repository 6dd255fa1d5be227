"""Lists of pictures: lines of a path and a text, as in files of Flickr captions and of text recognition."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from saccade.core.callback import Progress
from saccade.data.formats.image_layouts import IMAGES, ImageLayout, ImageRows, RowCollector
from saccade.data.images.finder import PictureFinder
from saccade.data.images.kinds import SUFFIXES
from saccade.data.parts import TEST, TRAIN, VALID, part_of_file
from saccade.data.settings import ImageSettings
from saccade.data.tables.columns import are_classes
from saccade.data.tables.problems import BadRows, ControlCharacters, Problem, Problems
from saccade.data.tables.progress import BytesRead, FileProgress
from saccade.data.tables.rows import FORBIDDEN, Lines, forbidden_problem
from saccade.data.tables.sniffing import DataFile, sniff
from saccade.errors import DataError

SNIFFED = 1000  # lines that decide whether a file is a list of pictures
FITTING = 0.9  # fraction of them that start with the path of a picture
_SUFFIX = "|".join(suffix.removeprefix(".") for suffix in sorted(SUFFIXES, key=len, reverse=True))
# A path, the number of the caption in files of Flickr, and a text behind a tab, a comma or blanks.
LINE = re.compile(
    rf"\s*(?P<path>(?:\S[^\t]*?\.(?:{_SUFFIX})(?=\.?#\d+\t|\t))|\S+?\.(?:{_SUFFIX}))"
    r"(?P<number>\.?#\d+)?(?:\t+|[ ]*,[ ]*|[ ]+)(?P<text>\S[^\t]*)",
    re.IGNORECASE,
)
READING_NAMES = {"gt", "labels", "annotation_train", "annotation_val", "annotation_test"}
LISTED_PARTS = re.compile(r"(train|dev|val|test)_?images?\.txt$", re.I)
STEP = "write the path of a picture, a tab and its text on each line"


@dataclass(frozen=True)
class ListLine:
    """A line of a list: the path of a picture and its text."""

    line: int
    path: str
    text: str
    numbered: bool
    """whether a number of the caption follows the path, as in files of Flickr"""


class PictureList(ImageLayout):
    """Files of lines with a path and a text; several files are parts of the data."""

    def __init__(self, path: Path, files: Sequence[DataFile], folder: Path) -> None:
        self.path, self.files, self.folder = path, tuple(files), folder

    @property
    def roles(self) -> tuple[tuple[str, ...], ...]:
        sample = list(islice(_lines(self.files[0], Problems()), SNIFFED))
        pictures = {line.path for line in sample}
        if any(line.numbered for line in sample) or len(pictures) < len(sample) / 2:
            return (("caption",),)
        if self.files[0].path.name.split(".")[0].lower() in READING_NAMES:
            return (("text",),)
        if are_classes([line.text for line in sample]):
            return (("label",), ("text",))
        return (("caption",), ("text",))

    def read(self, roles: Sequence[str], settings: ImageSettings, progress: Progress) -> ImageRows:
        if len(roles) != 1 or roles[0] not in ("label", "caption", "text"):
            raise self.refuse_roles(roles, "lines of a path and one text")
        collector = RowCollector(PictureFinder(self.folder), roles, files=[file.path for file in self.files])
        parts = self._listed_parts()
        replaced, total = ControlCharacters(), FileProgress(self.files, progress)
        for number, file in enumerate(self.files):
            # Pictures that such lists do not name are trained on.
            part = TRAIN if parts else part_of_file(file.path, self.path) if len(self.files) > 1 else None
            for row in _lines(file, collector.problems, total.of(number), replaced):
                collector.add(number, row.line, row.path, [row.text], parts.get(row.path, part))
        described = [file.describe() for file in self.files]
        return collector.rows(self.path, [*described, *replaced.notes()])

    def _listed_parts(self) -> dict[str, int]:
        """Return the part of each picture that is named in lists such as Flickr_8k.trainImages.txt."""
        parts: dict[str, int] = {}
        for path in sorted(self.files[0].path.parent.iterdir()):
            match = LISTED_PARTS.search(path.name)
            if match is not None:
                part = {"train": TRAIN, "test": TEST}.get(match[1].lower(), VALID)
                parts |= {line.strip(): part for line in Lines(sniff(path))}
        return parts


def looks_like_list(file: DataFile) -> bool:
    """Whether nearly all of the first lines of a file are the path of a picture and a text."""
    if file.format in ("csv", "jsonl"):
        return False
    lines: list[str] = []
    with contextlib.suppress(DataError):  # reading reports it, with its line
        lines.extend(line for line in islice(Lines(file), SNIFFED) if line.strip())
    if not lines:
        return False
    fits = [LINE.fullmatch(line.rstrip("\n")) is not None for line in lines]
    if file.format == "text" and _is_header(lines[0]):
        fits = fits[1:]
    elif file.header and not fits[0]:  # a table, whose columns have names
        return False
    return sum(fits) > 0 and sum(fits) >= FITTING * len(fits)


def is_numbered(file: DataFile) -> bool:
    """Whether the captions of a list are numbered, as in files of Flickr."""
    return any(line.numbered for line in islice(_lines(file, Problems()), SNIFFED))


def _lines(
    file: DataFile,
    problems: Problems,
    on_bytes: BytesRead | None = None,
    replaced: ControlCharacters | None = None,
) -> Iterator[ListLine]:
    """Yield the lines of a list; others are problems."""
    lines = Lines(file, on_bytes, replaced=replaced if replaced is not None else ControlCharacters())
    try:
        for line in lines:
            lines.recent.clear()
            bad = FORBIDDEN.search(line)
            if bad is not None:
                problems.add(forbidden_problem(file.path, lines.number, bad.start() + 1, bad.group()))
                continue
            match = LINE.fullmatch(line.rstrip("\n"))
            if match is not None:
                yield ListLine(lines.number, match["path"], _unquoted(match["text"]), match["number"] is not None)
            elif line.strip() and not (lines.number == 1 and _is_header(line)):
                what = f"'{line.strip()[:60]}'"
                problems.add(Problem(file.path, lines.number, None, what, "the path of a picture and a text", STEP))
    except BadRows as fatal:
        raise problems.fail(fatal) from fatal


def _is_header(line: str) -> bool:
    """Whether a line names the two columns of a list, as in captions.txt of Flickr: image,caption."""
    names = [name.strip().lower() for name in re.split(r"[,\t]", line)]
    return len(names) == 2 and names[0] in IMAGES


def _unquoted(text: str) -> str:
    """Return a text without the quotes around it, which lists with commas have."""
    text = text.strip()
    return text[1:-1].replace('""', '"') if len(text) > 2 and text[0] == text[-1] == '"' else text
