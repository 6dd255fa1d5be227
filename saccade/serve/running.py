"""Running: loads models, serves until a signal comes, and then finishes what was accepted before it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from saccade import api
from saccade.core.generation import ROWS
from saccade.serve.app import make_app
from saccade.serve.models import ServedModel, names_of
from saccade.serve.security import Policy
from saccade.serve.settings import BACKLOG, Settings, is_loopback
from saccade.serve.state import State

MOST_FILES = 8192  # that the limit is raised to
SPARE_FILES = 64  # that the process needs besides connections
KEEP_ALIVE = 30  # seconds that an idle connection stays open


class Server(uvicorn.Server):
    """Answers what it has accepted before it ends; a second signal ends it at once."""

    def __init__(self, settings: Settings, port: int, ready: Callable[[str], None], log: Callable[[str], None]) -> None:
        self.state, self.failures = State(), list[Exception]()
        self._names = names_of(settings.refs, settings.names)
        self._settings, self._port, self._ready, self._log = settings, port, ready, log
        policy = Policy(settings.host, port, is_loopback(settings.host), settings.keys, settings.origins)
        super().__init__(_config(make_app(self.state, policy, self._startup)))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.state.draining:
            os._exit(128 + sig)
        self.state.draining = True

    async def on_tick(self, counter: int) -> bool:
        self.should_exit |= self.state.drained
        return await super().on_tick(counter)

    async def _startup(self) -> None:
        self._loading = asyncio.create_task(self._load_and_report())

    async def _load_and_report(self) -> None:
        try:
            self.state.add(await asyncio.to_thread(self._load))
            gc.collect()
            gc.freeze()  # to look through all modules and models again and again would delay requests by 100 ms
            host = self._settings.host
            self._ready(f"http://{f'[{host}]' if ':' in host else host}:{self._port}")
        except Exception as error:  # noqa: BLE001 - raised again when the server has ended
            self.failures.append(error)
            self.should_exit = True

    def _load(self) -> dict[str, ServedModel]:
        settings, models = self._settings, {}
        for name, ref in zip(self._names, settings.refs, strict=True):
            model = api.load(
                ref,
                root=settings.root,
                device=settings.device,
                task=settings.task,
                dtype=settings.dtype,
                log=self._log,
            )
            models[name] = ServedModel(name, model, rows=settings.rows, waiting=settings.queue)
            self._log_rows(models[name])
        return models

    def _log_rows(self, served: ServedModel) -> None:
        """Log where memory holds the cache of fewer texts than are usually generated at once."""
        rows = ROWS if served.generator is None else served.generator.engine.rows
        if self._settings.rows is None and rows < ROWS:
            self._log(f"{served.name} generates {rows} texts at once: the cache of {ROWS} does not fit into memory")


def run(settings: Settings, listening: socket.socket, ready: Callable[[str], None], log: Callable[[str], None]) -> None:
    """Serve on a socket; the server answers /health while the models are loaded, and `ready` is called after that."""
    server = Server(settings, listening.getsockname()[1], ready, log)
    server.run(sockets=[listening])
    if server.failures:
        raise server.failures[0]


def _config(app: Callable[..., object]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=max(SPARE_FILES, raise_file_limit() - SPARE_FILES),
        timeout_keep_alive=KEEP_ALIVE,
    )


def raise_file_limit() -> int:
    """Allow this process as many open files as the system lets it have, up to 8,192; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_FILES
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(soft, most)
