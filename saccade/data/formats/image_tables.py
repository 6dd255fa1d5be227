"""Tables of pictures: a column of paths, and columns of labels, captions, questions and answers, or texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from saccade.core.callback import Progress
from saccade.data.formats.image_layouts import (
    IMAGES,
    NAMES_OF_ROLES,
    ImageLayout,
    ImageRows,
    RowCollector,
    within_folder,
)
from saccade.data.images.finder import PictureFinder
from saccade.data.images.kinds import is_picture_name
from saccade.data.parts import are_parts, part_of, part_of_file, unknown_part
from saccade.data.settings import HEADERS, ImageSettings
from saccade.data.tables.columns import LABELS, TEXTS, ambiguous_column, are_classes, by_usual_name, sample_columns
from saccade.data.tables.problems import ControlCharacters
from saccade.data.tables.progress import FileProgress
from saccade.data.tables.rows import pick_columns, rows
from saccade.data.tables.sniffing import DataFile, sniff, with_named_columns
from saccade.errors import DataError, UsageError

FITTING = 0.9  # fraction of the values of a column that are names of pictures
TRIED = 50  # rows whose pictures are looked for, to decide whether a table is one of pictures
# Usual names of columns, in lower case; the first that a table has is read.
CAPTIONS = ("caption", "captions", "description", "descriptions", "comment", "title", "sentence", "sentences", "raw")
TRANSCRIPTS = (
    *("transcription", "transcript", "words", "word", "ground_truth", "gt", "text_line", "string", "characters"),
)
USUAL = {
    "label": LABELS,
    "caption": (*CAPTIONS, "text"),
    "question": ("question", "questions", "query"),
    "answer": ("answer", "answers", "label"),
    "text": ("text", *TRANSCRIPTS, "label", "labels"),
    "action": ("action", "actions", "command", "move"),
    "episode": ("episode", "episode_id", "episode_number", "trajectory", "rollout"),
    "reward": ("reward", "rewards"),
}
PAIRS = (("question", "answer"), ("action", "episode"))  # roles of which a table has both


@dataclass(frozen=True)
class ImageColumns:
    """The names of the columns of a table that are read; a table without a header has numbers for names, from 1."""

    image: str
    texts: tuple[str, ...]
    """one for each role"""
    split: str = ""


class PictureTable(ImageLayout):
    """Tables with a column of paths of pictures; several tables are parts of the data."""

    def __init__(self, path: Path, files: Sequence[DataFile], folder: Path, settings: ImageSettings) -> None:
        self.path, self.folder, self._settings = path, folder, settings
        self.files = tuple(_with_header(file, settings) for file in files)

    @property
    def roles(self) -> tuple[tuple[str, ...], ...]:
        """What the texts may be by the names of the columns, or by their contents where these say nothing."""
        file, settings = self.files[0], self._settings
        given = ["action" if role == "reward" else role for role in NAMES_OF_ROLES if settings.column(role)]
        if given:
            pair = next((pair for pair in PAIRS if set(given) & set(pair)), None)
            return (pair,) if pair else tuple((role,) for role in given)
        sample = sample_columns(file)
        image = image_column(file, sample, settings)
        names = [name for name in sample if name.strip() and name != image and not are_parts(name, sample[name])]
        for pair in PAIRS:
            if all(by_usual_name(names, USUAL[role]) for role in pair):
                return (pair,)
        named = []
        for role, usual in (("label", LABELS), ("caption", CAPTIONS), ("text", TRANSCRIPTS)):
            column = by_usual_name(names, usual)
            if column and (role != "label" or are_classes(sample[column]) or len(set(sample[column])) == 1):
                named.append((role,))
        if named:
            return tuple(named)
        column = (
            by_usual_name(names, ("text",)) or by_usual_name(names, LABELS) or (names[0] if len(names) == 1 else "")
        )
        if not column:
            return (("label",), ("caption",), ("question", "answer"), ("text",))
        return (("label",), ("text",)) if are_classes(sample[column]) else (("caption",), ("text",))

    def read(self, roles: Sequence[str], settings: ImageSettings, progress: Progress) -> ImageRows:
        finder = PictureFinder(self.folder)
        collector = RowCollector(finder, roles, files=[file.path for file in self.files])
        replaced, total, notes = ControlCharacters(), FileProgress(self.files, progress), []
        for number, file in enumerate(self.files):
            columns = find_image_columns(file, roles, settings)
            names = [columns.image, *columns.texts, *([columns.split] if columns.split else [])]
            lists: dict[str, Callable[[list[str]], str]] = {
                name: json.dumps
                for role, name in zip(roles, columns.texts, strict=True)
                if role in ("caption", "answer")
            }
            file_part = part_of_file(file.path, self.path) if len(self.files) > 1 else None
            reader = rows(
                file, names, lists=lists, problems=collector.problems, on_bytes=total.of(number), replaced=replaced
            )
            for row in reader:
                image, *texts = row.values[: 1 + len(roles)]
                part = part_of(row.values[-1]) if columns.split else file_part
                if part is None and columns.split:
                    collector.problems.add(unknown_part(file.path, row.line, columns.split, row.values[-1]))
                    continue
                for expanded in _expanded(roles, texts, lists=file.format == "jsonl"):
                    collector.add(number, row.line, image, expanded, part)
            listed = ", ".join(f"{role}: column {name}" for role, name in zip(roles, columns.texts, strict=True))
            notes += [file.describe(), f"picture: column {columns.image}, {listed}"]
        return collector.rows(self.path, [*notes, *replaced.notes()])


def _expanded(roles: Sequence[str], texts: Sequence[str], *, lists: bool) -> list[list[str]]:
    """Return the rows of one row whose captions are a list; several answers stay together, on a line each."""
    values = [
        _items(text) if lists and role in ("caption", "answer") else [text]
        for role, text in zip(roles, texts, strict=True)
    ]
    values = [["\n".join(items)] if role == "answer" else items for role, items in zip(roles, values, strict=True)]
    count = max(map(len, values), default=1)
    return [[items[min(number, len(items) - 1)] for items in values] for number in range(count)]


def _items(text: str) -> list[str]:
    """Return the strings of a JSON list; any other text as it is."""
    try:
        items = json.loads(text) if text.startswith("[") else None
    except (ValueError, RecursionError):
        return [text]
    return [str(item) for item in items] if items else [text]


def find_image_columns(file: DataFile, roles: Sequence[str], settings: ImageSettings) -> ImageColumns:
    """Return the columns of the pictures and of the texts of these roles; given ones are not guessed."""
    given = {role: settings.column(role) for role in roles if settings.column(role)}
    sample = sample_columns(file)
    chosen = [name for name in (settings.image_column, *given.values()) if name]
    pick_columns(file.path, list(sample), chosen)
    if len(set(chosen)) < len(chosen):
        twice = next(name for name in chosen if chosen.count(name) > 1)
        raise UsageError(f"the picture and its texts must be different columns, but two are '{twice}'; name others")
    image = image_column(file, sample, settings)
    if not image:
        raise ambiguous_column(file, sample, "picture", "path of a picture", "data.image_column", [])
    free = [name for name in sample if name.strip() and name != image and name not in given.values()]
    split = next((name for name in free if are_parts(name, sample[name])), "")
    free = [name for name in free if name != split]
    texts = []
    for role in roles:
        column = given.get(role) or by_usual_name(free, USUAL[role]) or (free[0] if len(free) == 1 else "")
        if not column:
            raise ambiguous_column(file, sample, role, role, f"data.{role}_column", free if len(free) > 1 else [])
        texts.append(column)
        free = [name for name in free if name != column]
    return ImageColumns(image, tuple(texts), split)


def image_column(file: DataFile, sample: dict[str, list[str]], settings: ImageSettings) -> str:
    """Return the column of the paths of pictures: given, by the names in it, or by its own name; empty if none is."""
    if settings.image_column:
        return settings.image_column
    paths = [name for name, values in sample.items() if _are_picture_names(values)]
    return by_usual_name(paths, IMAGES) or next(iter(paths), "") or by_usual_name(list(sample), IMAGES)


def _are_picture_names(values: Sequence[str]) -> bool:
    fitting = sum(is_picture_name(value.strip()) and "://" not in value for value in values)
    return fitting > 0 and fitting >= FITTING * len(values)


def _with_header(file: DataFile, settings: ImageSettings) -> DataFile:
    """Return a table with its header where the names of pictures settle whether it has one: they begin below it."""
    file = with_named_columns(file, [name for name in map(settings.column, NAMES_OF_ROLES) if name])
    if file.format == "jsonl" or file.header_given:
        return file
    plain = replace(file, header=False, columns=(), header_unclear=False)
    for values in sample_columns(plain).values():
        if len(values) > 1 and _are_picture_names(values[1:]):
            header = not is_picture_name(values[0].strip())
            return sniff(file.path, encoding=file.encoding, header=header) if header != bool(file.columns) else file
    return file


def looks_like_pictures(file: DataFile, path: Path, folder: Path, settings: ImageSettings) -> bool:
    """Whether a table has a column of names of pictures, or of their numbers where `path` is the folder of both."""
    if file.format == "text":
        return False
    try:
        table = _with_header(file, settings)
        sample = sample_columns(table)
        image = image_column(table, sample, settings)
    except DataError:  # reading reports it, with its line
        return False
    values = sample.get(image, [])
    named = _are_picture_names(values)
    if settings.image_column:
        return True
    if not named and path != folder:
        return False
    finder, within = PictureFinder(folder), within_folder(file.path, folder)
    if any(match.place is not None for match in finder.match(values[:TRIED], within).values()):
        return True
    # A table of texts stays one if the pictures that it names besides are not there.
    return named and not by_usual_name([name for name in sample if name != image], TEXTS)


def sniff_table(path: Path, settings: ImageSettings) -> DataFile:
    """Return how a table is read."""
    return sniff(path, encoding=settings.encoding or None, header=HEADERS[settings.header])
