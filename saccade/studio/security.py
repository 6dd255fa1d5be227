"""Security: only a browser on this machine that was given the key may ask, and no other site through it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "saccade"
LARGEST = 1 << 20  # bytes of a request's body
POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Refuses whoever is not meant: another host name, another site, a request without the key."""

    def __init__(self, app: ASGIApp, key: str, port: int) -> None:
        self.app, self.key = app, key
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        self.cookie = f"{COOKIE}-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # nothing here speaks websocket

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        request = Request(scope, receive)
        answer = self._refusal(request.method, request.headers) or self._key(request)
        await (answer or self.app)(scope, receive, guarded)

    def _refusal(self, method: str, headers: Mapping[str, str]) -> Response | None:
        """Why a request is not even looked at; None: it may go on."""
        host, site = headers.get("host", ""), headers.get("sec-fetch-site", "")
        if host not in self.hosts:  # a name of another site that was made to lead here
            return PlainTextResponse(
                "This address is not the studio's. Open the one that `saccade studio` printed.", 403
            )
        if site not in ("", "same-origin", "none"):
            return PlainTextResponse("Another site may not ask the studio.", 403)
        if method in ("GET", "HEAD"):
            return None
        if site != "same-origin" and headers.get("origin") != f"http://{host}":
            return PlainTextResponse("Only the studio's own pages may change things.", 403)
        if headers.get("content-type", "").partition(";")[0] != "application/json":
            return PlainTextResponse("Send JSON.", 415)
        if not headers.get("content-length", "").isdecimal() or int(headers["content-length"]) > LARGEST:
            return PlainTextResponse(f"Send at most {LARGEST:,} bytes.", 413)
        return None

    def _key(self, request: Request) -> Response | None:
        """The key in the address becomes a cookie that pages of other sites never send along."""
        given = request.query_params.get("key")
        if given is not None and request.method == "GET" and self._fits(given):
            answer = RedirectResponse(str(request.url.remove_query_params("key").replace(scheme="", netloc="")), 303)
            answer.set_cookie(self.cookie, self.key, httponly=True, samesite="strict")
            return answer
        if self._fits(request.cookies.get(self.cookie, "")):
            return None
        return PlainTextResponse("The key is missing. Open the address that `saccade studio` printed.", 403)

    def _fits(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self.key.encode())
