"""Runs: the folder that training leaves and everything else reads; plain files only."""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade import __version__
from saccade.atomic_io import read_json, sync_folder, write_json
from saccade.errors import ModelFileError, ResourceError, UsageError, suggest

FORMAT = 1


@dataclass(frozen=True)
class Run:
    """One run folder: run.json, assets/, checkpoints/, metrics.jsonl, samples.jsonl."""

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
        """run.json: task, config, data and where it was made."""
        path = self.folder / "run.json"
        found = read_json(path)
        if found.get("format") != FORMAT:
            raise ModelFileError(f"{path}: format must be {FORMAT}, but is {found.get('format')}; update saccade")
        kinds = {"task": str, "config": dict, "train": dict, "data": str, "created": str, "saccade": str}
        for key, kind in kinds.items():
            if not isinstance(found.get(key), kind):
                raise ModelFileError(f"{path}: '{key}' must be {kind.__name__}, but is {found.get(key)!r:.60}")
        return found

    def running(self) -> bool:
        """Whether a trainer holds the run now."""
        path = self.folder / "run.lock"
        if not path.exists():
            return False
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def finished(self) -> bool:
        """Whether it was trained to its end and scored; its card is the last thing that is written."""
        return (self.folder / "card.md").exists()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run: a second trainer is refused; the system lets go when a process dies."""
        path = self.folder / "run.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ResourceError(f"cannot lock {path}: {error.strerror}; the run's folder must be writable") from error
        try:
            self._hold(descriptor, path)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def _hold(self, descriptor: int, path: Path) -> None:
        for patience in range(5):  # somebody who only looks whether the run is held lets go at once
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.05 * patience)
            else:
                return
        owner = path.read_text().strip() or "unknown"
        raise ResourceError(
            f"run '{self.name}' is being trained by process {owner}; wait for it, stop it, or choose another --name"
        )

    def write_card(
        self, scores: Mapping[str, float], explained: Mapping[str, str], remarks: Sequence[str] = ()
    ) -> None:
        """card.md: what the run is, for people; how its scores were computed, and lines on what else was seen."""
        described = self.describe()
        lines = [
            f"# {self.name}",
            "",
            f"Task `{described['task']}`, trained on `{Path(described['data']).name}`, started {described['created']} "
            f"with saccade {described['saccade']}.",
            "",
            "| score on the validation data | |",
            "| --- | --- |",
            *(f"| {name} | {value:,.4f} |" for name, value in scores.items()),
            "",
            *(f"{name}: `{signature}`  " for name, signature in explained.items()),
            "",
            *remarks,
            *([""] if remarks else []),
            f'Use it: `saccade predict {self.folder} "..."`. All settings: run.json. Every step: metrics.jsonl.',
        ]
        (self.folder / "card.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def create(root: Path, name: str, task: str, settings: dict[str, Any], data: Path) -> Run:
    """A new run folder; `settings` holds the `config` of the task and of `train`ing. A taken name is refused."""
    described = {
        "format": FORMAT,
        "task": task,
        **settings,
        "data": str(data.resolve()),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "saccade": __version__,
        "python": platform.python_version(),
    }
    return create_folder(root, name, "run.json", described)


def create_folder(root: Path, name: str, file: str, described: dict[str, Any]) -> Run:
    """A new folder of that name that holds one JSON file, wholly or not at all."""
    if not re.fullmatch(r"[\w.-]{1,100}", name) or name.startswith("."):
        raise UsageError(f"a run name must be at most 100 letters, digits, '-', '_' or '.', but is '{name}'")
    run, aside = Run(root / name), root / f".{name}-{os.getpid()}"
    try:
        if run.folder.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        aside.mkdir(parents=True, exist_ok=True)
        write_json(aside / file, described)
        aside.rename(run.folder)  # a kill before this leaves nothing by that name
        sync_folder(root)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise ResourceError(f"cannot make the run folder {run.folder}: {error.strerror}") from error
        raise UsageError(
            f"run '{name}' exists in {root}; go on with `saccade resume {run.folder}` or choose another --name"
        ) from error
    return run


def free_name(root: Path, stem: str) -> str:
    """A name for a new run: the stem, or with the next free number."""
    stem = re.sub(r"[^\w-]+", "-", stem).strip("-")[:80] or "run"
    number = 1
    while (root / f"{stem}-{number}").exists():
        number += 1
    return f"{stem}-{number}"


def list_runs(root: Path) -> list[Run]:
    """The runs of a folder, newest last."""
    found = [Run(path.parent) for path in root.glob("[!.]*/run.json")] if root.is_dir() else []
    return sorted(found, key=lambda run: ((run.folder / "run.json").stat().st_mtime, run.name))


def find(root: Path, word: str) -> Run:
    """The run that a word means: a folder, or a name in the folder of runs."""
    for folder in (Path(word), root / word):
        if (folder / "run.json").is_file():
            return Run(folder)
    known = [run.name for run in list_runs(root)]
    raise UsageError(f"no run '{word}' in {root}{suggest(word, known) if known else '; train one first'}")
