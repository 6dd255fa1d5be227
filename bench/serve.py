"""Serving a language model: `saccade serve` against transformers behind uvicorn, and against the server of llama.cpp.

The model is random, of GPT-2's architecture (6 layers, 384 wide, tokens of one character), the same float32 weights
for all. transformers stands for what one writes first: an endpoint that calls `generate` in a thread, one request at a
time, and answers when the text is complete; the others stream. llama.cpp is included (`python -m llama_cpp.server`) if
SACCADE_LLAMA_PYTHON names an interpreter that has llama-cpp-python[server]. Requests are greedy, with prompts and
answers of mixed lengths, and come from 1 client and from 16 at once; rounds alternate between the servers.

Printed as JSON: for each server requests and tokens per second, the milliseconds to the first token and to the end
(median and 99th of 100), and how many texts are those of transformers; then the ratios of requests per second. The
memory bandwidth is measured in the same run, and with it the limit of one client: no text can be generated faster than
the weights are read for each token (unless they fit into the caches).

    python bench/serve.py [--rounds 3] [--requests 40]
"""

import argparse
import asyncio
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from interleaved import processor, report, serve

CLIENTS = (1, 16)
LENGTHS = ((24, 64), (8, 32), (160, 96), (64, 16), (300, 128))  # of prompts and answers, in tokens
LLAMA_PYTHON = os.environ.get("SACCADE_LLAMA_PYTHON", "")
END = 95  # the end token, which is never chosen: all texts are equally long
STREAM = {"stream": True, "logit_bias": {str(END): -100}}
OPTIONS = {"ours": STREAM, "transformers": {}, "llama_cpp": {**STREAM, "repeat_penalty": 1.0}}  # of requests
PEER = """
import asyncio, json, sys, threading
import torch, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from tokenizers import Tokenizer
from transformers import GPT2LMHeadModel

model = GPT2LMHeadModel.from_pretrained(sys.argv[1]).eval()
tokenizer = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
lock = threading.Lock()

def generate(prompt, count):
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    options = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "pad_token_id": 95}
    with lock, torch.inference_mode():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    return tokenizer.decode(out[0, ids.shape[1]:].tolist(), skip_special_tokens=False)

async def complete(request):
    body = await request.json()
    text = await asyncio.to_thread(generate, body["prompt"], body["max_tokens"])
    return JSONResponse({"choices": [{"text": text}]})

app = Starlette(routes=[Route("/v1/completions", complete, methods=["POST"])])
class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print("at http://127.0.0.1:%d" % self.servers[0].sockets[0].getsockname()[1], file=sys.stderr, flush=True)
Server(uvicorn.Config(app, port=0, log_level="warning")).run()
"""


def write_model(folder):
    """Write a random GPT-2 with a token for each printable character of ASCII, one for the end, and one of two letters.

    That is in no prompt: GGUF files of tokenizers without merges are not valid.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel

    letters = {letter: number for number, letter in enumerate(["\u0120", *map(chr, range(33, 127))])}
    tokenizer = Tokenizer(models.BPE(vocab={**letters, "<|endoftext|>": END, "~~": END + 1}, merges=[("~", "~")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(1)
    shape = {"n_layer": 6, "n_head": 6, "n_embd": 384, "n_positions": 512, "vocab_size": END + 2}
    model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=END, eos_token_id=END))
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(std=0.1)
    model.save_pretrained(folder)


@contextmanager
def running(command):
    """A server in a process of its own; gives its port."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True) as process:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if port := re.search(r"(?:at|on) http://127\.0\.0\.1:(\d+)", line):
                break
        else:
            raise SystemExit("the server did not start:\n" + "".join(lines))
        threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would stop it
        try:
            yield int(port[1])
        finally:
            process.terminate()


def commands(model, folder):
    """Return the command of each server."""
    result = {
        "ours": [sys.executable, "-m", "saccade", "serve", str(model), "--port", "0", "--device", "cpu"],
        "transformers": [sys.executable, "-c", PEER, str(model)],
    }
    if LLAMA_PYTHON:
        import saccade

        file = folder / "model.gguf"
        saccade.load(str(model), device="cpu").export(file, format="gguf", dtype="f32")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        arguments = {"model": file, "host": "127.0.0.1", "port": port, "n_ctx": 512, "n_threads": 2}
        arguments["interrupt_requests"] = False  # by default a new request ends the text of the one before
        options = [text for name, value in arguments.items() for text in (f"--{name}", str(value))]
        result["llama_cpp"] = [LLAMA_PYTHON, "-m", "llama_cpp.server", *options]
    return result


