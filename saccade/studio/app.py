"""The application: every address of the studio and its response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from saccade.core import Task, ignore_progress
from saccade.core.cancellation import Cancelled, cancellable, check_cancelled
from saccade.errors import SaccadeError, UsageError
from saccade.look.overlay import OverlayStyle
from saccade.studio import comparison, inspection, live, numbers
from saccade.studio.checkpoints import list_checkpoints
from saccade.studio.export import export
from saccade.studio.filming import film_of_run
from saccade.studio.forms import TICKET, checked_form, read_form, read_json
from saccade.studio.generation import Generations
from saccade.studio.head_pages import HeadPages
from saccade.studio.pages import STATIC, JsonResponse, Page, escape_text
from saccade.studio.params import head_number as _head
from saccade.studio.params import number as _number
from saccade.studio.run_actions import act
from saccade.studio.security import Guard
from saccade.studio.sessions import Inspection, RecentlyUsed, Sessions
from saccade.studio.starting import StartingForm, starting_routes
from saccade.studio.tours import tour_models
from saccade.studio.work import Slots

T = TypeVar("T")
BYTES = "application/octet-stream"
REQUESTS = 64  # whose progress is known


def make_app(sessions: Sessions, key: str, port: int) -> Guard:
    """Return the studio over some runs, for a browser that has the key."""
    studio = Studio(sessions)
    routes = [
        Route("/", lambda _: RedirectResponse("/runs", 303)),
        Mount("/static", StaticFiles(directory=STATIC)),
        *_page_routes("/runs", studio.runs),
        *_page_routes("/watch/{name}", studio.watch),
        *_page_routes("/look", studio.look),
        *_page_routes("/compare", studio.compare),
        *_page_routes("/generate", studio.generate_page),
        *_page_routes("/try", studio.try_page),
        *_page_routes("/samples", studio.samples),
        *_page_routes("/replay", studio.replay_page),
        *_page_routes("/steps", studio.steps),
        *_page_routes("/flow", studio.flow),
        *_page_routes("/lessons", studio.lessons),
        *_page_routes("/train", studio.train),
        *HeadPages(sessions).routes(_page_routes),
        Route("/api/runs/{name}", studio.curves),
        Route("/api/runs/{name}/attention.gif", studio.training_film),
        Route("/api/runs/{name}/attention/{step}", studio.snapshot),
        Route("/api/runs/{name}/{action}", studio.act, methods=["POST"]),
        Route("/api/models/{name:path}/form", studio.form),
        Route("/api/models/{name:path}/checkpoints", studio.checkpoints),
        Route("/api/compare/{first}/{second}/{part}", studio.comparison),
        Route("/api/uploads/{name}", studio.upload),
        Route("/api/replay", studio.replay),
        *starting_routes(studio.starting, studio.computations, studio.fractions),
        Route("/api/look", studio.predict, methods=["POST"]),
        Route("/api/progress/{ticket}", studio.progress),
        Route("/api/progress/{ticket}", studio.cancel, methods=["POST"]),
        *studio.generations.routes(),
        Route("/api/look/{id}", studio.describe),
        Route("/api/look/{id}/cells", studio.cells),
        Route("/api/look/{id}/heads", studio.heads),
        Route("/api/look/{id}/effect", studio.effect, methods=["POST"]),
        Route("/api/look/{id}/export.{kind}", studio.export),
        Route("/api/look/{id}/{part}", studio.part),
    ]
    handlers: Any = {SaccadeError: _user_error, HTTPException: _http_error}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False  # no address leads to another
    app.state.studio = studio
    return Guard(app, key, port)


def _page_routes(path: str, make: Callable[[Request], Awaitable[Page]]) -> list[Route]:
    """Return a page and its .json twin."""

    async def html(request: Request) -> Response:
        return HTMLResponse((await make(request)).html())

    async def twin(request: Request) -> Response:
        return JsonResponse((await make(request)).data)

    return [Route(path + ".json", twin), Route(path, html)]


def _is_api(request: Request) -> bool:
    path: str = request.scope["path"]
    return path.startswith("/api/") or path.endswith(".json")


async def _user_error(request: Request, error: Exception) -> Response:
    """Return a user's mistake, as JSON to a page and as a page to a person."""
    if _is_api(request):
        return JsonResponse({"error": str(error)}, 400)
    return HTMLResponse(_message_page("This did not work", str(error)), 400)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    missing, headers = error.status_code == 404, error.headers
    if _is_api(request):
        message = "there is no such address" if missing else error.detail
        return JsonResponse({"error": message}, error.status_code, headers)
    title = "Not found" if missing else "This did not work"
    text = f"There is no page {request.scope['path'][:200]}." if missing else error.detail
    return HTMLResponse(_message_page(title, text), error.status_code, headers)


