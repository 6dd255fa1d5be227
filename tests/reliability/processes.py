"""The command `saccade` in a forked process: torch is imported once, so that hundreds of commands take minutes."""

import atexit
import contextlib
import importlib
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported


@dataclass
class Child:
    """A running command with its output."""

    pid: int
    out: IO[bytes]
    err: IO[bytes]
    code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        if self.code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float = 120.0) -> tuple[int | None, str, str]:
        """Return exit code, stdout and stderr; the code is None if it did not end in time."""
        deadline = time.monotonic() + timeout
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        code = self.code
        if code is None:
            self.send(signal.SIGKILL)
            while self.poll() is None:
                time.sleep(0.002)
        texts = []
        for stream in (self.out, self.err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
            stream.close()
        return code, texts[0], texts[1]


def start(arguments: Sequence[str], folder: Path, before: Callable[[], None] | None = None) -> Child:
    """Fork, and run `saccade ARGUMENTS` in a folder; `before` is called in the new process."""
    main = preloaded()
    child = Child(0, tempfile.TemporaryFile(), tempfile.TemporaryFile())  # noqa: SIM115 - closed by wait
    child.pid = os.fork()
    if child.pid:
        return child
    code = 1
    atexit._clear()  # what this process has registered is not for its child to do
    with contextlib.suppress(BaseException):
        os.chdir(folder)
        os.environ["SACCADE_CACHE"] = str(folder / "cache")
        for number, stream in ((1, child.out), (2, child.err)):
            os.dup2(stream.fileno(), number)
        if before is not None:
            before()
        code = _run(main, arguments)
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


@cache
def preloaded() -> Callable[..., object]:
    """Return the command, after importing what its subcommands import."""
    from saccade import api, cli, progress  # noqa: F401
    from saccade.look import figure  # noqa: F401
    from saccade.tasks import load_task, task_names

    for name in task_names():
        load_task(name)
    for name in ("sacrebleu", "pydantic", "rich.progress", "tokenizers", "torch._dynamo"):
        importlib.import_module(name)
    return cli.main


def _run(main: Callable[..., object], arguments: Sequence[str]) -> int:
    try:
        main(list(arguments))
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def run(arguments: Sequence[str], folder: Path, timeout: float = 120.0) -> tuple[int | None, str, str]:
    """Return exit code, stdout and stderr of `saccade ARGUMENTS`."""
    return start(arguments, folder).wait(timeout)
