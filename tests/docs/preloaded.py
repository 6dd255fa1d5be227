"""`saccade` and `python` that start at once: a process with everything imported forks for each command of a page.

A command takes a tenth of a second less its work, instead of seconds of imports. Only where processes may fork after
torch was imported, that is on Linux; elsewhere the programs are started as usual.

    python preloaded.py SOCKET             the process that forks
    python preloaded.py SOCKET saccade ... a command in it, with the input, output, folder and exit code of this one
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

HEADER = 10  # digits of the length of a request


def serve(path: str) -> None:
    """Import the package and fork for each request."""
    import torch

    import saccade.api
    from saccade.tasks import load_task, task_names

    for name in task_names():
        load_task(name)
    assert saccade.api
    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    answer(connection)


def answer(connection: socket.socket) -> NoReturn:
    """Run one command in this process, which ends with it."""
    header, descriptors, _, _ = socket.recv_fds(connection, HEADER, 3)
    content = b""
    while len(content) < int(header):
        content += connection.recv(1 << 16)
    request = json.loads(content)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    connection.sendall(b"%010d" % os.getpid())
    code = run(request["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(bytes([code % 256]))
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run `saccade ...` or `python FILE ...` and return the exit code."""
    import runpy
    import traceback

    try:
        if arguments[0] == "saccade":
            sys.argv = arguments
            runpy.run_module("saccade", run_name="__main__")
        else:
            sys.argv = arguments[1:]
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_path(arguments[1], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def ask(path: str, arguments: list[str]) -> int:
    """Have a command run, pass signals on to it, and return its exit code."""
    request = {"arguments": arguments, "folder": str(Path.cwd()), "environment": dict(os.environ)}
    content = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [b"%010d" % len(content)], [0, 1, 2])
        connection.sendall(content)
        process = int(connection.recv(HEADER))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _: os.kill(process, received))
        code = connection.recv(1)
    return code[0] if code else 128 + signal.SIGKILL


def write_programs(folder: Path, path: Path) -> None:
    """Write the programs `saccade` and `python` of a PATH."""
    folder.mkdir()
    for name in ("saccade", "python"):
        if sys.platform == "linux":
            script = f'exec "{sys.executable}" -S -E "{Path(__file__).resolve()}" "{path}" {name} "$@"'
        else:
            script = f'exec "{sys.executable}" {"-m saccade " if name == "saccade" else ""}"$@"'
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