class Bandwidth:
    """Reads 1 GiB of memory in a process of its own."""

    def __init__(self):
        command = [sys.executable, __file__, "--bandwidth"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout.readline().strip() == "ready"

    def measure(self):
        """Return bytes per second."""
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return (1 << 30) / float(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def read_memory():
    import torch

    memory = torch.ones(1 << 28)
    return lambda: memory.sum()


async def request(port, prompt, tokens, options):
    """Return the seconds to the first token and to the end, and the text."""
    body = {"model": "model", "prompt": prompt, "max_tokens": tokens, "temperature": 0, **options}
    content = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{head}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content)
    status = await reader.readuntil(b"\r\n\r\n")
    received = await reader.read(1)
    first = time.perf_counter() - started
    received += await reader.read()
    seconds = time.perf_counter() - started
    writer.close()
    if b" 200 " not in status.splitlines()[0]:
        raise SystemExit(f"a server refused a request: {received[:500]!r}")
    if options.get("stream"):
        events = [json.loads(event) for event in re.findall(rb"data: (\{.*\})", received)]
        return first, seconds, "".join(event["choices"][0]["text"] for event in events)
    return first, seconds, json.loads(received)["choices"][0]["text"]


async def load(port, clients, count, options):
    """Send requests from some clients; return the seconds that all took, and times and text of each."""
    waiting, results = [LENGTHS[number % len(LENGTHS)] for number in range(count)], {}

    async def client():
        while waiting:
            size, answer = waiting.pop()
            prompt = (f"{len(waiting)}: " + "the quick brown fox " * 20)[:size]
            results[prompt] = await request(port, prompt, answer, options)
            if len(results[prompt][2]) < answer:
                raise SystemExit(f"a server ended a text after {len(results[prompt][2])} of {answer} characters")

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - started, results


def milliseconds(seconds):
    """Return the median, and the 99th of 100."""
    values = sorted(1000 * value for value in seconds)
    return round(statistics.median(values), 1), round(values[min(len(values) - 1, int(0.99 * len(values)))], 1)


class Record:
    """What one server did for a number of clients, over all rounds."""

    def __init__(self):
        self.rates, self.results, self.texts = [], [], []

    def add(self, count, seconds, results):
        self.rates.append(count / seconds)
        self.results += results.values()
        self.texts.append({prompt: text for prompt, (_, _, text) in results.items()})

    @property
    def rate(self):
        return statistics.median(self.rates)

    def equal(self, other):
        """Return how many texts are the same as in another record, of how many."""
        pairs = [(text, b[prompt]) for a, b in zip(self.texts, other.texts, strict=True) for prompt, text in a.items()]
        return f"{sum(a == b for a, b in pairs)}/{len(pairs)}"

    def to_json(self, tokens):
        """Return the figures; tokens: of the answers of all requests of a round, for each request."""
        first, end = (milliseconds(result[at] for result in self.results) for at in (0, 1))
        return {
            "requests_per_second": round(self.rate, 2),
            "tokens_per_second": round(self.rate * tokens, 1),
            **{"first_token_ms": first[0], "first_token_p99_ms": first[1]},
            **{"latency_ms": end[0], "latency_p99_ms": end[1]},
        }


def compare(ports, bandwidth, rounds, count):
    """Let all servers answer the same requests, in turn; return the records and the bytes per second of memory."""
    for name, port in ports.items():  # the first requests of a process are slower
        asyncio.run(load(port, 1, 2, OPTIONS[name]))
    records = {(name, clients): Record() for name in ports for clients in CLIENTS}
    speeds = []
    for _ in range(rounds):
        for clients in CLIENTS:
            speeds.append(bandwidth.measure())
            for name, port in ports.items():
                results = asyncio.run(load(port, clients, count, OPTIONS[name]))
                records[name, clients].add(count, *results)
    return records, statistics.median(speeds)


def print_results(records, names, tokens):
    """Print the figures of every server, and the ratios."""
    for clients in CLIENTS:
        title = f"serve_{clients}_client{'s' if clients > 1 else ''}"
        ours, reference = records["ours", clients], records["transformers", clients]
        for name in names:
            record = records[name, clients]
            figures = {**record.to_json(tokens), "equal_texts": record.equal(reference)}
            print(json.dumps({"name": title, "server": name, **figures, "cpu": processor()}), flush=True)
        for name in names[1:]:
            report(title, ours.rate, records[name, clients].rate, peer_is=name, unit="requests/s")
    few, many = (records["ours", clients] for clients in CLIENTS)
    more = {"peer_is": "1 client", "unit": "requests/s", "equal_texts": many.equal(few)}
    report("serve_16_clients_against_1", many.rate, few.rate, **more)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--bandwidth", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.bandwidth:
        serve(read_memory())
        return
    with tempfile.TemporaryDirectory(prefix="saccade-serve-") as folder, ExitStack() as stack:
        model = Path(folder) / "model"
        model.mkdir()
        write_model(model)
        size = (model / "model.safetensors").stat().st_size
        servers = commands(model, Path(folder))
        ports = {name: stack.enter_context(running(command)) for name, command in servers.items()}
        bandwidth = stack.enter_context(closing(Bandwidth()))
        records, speed = compare(ports, bandwidth, chosen.rounds, chosen.requests)
    tokens = statistics.mean(LENGTHS[number % len(LENGTHS)][1] for number in range(chosen.requests))
    limit = {"GB/s": round(speed / 1e9, 1), "weights_mb": round(size / 1e6, 1)}
    limit["tokens_per_second"] = round(speed / size)
    print(json.dumps({"name": "serve_1_client_limit", **limit, "cpu": processor()}))
    print_results(records, list(ports), tokens)


if __name__ == "__main__":
    main()
