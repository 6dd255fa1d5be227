"""The studio with long texts: 12 layers in a real browser, from 512 to 4,096 tokens; and generation with attention.

Printed for each length: milliseconds from the end of the forward pass to the first figure; the medians of switching
heads and of scrolling until every visible cell is drawn, over words or over tokens, whichever is slower; and by how
many megabytes the server has grown since a text of 64 tokens, a fresh one for each length. Generation: seconds with and
without the rows of attention, and with all that the Generate page shows. The model is random, of GPT-2's shape but
narrow; times do not depend on its weights.

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
    """Write a GPT-2 with 12 layers, random weights and a context of 4,224 tokens of one byte each."""
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


def wait_until(tab, condition, timeout=120):
    """Wait for a condition on the page; its content security policy forbids the page to evaluate strings itself."""
    end = time.monotonic() + timeout
    while not tab.evaluate(condition):
        if time.monotonic() > end:
            raise SystemExit(f"timeout: {condition}")
        time.sleep(0.002)


def look(tab, folder, length):
    """Return the seconds until the server has responded, and from then until the figure is complete."""
    tab.goto(re.sub(r"/[^/]*$", f"/look?model={quote(str(folder), safe='')}", tab.url))
    wait_until(tab, "document.body.dataset.ready")
    tab.fill("#inputs textarea", ("the quick brown fox jumps over " * 200)[:length])
    tab.eval_on_selector("[name=max_new_tokens]", "field => { field.value = '1' }")
    start = time.perf_counter()
    with tab.expect_response(lambda response: response.url.endswith("/api/look")) as responded:
        tab.click("#submit")
    responded.value.finished()
    forward = time.perf_counter()
    wait_until(tab, "document.body.dataset.shown")
    return forward - start, time.perf_counter() - forward


def figures(tab, server, folder, length, rounds):
    """Return the times of one text, in the browser."""
    look(tab, folder, 64)
    before = server.memory_info().rss
    forward, first = look(tab, folder, length)
    grown = server.memory_info().rss - before
    medians = []
    for whole_words in (True, False):
        tab.set_checked("#words", whole_words)
        tab.select_option("#cell", "12")
        tab.wait_for_timeout(500)
        switching = [switch(tab, number) for number in range(rounds)]
        scrolling = [tab.evaluate(SCROLL, (number + 1) / (rounds + 1)) for number in range(rounds)]
        medians.append((statistics.median(switching), statistics.median(scrolling)))
    return {
        "tokens": length,
        "forward_s": round(forward, 2),
        "first_figure_ms": round(1000 * first),
        "switch_ms": round(max(switching for switching, _ in medians)),
        "scroll_ms": round(max(scrolling for _, scrolling in medians)),
        "grown_mb": round(grown / 1e6, 1),
    }


def switch(tab, number):
    """Return the milliseconds from a click on another head until every visible cell is drawn."""
    tab.evaluate("delete document.body.dataset.switched")
    tab.click(f".layer:nth-child({number % 12 + 1}) .thumb >> nth={number % 12}")
    wait_until(tab, "document.body.dataset.switched")
    return float(tab.evaluate("document.body.dataset.switched"))


SCROLL = """async (fraction) => {
  const node = document.querySelector('.matrix');
  const [across, down] = [node.scrollWidth - node.clientWidth, node.scrollHeight - node.clientHeight];
  if (across < 20 && down < 20) return 0; // everything is visible
  const start = performance.now();
  delete document.body.dataset.drawn;
  node.scrollTo(fraction * across, fraction * down);
  while (!document.body.dataset.drawn) await new Promise((done) => requestAnimationFrame(done));
  return Number(document.body.dataset.drawn) - start;
}"""


def generation(folder, rounds, tokens=128):
    """Report how long generation takes with a row of attention, all that the page shows, and rows of all layers."""
    import saccade
    from saccade.studio.continuations import Continuation
    from saccade.studio.work import Slots

    model = saccade.load(str(folder), device="cpu")
    options = {"max_new_tokens": tokens, "temperature": 0}

    def plain():
        return sum(1 for _ in model.stream("the quick brown fox", **options))

    def recorded(first):
        for token in model.stream("the quick brown fox", **options, attention=True):
            for weights in list(token.attention.values())[first:]:
                weights.rows(weights.shape[1] - 1, weights.shape[1]).mean(0).tolist()

    def watched():
        continuation = Continuation("", model, {"prompt": "the quick brown fox"}, options)
        continuation.show("decoder.5.self", -1)
        return sum(len(json.dumps(line)) for line in continuation.lines(Slots()))

    works = {"plain": plain, "generate_with_attention": lambda: recorded(-1), "generate_under_watch": watched}
    works["generate_with_all_attention"] = lambda: recorded(0)
    times = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    peer, *others = (statistics.median(seconds) for seconds in times.values())
    for name, other in zip(list(works)[1:], others, strict=True):
        report(name, other, peer, lower_is_better=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="512,1024,2048,4096")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", help="a model to generate with, in place of the random one")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        folder.mkdir()
        write_model(folder)
        generation(options.model or folder, options.rounds)
        command = [sys.executable, "-m", "saccade", "studio", str(folder), "--no-browser", "--runs", temporary]
        with sync_playwright() as driver:
            opened = driver.chromium.launch(executable_path=browser, args=ARGUMENTS)
            for length in map(int, filter(None, options.lengths.split(","))):
                with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
                    tab = opened.new_page(viewport={"width": 1280, "height": 900})
                    tab.goto(re.search(r"http://\S+", process.stderr.readline())[0])
                    result = figures(tab, psutil.Process(process.pid), folder, length, options.rounds)
                    print(json.dumps({"name": "studio", **result}), flush=True)
                    tab.close()
                    process.terminate()
            opened.close()


if __name__ == "__main__":
    main()
