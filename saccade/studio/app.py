"""The app: every address of the studio and what it answers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from saccade import api
from saccade.core.task import Task
from saccade.errors import SaccadeError, UsageError
from saccade.studio import live, looking
from saccade.studio.exporting import export
from saccade.studio.generating import written
from saccade.studio.pages import STATIC, Page, plain
from saccade.studio.security import Guard
from saccade.studio.sessions import Look, Sessions

T = TypeVar("T")
Answer = Callable[[Request], Awaitable[Response]]


def make_app(sessions: Sessions, key: str, port: int) -> Guard:
    """The studio over some runs, for a browser that has the key."""
    studio = Studio(sessions)
    routes = [
        Route("/", lambda _: RedirectResponse("/runs", 303)),
        Mount("/static", StaticFiles(directory=STATIC)),
        *_both("/runs", studio.runs),
        *_both("/watch/{name}", studio.watch),
        *_both("/look", studio.look),
        *_both("/try", studio.trying),
        *_both("/steps", studio.steps_page),
        *_both("/lessons", studio.lessons),
        Route("/api/runs/{name}", studio.curves),
        Route("/api/runs/{name}/attention/{step:int}", studio.attention_snapshot),
        Route("/api/runs/{name}/{act}", studio.act, methods=["POST"]),
        Route("/api/models/{name:path}/options", studio.options),
        Route("/api/look", studio.ask, methods=["POST"]),
        Route("/api/generate", studio.generate, methods=["POST"]),
        Route("/api/look/{id}", studio.described),
        Route("/api/look/{id}/cells", studio.cells),
        Route("/api/look/{id}/effect", studio.effect, methods=["POST"]),
        Route("/api/look/{id}/export.{kind}", studio.export),
        Route("/api/look/{id}/{what}", studio.asked),
    ]
    handlers: Any = {SaccadeError: _said, HTTPException: _missing}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), key, port)


def _both(path: str, make: Callable[[Request], Awaitable[Page]]) -> list[Route]:
    """A page and its .json twin."""

    async def html(request: Request) -> Response:
        return HTMLResponse((await make(request)).html())

    async def twin(request: Request) -> Response:
        return JSONResponse((await make(request)).data)

    return [Route(path + ".json", twin), Route(path, html)]


async def _said(request: Request, error: Exception) -> Response:
    """A mistake, told to a page as JSON and to a person as a page."""
    if request.url.path.startswith("/api/") or request.url.path.endswith(".json"):
        return JSONResponse({"error": str(error)}, 400)
    return HTMLResponse(_bare("This did not work", str(error)), 400)


async def _missing(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 404
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": "there is no such address"}, code)
    return HTMLResponse(_bare("Nothing here", f"There is no page {request.url.path}."), code)


def _bare(title: str, text: str) -> str:
    page = Page("missing", title, {"text": text})
    return page.html().replace("<!--text-->", plain(text))


class Studio:
    """The answers to each address; what takes long runs in a thread."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions, self.root = sessions, Path(sessions.root)

    async def runs(self, request: Request) -> Page:
        return Page("runs", "Runs", {"runs": await run_in_threadpool(live.listed, self.root)})

    async def watch(self, request: Request) -> Page:
        name = request.path_params["name"]
        return Page("watch", name, await run_in_threadpool(live.curves, self.root, name))

    async def look(self, request: Request) -> Page:
        return Page("look", "Look", await self._start(request))

    async def trying(self, request: Request) -> Page:
        return Page("try", "Try", await self._start(request))

    async def steps_page(self, request: Request) -> Page:
        return Page("steps", "Step by step", await self._start(request))

    async def lessons(self, request: Request) -> Page:
        return Page("lessons", "Lessons")

    async def _start(self, request: Request) -> dict[str, Any]:
        """What a page needs that asks a model: which models there are, and what the address says."""
        return {"models": await run_in_threadpool(self.sessions.names), "asked": dict(request.query_params)}

    async def curves(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(live.curves, self.root, request.path_params["name"]))

    async def attention_snapshot(self, request: Request) -> Response:
        name, step = request.path_params["name"], request.path_params["step"]
        return JSONResponse(await run_in_threadpool(live.attention_snapshot, self.root, name, step))

    async def act(self, request: Request) -> Response:
        acts = {"stop": live.stop, "resume": live.resume}
        if request.path_params["act"] not in acts:
            raise UsageError("a run can be stopped and resumed, nothing else")
        await run_in_threadpool(acts[request.path_params["act"]], self.root, request.path_params["name"])
        return JSONResponse({})

    async def options(self, request: Request) -> Response:
        name = request.path_params["name"]
        model = await run_in_threadpool(self.sessions.model, name)
        examples = await run_in_threadpool(live.examples, self.root, name)
        task = {"summary": model.task.summary, "writes": type(model.task).follow is not Task.follow}
        return JSONResponse({**task, "options": api.options(model.task), "examples": examples})

    async def ask(self, request: Request) -> Response:
        model, text, words = await _asked(request)
        look = await run_in_threadpool(self.sessions.ask, model, text, [*words, "maps=true"])
        return JSONResponse(looking.describe(look))

    async def generate(self, request: Request) -> Response:
        name, text, words = await _asked(request)
        wanted = (await _json(request)).get("map")
        model = await run_in_threadpool(self.sessions.model, name)
        lines = written(model, text, words, wanted if isinstance(wanted, str) else "")
        return StreamingResponse(lines, media_type="application/x-ndjson")

    async def described(self, request: Request) -> Response:
        return JSONResponse(looking.describe(self.sessions.look(request.path_params["id"])))

    async def cells(self, request: Request) -> Response:
        asked = request.query_params
        rows = range(_number(asked, "top"), _number(asked, "bottom"), _number(asked, "down", 1))
        columns = range(_number(asked, "left"), _number(asked, "right"), _number(asked, "across", 1))
        head = None if asked.get("head", "mean") == "mean" else _number(asked, "head")
        name, words = asked.get("map", ""), asked.get("words") == "1"
        found = await self._with(request, lambda look: looking.cells(look, name, head, rows, columns, words=words))
        return Response(found, media_type="application/octet-stream")

    async def effect(self, request: Request) -> Response:
        body = await _json(request)
        return JSONResponse(await self._with(request, lambda look: looking.effect(look, body.get("offs"))))

    async def export(self, request: Request) -> Response:
        asked, kind = request.query_params, request.path_params["kind"]
        head = None if asked.get("head", "mean") == "mean" else _number(asked, "head")
        name, pieces = asked.get("map", ""), asked.get("words") != "1"
        data, media = await self._with(request, lambda look: export(look.found, kind, name, head, pieces=pieces))
        return Response(
            data, media_type=media, headers={"content-disposition": f'attachment; filename="attention.{kind}"'}
        )

    async def asked(self, request: Request) -> Response:
        asked, what = request.query_params, request.path_params["what"]
        place = None if "place" not in asked else _number(asked, "place")
        name = asked.get("map", "")
        answers: dict[str, Callable[[Look], Any]] = {
            "overview": looking.overview,
            "summary": lambda look: looking.summary(look, name),
            "layers": looking.layers,
            "importance": looking.importance,
            "why": lambda look: looking.why(look, place, asked.get("by", "gradient")),
            "steps": lambda look: looking.steps(look, name, _number(asked, "head"), _number(asked, "query")),
        }
        if what not in answers:
            raise UsageError(f"nothing is known by '{what}'")
        return JSONResponse(await self._with(request, answers[what]))

    async def _with(self, request: Request, work: Callable[[Look], T]) -> T:
        """Work on an answer in a thread, with its model to oneself."""

        def run() -> T:
            with self.sessions.working(request.path_params["id"]) as look:
                return work(look)

        return await run_in_threadpool(run)


def _number(asked: Any, name: str, otherwise: int | None = None) -> int:
    text = asked.get(name, "" if otherwise is None else str(otherwise))
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise UsageError(f"{name} must be a whole number, but is '{text[:40]}'")
    return int(text)


async def _json(request: Request) -> dict[str, Any]:
    try:
        found = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the request must be JSON, but is not ({error})") from error
    if not isinstance(found, dict):
        raise UsageError("the request must be an object of JSON")
    return found


async def _asked(request: Request) -> tuple[str, str, list[str]]:
    """Model, text and options of a request."""
    body = await _json(request)
    model, text, options = body.get("model"), body.get("text", ""), body.get("options", {})
    if not isinstance(model, str) or not isinstance(text, str) or not isinstance(options, dict):
        raise UsageError("a request must have a model, a text and options")
    return model, text, [f"{name}={value}" for name, value in options.items() if value != ""]
