"""A server under load: many clients, clients that leave, ten times more requests than it can answer, and SIGTERM.

python tests/reliability/serve_load.py --clients 100 --minutes 5

Printed with --json: requests that were answered, lost (no complete answer) and mixed (not the text that the prompt has
alone), errors of the server, how long a client that left kept its row, how long a refusal took under overload, the
memory of the server (before, at most, after), and how many requests ended after SIGTERM.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.reliability.figures import Figure, print_figure
from tests.serve.live import KEY, WORDS, train_runs

ROWS, QUEUE = 16, 64
CANCELLED = 0.1  # of the requests
TOKENS, LONG = 24, 300
LONGEST_FREE, LONGEST_REFUSAL, MOST_GROWTH = 250.0, 50.0, 48  # milliseconds (p99), milliseconds (p99), MB
# On a busy machine medians are limited, as parts of a request of LONG tokens that the server answers alone: a client
# that keeps its row would need a whole one, and a refusal that waits for a place as many as there are in a row.
FREE_SHARE, REFUSAL_SHARE = 0.5, 1.0
PROMPTS = [f"{first} {second}" for first in WORDS for second in WORDS]


@contextmanager
def server(runs: Path, *options: str):
    """A server in a process of its own; gives the process and its port."""
    command = [sys.executable, "-m", "saccade", "serve", "prose", "--runs", str(runs), "--port", "0", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SACCADE_API_KEY": KEY}
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, env=environment) as process:
        line = process.stderr.readline()
        port = re.search(r":(\d+)$", line.strip())
        assert port, line + process.stderr.read()
        try:
            yield process, int(port[1])
        finally:
            process.kill()


class Reply:
    """The answer to one request, as far as it was read."""

    def __init__(self) -> None:
        self.status, self.headers, self.text, self.seconds, self.complete = 0, {}, "", 0.0, False


async def complete(port: int, prompt: str, *, stream: bool = False, leave: bool = False, tokens: int = TOKENS) -> Reply:
    """Send one request on a connection of its own; `leave`: close it after the first token."""
    body = {"model": "prose", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    content = json.dumps({**body, "stream": stream}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {KEY}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    reply, started = Reply(), time.perf_counter()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:  # the request is lost
        return reply
    try:
        writer.write(head.encode() + content)
        reply.status = int((await reader.readline()).split()[1])
        while line := (await reader.readline()).strip():
            name, _, value = line.decode("latin-1").partition(":")
            reply.headers[name.lower()] = value.strip()
        if leave and reply.status == 200:
            while not reply.complete and (line := await reader.readline()):
                reply.complete = line.startswith(b"data: ")  # all that was to be read
            return reply
        content = await reader.read()
        reply.seconds = time.perf_counter() - started
        if reply.status == 200:
            _read(reply, content, stream)
    except (ConnectionError, IndexError, asyncio.IncompleteReadError):
        pass  # not complete: the request is lost
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return reply


def _read(reply: Reply, content: bytes, stream: bool) -> None:
    """Read the text of an answer, if it is complete."""
    if not stream:
        reply.complete = len(content) == int(reply.headers["content-length"])
        reply.text = json.loads(content)["choices"][0]["text"]
        return
    events = re.findall(rb"data: (.*)", content)
    reply.complete = events[-1:] == [b"[DONE]"]
    reply.text = "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])


async def load(port: int, clients: int, seconds: float, expected: dict[str, str]) -> Counter[str]:
    """Let clients send requests, one after the other each, and compare every answer."""
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds

    async def client(seed: int) -> None:
        draw = random.Random(seed)
        while time.monotonic() < end:
            prompt, stream, leave = draw.choice(PROMPTS), draw.random() < 0.5, draw.random() < CANCELLED
            reply = await complete(port, prompt, stream=stream or leave, leave=leave)
            counts["requests"] += 1
            if reply.status == 429:
                counts["refused"] += 1
                await asyncio.sleep(draw.uniform(0.05, 0.3))
            elif reply.status >= 500:
                counts["server_errors"] += 1
            elif reply.status != 200 or not reply.complete:
                counts["lost"] += 1
            elif leave:
                counts["cancelled"] += 1
            else:
                counts["answered"] += 1
                counts["mixed"] += reply.text != expected[prompt]

    await asyncio.gather(*map(client, range(clients)))
    return counts


async def disconnects(port: int, count: int) -> list[float]:
    """Return after how many milliseconds a server with one row accepts a request, after the client before left."""
    delays = []
    assert (await complete(port, "the cat", stream=True, leave=True, tokens=LONG)).status == 200
    for _ in range(count):
        left = time.perf_counter()
        while (reply := await complete(port, "the cat", stream=True, leave=True, tokens=LONG)).status == 429:
            pass
        assert reply.status == 200 and reply.complete, reply.status
        delays.append(1000 * (time.perf_counter() - left))
    return delays


async def alone(port: int) -> float:
    """Return the median milliseconds of a request of LONG tokens, one after the other."""
    replies = [await complete(port, "the cat", tokens=LONG) for _ in range(7)]
    assert all(reply.complete for reply in replies)
    return 1000 * statistics.median(reply.seconds for reply in replies)


async def overload(port: int, process: psutil.Process, seconds: float) -> dict[str, Any]:
    """Send ten times as many requests as the server can answer, and measure refusals and memory."""
    places, single = ROWS + QUEUE, await alone(port)
    started = time.perf_counter()
    await asyncio.gather(*(complete(port, "the cat", tokens=LONG) for _ in range(places)))
    capacity = places / (time.perf_counter() - started)
    replies: list[Reply] = []
    memory = [process.memory_info().rss]
    tasks: set[asyncio.Task[None]] = set()

    async def send() -> None:
        replies.append(await complete(port, random.choice(PROMPTS), tokens=LONG))

    begin, sent = time.monotonic(), 0
    while (passed := time.monotonic() - begin) < seconds or sent < 2 * places:  # some are refused also if it is slow
        while sent < 10 * capacity * passed:
            task = asyncio.create_task(send())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            sent += 1
        memory.append(process.memory_info().rss)
        await asyncio.sleep(0.01)
    await asyncio.gather(*tasks)
    memory.append(process.memory_info().rss)
    refused = [1000 * reply.seconds for reply in replies if reply.status == 429]
    assert all("retry-after" in reply.headers for reply in replies if reply.status == 429)
    return {
        "alone_ms": round(single, 1),
        "capacity_per_second": round(capacity, 1),
        "sent": sent,
        "answered": sum(reply.complete for reply in replies),
        "refused": len(refused),
        "lost": sum(not reply.complete for reply in replies if reply.status != 429),
        "refusal_p50_ms": round(percentile(refused, 0.5), 1),
        "refusal_p99_ms": round(percentile(refused, 0.99), 1),
        "memory_mb": [round(value / 2**20) for value in (memory[0], max(memory), memory[-1])],
    }


async def in_flight(port: int) -> int:
    """Return how many requests the server has accepted and not answered yet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {KEY}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode())
    metrics = (await reader.read()).decode()
    writer.close()
    count = re.search(r"^saccade_in_flight (\d+)", metrics, re.MULTILINE)
    assert count, metrics
    return int(count[1])


