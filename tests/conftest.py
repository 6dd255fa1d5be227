"""Fixtures for all tests: a temporary cache, fixed seeds, datasets, catalogue models, checkpoints and a browser."""

import os
import shutil
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # the cores are taken: a second thread of a child process would wait for one
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

from saccade.data.cache import default_cache
from saccade.errors import ResourceError
from saccade.pretrained.catalogue import get

settings.register_profile("saccade", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("saccade")

USER_CACHE = default_cache()
DATASETS = Path(os.environ.get("SACCADE_DATA", Path(__file__).parents[2] / "shared" / "data"))
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
QUIET += ["--disable-sync", "--no-first-run"]


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory):
    """A cache folder for this process and its children, so that no test writes to the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("SACCADE_CACHE"):
            patch.setenv("SACCADE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def get_model(monkeypatch):
    """Return the path of a catalogue model, downloaded to the user's cache on first use; skip without a network."""
    monkeypatch.setenv("SACCADE_CACHE", str(USER_CACHE))  # a download is kept for the next session

    def get_or_skip(name):
        try:
            return get(name)
        except ResourceError as error:
            pytest.skip(f"{name} cannot be downloaded: {error}")

    return get_or_skip


@pytest.fixture(scope="session")
def dataset():
    """Return the path of a public dataset below SACCADE_DATA; skip the test if it is missing."""

    def path_or_skip(name):
        path = DATASETS / name
        if not path.exists():
            pytest.skip(f"no {name}: set SACCADE_DATA to a folder that contains it")
        return path

    return path_or_skip


@pytest.fixture(scope="session")
def browser():
    """A real Chromium: the installed one, or the one that playwright has downloaded."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    with playwright.sync_playwright() as driver:
        if executable is None and not Path(driver.chromium.executable_path).exists():
            pytest.skip(f"no browser found; looked for {', '.join(BROWSERS)}: playwright install chromium")
        chromium = driver.chromium.launch(executable_path=executable, args=QUIET)
        yield chromium
        chromium.close()


@pytest.fixture(autouse=True)
def seeded():
    """Fix the seed, and use one thread: for tensors this small, a second one costs more than it saves."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory):
    """A tiny random BERT as transformers saves it, with a small English vocabulary."""
    transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")
    folder = tmp_path_factory.mktemp("bert")
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = ["the", "cat", "dog", "sat", "ran", "red", "blue", "on", "mat", ".", ",", "?", "!", "-"]
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *words,
        *letters,
        *(f"##{letter}" for letter in letters),
    ]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    config = transformers.BertConfig(
        vocab_size=len(vocabulary) + 3,  # padded, as in many published checkpoints
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=40,
    )
    torch.manual_seed(5)
    model = transformers.BertForPreTraining(config)
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(std=0.3)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def marian_folder(tmp_path_factory):
    """A tiny random Marian model as transformers saves it."""
    for name in ("sentencepiece", "transformers"):
        pytest.importorskip(name, reason="the oracle; installed with the [test] extra")
    from tests.pretrained import tiny_marian

    folder = tmp_path_factory.mktemp("marian")
    tiny_marian.write(folder)
    return folder
