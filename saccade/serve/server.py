"""The server: checks its settings, listens and runs."""

from __future__ import annotations

from collections.abc import Callable

from saccade.errors import UsageError
from saccade.serve.settings import Settings, is_loopback, listen


def serve(settings: Settings, ready: Callable[[str], None], log: Callable[[str], None]) -> None:
    """Run a server; `ready` is called with its address when the models are loaded."""
    try:
        import python_multipart  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        message = "serving needs starlette, uvicorn and python-multipart; pip install 'saccade[serve]'"
        raise UsageError(message) from error
    from saccade import api
    from saccade.serve.running import run

    absent = next((ref for ref in settings.refs if not api.exists(ref, settings.root)), None)
    if absent is not None:
        step = f"name a run of {settings.root}, a folder, or one of `saccade models list`"
        raise UsageError(f"no run or model '{absent}'; {step}")
    if not is_loopback(settings.host) and not settings.keys:
        raise UsageError(
            f"--host {settings.host} lets other machines connect, so a key is needed; "
            "write one to a file and name it with --api-key-file, or set SACCADE_API_KEY"
        )
    with listen(settings.host, settings.port) as listening:
        run(settings, listening, ready, log)
