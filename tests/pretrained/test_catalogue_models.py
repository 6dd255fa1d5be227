"""The models of the catalogue with their real weights, compared with the libraries they were published for."""

import os
import random
import tarfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import saccade
from saccade.look import features
from saccade.pretrained.opening import open_pretrained

Image = pytest.importorskip("PIL.Image", reason="decodes pictures; installed with the [images] extra")

pytestmark = pytest.mark.slow
CLAUSES = ["The committee met on {}", "Nobody knows why {} was late", "{} is cheaper than last year", "We saw {} again"]
THINGS = [
    "Tuesday",
    "the old bridge over the river",
    "a train from Vienna",
    "crème brûlée",
    "the 3rd of May, 1998",
    "she",
]


def sentences(count):
    """Return sentences of 5 to about 150 tokens."""
    generator = random.Random(1)

    def clause():
        return generator.choice(CLAUSES).format(generator.choice(THINGS))

    lengths = [generator.choice([1, 1, 1, 2, 3, 5, 12]) for _ in range(count)]
    return [", and ".join(clause() for _ in range(length)) + "." for length in lengths]


def test_vectors_of_minilm_are_those_of_sentence_transformers(get_model):
    folder, texts = get_model("minilm"), sentences(1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the library itself
        library = pytest.importorskip("sentence_transformers", reason="the oracle; installed with the [test] extra")
        theirs = library.SentenceTransformer(str(folder), device="cpu").encode(texts, convert_to_tensor=True)
    encoder = features.encoder_of(saccade.load("minilm", device="cpu").task)
    ours = torch.stack([vector.values for vector in features.vectors(encoder, texts)])
    cosines = torch.cosine_similarity(ours.double(), theirs.double(), dim=-1)
    assert float((1 - cosines).abs().max()) < 1e-5


def test_smollm2_continues_a_prompt_as_transformers_does(get_model):
    path = get_model("smollm2")
    transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")
    model = saccade.load("smollm2", device="cpu")
    text = model("The capital of France is", temperature=0, max_new_tokens=50).text
    assert text.split()[0].strip(".,") == "Paris"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        location = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
        theirs = transformers.AutoModelForCausalLM.from_pretrained(**location, dtype=torch.float32).eval()
        tokenizer = model.task.tokenizer
        ids = tokenizer.encode("The capital of France is")
        generated = theirs.generate(torch.tensor([ids]), max_new_tokens=50, do_sample=False, eos_token_id=None)
    tokens = generated[0, len(ids) :].tolist()
    ends = [at for at, token in enumerate(tokens) if token in model.task.eos_ids]
    assert tokenizer.decode(tokens[: ends[0]] if ends else tokens) == text


def test_features_of_efficientnet_lite0_tell_dogs_from_other_pictures(get_model, dataset):
    folder = get_model("efficientnet-lite0")
    pretrained = open_pretrained("efficientnet-lite0")
    fc = load_file(folder / "model.safetensors")
    captions: dict[str, list[str]] = {}
    for line in dataset("caption/flickr8k_mini/mini2000.token.txt").read_text(encoding="utf-8").splitlines():
        name, _, caption = line.partition("#")
        captions.setdefault(name, []).append(caption.lower())
    classes: dict[bool, list[int]] = {True: [], False: []}
    with tarfile.open(dataset("caption/flickr8k_mini/mini2000_s128.tar")) as archive:
        for member in archive:
            dog = sum("dog" in caption for caption in captions.get(member.name, ()))
            if dog not in (0, 5) or len(classes[dog == 5]) == 20:
                continue
            picture = np.asarray(Image.open(archive.extractfile(member)).convert("RGB"))
            with torch.inference_mode():
                vector = pretrained.network.pool(pretrained.network(pretrained.processor.apply(picture)[None]))
            classes[dog == 5].append(int((vector @ fc["_fc.weight"].t() + fc["_fc.bias"]).argmax()))
    dogs = {kind: sum(151 <= label <= 268 for label in labels) for kind, labels in classes.items()}  # of ImageNet
    assert dogs[True] >= 12 and dogs[False] <= 2, dogs


FORMULAS = {  # pictures of different sizes; that of Maxwell's equation is bright on dark
    "einstein": r"E=m c^{2}",
    "integral": r"\int_{0}^{\infty}e^{-x^{2}}d x={\frac{\sqrt{\pi}}{2}}",
    "maxwell": r"\nabla\times E=-{\frac{\partial B}{\partial t}}",
    "quadratic": r"x={\frac{-b\pm{\sqrt{b^{2}-4a c}}}{2a}}",
    "sum": r"\sum_{n=1}^{\infty}{\frac{1}{n^{2}}}={\frac{\pi^{2}}{6}}",
}


def test_pix2tex_reads_formulas_of_different_sizes_and_shows_where(get_model, tmp_path):
    get_model("pix2tex")
    model, folder = saccade.load("pix2tex", device="cpu"), Path(__file__).parent / "formulas"
    assert model.parameters() == 25_498_880
    outputs = model([folder / f"{name}.png" for name in FORMULAS])
    assert dict(zip(FORMULAS, (out.text for out in outputs), strict=True)) == FORMULAS
    model.attention(folder / "sum.png").write(tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames > 10
    # The sum is read from the left of the picture to the right: so does the gaze move.
    out = model(folder / "sum.png")
    cross = out.attention["decoder.3.cross"]
    columns = cross.weights.mean(0)[:, 1:].unflatten(1, (cross.keys.rows, cross.keys.columns)).sum(1)
    centres = (columns * torch.arange(cross.keys.columns)).sum(1) / columns.sum(1)
    assert centres[-8:-2].mean() > centres[:6].mean() + 1


def test_whisper_writes_the_texts_of_transformers_for_40_utterances(get_model, tmp_path):
    get_model("whisper-tiny.en")
    path = Path(os.environ.get("SACCADE_DATA", "/nonexistent")) / "speech" / "an4_8k.npz"
    if not path.is_file():
        pytest.skip("SACCADE_DATA has no speech/an4_8k.npz")
    transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")
    signal = pytest.importorskip("scipy.signal", reason="resamples")
    data = np.load(path)
    rows = [row for row, split in enumerate(data["split"]) if str(split) == "test"][:40]
    pieces = [data["audio"][data["offsets"][row] : data["offsets"][row + 1]] / 32768 for row in rows]
    sounds = [signal.resample_poly(piece, 2, 1).astype(np.float32) for piece in pieces]
    model = saccade.load("whisper-tiny.en", device="cpu")
    ours = model([(torch.from_numpy(samples), 16_000) for samples in sounds], word_times=True)
    model.export(tmp_path / "out")
    network = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "out").eval()
    processor = transformers.WhisperProcessor.from_pretrained(tmp_path / "out")
    theirs = []
    for first in range(0, len(sounds), 8):
        batch = processor(sounds[first : first + 8], sampling_rate=16_000, return_tensors="pt")
        theirs += processor.batch_decode(network.generate(batch.input_features), skip_special_tokens=True)
    assert [prediction.text for prediction in ours] == [text.strip() for text in theirs]
    for prediction, samples in zip(ours, sounds, strict=True):
        times = [time for word in prediction.output.words for time in (word.start, word.end)]
        assert times == sorted(times) and times[-1] <= len(samples) / 16_000
