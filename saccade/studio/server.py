"""The server: listens on this machine alone, with a random key, until it is stopped."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from saccade.errors import ResourceError, UsageError

HOST = "127.0.0.1"


def serve(root: Path, refs: Sequence[str], port: int, ready: Callable[[str], None], *, task: str = "") -> None:
    """Run the studio; `ready` is called with the address, key included; `task` allows runs of a custom task."""
    try:
        import uvicorn
    except ImportError as error:
        raise UsageError("the studio needs starlette and uvicorn; pip install 'saccade[serve]'") from error
    from saccade import api
    from saccade.studio.app import make_app
    from saccade.studio.sessions import Sessions

    if root.exists() and not root.is_dir():
        raise UsageError(f"--runs must be a folder, but {root} is a file; name the folder that holds the runs")
    absent = next((ref for ref in refs if not api.exists(ref, root)), None)
    if absent is not None:
        raise UsageError(f"no run or model '{absent}'; name a run of {root}, a folder, or one of `saccade models list`")
    with _listen(port) as listening:
        port, key = listening.getsockname()[1], secrets.token_urlsafe(24)
        app = make_app(Sessions(root, refs, task), key, port)
        config = uvicorn.Config(app, ws="none", log_level="warning", access_log=False, timeout_graceful_shutdown=2)
        ready(f"http://{HOST}:{port}/?key={key}")  # requests before the server runs wait in the queue
        uvicorn.Server(config).run(sockets=[listening])


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise ResourceError(f"port {port} cannot be used: {error.strerror}; choose another with --port") from error
    return listening