def _message_page(title: str, text: str) -> str:
    page = Page("message", title, {"text": text})
    return page.html().replace("<!--title-->", escape_text(title)).replace("<!--text-->", escape_text(text))


class Studio:
    """The response of each address; what takes long runs in a thread, what a model computes apart from the rest."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions, self.root = sessions, Path(sessions.root)
        self.live = live.LiveRuns(self.root)
        self.computations = Slots()
        self.generations = Generations(sessions, self.computations)
        self.fractions = RecentlyUsed[float](REQUESTS)  # of the running requests, by their tickets
        self.starting = StartingForm(self.root, Path.cwd())
        self.cancelled = RecentlyUsed[bool](REQUESTS)

    async def runs(self, request: Request) -> Page:
        return Page("runs", "Runs", {"runs": await run_in_threadpool(self.live.summaries)})

    async def watch(self, request: Request) -> Page:
        name = request.path_params["name"]
        return Page("watch", name, await run_in_threadpool(self.live.curves, name))

    async def look(self, request: Request) -> Page:
        return Page("look", "Look", await self._models(request))

    async def compare(self, request: Request) -> Page:
        return Page("compare", "Compare", await self._models(request))

    async def generate_page(self, request: Request) -> Page:
        names = await run_in_threadpool(self.generations.names)
        return Page("generate", "Generate", {"models": names, "parameters": dict(request.query_params)})

    async def try_page(self, request: Request) -> Page:
        return Page("try", "Try", await self._models(request))

    async def samples(self, request: Request) -> Page:
        names = await run_in_threadpool(self.sessions.generators)
        return Page("samples", "Samples", {"models": names, "parameters": dict(request.query_params)})

    async def replay_page(self, request: Request) -> Page:
        names = await run_in_threadpool(self.sessions.policies)
        return Page("replay", "Replay", {"models": names, "parameters": dict(request.query_params)})

    async def replay(self, request: Request) -> Response:
        """Return an episode of a policy in its environment."""
        params = request.query_params
        name, seed = params.get("model", ""), _number(params, "seed", 0)
        return JsonResponse(await self.computations.run(lambda: self.sessions.model(name).replay(seed)))

    async def steps(self, request: Request) -> Page:
        return Page("steps", "Step by step", await self._models(request))

    async def flow(self, request: Request) -> Page:
        return Page("flow", "Flow", await self._models(request))

    async def train(self, request: Request) -> Page:
        return Page("train", "New training", await run_in_threadpool(self.starting.choices))

    async def lessons(self, request: Request) -> Page:
        models = await run_in_threadpool(tour_models, self.sessions)
        return Page("lessons", "Lessons", {"tours": models})

    async def _models(self, request: Request) -> dict[str, Any]:
        """Return what a page with a form needs: the models, and the parameters of its address."""
        names = await run_in_threadpool(self.sessions.names)
        return {"models": names, "parameters": dict(request.query_params)}

    async def curves(self, request: Request) -> Response:
        return JsonResponse(await run_in_threadpool(self.live.curves, request.path_params["name"]))

    async def snapshot(self, request: Request) -> Response:
        name, step = request.path_params["name"], _number(request.path_params, "step")
        kept = await run_in_threadpool(live.snapshot, self.root, name, step)
        examples = [{**example, "maps": inspection.with_titles(example["maps"])} for example in kept["examples"]]
        return JsonResponse({**kept, "examples": examples})

    async def training_film(self, request: Request) -> Response:
        """Return the attention of an example at every snapshot of a run as a GIF."""
        params, name = request.query_params, request.path_params["name"]
        example, layer, head, style = (
            _number(params, "example", 0),
            params.get("map", ""),
            _head(params),
            _style(params),
        )
        data = await self.computations.run(lambda: film_of_run(self.root, name, (example, layer, head), style))
        headers = {"content-disposition": 'attachment; filename="attention-during-training.gif"'}
        return Response(data, media_type="image/gif", headers=headers)

    async def act(self, request: Request) -> Response:
        name, action, body = request.path_params["name"], request.path_params["action"], await read_json(request)
        await run_in_threadpool(act, self.root, name, action, body)
        if action == "delete":
            self.sessions.forget(name)
        return JsonResponse({})

    async def form(self, request: Request) -> Response:
        """Describe the form of a model: its inputs, options and examples."""
        name = request.path_params["name"]
        model = await self.computations.run(lambda: self.sessions.model(name))
        examples = await run_in_threadpool(live.examples, self.root, name, model.inputs)
        return JsonResponse(
            {
                "summary": model.task.summary,
                "generates": type(model.task).stream is not Task.stream,
                "continues": model.task.continues,
                "inputs": [field.to_json() for field in model.inputs],
                "options": [vars(setting) for setting in model.options if setting.name != "attention"],
                "examples": examples,
            }
        )

    async def predict(self, request: Request) -> Response:
        form = await read_form(request)

        def report(fraction: float) -> None:
            check_cancelled()
            self.fractions.put(form.ticket, fraction)

        def work() -> dict[str, Any]:
            inputs, options = checked_form(self.sessions.model(form.model, form.checkpoint), form)
            follow = report if form.ticket else ignore_progress
            try:
                with cancellable(lambda: bool(self.cancelled.get(form.ticket))):
                    predicted = self.sessions.predict(
                        form.model, inputs, options, checkpoint=form.checkpoint, generate=form.generate, progress=follow
                    )
            except Cancelled as error:
                raise UsageError("the prediction was cancelled") from error
            return inspection.describe(predicted)

        return JsonResponse(await self.computations.run(work))

    async def progress(self, request: Request) -> Response:
        """Return the completed fraction of a request that carried a ticket; 0 before it has begun."""
        return JsonResponse({"fraction": self.fractions.get(request.path_params["ticket"]) or 0.0})

    async def checkpoints(self, request: Request) -> Response:
        """Return the checkpoints of a run."""
        return JsonResponse(await run_in_threadpool(list_checkpoints, self.root, request.path_params["name"]))

    async def comparison(self, request: Request) -> Response:
        """Return what differs between the attention of two predictions."""
        path, params = request.path_params, request.query_params
        ticket = params.get("ticket", "")[:TICKET]

        def report(fraction: float) -> None:
            self.fractions.put(ticket, fraction)

        def work() -> Any:
            sides = self.sessions.inspection(path["first"]), self.sessions.inspection(path["second"])
            return comparison.respond(*sides, path["part"], params, report if ticket else ignore_progress)

        answer = await self.computations.run(work)
        media_type = "image/svg+xml" if path["part"].endswith(".svg") else BYTES
        return Response(answer, media_type=media_type) if isinstance(answer, bytes) else JsonResponse(answer)

    async def cancel(self, request: Request) -> Response:
        """End a running request at the next layer of its model, or before the next token."""
        self.cancelled.put(request.path_params["ticket"], True)
        return JsonResponse({})

    async def upload(self, request: Request) -> Response:
        """Return an uploaded file as a data URL in JSON; its bytes are never a response of their own."""
        return JsonResponse({"url": self.sessions.upload(request.path_params["name"])})

    async def describe(self, request: Request) -> Response:
        return JsonResponse(await self._inspect(request, inspection.describe))

    async def cells(self, request: Request) -> Response:
        params = request.query_params
        rows, columns = _span(params, "top", "bottom", "down"), _span(params, "left", "right", "across")
        name, words = params.get("map", ""), params.get("words") == "1"
        if params.get("head") == "all":
            data = await self._inspect(request, lambda item: inspection.planes(item, name, rows, columns, words=words))
        else:
            head = _head(params)
            data = await self._inspect(
                request, lambda item: inspection.cells(item, name, head, rows, columns, words=words)
            )
        return Response(data, media_type=BYTES)

    async def heads(self, request: Request) -> Response:
        """Return in which heads a query attends to a key."""
        params = request.query_params
        name, query, words = params.get("map", ""), _number(params, "query"), params.get("words") == "1"
        key = None if params.get("key", "") == "" else _number(params, "key")
        return JsonResponse(
            await self._inspect(request, lambda item: inspection.heads(item, name, query, key, words=words))
        )

    async def effect(self, request: Request) -> Response:
        body = await read_json(request)
        return JsonResponse(await self._explain(request, lambda item: inspection.effect(item, body.get("ablations"))))

    async def export(self, request: Request) -> Response:
        params, kind = request.query_params, request.path_params["kind"]
        name, head, pieces = params.get("map", ""), _head(params), params.get("words") != "1"
        style = _style(params)
        data, media_type = await self._inspect(
            request, lambda item: export(item.prediction, kind, name, head, pieces=pieces, style=style)
        )
        headers = {"content-disposition": f'attachment; filename="attention.{kind}"'}
        return Response(data, media_type=media_type, headers=headers)

    async def part(self, request: Request) -> Response:
        params, part = request.query_params, request.path_params["part"]
        position = None if "position" not in params else _number(params, "position")
        name, method = params.get("map", ""), params.get("method", "gradient")
        parts: dict[str, Callable[[Inspection], Any]] = {
            "overview": lambda item: inspection.overview(item, name),
            "gallery": inspection.gallery,
            "statistics": lambda item: inspection.statistics(item, name),
            "logit-lens": inspection.logit_lens,
            "importance": inspection.importance,
            "attribution": lambda item: inspection.attribution(item, position, method),
            "calculation": lambda item: numbers.calculation(
                item, name, _number(params, "head"), _number(params, "query")
            ),
            "flow": lambda item: numbers.flow(item, name, position, params.get("stage", "")),
        }
        if part not in parts:
            raise UsageError(f"no part '{part}' of a prediction; there are: {', '.join(parts)}")
        return JsonResponse(await self._explain(request, parts[part]))

    async def _inspect(self, request: Request, work: Callable[[Inspection], T]) -> T:
        """Read a prediction in a thread; several parts of a page do so at once."""
        return await run_in_threadpool(lambda: work(self.sessions.inspection(request.path_params["id"])))

    async def _explain(self, request: Request, work: Callable[[Inspection], T]) -> T:
        """Run the model on a prediction again."""
        return await self.computations.run(lambda: work(self.sessions.inspection(request.path_params["id"])))


def _style(params: Any) -> OverlayStyle:
    """Return how a figure is drawn; `at` is row,column."""
    row, _, column = params.get("at", "").partition(",")
    cell = {"row": row, "column": column}
    at = (_number(cell, "row"), _number(cell, "column")) if row or column else None
    return OverlayStyle(
        _number(params, "opacity", 70) / 100, params.get("smooth") != "0", at, params.get("sqrt") == "1"
    )


def _span(params: Any, first: str, last: str, step: str) -> range:
    every = _number(params, step, 1)
    if not every:
        raise UsageError(f"{step} must be at least 1, but is 0")
    return range(_number(params, first), _number(params, last), every)
