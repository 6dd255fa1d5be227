"""Security: who may send requests. A key, the names of this host, and no other site through a browser."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from saccade.serve import limits
from saccade.serve.errors import ApiError
from saccade.serve.state import State

PUBLIC = frozenset({"/", "/health", "/ready", "/static/try.js", "/static/try.css", "/static/icon.svg"})
"""need no key: whether the server runs, and the page, which knows nothing without one"""
UNCOUNTED = PUBLIC | {"/metrics"}
"""answered also while models are loaded and while the server is draining"""
ROUTES = ("/v1/models", "/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/v1/tasks", "/openapi.json")
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
CORS = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, content-type",
    "access-control-max-age": "600",
}


class Stalled(Exception):
    """A client does not read its response."""


@dataclass(frozen=True)
class Policy:
    """What a server demands of requests."""

    host: str
    port: int
    loopback: bool
    """whether only this machine can connect, so that other names in Host are those of an attacker"""
    keys: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    """of other sites whose pages may send requests"""

    def check(self, path: str, headers: Headers) -> None:
        """Refuse a request of another host name, of another site or without a key."""
        self._check_host(headers)
        self._check_site(headers)
        if not path.startswith("/"):  # the address of another server, as for a proxy
            raise ApiError(400, "the address must be a path of this server", code="invalid_path")
        if path not in PUBLIC and self.keys:
            self._check_key(headers.getlist("authorization"))

    def is_allowed(self, origin: str) -> bool:
        return origin in self.origins

    def _check_host(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not hosts[0]:
            raise ApiError(400, "a request must have one Host header", code="invalid_host")
        names = {*LOOPBACK, self.host}
        allowed = {f"{name}:{self.port}" for name in names} | (names if self.port == 80 else set())
        if self.loopback and hosts[0].lower() not in allowed:  # DNS rebinding: a name of another site for this machine
            message = f"host must be 127.0.0.1:{self.port} or localhost:{self.port}, but is {hosts[0][:80]!r}"
            raise ApiError(403, message, code="invalid_host")

    def _check_site(self, headers: Headers) -> None:
        """Refuse a request that a page of another site makes a browser send."""
        origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
        if len(origins) == 1 and self.is_allowed(origins[0]):
            return
        host = headers["host"].lower()
        if any(origin.lower() not in (f"http://{host}", f"https://{host}") for origin in origins):
            message = f"requests from the origin {origins[0][:80]!r} are refused; allow it with --allow-origin"
            raise ApiError(403, message, code="invalid_origin")
        if any(site not in ("same-origin", "none") for site in sites):
            message = "requests from another site are refused; allow its origin with --allow-origin"
            raise ApiError(403, message, code="cross_site")

    def _check_key(self, given: Sequence[str]) -> None:
        scheme, _, key = (given[0] if len(given) == 1 else "").partition(" ")
        matches = [secrets.compare_digest(key.strip().encode(errors="replace"), own.encode()) for own in self.keys]
        if scheme.lower() != "bearer" or not any(matches):
            message = "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'"
            headers = {"www-authenticate": "Bearer"}
            raise ApiError(401, message, code="invalid_api_key", headers=headers)


class Guard:
    """Around the application: the policy, the headers of every response, counters, and clients that stall."""

    def __init__(self, app: ASGIApp, policy: Policy, state: State) -> None:
        self.app, self.policy, self.state = app, policy, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), scope["path"]
        origin, started, status = headers.get("origin", ""), time.monotonic(), 0

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(self._headers(origin))
            try:
                async with asyncio.timeout(limits.STALL):
                    await send(message)
            except TimeoutError as error:
                raise Stalled from error

        counted = path not in UNCOUNTED
        try:
            response = self._answer(scope["method"], path, headers)
            self.state.in_flight += counted and response is None
            try:
                await (response or self.app)(scope, receive, guarded)
            finally:
                self.state.in_flight -= counted and response is None
        except (Stalled, ClientDisconnect):
            return  # the server closes the connection
        finally:
            self._count(path, status, time.monotonic() - started)

    def _answer(self, method: str, path: str, headers: Headers) -> Response | None:
        """Return the response to a request that does not reach the application."""
        try:
            origin = headers.get("origin", "")
            if method == "OPTIONS" and self.policy.is_allowed(origin) and "access-control-request-method" in headers:
                return Response(status_code=204, headers=CORS)
            self.policy.check(path, headers)
            if path not in UNCOUNTED:
                self.state.check_ready()
        except ApiError as error:
            return error.response()
        return None

    def _headers(self, origin: str) -> Mapping[str, str]:
        if not self.policy.origins:
            return HEADERS
        allowed = {"access-control-allow-origin": origin} if self.policy.is_allowed(origin) else {}
        return {**HEADERS, "vary": "Origin", **allowed}

    def _count(self, path: str, status: int, seconds: float) -> None:
        """Count a request by its route, of which there are few, whatever clients send."""
        route = next((prefix for prefix in ROUTES if path == prefix or path.startswith(f"{prefix}/")), "other")
        route = path if path in UNCOUNTED else route
        self.state.metrics.count("saccade_requests_total", route=route, status=str(status) if status else "none")
        if status and route not in UNCOUNTED:
            self.state.metrics.observe("saccade_request_seconds", seconds, route=route)
