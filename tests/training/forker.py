"""Fork processes of `saccade` that train together, as torchrun starts them: torch is imported once for all of them.

Reads a JSON line per job: the folder, the arguments of `saccade`, the number of processes and the step after whose
checkpoint they wait until the folder has a file `continue` (0: none). Writes a line with the numbers of the processes,
and when all have ended one with their exit codes and what they wrote to stdout and stderr.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))
import processes

WAIT = 60.0  # seconds
STORES = """
import sys
from datetime import timedelta
from torch.distributed import TCPStore
stores = []
for line in sys.stdin:
    stores.append(TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(minutes=2)))
    print(stores[-1].port, flush=True)
"""


class Agent:
    """What the agent of torchrun is to its workers: it holds their store, and outlives them."""

    def __init__(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._stores = subprocess.Popen([sys.executable, "-c", STORES], text=True, **pipes)

    def start(
        self, arguments: list[str], folder: Path, size: int, before: Callable[[], None] = lambda: None
    ) -> list[processes.Child]:
        """Start processes that train together, or one that trains alone; `before` is called in each of them."""
        if size == 1:
            return [processes.start(arguments, folder, before)]
        assert self._stores.stdin is not None and self._stores.stdout is not None
        self._stores.stdin.write("\n")
        self._stores.stdin.flush()
        port = int(self._stores.stdout.readline())
        return [processes.start(arguments, folder, partial(join, rank, size, port, before)) for rank in range(size)]

    def close(self) -> None:
        self._stores.communicate()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def join(rank: int, size: int, port: int, before: Callable[[], None]) -> None:
    """Set what torchrun sets for a process."""
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in variables.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    before()


def hold(step: int) -> None:
    """Let this process wait after the checkpoint of a step, so that a signal comes neither too early nor too late."""
    from saccade.training import loop

    write = loop.write_checkpoint

    def written(folder: Path, checkpoint: Any, processes: Any, *, sharded: bool) -> None:
        write(folder, checkpoint, processes, sharded=sharded)
        deadline = time.monotonic() + WAIT
        while checkpoint.step == step and not Path("continue").exists() and time.monotonic() < deadline:
            time.sleep(0.002)

    loop.write_checkpoint = written


def main() -> None:
    agent = Agent()
    for line in sys.stdin:
        folder, arguments, size, step = json.loads(line)
        children = agent.start(arguments, Path(folder), size, partial(hold, step))
        print(json.dumps([child.pid for child in children]), flush=True)
        print(json.dumps([child.wait(90) for child in children]), flush=True)
    agent.close()


if __name__ == "__main__":
    main()
