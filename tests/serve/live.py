"""A server in a thread of this process, with tiny runs; its state can be read while it runs."""

import json
import random
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx

from saccade import api
from saccade.serve.running import Server
from saccade.serve.settings import Settings, listen
from tests.tasks.battery import Trial

WORDS = ["red", "blue", "cat", "dog", "sat", "ran", "the", "a", "on", "mat"]
SMALL = ["model.dim=32", "model.depth=2", "model.heads=2", "model.hidden=32", "batch_size=2"]
LOOP = ["train.device=cpu", "train.steps=3", "train.evaluate_every=3"]
KEY = "test-key-0123456789"


def train_runs(folder: Path, tasks: tuple[str, ...] = ()) -> Path:
    """Train a language model, `prose`, a chat model, `chat`, and a run of each task, named after it."""
    draw, runs = random.Random(3), folder / "runs"
    (folder / "text.txt").write_text("".join(" ".join(draw.choices(WORDS, k=8)) + ".\n" for _ in range(200)))
    with (folder / "chats.jsonl").open("w") as file:
        for _ in range(400):
            question, answer = (" ".join(draw.choices(WORDS, k=4)) for _ in range(2))
            turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            file.write(json.dumps({"messages": turns}) + "\n")
    for name, data, context in (("prose", "text.txt", 512), ("chat", "chats.jsonl", 128)):
        overrides = [*SMALL, f"model.max_positions={context}", *LOOP]
        api.train(folder / data, task="language_model", name=name, root=runs, overrides=overrides, progress=False)
    for task in tasks:
        trial = Trial.of(task)
        (folder / task).mkdir()
        data = trial.write_data(folder / task)
        api.train(data, task=task, name=task, root=runs, overrides=[*trial.settings, *LOOP], progress=False)
    return runs


class Live:
    """A running server."""

    def __init__(self, server: Server, thread: threading.Thread, address: str, keys: tuple[str, ...]) -> None:
        self.server, self.state, self.address = server, server.state, address
        self.thread = thread  # of the event loop
        self.headers = {"authorization": f"Bearer {keys[0]}"} if keys else {}
        self.client = httpx.Client(base_url=address, headers=self.headers, timeout=60)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def generator(self, name: str = "prose"):
        return self.state.models[name].generator

    def post(self, path: str, **body):
        return self.client.post(path, json=body)

    def complete(self, prompt: str = "the cat", **body):
        return self.post("/v1/completions", model="prose", prompt=prompt, **body)

    @contextmanager
    def slow(self, seconds: float, name: str = "prose"):
        """The engine takes this long for each step."""
        engine = self.generator(name).engine
        step = engine.step

        def wait():
            time.sleep(seconds)
            return step()

        engine.step = wait
        try:
            yield
        finally:
            del engine.step


def wait_for(condition, seconds: float = 60.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


@contextmanager
def serving(runs: Path, refs: tuple[str, ...], **settings):
    """A server on a free port, which ends with the block."""
    settings = Settings(refs, root=runs, port=0, device="cpu", **settings)
    addresses: list[str] = []
    with listen(settings.host, 0) as listening:
        server = Server(settings, listening.getsockname()[1], addresses.append, print)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        wait_for(lambda: addresses or server.failures, 300)  # the first engine of a version is compiled
        assert not server.failures, server.failures
        live = Live(server, thread, addresses[0], settings.keys)
        try:
            yield live
        finally:
            live.client.close()
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive(), "the server did not end"
