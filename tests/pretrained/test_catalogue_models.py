"""The models of the catalogue themselves, with their real weights, beside the libraries they were made for."""

import random
import warnings

import pytest
import torch

from saccade import api
from saccade.look import features

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
    """Sentences of 5 to about 150 tokens."""
    draw = random.Random(1)
    one = lambda: draw.choice(CLAUSES).format(draw.choice(THINGS))  # noqa: E731
    return [", and ".join(one() for _ in range(draw.choice([1, 1, 1, 2, 3, 5, 12]))) + "." for _ in range(count)]


def test_vectors_of_minilm_are_those_of_sentence_transformers(brought):
    folder, texts = brought("minilm"), sentences(1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, about itself
        library = pytest.importorskip("sentence_transformers", reason="the oracle; installed with the [test] extra")
        theirs = library.SentenceTransformer(str(folder), device="cpu").encode(texts, convert_to_tensor=True)
    opened = features.encoder_of(api.load("minilm", device="cpu"))
    ours = torch.stack([one.values for one in features.vectors(opened, texts)])
    cosines = torch.cosine_similarity(ours.double(), theirs.double(), dim=-1)
    assert float((1 - cosines).abs().max()) < 1e-5


def test_smollm2_goes_on_as_transformers_does(brought):
    path = brought("smollm2")
    transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")
    opened = api.load("smollm2", device="cpu")
    said = api.predict(opened, "The capital of France is", ["temperature=0", "length=50"]).output
    assert said.split()[0].strip(".,") == "Paris"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
        model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval()
        ids = opened.tokenizer.encode("The capital of France is")
        found = model.generate(torch.tensor([ids]), max_new_tokens=50, do_sample=False, eos_token_id=None)
    tokens = found[0, len(ids) :].tolist()
    if opened.end in tokens:
        tokens = tokens[: tokens.index(opened.end)]
    assert opened.tokenizer.decode(tokens) == said
