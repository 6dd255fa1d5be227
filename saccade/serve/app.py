"""The application: every address of the server and its response."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from saccade.errors import SaccadeError
from saccade.serve import embeddings, generation, models, openapi, tasks
from saccade.serve.errors import ApiError, JsonResponse, failure
from saccade.serve.security import Guard, Policy
from saccade.serve.state import State

STATIC = Path(__file__).parent / "static"
FILES = {"try.html": "text/html", "try.js": "text/javascript", "try.css": "text/css", "icon.svg": "image/svg+xml"}
CLIENT_CLOSED = 499  # nobody reads it: it is counted
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
Endpoint = Callable[[State, Request], Awaitable[Response]]
Startup = Callable[[], Awaitable[None]]


def make_app(state: State, policy: Policy, startup: Startup) -> Guard:
    """Return the server over a state; `startup` is called when the event loop runs."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await startup()
        yield
        for model in state.models.values():
            model.stop()

    def route(path: str, endpoint: Endpoint, method: str = "GET") -> Route:
        async def call(request: Request) -> Response:
            return await endpoint(state, request)

        return Route(path, call, methods=[method])

    routes = [
        route("/", _page),
        route("/static/{name}", _static),
        route("/health", _health),
        route("/ready", _ready),
        route("/metrics", _metrics),
        route("/openapi.json", _openapi),
        route("/v1/models", _models),
        route("/v1/models/{name:path}", _model),
        route("/v1/completions", generation.completions, "POST"),
        route("/v1/chat/completions", generation.chat_completions, "POST"),
        route("/v1/embeddings", embeddings.embeddings, "POST"),
        route("/v1/tasks", _tasks),
        Route("/v1/tasks/{name:path}", _task_endpoint(state), methods=["GET", "POST"]),
    ]
    handlers: Any = {
        ApiError: _api_error,
        SaccadeError: _user_error,
        HTTPException: _http_error,
        ClientDisconnect: _client_closed,
        Exception: _failure,
    }
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False  # no address leads to another
    return Guard(app, policy, state)


def _task_endpoint(state: State) -> Callable[[Request], Awaitable[Response]]:
    async def call(request: Request) -> Response:
        endpoint = tasks.predict if request.method == "POST" else tasks.describe
        return await endpoint(state, request)

    return call


async def _page(state: State, request: Request) -> Response:
    return _file("try.html")


async def _static(state: State, request: Request) -> Response:
    name = request.path_params["name"]
    if name not in FILES or name == "try.html":
        raise HTTPException(404)
    return _file(name)


def _file(name: str) -> Response:
    return Response(_content(name), media_type=FILES[name])


@cache
def _content(name: str) -> bytes:
    """Return a file of the page; it is read once and sent whole."""
    return (STATIC / name).read_bytes()


async def _health(state: State, request: Request) -> Response:
    return JsonResponse({"status": "ok"})


async def _ready(state: State, request: Request) -> Response:
    return JsonResponse({"status": state.status}, 200 if state.ready else 503)


async def _metrics(state: State, request: Request) -> Response:
    return PlainTextResponse(state.metrics.text(state.gauges()), media_type=PROMETHEUS)


async def _openapi(state: State, request: Request) -> Response:
    return JsonResponse(openapi.document(state.models))


async def _models(state: State, request: Request) -> Response:
    return JsonResponse({"object": "list", "data": [model.to_json() for model in state.models.values()]})


async def _model(state: State, request: Request) -> Response:
    return JsonResponse(models.find(state.models, request.path_params["name"]).to_json())


async def _tasks(state: State, request: Request) -> Response:
    return JsonResponse({"object": "list", "data": [tasks.description(model) for model in state.models.values()]})


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _user_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SaccadeError)
    return ApiError.of(error).response()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, method = request.scope["path"][:200], request.method[:20]
    if error.status_code == 404:
        return ApiError(404, f"no address '{path}'; /openapi.json lists them", code="not_found").response()
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        message = f"the method of {path} must be {allowed}, but is {method}"
        return ApiError(405, message, code="method_not_allowed", headers=error.headers).response()
    return ApiError(error.status_code, error.detail, headers=error.headers).response()


async def _client_closed(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED)


async def _failure(request: Request, error: Exception) -> Response:
    return failure().response()
