"""Errors as OpenAI's API has them: a status, and JSON with message, type, param and code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from saccade.core.serialize import json_parts
from saccade.errors import DataError, ModelFileError, ResourceError, SaccadeError, UsageError

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
}
INVALID = "invalid_request_error"


class JsonResponse(Response):
    """Strict JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return "".join(json_parts(content)).encode()


async def large_response(content: Callable[[], Any]) -> Response:
    """Return a response whose JSON is made in a thread: that of many numbers takes seconds."""
    return await run_in_threadpool(lambda: JsonResponse(content()))


class ApiError(Exception):
    """A request that is refused or failed; `param` is the parameter that is wrong, `code` a name for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers

    @classmethod
    def of(cls, error: SaccadeError, param: str | None = None) -> ApiError:
        """Return an error of the package: a mistake of the client in `param`, or a fault of the model or machine."""
        if isinstance(error, UsageError | DataError):
            return cls(400, str(error), param=param, code="invalid_value")
        if isinstance(error, ResourceError):
            return cls(503, str(error), code="resource_error")
        return cls(500, str(error), code="model_error" if isinstance(error, ModelFileError) else "internal_error")

    def to_json(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, INVALID)
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        return JsonResponse(self.to_json(), self.status, dict(self.headers or {}))


def busy(message: str, seconds: int = 1) -> ApiError:
    """Return the refusal of a request for which there is no place now."""
    return ApiError(429, message, code="queue_full", headers={"retry-after": str(seconds)})


def failure() -> ApiError:
    """Return what a client learns of an error of the server, whose log has the details."""
    return ApiError(500, "the server failed on this request; its log says why", code="internal_error")