async def drain(port: int, process: subprocess.Popen[str]) -> dict[str, int]:
    """Send SIGTERM while requests are generated and wait; count the complete answers."""
    requests = [asyncio.create_task(complete(port, prompt, stream=True, tokens=LONG)) for prompt in PROMPTS[:40]]
    end = time.monotonic() + 60
    while await in_flight(port) + sum(request.done() for request in requests) < len(requests):
        assert time.monotonic() < end, "the requests are not accepted"
    process.send_signal(signal.SIGTERM)
    replies = await asyncio.gather(*requests)
    code = await asyncio.to_thread(process.wait, 60)
    return {"in_flight": len(replies), "finished": sum(reply.complete for reply in replies), "exit_code": code}


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else 0.0


async def measure(runs: Path, clients: int, minutes: float, leaves: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"clients": clients, "minutes": minutes}
    with server(runs, "--rows", str(ROWS), "--queue", str(QUEUE)) as (process, port):
        expected = {prompt: (await complete(port, prompt)).text for prompt in PROMPTS}
        counts = await load(port, clients, 60 * minutes, expected)
        names = ("requests", "answered", "cancelled", "refused", "lost", "mixed", "server_errors")
        figures |= {name: counts[name] for name in names}
        figures["overload"] = await overload(port, psutil.Process(process.pid), min(20.0, max(4.0, 12 * minutes)))
        figures["drain"] = await drain(port, process)
    with server(runs, "--rows", "1", "--queue", "0") as (_, port):
        single = await alone(port)
        delays = await disconnects(port, leaves)
    figures["disconnects"] = {
        "count": len(delays),
        "alone_ms": round(single, 1),
        **{f"p{p}_ms": round(percentile(delays, p / 100), 1) for p in (50, 99)},
    }
    return figures


