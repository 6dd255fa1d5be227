"""Run folders: what training writes and everything else reads; plain files only."""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import os
import platform
import re
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade import __version__
from saccade.atomic_io import read_json, sync_folder, write_json, write_text
from saccade.core import Evaluation, Metric, Table
from saccade.errors import ModelFileError, ResourceError, UsageError, suggest

FORMAT = 2
FIELDS = {"task": str, "config": dict, "train": dict, "data": str, "created": str, "saccade_version": str}


@dataclass(frozen=True)
class Run:
    """A run folder: run.json, assets/, checkpoints/, attention/, metrics.jsonl, samples.jsonl, card.md."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def assets(self) -> Path:
        return self.folder / "assets"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def describe(self) -> dict[str, Any]:
        """Return run.json: task, config, training config, data, and what the run was created with."""
        path = self.folder / "run.json"
        try:
            described = read_json(path)
        except ModelFileError as error:
            raise ModelFileError(f"{error}; restore it from a copy, or train a new run") from error
        if described.get("format") != FORMAT:
            step = "open it with the version of saccade that wrote it, or train a new run"
            raise ModelFileError(f"{path}: format must be {FORMAT}, but is {described.get('format')}; {step}")
        for key, kind in FIELDS.items():
            if not isinstance(described.get(key), kind):
                raise ModelFileError(f"{path}: '{key}' must be {kind.__name__}, but is {described.get(key)!r:.60}")
        return described

    def running(self) -> bool:
        """Whether the run is being trained now."""
        try:
            descriptor = os.open(self.folder / "run.lock", os.O_RDONLY | os.O_NONBLOCK)
        except OSError:  # no lock was ever taken, or it is nothing that can be locked
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def finished(self) -> bool:
        """Whether the run was trained to its end and evaluated: the card is written last."""
        return (self.folder / "card.md").exists()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run: a second trainer is refused; the lock goes with the process."""
        path = self.folder / "run.lock"
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK  # never a file elsewhere, never a pipe
            descriptor = os.open(path, flags, 0o644)
        except OSError as error:
            raise ResourceError(f"cannot lock {path}: {error.strerror}; the run's folder must be writable") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ResourceError(f"cannot lock {path}: it must be a regular file, but is not; remove it")
            self._acquire(descriptor, path)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def _acquire(self, descriptor: int, path: Path) -> None:
        for attempt in range(5):  # `running` holds the lock for a moment
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.05 * attempt)
            else:
                return
        owner = path.read_text(errors="replace").strip() or "unknown"
        raise ResourceError(
            f"run '{self.name}' is being trained by process {owner}; wait for it, stop it, or choose another --name"
        )

    def sweep(self) -> None:
        """Remove what a kill left half written: files that were about to replace others."""
        for path in (*self.folder.glob("*.tmp"), *self.folder.glob("*/*.tmp")):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def write_card(self, evaluation: Evaluation, metric: Metric) -> None:
        """Write card.md: what the run is and how good it is, for people. `metric` chose the best checkpoint."""
        described = self.describe()
        units = {metric.name: metric.unit}
        names = (f"**{name}**" if name == metric.name else name for name in evaluation.values)
        values = (f"{value:,.4f} {units.get(name, '')}".rstrip() for name, value in evaluation.values.items())
        rows = tuple(zip(names, values, strict=True))
        data, created = Path(described["data"]).name, described["created"]
        lines = [
            f"# {self.name}",
            "",
            f"Task `{described['task']}`, trained on `{data}`, started {created} with saccade "
            f"{described['saccade_version']}.",
            "",
            *Table("", ("metric on the validation data", "value"), rows).to_markdown(),
            "",
        ]
        if evaluation.signatures:
            lines += [*(f"{name}: `{signature}`  " for name, signature in evaluation.signatures.items()), ""]
        for table in evaluation.tables:
            lines += [f"## {table.title}", "", *table.to_markdown(), ""]
        if evaluation.notes:
            lines += [*evaluation.notes, ""]
        lines += [f'Use it: `saccade predict {self.folder} "..."`. All settings: run.json. Every step: metrics.jsonl.']
        write_text(self.folder / "card.md", "\n".join(lines) + "\n")


def create(root: Path, name: str, task: str, settings: dict[str, Any], data: Path) -> Run:
    """Create a run folder; `settings` holds the `config` of the task and of `train`. A taken name is refused."""
    described = {
        "format": FORMAT,
        "task": task,
        **settings,
        "data": str(data.resolve()),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "saccade_version": __version__,
        "python_version": platform.python_version(),
    }
    return create_folder(root, name, "run.json", described)


def create_folder(root: Path, name: str, file: str, described: dict[str, Any]) -> Run:
    """Create a folder of that name that holds one JSON file: all of it or nothing."""
    check_name(name)
    run, temporary = Run(root / name), root / f".{name}-{os.getpid()}"
    try:
        if run.folder.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        temporary.mkdir(parents=True, exist_ok=True)
        write_json(temporary / file, described)
        temporary.rename(run.folder)  # a kill before this leaves nothing by that name
        sync_folder(root)
    except ResourceError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise ResourceError(
                f"cannot create the run folder {run.folder}: {error.strerror}; choose another --runs"
            ) from error
        raise UsageError(
            f"run '{name}' exists in {root}; continue it with `saccade resume {run.folder}` or choose another --name"
        ) from error
    return run


def check_name(name: str) -> None:
    """Refuse a name that no run may have: it would be a path, or hidden."""
    if not re.fullmatch(r"[\w.-]{1,100}", name) or name.startswith("."):
        raise UsageError(f"a run name must be at most 100 letters, digits, '-', '_' or '.', but is '{name}'")


def delete(run: Run) -> None:
    """Delete the folder of a run and nothing else; one that is being trained is refused.

    It is renamed first, so that a kill leaves no run that looks complete.
    """
    if run.folder.is_symlink() or not run.folder.is_dir():
        raise UsageError(f"{run.folder} must be a folder, but is a link or a file; remove it yourself")
    if run.running():
        raise UsageError(f"run '{run.name}' is being trained; stop it first")
    with run.lock():  # none begins to train it now
        hidden = run.folder.with_name(f".deleted-{run.name}-{os.getpid()}")
        try:
            run.folder.rename(hidden)
            shutil.rmtree(hidden)
        except OSError as error:
            raise ResourceError(
                f"cannot delete {run.folder}: {error.strerror}; what is left of it is in {hidden}"
            ) from error
    sync_folder(run.folder.parent)


def free_name(root: Path, stem: str) -> str:
    """Return a name for a new run: the stem with the next free number."""
    stem = re.sub(r"[^\w-]+", "-", stem).strip("-")[:80] or "run"
    number = 1
    while (root / f"{stem}-{number}").exists():
        number += 1
    return f"{stem}-{number}"


def list_runs(root: Path) -> list[Run]:
    """Return the runs of a folder, newest last."""
    existing = [Run(path.parent) for path in root.glob("[!.]*/run.json")] if root.is_dir() else []
    return sorted(existing, key=lambda run: (_changed(run.folder / "run.json"), run.name))


def _changed(path: Path) -> float:
    """Return the time of the last change of a file; 0 for one that was deleted a moment ago."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def find(root: Path, ref: str) -> Run:
    """Return the run that a ref names: a folder, or a name in the folder of runs."""
    for folder in (Path(ref), root / ref):
        if (folder / "run.json").is_file():
            return Run(folder)
    names = [run.name for run in list_runs(root)]
    raise UsageError(f"no run '{ref}' in {root}{suggest(ref, names) if names else '; train one first'}")
