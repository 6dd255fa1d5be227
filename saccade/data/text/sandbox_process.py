"""The process of the sandbox: started when the first chat template is rendered, and again after a template failed."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from saccade.data.text import chat_sandbox
from saccade.errors import ResourceError

WALL_SECONDS = 20.0  # for a process that gets no processor time; a template has CPU_SECONDS
READ = 1 << 16
PACKAGES = ("jinja2", "markupsafe")
KEPT = ("TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # variables of the environment that the process has


class Sandbox:
    """A process that renders templates, one request at a time; it has no state that a request could change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request: `texts`, `refused` (by the template) or `error`."""
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            process = self._running()
            try:
                reply = self._exchange(process, line)
            except BaseException:  # an interruption too: the next request must not get this answer
                self._end()
                raise
            if reply is None:
                return {"error": self._failure()}
            result: dict[str, Any] = json.loads(reply)
            if "error" in result:
                self._end()
            return result

    def close(self) -> None:
        """End the process; the next request starts another one."""
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        """Return the process, started if it does not run, or belongs to the parent of this one."""
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
            return self._process
        self._end()
        self._owner = os.getpid()
        folders = {str(Path(spec.origin).parents[1]) for name in PACKAGES if (spec := find_spec(name)) and spec.origin}
        command = [sys.executable, "-I", "-S", str(Path(chat_sandbox.__file__)), *sorted(folders)]
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the parent
        )
        self._process = process
        if self._read_line(process) != b"ready":
            self._end()
            raise ResourceError(
                "the process that renders chat templates must start, but does not; check that jinja2 is installed and "
                "that the machine has memory left"
            )
        return process

    def _exchange(self, process: subprocess.Popen[bytes], line: bytes) -> bytes | None:
        """Send a request and return the reply; None: the process ended, or did not answer in time."""
        assert process.stdin is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except BrokenPipeError:
            return None
        return self._read_line(process)

    def _read_line(self, process: subprocess.Popen[bytes]) -> bytes | None:
        assert process.stdout is not None
        descriptor, deadline, data = process.stdout.fileno(), time.monotonic() + WALL_SECONDS, b""
        while not data.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                return None
            part = os.read(descriptor, READ)
            if not part:
                return None
            data += part
        return data[:-1]

    def _failure(self) -> str:
        """End the process and return why it has not answered."""
        code = self._end()
        if code == -signal.SIGPROF:
            return f"it needs more than {chat_sandbox.CPU_SECONDS:g} s"
        return f"its process ended without an answer ({_name(code)})"

    def _end(self) -> int:
        """End the process and return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        if self._owner != os.getpid():  # of the parent: it is not ours to end
            return 0
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        try:
            code = process.wait(0.2)  # it may be ending already
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        return code


def _name(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


SANDBOX = Sandbox()
atexit.register(SANDBOX.close)
