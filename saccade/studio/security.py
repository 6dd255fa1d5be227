"""Security: only a browser on this machine that has the key gets a response, and no other site through it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "saccade"
LARGEST = 12 << 20  # bytes of a request's body: an uploaded file in base64
STALL = 10.0  # seconds after which a reader that takes nothing is given up
POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; media-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
# Nothing is cached, so a file is always sent whole.
IGNORED = {b"range", b"if-range", b"if-none-match", b"if-modified-since"}


class Stalled(Exception):
    """A client does not read its response."""


class Guard:
    """Refuse requests for another host name, from another site, or without the key; give up clients that stall."""

    def __init__(self, app: ASGIApp, key: str, port: int) -> None:
        self.app, self.key = app, key
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        self.cookie = f"{COOKIE}-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no websockets here

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            try:
                async with asyncio.timeout(STALL):
                    await send(message)
            except TimeoutError as error:
                raise Stalled from error

        scope["headers"] = [(name, value) for name, value in scope["headers"] if name.lower() not in IGNORED]
        request = Request(scope, receive)
        response = self._refusal(scope["path"], request.method, request.headers) or self._key(request)
        try:
            await (response or self.app)(scope, receive, guarded)
        except (Stalled, ClientDisconnect):
            return  # the server closes the connection

    def _refusal(self, path: str, method: str, headers: Mapping[str, str]) -> Response | None:
        """Return why a request is refused; None: it is not."""
        host, site = headers.get("host", ""), headers.get("sec-fetch-site", "")
        if host not in self.hosts:  # DNS rebinding: a name of another site that resolves to this machine
            return PlainTextResponse(
                "This address is not the studio's. Open the one that `saccade studio` printed.", 403
            )
        if site not in ("", "same-origin", "none"):
            return PlainTextResponse("Requests from another site are refused.", 403)
        if not path.startswith("/"):  # the address of another server, as for a proxy
            return PlainTextResponse("The address must be a path of the studio.", 400)
        if method in ("GET", "HEAD"):
            return None
        if site != "same-origin" and headers.get("origin") != f"http://{host}":
            return PlainTextResponse("Only the studio's own pages may change things.", 403)
        if headers.get("content-type", "").partition(";")[0] != "application/json":
            return PlainTextResponse("Send JSON.", 415)
        length = headers.get("content-length", "")
        if not length.isdecimal():
            return PlainTextResponse("Send the length of the request.", 411)
        if len(length) > len(str(LARGEST)) or int(length) > LARGEST:
            return PlainTextResponse(f"Send at most {LARGEST:,} bytes, not {length[:20]}.", 413)
        return None

    def _key(self, request: Request) -> Response | None:
        """Turn the key in the address into a cookie that pages of other sites never send."""
        given = request.query_params.get("key")
        if given is not None and request.method == "GET" and self._matches(given):
            redirect = RedirectResponse(own_address(request.scope["path"], request.scope["query_string"]), 303)
            redirect.set_cookie(self.cookie, self.key, httponly=True, samesite="strict")
            return redirect
        if self._matches(request.cookies.get(self.cookie, "")):
            return None
        return PlainTextResponse("The key is missing. Open the address that `saccade studio` printed.", 403)

    def _matches(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(errors="replace"), self.key.encode())


def own_address(path: str, query: bytes) -> str:
    """Return a path and a query without the key as an address that no browser takes for one of another server.

    A second slash or a backslash at the start would begin the name of a host.
    """
    pairs = [pair for pair in parse_qsl(query.decode("latin-1"), keep_blank_values=True) if pair[0] != "key"]
    address = "/" + quote(path.lstrip("/\\"), errors="replace")
    return f"{address}?{urlencode(pairs, errors='replace')}" if pairs else address
