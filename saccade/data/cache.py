"""Text as token shards: tokenizes once into memory-mapped files, kept in a cache that survives kills and damage."""

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from saccade.atomic_io import sync_folder
from saccade.data.formats.documents import Document, documents
from saccade.data.splitting import OverlapCounter, Part, SplitSettings, split
from saccade.data.tables.encodings import explain
from saccade.data.tables.problems import BadRows, Problem
from saccade.data.tables.sniffing import DataFile
from saccade.data.text.alphabets import UnknownCharacter
from saccade.data.text.tokenizers import END, Tokenizer
from saccade.errors import DataError, ResourceError

FORMAT_VERSION = 1
PARTS: tuple[Part, Part] = ("train", "valid")
STALE = 24 * 3600.0  # seconds after which the temporary folder of a killed builder is swept away

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Shard:
    """The ids of one part of the data, read from disk as they are needed."""

    ids: npt.NDArray[np.unsignedinteger[Any]]
    size: int
    bytes: int
    path: Path
    notes: tuple[str, ...] = ()
    source: str = ""
    """what was read, whatever the tokenizer: changes with the files and the split"""


class DamagedEntry(Exception):
    """An entry of the cache is not what was written; it is made again, so nobody meets this."""


def default_cache() -> Path:
    """Where shards are kept: SACCADE_CACHE, or the user's cache folder."""
    chosen = os.environ.get("SACCADE_CACHE")
    if chosen:
        return Path(chosen)
    general = os.environ.get("XDG_CACHE_HOME")
    return (Path(general) if general else Path.home() / ".cache") / "saccade"