def failures(figures: dict[str, Any], busy: bool) -> list[str]:
    """Return what is not as promised; `busy`: the times are those of a machine that does other work."""
    over, gone, ended = figures["overload"], figures["disconnects"], figures["drain"]
    wrong = [name for name in ("lost", "mixed", "server_errors") if figures[name]]
    wrong += ["answered"] if not figures["answered"] else []
    if busy:
        late = gone["p50_ms"] > FREE_SHARE * gone["alone_ms"], over["refusal_p50_ms"] > REFUSAL_SHARE * over["alone_ms"]
    else:
        late = gone["p99_ms"] > LONGEST_FREE, over["refusal_p99_ms"] > LONGEST_REFUSAL
    wrong += ["disconnects"] if late[0] else []
    wrong += ["refusals"] if late[1] or over["lost"] or not over["refused"] else []
    wrong += ["memory"] if max(over["memory_mb"]) - over["memory_mb"][0] > MOST_GROWTH else []
    return wrong + (["drain"] if ended["finished"] != ended["in_flight"] or ended["exit_code"] else [])


def summary(figures: dict[str, Any], wrong: list[str]) -> Figure:
    """Return the figure: requests that were neither lost nor mixed, nor met an error of the server."""
    over, gone, ended = figures["overload"], figures["disconnects"], figures["drain"]
    bad = figures["lost"] + figures["mixed"] + figures["server_errors"]
    text = (
        f"requests of {figures['clients']} clients: {figures['answered']:,} answered, "
        f"{figures['cancelled']:,} cancelled, {figures['refused']:,} refused, {figures['lost']} lost, "
        f"{figures['mixed']} mixed, {figures['server_errors']} errors of the server; "
        f"{gone['count']} disconnects free their row within {gone['p99_ms']:.0f} ms (p99); "
        f"{over['refused']:,} refused in {over['refusal_p99_ms']:.0f} ms (p99) under overload; "
        f"{ended['finished']}/{ended['in_flight']} finished after SIGTERM"
    )
    if wrong:
        text += f"; not as promised: {', '.join(wrong)}"
    return Figure("server load", figures["requests"] - bad, figures["requests"], text, {**figures, "failures": wrong})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--disconnects", type=int, default=500)
    parser.add_argument("--busy", action="store_true", help="for a machine that does other work: limits of its own")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="saccade-load-", ignore_cleanup_errors=True) as folder:
        os.environ["SACCADE_CACHE"] = str(Path(folder) / "cache")
        runs = train_runs(Path(folder))
        figures = asyncio.run(measure(runs, chosen.clients, chosen.minutes, chosen.disconnects))
    wrong = failures(figures, chosen.busy)
    code = print_figure(summary(figures, wrong), chosen.json)
    return 1 if wrong else code


if __name__ == "__main__":
    sys.exit(main())
