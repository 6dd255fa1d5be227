"""Shared by the tests of the studio: runs of several tasks, models of transformers, a real server and browser."""

import os
import random
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from starlette.testclient import TestClient

from saccade import api
from saccade.studio.app import make_app
from saccade.studio.sessions import Sessions
from tests.studio import toy_captions
from tests.tasks.battery import Trial

SHOTS = Path(os.environ.get("SACCADE_SHOTS", Path(__file__).parents[2] / ".shots"))
SMALL = ["model.dim=32", "model.depth=2", "model.heads=2", "model.hidden=32"]
PAIRS = [f"model.transformer.{one}" for one in ("dim=32", "depth=1", "decoder_depth=1", "heads=2", "hidden=32")]
ENCODER = [*SMALL, "vocabulary_size=80", "batch_tokens=400", "max_length=32"]
LOOP = ["train.device=cpu", "train.steps=30", "train.evaluate_every=10"]
IMAGES, CAPTIONS = "tests.examples.toy_images", "tests.studio.toy_captions"
HOME = "http://127.0.0.1:8000"
MINE = {"origin": HOME}
SERVE = """
import sys
from pathlib import Path
from saccade.studio.server import serve
serve(Path(sys.argv[1]), [], 0, lambda address: print(address, file=sys.stderr, flush=True), task=sys.argv[2])
"""


@pytest.fixture(scope="session")
def place(tmp_path_factory, bert_folder):
    """A folder of runs: a language model, a translation model, a classifier and question answering."""
    folder = tmp_path_factory.mktemp("studio")
    draw = random.Random(3)
    words = ["red", "blue", "cat", "dog", "sat", "ran", "the", "a", "on", "mat"]
    lines = [" ".join(draw.choices(words, k=8)) + "." for _ in range(200)]
    files = {
        "text.txt": lines,
        "pairs.tsv": [f"{line}\t{line.upper()}" for line in lines],
        "rows.tsv": ["text\tlabel", *(f"{line}\t{'pet' if 'cat' in line else 'none'}" for line in lines)],
    }
    for name, content in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in content))
    runs, questions = folder / "runs", Trial.of("question_answering")
    trials = {
        "prose": ("language_model", folder / "text.txt", [*SMALL, "model.max_positions=64", "batch_size=4"]),
        "pairs": ("translation", folder / "pairs.tsv", [*PAIRS, "batch_tokens=400"]),
        "rows": ("text_classification", folder / "rows.tsv", ENCODER),
        "questions": ("question_answering", questions.write_data(folder), questions.settings),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        for name, (task, data, settings) in trials.items():
            api.train(data, task=task, name=name, root=runs, overrides=[*settings, *LOOP], progress=False)
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


@pytest.fixture
def app(place, bert_folder, gpt2_folder, marian_folder):
    """The studio with all runs and three models of transformers."""
    refs = [str(bert_folder), str(gpt2_folder), str(marian_folder)]
    return make_app(Sessions(place / "runs", refs), "secret", 8000)


@pytest.fixture
def client(app):
    """A client of the studio that has the key."""
    result = TestClient(app, base_url=HOME)
    assert result.get("/runs?key=secret").status_code == 200
    return result


@contextmanager
def serving(command, cache):
    """A studio in a process of its own; yields its address, key included."""
    environment = {**os.environ, "SACCADE_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        address = re.search(r"http://\S+", process.stderr.readline())
        assert address, process.stderr.read()
        yield address[0]
        process.terminate()


@pytest.fixture(scope="session")
def address(place, bert_folder, gpt2_folder):
    """Address of a studio with all runs, key included."""
    options = ["studio", str(bert_folder), str(gpt2_folder), "--no-browser", "--runs", str(place / "runs")]
    with serving([sys.executable, "-m", "saccade", *options], place / "cache") as found:
        yield found


@pytest.fixture(scope="session")
def image_runs(tmp_path_factory):
    """A folder with a run of the toy image classifier."""
    folder, trial = tmp_path_factory.mktemp("images"), Trial.of(IMAGES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        data = trial.write_data(folder)
        overrides = [*trial.settings, *LOOP]
        api.train(data, task=IMAGES, name="squares", root=folder / "runs", overrides=overrides, progress=False)
    return folder / "runs"


@pytest.fixture(scope="session")
def image_address(image_runs):
    """Address of a studio with a task that is not built in."""
    with serving([sys.executable, "-c", SERVE, str(image_runs), IMAGES], image_runs.parent / "cache") as found:
        yield found


@pytest.fixture(scope="session")
def caption_runs(tmp_path_factory):
    """A folder with a run of the toy captioner, which also answers questions."""
    folder = tmp_path_factory.mktemp("captions")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        data = toy_captions.write_data(folder)
        api.train(data, task=CAPTIONS, name="captions", root=folder / "runs", overrides=LOOP, progress=False)
    return folder / "runs"


@pytest.fixture(scope="session")
def caption_address(caption_runs):
    """Address of a studio with words over images."""
    with serving([sys.executable, "-c", SERVE, str(caption_runs), CAPTIONS], caption_runs.parent / "cache") as found:
        yield found


@pytest.fixture(scope="session")
def graph_address(tmp_path_factory):
    """Address of a studio with a run on a graph."""
    folder, trial = tmp_path_factory.mktemp("graphs"), Trial.of("node_classification")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        data = trial.write_data(folder)
        overrides = [*trial.settings, *LOOP]
        api.train(data, task=trial.name, name="communities", root=folder / "runs", overrides=overrides, progress=False)
    options = ["studio", "--no-browser", "--runs", str(folder / "runs")]
    with serving([sys.executable, "-m", "saccade", *options], folder / "cache") as found:
        yield found


@pytest.fixture(scope="session")
def photo(tmp_path_factory):
    """A picture with a white disc at the top right."""
    from PIL import Image, ImageDraw

    path = tmp_path_factory.mktemp("photo") / "disc.png"
    picture = Image.new("RGB", (240, 160), (30, 60, 110))
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, 110, 240, 160), fill=(40, 90, 50))
    pen.ellipse((196, 6, 236, 46), fill=(255, 255, 255))
    picture.save(path)
    return path


@pytest.fixture
def visit(browser, request):
    """Opens pages of the studio, and fails at the end if a page reported an error or made a request elsewhere."""
    complaints, requests, contexts, origins = [], [], [], set()

    def opened(path, studio="address", **options):
        address = request.getfixturevalue(studio)
        origin = re.match(r"http://[^/]+", address)[0]
        origins.add(origin)
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
    assert [url for url in requests if not url.startswith((*origins, "blob:", "data:"))] == []


@pytest.fixture
def shoot():
    """Keep a picture of a page."""

    def shot(tab, name):
        SHOTS.mkdir(exist_ok=True)
        tab.screenshot(path=SHOTS / f"{name}.png")

    return shot
