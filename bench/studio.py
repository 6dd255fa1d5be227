"""The studio with long texts: 12 layers in a real browser, from 512 to 4,096 tokens; and writing under watch.

Printed for each length: milliseconds from the end of the forward pass to the first picture; the medians of switching
heads and of scrolling until all in sight is drawn, over words or over tokens, whichever is slower; and how many
megabytes a server has grown since it looked at 64 tokens, a fresh one for each length. Writing: seconds with and
without the rows of attention. The model is random, of GPT-2's shape but narrow; times of pictures do not depend on
what it has learnt.

    python bench/studio.py [--lengths 512,1024,2048,4096] [--rounds 5]
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import psutil
from interleaved import report

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def write_model(folder, width=384, heads=12):
    """A random GPT-2 of 12 layers that reads 4,224 tokens of one byte each."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel

    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab={**letters, "<|endoftext|>": 256}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(1)
    shape = {"n_layer": 12, "n_head": heads, "n_embd": width, "n_positions": 4224, "vocab_size": 257}
    GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=256, eos_token_id=256)).save_pretrained(folder)


def until(tab, true, timeout=120):
    """Wait for what a page says of itself; its own rules forbid it to evaluate texts."""
    end = time.monotonic() + timeout
    while not tab.evaluate(true):
        if time.monotonic() > end:
            raise SystemExit(f"the page never said {true}")
        time.sleep(0.002)


def look(tab, folder, length):
    """Seconds of looking at a text: until the server has answered, and from then until its picture stands."""
    tab.goto(re.sub(r"/[^/]*$", f"/look?model={quote(str(folder), safe='')}", tab.url))
    tab.wait_for_selector("[name=length]", state="attached")
    tab.fill("#text", ("the quick brown fox jumps over " * 200)[:length])
    tab.eval_on_selector("[name=length]", "field => { field.value = '1' }")
    began = time.perf_counter()
    with tab.expect_response(lambda answer: answer.url.endswith("/api/look")) as answered:
        tab.click("#go")
    answered.value.finished()
    forward = time.perf_counter()
    until(tab, "document.body.dataset.shown")
    return forward - began, time.perf_counter() - forward


def pictures(tab, server, folder, length, rounds):
    """Times of one text, in the browser."""
    look(tab, folder, 64)
    before = server.memory_info().rss
    forward, first = look(tab, folder, length)
    grown = server.memory_info().rss - before
    found = []
    for whole_words in (True, False):
        tab.set_checked("#words", whole_words)
        tab.select_option("#cell", "12")
        tab.wait_for_timeout(500)
        switching = [switch(tab, number) for number in range(rounds)]
        scrolling = [tab.evaluate(SCROLL, (number + 1) / (rounds + 1)) for number in range(rounds)]
        found.append((statistics.median(switching), statistics.median(scrolling)))
    return {
        "tokens": length,
        "forward_s": round(forward, 2),
        "first_picture_ms": round(1000 * first),
        "switch_ms": round(max(one for one, _ in found)),
        "scroll_ms": round(max(other for _, other in found)),
        "grown_mb": round(grown / 1e6, 1),
    }


def switch(tab, number):
    """Milliseconds from a click on another head until all of it that is in sight has been drawn."""
    tab.evaluate("delete document.body.dataset.switched")
    tab.click(f".layer:nth-child({number % 12 + 1}) .thumb >> nth={number % 12}")
    until(tab, "document.body.dataset.switched")
    return float(tab.evaluate("document.body.dataset.switched"))


SCROLL = """async (share) => {
  const node = document.querySelector('.matrix');
  const [across, down] = [node.scrollWidth - node.clientWidth, node.scrollHeight - node.clientHeight];
  if (across < 20 && down < 20) return 0; // all of it is in sight
  const began = performance.now();
  delete document.body.dataset.drawn;
  node.scrollTo(share * across, share * down);
  while (!document.body.dataset.drawn) await new Promise((done) => requestAnimationFrame(done));
  return Number(document.body.dataset.drawn) - began;
}"""


def writing(folder, rounds, tokens=128):
    """How long writing takes with the row that the page shows, and with the last row of every attention."""
    from saccade import api

    opened = api.load(str(folder), device="cpu")
    words = [f"length={tokens}", "temperature=0"]

    def plain():
        return sum(1 for _ in api.stream(opened, "the quick brown fox", words))

    def watched(first):
        for grown in api.follow(opened, "the quick brown fox", words):
            for source in list(grown.maps.values())[first:]:
                source.rows(source.shape[1] - 1, source.shape[1]).mean(0).tolist()

    works = {"plain": plain, "write_under_watch": lambda: watched(-1), "write_under_watch_of_all": lambda: watched(0)}
    times = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(rounds):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - began)
    peer, *others = (statistics.median(found) for found in times.values())
    for name, other in zip(list(works)[1:], others, strict=True):
        report(name, other, peer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="512,1024,2048,4096")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        folder.mkdir()
        write_model(folder)
        writing(folder, options.rounds)
        words = [sys.executable, "-m", "saccade", "studio", str(folder), "--no-browser", "--runs", place]
        with sync_playwright() as driver:
            opened = driver.chromium.launch(executable_path=browser, args=ARGUMENTS)
            for length in map(int, options.lengths.split(",")):
                with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
                    tab = opened.new_page(viewport={"width": 1280, "height": 900})
                    tab.goto(re.search(r"http://\S+", process.stderr.readline())[0])
                    found = pictures(tab, psutil.Process(process.pid), folder, length, options.rounds)
                    print(json.dumps({"name": "studio", **found}), flush=True)
                    tab.close()
                    process.terminate()
            opened.close()


if __name__ == "__main__":
    main()
