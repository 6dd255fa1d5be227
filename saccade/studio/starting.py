"""Starting a training from a page: choose data, see what was found in them, and train in a process of its own."""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from saccade import api
from saccade.errors import ResourceError, SaccadeError, UsageError
from saccade.planning.preview import preview
from saccade.runs import folder as runs
from saccade.runs.uploads import find_upload, keep_upload
from saccade.studio.data_files import find_data, list_data
from saccade.studio.forms import FILE_BYTES, TICKET, read_json
from saccade.studio.pages import JsonResponse
from saccade.studio.sessions import RecentlyUsed
from saccade.studio.work import Slots

MINUTES, MOST_MINUTES = 5.0, 7 * 24 * 60.0
PATIENCE = 120.0  # seconds until the process has created its run
COLUMNS = ("text_column", "second_column", "label_column", "source", "target")  # that a table may need to be told
LONGEST_COLUMN = 200  # characters
LOG = "studio.log"  # of a process that the studio has started, in the folder of its run


class FieldError(SaccadeError):
    """A mistake in one control of the form."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Settings:
    """What the form asks for, checked; an empty task is chosen by the data, an empty name after them."""

    data: Path
    task: str
    preset: str
    minutes: float
    name: str
    columns: Mapping[str, str]
    """names of columns of a table by the setting they are for"""


class StartingForm:
    """The form of a new training: its data are uploaded, or are within one folder."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder

    def choices(self) -> dict[str, Any]:
        """Return what the page offers: data files, tasks, and the default length."""
        files = list_data(self.folder, self.root)
        return {"folder": str(self.folder), "files": files, "tasks": api.list_tasks(), "minutes": MINUTES}

    def presets(self, task: str) -> dict[str, Any]:
        """Return the presets of a built-in task; the module of another one is never imported."""
        self._check_task(task)
        return {"presets": api.describe_task(task)["presets"]}

    def _check_task(self, task: str) -> None:
        if task not in {entry["name"] for entry in api.list_tasks()}:
            raise FieldError("task", f"no task '{task[:100]}'; choose one of the list")

    def upload(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Keep an uploaded file and return its reference."""
        name, url = body.get("name"), body.get("url")
        if not isinstance(name, str) or not isinstance(url, str) or not url.startswith("data:") or "," not in url:
            raise FieldError("data", "an upload must have the name of a file and its content")
        try:
            content = base64.b64decode(url.partition(",")[2], validate=True)
        except ValueError as error:
            raise FieldError(
                "data", f"the upload of '{name[:100]}' is damaged ({error}); choose the file again"
            ) from error
        if not 0 < len(content) <= FILE_BYTES:
            rule = f"must have 1 byte to {FILE_BYTES >> 20} MB, but has {len(content):,} bytes"
            raise FieldError("data", f"{name[:100]} {rule}; put a larger one into {self.folder} and choose it there")
        return {"upload": keep_upload(self.root, name, content)}

    def check(self, body: Mapping[str, Any]) -> Settings:
        """Return the settings of a request; raises FieldError with the control that is wrong."""
        task = _text(body, "task")
        if task:
            self._check_task(task)
        preset = _text(body, "preset")
        if preset and not task:
            raise FieldError("preset", "a preset belongs to a task; choose the task first")
        if preset and preset not in api.describe_task(task)["presets"]:
            raise FieldError("preset", f"no preset '{preset}' of {task}; choose one of the list")
        minutes = body.get("minutes", MINUTES)
        if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0 < minutes <= MOST_MINUTES:
            rule = f"must be a number above 0 and at most {MOST_MINUTES:,.0f}"
            raise FieldError("minutes", f"minutes {rule}, but is {str(minutes)[:40]}")
        name = _text(body, "name")
        if name:
            _check_new(self.root, name)
        columns = {column: value for column in COLUMNS if (value := _column(body, column))}
        return Settings(self._data(body), task, preset, float(minutes), name, columns)

    def _data(self, body: Mapping[str, Any]) -> Path:
        try:
            if upload := _text(body, "upload"):
                return find_upload(self.root, upload).resolve()
            return find_data(self.folder, _text(body, "path"))
        except UsageError as error:
            raise FieldError("data", str(error)) from error

    def inspect(self, body: Mapping[str, Any], report: Callable[[float], None]) -> dict[str, Any]:
        """Return what was found in the data, as `saccade train` prints it."""
        settings = self.check(body)
        try:
            result = preview(
                settings.data,
                task=settings.task,
                preset=settings.preset,
                overrides=api.to_overrides(settings.columns),
                root=self.root,
                progress=lambda stage, fraction: report(fraction),
            )
        except SaccadeError as error:
            raise FieldError("data", str(error)) from error
        name = settings.name or api.free_name(self.root, settings.data.name.split(".")[0])
        return {**vars(result), "name": name}

    def start(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Train in a process of its own, which outlives the studio; return the name of the run once it is there."""
        settings = self.check(body)
        name = settings.name or api.free_name(self.root, settings.data.name.split(".")[0])
        given = {"task": settings.task, "preset": settings.preset, "name": name, "runs": self.root.resolve()}
        given |= {column.replace("_", "-"): value for column, value in settings.columns.items()}
        options = [f"--{option}={value}" for option, value in given.items() if value]
        command = [sys.executable, "-m", "saccade", "train", str(settings.data), f"--minutes={settings.minutes:g}"]
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            path = self.root / f".{name}.log"
            with path.open("w+b") as log:
                process = subprocess.Popen(
                    [*command, *options],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                threading.Thread(target=process.wait, daemon=True).start()  # no zombie is left when it ends
                _wait(process, runs.Run(self.root / name), path, log)
        except OSError as error:
            raise ResourceError(f"cannot start a training in {self.root}: {error.strerror}") from error
        return {"name": name}


def _wait(process: subprocess.Popen[bytes], run: runs.Run, path: Path, log: IO[bytes]) -> None:
    """Wait until a run is prepared, so that nothing is wrong with its data; its log moves into its folder."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None and process.returncode:
            log.seek(0)
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
            path.unlink(missing_ok=True)
            raise FieldError("data", lines[-1] if lines else f"training ended with exit code {process.returncode}")
        if (run.folder / "run.json").exists() and path.exists():
            path.rename(run.folder / LOG)
        if (run.folder / "data.json").exists():
            return
        time.sleep(0.1)
    if not (run.folder / "run.json").exists():
        raise ResourceError(f"the training has not begun after {PATIENCE:.0f} seconds; its log is {path}")


def _check_new(root: Path, name: str) -> None:
    """Refuse a name that no run may have, or that one has."""
    try:
        runs.check_name(name)
    except UsageError as error:
        raise FieldError("name", str(error)) from error
    if (root / name).exists():
        raise FieldError("name", f"a run '{name}' exists; choose another name")


def _column(body: Mapping[str, Any], name: str) -> str:
    """Return the name of a column; one that could be a path is refused: `target` may name a second file."""
    value = _text(body, name).strip()
    is_path = value.startswith(".") or "/" in value or "\\" in value
    if len(value) > LONGEST_COLUMN or is_path or not value.isprintable():
        raise FieldError("data", f"{name} must be the name of a column, but is '{value[:100]}'")
    return value


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name, "")
    if not isinstance(value, str):
        raise FieldError("data" if name in ("path", "upload", *COLUMNS) else name, f"{name} must be a text")
    return value


def starting_routes(form: StartingForm, computations: Slots, fractions: RecentlyUsed[float]) -> list[Route]:
    """Return the addresses of the form."""

    async def upload(request: Request) -> Response:
        body = await read_json(request)
        return await _answer(run_in_threadpool(form.upload, body))

    async def inspect(request: Request) -> Response:
        body = await read_json(request)
        ticket = body.get("ticket", "")

        def report(fraction: float) -> None:
            if isinstance(ticket, str) and 0 < len(ticket) <= TICKET:
                fractions.put(ticket, fraction)

        return await _answer(computations.run(lambda: form.inspect(body, report)))

    async def start(request: Request) -> Response:
        body = await read_json(request)
        return await _answer(run_in_threadpool(form.start, body))

    async def presets(request: Request) -> Response:
        name = request.path_params["name"]
        return await _answer(run_in_threadpool(form.presets, name))

    return [
        Route("/api/train/upload", upload, methods=["POST"]),
        Route("/api/train/inspect", inspect, methods=["POST"]),
        Route("/api/train/start", start, methods=["POST"]),
        Route("/api/tasks/{name}", presets),
    ]


async def _answer(work: Awaitable[dict[str, Any]]) -> Response:
    """Return a result, or the mistake and the control it is in."""
    try:
        return JsonResponse(await work)
    except FieldError as error:
        return JsonResponse({"error": str(error), "field": error.field}, 400)
