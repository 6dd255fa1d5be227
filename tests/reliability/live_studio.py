"""A studio in a thread of this process, with tiny runs of several tasks; clients that speak HTTP over plain sockets."""

import json
import logging
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.tasks.battery import Trial

TASKS = ("language_model", "translation", "text_classification", "question_answering", "tagging", "sentence_vectors")
INTERIM = re.compile(rb"\AHTTP/1\.1 100 [^\r\n]*\r\n\r\n")  # the server asks for the body
LOOP = ["train.device=cpu", "train.steps=2", "train.evaluate_every=2"]


def train_runs(folder: Path, tasks: tuple[str, ...] = TASKS, context: int = 32) -> Path:
    """Train a tiny run of each task, named after it; return the folder of the runs.

    context: tokens that the language model reads.
    """
    from saccade import api

    for name in tasks:
        trial = Trial.of(name)
        (folder / name).mkdir()
        data = trial.write_data(folder / name)
        overrides = [*trial.settings, *LOOP]
        overrides += [f"model.max_positions={context}"] if name == "language_model" else []
        api.train(data, task=name, name=name, root=folder / "runs", overrides=overrides, progress=False)
    return folder / "runs"


def start_studio(runs: Path, refs: tuple[str, ...] = ()) -> "Studio":
    """Start a studio that ends with this process."""
    from saccade.studio.server import serve

    addresses: list[str] = []
    threading.Thread(target=serve, args=(runs, refs, 0, addresses.append), daemon=True).start()
    while not addresses:
        time.sleep(0.01)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # not a line for each request that is not HTTP
    return Studio.of(addresses[0])


@dataclass(frozen=True)
class Answer:
    """What came back for a request: status 0 where the connection was closed without an answer."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 0.0

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Studio:
    """The address of a studio and the cookie of its key."""

    port: int
    key: str
    cookie: str

    @classmethod
    def of(cls, address: str) -> "Studio":
        """Exchange the key in the address for a cookie."""
        match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?key=(.+)", address)
        assert match, address
        studio = cls(int(match[1]), match[2], "")
        answer = studio.send(f"GET /?key={match[2]} HTTP/1.1\r\nHost: 127.0.0.1:{match[1]}\r\n\r\n".encode())
        return cls(int(match[1]), match[2], answer.headers["set-cookie"].split(";")[0])

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def headers(self, body: bytes | None = None) -> dict[str, str]:
        """The headers that a page of the studio sends."""
        headers = {"Host": self.host, "Cookie": self.cookie, "Sec-Fetch-Site": "same-origin", "Connection": "close"}
        if body is not None:
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        return headers

    def request(self, path: str, body: Any = None) -> Answer:
        """Send a well-formed request: a GET, or with a body a POST of JSON."""
        content = None if body is None else json.dumps(body).encode()
        lines = [f"{'GET' if content is None else 'POST'} {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self.headers(content).items()]
        return self.send("\r\n".join([*lines, "", ""]).encode() + (content or b""))

    def form(self, model: str) -> Any:
        return self.request(f"/api/models/{quote(model, safe='')}/form").json()

    def connect(self, *, buffer: int = 0) -> socket.socket:
        """Return a connection; `buffer`: bytes that this side takes before it is read."""
        client = socket.socket()
        if buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        client.settimeout(60)
        client.connect(("127.0.0.1", self.port))
        return client

    def send(self, content: bytes, *, complete: bool = True) -> Answer:
        """Send bytes and return the answer; of an incomplete request only what comes within a moment."""
        start = time.perf_counter()
        with self.connect() as client:
            received = bytearray()
            try:
                client.sendall(content)
                if not complete:
                    client.settimeout(0.2)
                while not _is_complete(received, content) and (part := client.recv(1 << 16)):
                    received += part
            except (ConnectionError, TimeoutError) as error:
                if complete and isinstance(error, TimeoutError):
                    raise
        return _parse(bytes(received), time.perf_counter() - start)


def _is_complete(received: bytes | bytearray, request: bytes) -> bool:
    """Whether an answer with a known length is complete, so that the connection need not end."""
    head, found, body = INTERIM.sub(b"", bytes(received)).partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: (\d+)", head, re.IGNORECASE)
    if length is None or request.startswith(b"HEAD "):
        return bool(found) and (request.startswith(b"HEAD ") or body.endswith(b"\r\n0\r\n\r\n"))
    return bool(found) and len(body) >= int(length[1])


def _parse(received: bytes, seconds: float) -> Answer:
    head, _, body = INTERIM.sub(b"", received).partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1\.[01] (\d{3})", head)
    if status is None:
        return Answer(0, seconds=seconds)
    lines = (line.decode("latin-1").partition(":") for line in head.split(b"\r\n")[1:])
    headers = {name.strip().lower(): value.strip() for name, _, value in lines}
    return Answer(int(status[1]), headers, _unchunked(body) if "transfer-encoding" in headers else body, seconds)


def _unchunked(body: bytes) -> bytes:
    """Join the chunks of a body; a connection may have ended within one."""
    joined = b""
    while match := re.match(rb"([0-9a-fA-F]+)\r\n", body):
        end = match.end() + int(match[1], 16)
        joined += body[match.end() : end]
        body = body[end + 2 :]
    return joined