def build_shards(
    found: Sequence[DataFile],
    valid: Sequence[DataFile] | None,
    tokenizer: Tokenizer,
    folder: Path,
    settings: SplitSettings,
    *,
    advance: Progress | None = None,
) -> tuple[Shard, Shard]:
    """The training and validation shards of some files: from the cache, or made now and put there.

    With `valid` None the files are split. `advance` is told the bytes read and to be read. An entry found in the
    cache is believed only if its checksums agree.
    """
    source = source_key(found, valid, settings)
    key = _digest([FORMAT_VERSION, source, tokenizer.sha256])
    entry = folder / key[:16]
    damage: tuple[str, ...] = ()
    if entry.exists():
        try:
            return open_shards(entry)
        except DamagedEntry as error:
            damage = (f"the cached tokens in {entry} were damaged ({error}) and have been made again",)
            shutil.rmtree(entry, ignore_errors=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        temporary = Path(tempfile.mkdtemp(prefix=".building-", dir=folder))
        try:
            _write_entry(temporary, _parts(found, valid, settings, advance), tokenizer, source)
            _publish(temporary, entry)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise _cache_error(folder, error) from error
    try:
        train, held = open_shards(entry)
    except DamagedEntry as error:  # another process has taken it away at this very moment
        raise ResourceError(f"the cached tokens must stay in place, but {error}: {entry}; run it again") from error
    return replace(train, notes=damage + train.notes), replace(held, notes=damage + held.notes)


def source_key(found: Sequence[DataFile], valid: Sequence[DataFile] | None, settings: SplitSettings) -> str:
    """The name of what is read: the same contents read and split the same way give the same name, anywhere."""
    held = None if valid is None else [_source_key(file) for file in valid]
    return _digest([[_source_key(file) for file in found], held, asdict(settings)])


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _source_key(file: DataFile) -> list[str | bool]:
    """The content of a file and how it is read; its name and place do not matter."""
    try:
        with file.path.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise explain(file.path, error) from error
    return [content, file.format, file.encoding, file.delimiter, file.quoted, file.header]


def open_shards(entry: Path) -> tuple[Shard, Shard]:
    """The two shards of a cache entry, or DamagedEntry with the reason."""
    try:
        record = json.loads((entry / "shards.json").read_text(encoding="utf-8"))
        if record["version"] != FORMAT_VERSION:
            raise DamagedEntry(f"version {record['version']}")
        kinds: dict[str, np.dtype[np.unsignedinteger[Any]]] = {name: np.dtype(name) for name in ("uint16", "uint32")}
        kind = kinds[record["type"]]
        notes, source = tuple(str(note) for note in record["notes"]), str(record["source"])
        train, valid = (_open_shard(entry, part, record[part], kind) for part in PARTS)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedEntry(f"{type(error).__name__}: {error}") from error
    return replace(train, notes=notes, source=source), replace(valid, notes=notes, source=source)


def _open_shard(entry: Path, part: Part, record: dict[str, Any], kind: np.dtype[np.unsignedinteger[Any]]) -> Shard:
    path = entry / f"{part}.bin"
    expected, actual = int(record["tokens"]) * kind.itemsize, path.stat().st_size
    if actual != expected:
        raise DamagedEntry(f"{path.name} has {actual:,} bytes, expected {expected:,}")
    with path.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != record["sha256"]:
            raise DamagedEntry(f"{path.name} has another checksum")
    ids = np.memmap(path, dtype=kind, mode="r")
    return Shard(ids=ids, size=len(ids), bytes=int(record["bytes"]), path=path)


class _Progress:
    """Adds up how far the files have been read."""

    def __init__(self, files: Sequence[DataFile], advance: Progress) -> None:
        self._total = sum(file.size for file in files)
        self._advance = advance
        self._done: dict[Path, int] = {}

    def __call__(self, file: DataFile, position: int) -> None:
        self._done[file.path] = position
        self._advance(sum(self._done.values()), self._total)


def _parts(
    found: Sequence[DataFile], valid: Sequence[DataFile] | None, settings: SplitSettings, advance: Progress | None
) -> Iterator[tuple[Part, Document, bool]]:
    """Every document with its part, and whether it is a row of a table."""
    progress = _Progress([*found, *(valid or ())], advance) if advance is not None else None
    tables = {file.path for file in [*found, *(valid or ())] if file.format != "text"}
    if valid is None:
        for part, document in split(found, settings, advance=progress):
            yield part, document, document.file in tables
        return
    sides: tuple[tuple[Part, Sequence[DataFile]], ...] = (("train", found), ("valid", valid))
    for part, files in sides:
        for file in files:
            for document in documents(file, column=settings.column):
                yield part, document, file.path in tables
            if progress is not None:
                progress(file, file.size)


class _Writer:
    """Writes the ids of one part, and counts and checks them on the way."""

    def __init__(self, path: Path, kind: np.dtype[np.unsignedinteger[Any]], tokenizer: Tokenizer) -> None:
        self._stream = path.open("wb")
        self._kind = kind
        self._tokenizer = tokenizer
        self._digest = hashlib.sha256()
        self._between = separator(tokenizer)
        self.tokens = 0
        self.bytes = 0

    def add(self, document: Document, is_row: bool) -> None:
        """Write the ids of a document, and after a row those that end it."""
        ids = encode_document(self._tokenizer, document)
        data = ids.astype(self._kind).tobytes()
        if is_row:
            data += np.array(self._between, dtype=self._kind).tobytes()
        self._stream.write(data)
        self._digest.update(data)
        self.tokens += len(data) // self._kind.itemsize
        self.bytes += len(document.text.encode())

    def finish(self) -> dict[str, int | str]:
        """Bring the file safely to disk, and say what is in it."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self.close()
        return {"tokens": self.tokens, "bytes": self.bytes, "sha256": self._digest.hexdigest()}

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()


def separator(tokenizer: Tokenizer) -> list[int]:
    """The ids between two rows: the end-of-text token, else a newline, else (no such character) nothing."""
    end = tokenizer.specials.get(END)
    if end is not None:
        return [end]
    if tokenizer.kind == "characters" and tokenizer.id("\n") is None:
        return []
    return tokenizer.encode("\n")


def encode_document(tokenizer: Tokenizer, document: Document) -> npt.NDArray[np.uint32]:
    """The ids of a document; a character the tokenizer does not know is reported by file, line and column."""
    try:
        return tokenizer.encode_array(document.text)
    except UnknownCharacter as error:
        if document.file is None:
            raise
        before = document.text[: error.position]
        line, column = document.line + before.count("\n"), error.position - before.rfind("\n")
        problem = Problem(document.file, line, column, f"character {error.what}", error.expected, error.next_step)
        raise BadRows([problem]) from error


def _write_entry(folder: Path, parts: Iterator[tuple[Part, Document, bool]], tokenizer: Tokenizer, source: str) -> None:
    """Tokenize everything into a folder; the record, which makes the entry valid, comes last."""
    kind: np.dtype[np.unsignedinteger[Any]] = np.dtype(np.uint16 if tokenizer.size <= 1 << 16 else np.uint32)
    writers = {part: _Writer(folder / f"{part}.bin", kind, tokenizer) for part in PARTS}
    counters = {by_line: OverlapCounter(by_line=by_line) for by_line in (False, True)}
    try:
        for part, document, is_row in parts:
            writers[part].add(document, is_row)
            counters[not is_row].add(part, document.text)
        for part, writer in writers.items():
            if not writer.tokens:
                message = f"the {'training' if part == 'train' else 'validation'} part must hold text, but is empty"
                raise DataError(f"{message}; give more data, a validation file, or another fraction or seed")
        overlaps = [counter.result() for counter in counters.values()]
        record: dict[str, object] = {part: writer.finish() for part, writer in writers.items()}
    finally:
        for writer in writers.values():
            writer.close()
    record.update(version=FORMAT_VERSION, source=source, type=kind.name)
    record["overlap"] = [asdict(overlap) for overlap in overlaps if overlap.train_total]
    record["notes"] = [note for overlap in overlaps for note in overlap.notes()]
    with (folder / "shards.json").open("w", encoding="utf-8") as stream:
        json.dump(record, stream, indent=1, sort_keys=True)
        stream.flush()
        os.fsync(stream.fileno())
    sync_folder(folder)


def _publish(temporary: Path, entry: Path) -> None:
    """Give a finished entry its name in one step; if another process was faster, its entry is as good."""
    try:
        temporary.rename(entry)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    sync_folder(entry.parent)


def _sweep(folder: Path) -> None:
    """Remove what builders that were killed long ago have left behind."""
    for left in folder.glob(".building-*"):
        try:
            if time.time() - left.stat().st_mtime > STALE:
                shutil.rmtree(left, ignore_errors=True)
        except FileNotFoundError:  # another process sweeps too
            continue


def _cache_error(folder: Path, error: OSError) -> ResourceError:
    free = "there is no room left" if error.errno == errno.ENOSPC else f"it cannot be written ({error.strerror})"
    return ResourceError(
        f"the cache folder must take the tokens, but {free}: {folder}; set SACCADE_CACHE to another one"
    )
