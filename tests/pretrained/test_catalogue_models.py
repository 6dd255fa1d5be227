"""The models of the catalogue with their real weights, compared with the libraries they were published for."""

import random
import warnings

import pytest
import torch

import saccade
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
