"""The Heads page: the heads of a model over many rows, computed in the background."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from saccade.core import Progress
from saccade.errors import UsageError
from saccade.look.head_survey import MOST_ROWS, SurveySettings
from saccade.runs import folder as runs
from saccade.studio.forms import check_size, read_json
from saccade.studio.jobs import Jobs
from saccade.studio.pages import JsonResponse, Page
from saccade.studio.sessions import Sessions

SUFFIXES = (".txt", ".tsv", ".jsonl")
FILE_BYTES, FILES = 8 << 20, 200  # of a file, and files in the list
SOURCES = ("validation", "texts", "file")


@dataclass(frozen=True)
class SurveyForm:
    """A request for a survey of heads."""

    model: str
    source: str
    """validation, texts or file"""
    texts: str
    file: str
    settings: SurveySettings


class HeadPages:
    """The addresses of the page."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions, self.jobs = sessions, Jobs()

    def routes(self, page_routes: Callable[..., list[Route]]) -> list[Route]:
        return [
            *page_routes("/heads", self.page),
            Route("/api/heads", self.start, methods=["POST"]),
            Route("/api/heads/{id}", self.state),
            Route("/api/heads/{id}/cancel", self.cancel, methods=["POST"]),
        ]

    async def page(self, request: Request) -> Page:
        return Page("heads", "Heads", await run_in_threadpool(self._data, dict(request.query_params)))

    def _data(self, parameters: dict[str, str]) -> dict[str, Any]:
        names = self.sessions.names()
        with_data = {run.name for run in runs.list_runs(self.sessions.root)}
        return {
            "models": names,
            "runs": [name for name in names if name in with_data],
            "files": list(self._files()),
            "running": self.jobs.running(),
            "parameters": parameters,
            "most_rows": MOST_ROWS,
        }

    def _files(self) -> dict[str, Path]:
        """Return the files of texts beside the folder of the runs, by their names; a page can name no other."""
        folder = self.sessions.root.absolute().parent
        found = (path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES and path.name.isprintable())
        return {path.name: path for path in list(found)[:FILES] if path.is_file()}

    async def start(self, request: Request) -> Response:
        form = _read_form(await read_json(request))

        def work(progress: Progress) -> dict[str, Any]:
            model = self.sessions.model(form.model)
            rows = None if form.source == "validation" else model.read_lines(self._lines(form), form.file or "texts")
            return model.survey_heads(rows, form.settings, progress=progress).to_json()

        return JsonResponse(self.jobs.start(work).to_json())

    def _lines(self, form: SurveyForm) -> list[str]:
        if form.source == "texts":
            return form.texts.splitlines()
        path = self._files().get(form.file)
        if path is None:
            raise UsageError(f"file must be one of the list, but is '{form.file[:100]}'; reload the page")
        size = path.stat().st_size
        if size > FILE_BYTES:
            raise UsageError(f"{form.file} must have at most {FILE_BYTES >> 20} MB, but has {size / (1 << 20):.1f} MB")
        try:
            return path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{form.file} must be readable UTF-8, but is not ({error})") from error

    async def state(self, request: Request) -> Response:
        job = self.jobs.get(request.path_params["id"])
        return JsonResponse({**job.to_json(), "report": job.result if job.state == "done" else None})

    async def cancel(self, request: Request) -> Response:
        job = self.jobs.get(request.path_params["id"])
        job.cancel()
        return JsonResponse(job.to_json())


def _read_form(body: dict[str, Any]) -> SurveyForm:
    texts = {name: body.get(name, "") for name in ("model", "source", "texts", "file", "map")}
    wrong = next((name for name, value in texts.items() if not isinstance(value, str)), None)
    if wrong is not None:
        raise UsageError(f"{wrong} must be a text")
    if texts["source"] not in SOURCES:
        raise UsageError(f"source must be {', '.join(SOURCES)}, but is '{texts['source'][:40]}'")
    check_size(texts["texts"])
    numbers = {name: body.get(name, default) for name, default in (("rows", MOST_ROWS), ("ablations", 24), ("head", 0))}
    wrong = next((name for name, value in numbers.items() if type(value) is not int), None)
    if wrong is not None:
        raise UsageError(f"{wrong} must be a whole number")
    settings = SurveySettings(numbers["rows"], numbers["ablations"], texts["map"], numbers["head"])
    return SurveyForm(texts["model"], texts["source"], texts["texts"], texts["file"], settings)
