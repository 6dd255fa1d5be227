"""What the tests of the studio share: runs of several tasks, models of transformers, a real server and browser."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from saccade import api

SHOTS = Path(os.environ.get("SACCADE_SHOTS", Path(__file__).parents[2] / ".shots"))
SMALL = ["model.dim=32", "model.depth=2", "model.heads=2", "model.hidden=32"]
PAIRS = [f"model.transformer.{word}" for word in ("dim=32", "depth=1", "decoder_depth=1", "heads=2", "hidden=32")]
ENCODER = [*SMALL, "vocabulary=80", "tokens=400", "max_length=32"]


@pytest.fixture(scope="session")
def place(tmp_path_factory, bert_folder):
    """A folder of runs: a language model, a translator, a classifier and a tagger; and folders of transformers."""
    folder = tmp_path_factory.mktemp("studio")
    chance = random.Random(3)
    words = ["red", "blue", "cat", "dog", "sat", "ran", "the", "a", "on", "mat"]
    lines = [" ".join(chance.choices(words, k=8)) + "." for _ in range(200)]
    files = {
        "text.txt": lines,
        "pairs.tsv": [f"{line}\t{line.upper()}" for line in lines],
        "rows.tsv": ["text\tlabel", *(f"{line}\t{'pet' if 'cat' in line else 'none'}" for line in lines)],
    }
    for name, content in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in content))
    runs = folder / "runs"
    loop = ["train.device=cpu", "train.steps=30", "train.evaluate_every=10"]
    text = ["model.max_positions=64", "batch=4"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        api.train(folder / "text.txt", [*SMALL, *text, *loop], task="language_model", name="prose", root=runs)
        api.train(folder / "pairs.tsv", [*PAIRS, "tokens=400", *loop], task="translation", name="pairs", root=runs)
        api.train(folder / "rows.tsv", [*ENCODER, *loop], task="text_classification", name="rows", root=runs)
    return folder


@pytest.fixture(scope="session")
def gpt2_folder(tmp_path_factory):
    """A random GPT-2 of twelve layers as transformers writes it, that reads 4,096 tokens of one byte each."""
    transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("gpt2")
    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab={**letters, "<|endoftext|>": 256}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(2)
    shape = {"n_layer": 12, "n_head": 4, "n_embd": 32, "n_positions": 4096, "vocab_size": 257}
    config = transformers.GPT2Config(**shape, bos_token_id=256, eos_token_id=256)
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(std=0.3)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def address(place, bert_folder, gpt2_folder):
    """Where a studio answers that runs in a process of its own, key included."""
    words = ["studio", str(bert_folder), str(gpt2_folder), "--no-browser", "--runs", str(place / "runs")]
    environment = {**os.environ, "SACCADE_CACHE": str(place / "cache"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "saccade", *words], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        found = re.search(r"http://\S+", process.stderr.readline())
        assert found, process.stderr.read()
        yield found[0]
        process.terminate()


@pytest.fixture
def visit(browser, address):
    """Opens pages of the studio, and fails at the end if a page complained or asked anyone else."""
    complaints, requests, contexts = [], [], []
    origin = re.match(r"http://[^/]+", address)[0]

    def opened(path, **options):
        contexts.append(browser.new_context(viewport={"width": 1280, "height": 900}, **options))
        tab = contexts[-1].new_page()
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("response", lambda answer: answer.status >= 400 and complaints.append(f"{answer.status} {answer.url}"))
        tab.goto(address)
        tab.goto(origin + path)
        return tab

    opened.complaints = complaints
    yield opened
    for context in contexts:
        context.close()
    assert not complaints
    assert [url for url in requests if not url.startswith((origin, "blob:", "data:"))] == []


@pytest.fixture
def shoot():
    """Keep a picture of a page."""

    def shot(tab, name):
        SHOTS.mkdir(exist_ok=True)
        tab.screenshot(path=SHOTS / f"{name}.png")

    return shot
