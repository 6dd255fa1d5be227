"""Serving a language model: requests per second and times of `saccade serve`, against transformers behind uvicorn.

The model is random, of GPT-2's architecture (6 layers, 384 wide, tokens of one character), the same weights for both.
The peer is what one writes first: an endpoint that calls `generate` in a thread, one request at a time. Requests are
greedy, with prompts and answers of mixed lengths, and come from 1 client and from 16 at once; rounds alternate between
the servers. Ours streams.

    python bench/serve.py [--rounds 3] [--requests 32]
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from interleaved import report

CLIENTS = (1, 16)
LENGTHS = ((24, 64), (8, 32), (160, 96), (64, 16), (300, 128))  # of prompts and answers, in tokens
END = 95  # the end token, which is never chosen: all texts are equally long
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
    """Write a random GPT-2 with a token for each printable character of ASCII, and one for the end."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel

    letters = {letter: number for number, letter in enumerate(["\u0120", *map(chr, range(33, 127))])}
    tokenizer = Tokenizer(models.BPE(vocab={**letters, "<|endoftext|>": END}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(1)
    shape = {"n_layer": 6, "n_head": 6, "n_embd": 384, "n_positions": 512, "vocab_size": END + 1}
    model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=END, eos_token_id=END))
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(std=0.1)
    model.save_pretrained(folder)


@contextmanager
def running(command):
    """A server in a process of its own; gives its port."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ}) as process:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if port := re.search(r"at http://127\.0\.0\.1:(\d+)", line):
                break
        else:
            raise SystemExit("the server did not start:\n" + "".join(lines))
        try:
            yield int(port[1])
        finally:
            process.terminate()


async def request(port, prompt, tokens, *, stream):
    """Return the seconds to the first token and to the end, and the text."""
    body = {"model": "model", "prompt": prompt, "max_tokens": tokens, "temperature": 0}
    content = json.dumps({**body, "logit_bias": {str(END): -100}, "stream": True} if stream else body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{head}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content)
    await reader.readuntil(b"\r\n\r\n")
    received = await reader.read(1)
    first = time.perf_counter() - started
    received += await reader.read()
    seconds = time.perf_counter() - started
    writer.close()
    if stream:
        events = [json.loads(event) for event in re.findall(rb"data: (\{.*)", received)]
        return first, seconds, "".join(event["choices"][0]["text"] for event in events)
    return first, seconds, json.loads(received)["choices"][0]["text"]


async def load(port, clients, count, *, stream):
    """Send requests from some clients; return tokens per second, and times and texts of each."""
    waiting, results = [LENGTHS[number % len(LENGTHS)] for number in range(count)], {}
    tokens = sum(answer for _, answer in waiting)

    async def client():
        while waiting:
            size, answer = waiting.pop()
            prompt = (f"{len(waiting)}: " + "the quick brown fox " * 20)[:size]
            results[prompt] = await request(port, prompt, answer, stream=stream)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return tokens / (time.perf_counter() - started), results


def summarize(results):
    """Return milliseconds: the median to the first token, and the median and the 99th of 100 to the end."""
    firsts = sorted(1000 * first for first, _, _ in results)
    ends = sorted(1000 * seconds for _, seconds, _ in results)
    p99 = ends[min(len(ends) - 1, int(0.99 * len(ends)))]
    return {
        "first_token_ms": round(statistics.median(firsts), 1),
        "latency_p50_ms": round(statistics.median(ends), 1),
        "latency_p99_ms": round(p99, 1),
    }


def count_equal(texts, others):
    """Return how many prompts have the same text in both."""
    return sum(text == others[prompt] for prompt, text in texts.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=40)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="saccade-serve-") as folder, ExitStack() as stack:
        model = Path(folder) / "model"
        model.mkdir()
        write_model(model)
        ours = [sys.executable, "-m", "saccade", "serve", str(model), "--port", "0", "--device", "cpu"]
        ports = {
            "ours": stack.enter_context(running(ours)),
            "peer": stack.enter_context(running([sys.executable, "-c", PEER, str(model)])),
        }
        for name, port in ports.items():  # the first requests of a process are slower
            asyncio.run(load(port, 1, 2, stream=name == "ours"))
        rates = {(name, clients): [] for name in ports for clients in CLIENTS}
        times = {clients: [] for clients in CLIENTS}
        equal = total = alone = 0
        for _ in range(chosen.rounds):
            answers = {}
            for clients in CLIENTS:
                for name, port in ports.items():
                    rate, results = asyncio.run(load(port, clients, chosen.requests, stream=name == "ours"))
                    rates[name, clients].append(rate)
                    answers[name, clients] = {prompt: text for prompt, (_, _, text) in results.items()}
                    if name == "ours":
                        times[clients] += results.values()
                equal += count_equal(answers["ours", clients], answers["peer", clients])
            alone += count_equal(answers["ours", 16], answers["ours", 1])
            total += chosen.requests
    medians = {key: statistics.median(values) for key, values in rates.items()}
    for clients in CLIENTS:
        more = {"peer_is": "transformers", "unit": "tokens/s", "equal_texts": f"{equal}/{2 * total}"}
        name = f"serve_{clients}_client{'s' if clients > 1 else ''}"
        report(name, medians["ours", clients], medians["peer", clients], **more, **summarize(times[clients]))
    more = {"peer_is": "1 client", "unit": "tokens/s", "equal_texts": f"{alone}/{total}"}
    report("serve_16_clients_against_1", medians["ours", 16], medians["ours", 1], **more)


if __name__ == "__main__":
    main()
