"""Every test begins from the same random numbers; and the one browser for all tests that need it."""

import json
import os
import random
import shutil
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # the cores are taken: a second thread of a child process would wait for one
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

from saccade.errors import ResourceError
from saccade.pretrained.catalogue import get

settings.register_profile("saccade", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("saccade")


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
QUIET += ["--disable-sync", "--no-first-run"]


@pytest.fixture(scope="session")
def get_model():
    """Download a model of the catalogue on first use; skip the test without a network."""

    def get_or_skip(name):
        try:
            return get(name)
        except ResourceError as error:
            pytest.skip(f"{name} cannot be downloaded: {error}")

    return get_or_skip


@pytest.fixture(scope="session")
def browser():
    """A real Chromium: one found on the machine, or the one that playwright has installed."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    with playwright.sync_playwright() as driver:
        if found is None and not Path(driver.chromium.executable_path).exists():
            pytest.skip(f"no browser found; looked for {', '.join(BROWSERS)}: playwright install chromium")
        opened = driver.chromium.launch(executable_path=found, args=QUIET)
        yield opened
        opened.close()


@pytest.fixture(autouse=True)
def seeded():
    """One seed, and one thread: tensors this small only wait for a second one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory):
    """A tiny random BERT as transformers writes it: words of one letter, two letters and cats and dogs."""
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
        vocab_size=len(vocabulary) + 3,  # filled up, as many published ones are
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
    """A tiny random Marian as transformers writes it, with the tokenizers of two languages of made-up words."""
    reason = "the oracle; installed with the [test] extra"
    library = pytest.importorskip("sentencepiece", reason=reason)
    transformers = pytest.importorskip("transformers", reason=reason)
    place = tmp_path_factory.mktemp("marian")
    chance = random.Random(4)
    for name, letters in (("source", "abcdeThcatsA12,.-"), ("target", "xyzuvwÜneñ5.-")):
        words = ["".join(chance.choices(letters, k=chance.randint(1, 6))) for _ in range(300)]
        text = place / f"{name}.txt"
        text.write_text("\n".join(" ".join(chance.choices(words, k=8)) for _ in range(400)))
        library.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(place / name), vocab_size=120, minloglevel=2, pad_id=-1
        )
        (place / f"{name}.model").rename(place / f"{name}.spm")
    sides = [library.SentencePieceProcessor(model_file=str(place / f"{name}.spm")) for name in ("source", "target")]
    pieces = [side.id_to_piece(number) for side in sides for number in range(side.get_piece_size())]
    names = dict.fromkeys(["</s>", "<unk>", *(one for one in pieces if one not in ("<s>", "</s>", "<unk>")), "<pad>"])
    (place / "vocab.json").write_text(json.dumps({name: number for number, name in enumerate(names)}))
    last = len(names) - 1
    config = transformers.MarianConfig(
        vocab_size=len(names),
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=64,
        pad_token_id=last,
        decoder_start_token_id=last,
        eos_token_id=0,
        forced_eos_token_id=None,
        scale_embedding=True,
    )
    torch.manual_seed(6)
    model = transformers.MarianMTModel(config)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "embed_positions" not in name:
                value.normal_(std=0.3)
    model.save_pretrained(place)
    return place
