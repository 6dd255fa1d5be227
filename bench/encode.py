"""Sentence vectors: ours, ours in int8, transformers and others, interleaved, in sentences per second.

All have the same weights and the same texts of 16 to 128 tokens and tokenize them; transformers reads batches of 32
padded to the longest text, in the given order, and once more sorted by length. `cosine` is the lowest similarity of a
vector to that of transformers. MiniLM comes from the catalogue; the BERT-base architecture has random weights.
sentence-transformers, ONNX Runtime and CTranslate2 are included where they are installed and can open the model; the
others are named.

    python bench/encode.py [--rounds 5] [--shape minilm|base] [--sentences 512]
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

from interleaved import measure, report, serve

BATCH, MIN_LENGTH, MAX_LENGTH = 32, 16, 128


def vocabulary_words(folder):
    """Return words that are one token each."""
    from saccade.data.text.tokenizers import Tokenizer

    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    tokens = [tokenizer.token(token_id) for token_id in range(2000, 12000)]
    return [
        word for word in tokens if word.isascii() and word.isalpha() and tokenizer.encode(word) == [tokenizer.id(word)]
    ]


def texts(folder, count):
    """Return random texts of mixed length."""
    generator, words = random.Random(1), vocabulary_words(folder)
    return [" ".join(generator.choices(words, k=generator.randint(MIN_LENGTH, MAX_LENGTH) - 2)) for _ in range(count)]


def create(shape, folder):
    """Return the folder of a model: MiniLM, or a BERT-base with random weights and MiniLM's tokenizer."""
    import shutil

    import torch
    from transformers import BertConfig, BertModel

    from saccade.pretrained.catalogue import get

    source = get("minilm")
    if shape == "minilm":
        return source
    torch.manual_seed(1)
    BertModel(BertConfig(vocab_size=30522, position_embedding_type="absolute")).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        if (source / name).exists():
            shutil.copy(source / name, folder)
    return folder


def ours(folder, lines, int8=False):
    import saccade
    from saccade.look import features

    encoder = features.encoder_of(saccade.load(str(folder), device="cpu").task)
    if int8:
        from saccade.pretrained.quantize import quantize

        encoder.model = quantize(encoder.model)
    return lambda: [vector.values.tolist() for vector in features.vectors(encoder, lines)]


def theirs(folder, lines, sort=False, int8=False):
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModel

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(512)
    model = AutoModel.from_pretrained(folder).eval()
    if int8:
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)

    @torch.no_grad()
    def work():
        order = sorted(range(len(lines)), key=lambda row: len(lines[row])) if sort else range(len(lines))
        vectors = {}
        for first in range(0, len(lines), BATCH):
            rows = list(order)[first : first + BATCH]
            tokenizer.enable_padding()
            encoded = tokenizer.encode_batch([lines[row] for row in rows])
            ids = torch.tensor([encoding.ids for encoding in encoded])
            keep = torch.tensor([encoding.attention_mask for encoding in encoded])
            hidden = model(ids, attention_mask=keep).last_hidden_state
            mean = (hidden * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)
            vectors |= dict(zip(rows, mean.tolist(), strict=True))
        return [vectors[row] for row in range(len(lines))]

    return work


def sentence_transformers(folder, lines):
    """sentence-transformers, which sorts by length itself."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")  # mean pooling for a plain BERT
    return lambda: model.encode(lines, batch_size=BATCH, show_progress_bar=False).tolist()


def onnx(folder, lines, int8=False):
    """ONNX Runtime with the export of torch, sorted by length."""
    import numpy
    import onnxruntime
    import torch
    from onnxruntime.quantization import quantize_dynamic
    from tokenizers import Tokenizer
    from transformers import AutoModel

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(512)
    tokenizer.enable_padding()
    model = AutoModel.from_pretrained(folder).eval()
    names, example = ["input_ids", "attention_mask"], torch.ones(2, 8, dtype=torch.long)
    dynamic = {name: {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for name in names}
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "model.onnx"
        torch.onnx.export(
            model,
            (),
            path,
            kwargs=dict.fromkeys(names, example),
            dynamic_shapes=dynamic,
            output_names=["hidden"],
            verbose=False,
        )
        if int8:
            quantize_dynamic(path, Path(temporary) / "int8.onnx")
            path = Path(temporary) / "int8.onnx"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 2
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def work():
        order, vectors = sorted(range(len(lines)), key=lambda row: len(lines[row])), {}
        for first in range(0, len(lines), BATCH):
            rows = order[first : first + BATCH]
            encoded = tokenizer.encode_batch([lines[row] for row in rows])
            keep = numpy.array([encoding.attention_mask for encoding in encoded])
            inputs = {"input_ids": numpy.array([encoding.ids for encoding in encoded]), "attention_mask": keep}
            hidden = session.run(["hidden"], inputs)[0]
            mean = (hidden * keep[..., None]).sum(1) / keep.sum(1, keepdims=True)
            vectors |= dict(zip(rows, mean.tolist(), strict=True))
        return [vectors[row] for row in range(len(lines))]

    return work


def ctranslate2(folder, lines, compute_type="float32"):
    """CTranslate2's encoder, sorted by length."""
    import numpy
    from ctranslate2 import Encoder
    from ctranslate2.converters import TransformersConverter
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(512)
    tokenizer.no_padding()
    with tempfile.TemporaryDirectory() as temporary:
        TransformersConverter(str(folder)).convert(f"{temporary}/model", quantization=compute_type)
        encoder = Encoder(f"{temporary}/model", compute_type=compute_type, intra_threads=2)

    def work():
        ids = [encoding.ids for encoding in tokenizer.encode_batch(lines)]
        order, vectors = sorted(range(len(ids)), key=lambda row: len(ids[row])), {}
        for first in range(0, len(ids), BATCH):
            rows = order[first : first + BATCH]
            hidden = numpy.array(encoder.forward_batch([ids[row] for row in rows]).last_hidden_state)
            for row, states in zip(rows, hidden, strict=True):
                vectors[row] = states[: len(ids[row])].mean(0).tolist()
        return [vectors[row] for row in range(len(ids))]

    return work


CANDIDATES = {
    "ours": ours,
    "ours_int8": lambda *arguments: ours(*arguments, int8=True),
    "transformers": theirs,
    "transformers_sorted": lambda *arguments: theirs(*arguments, sort=True),
    "sentence_transformers": sentence_transformers,
    "onnxruntime": onnx,
    "onnxruntime_int8": lambda *arguments: onnx(*arguments, int8=True),
    "ctranslate2": ctranslate2,
    "ctranslate2_int8": lambda *arguments: ctranslate2(*arguments, compute_type="int8"),
}


def compute_vectors(folder, lines):
    """Return the vectors of a few lines by each candidate; one that fails is skipped and named."""
    vectors = {}
    for candidate, make in CANDIDATES.items():
        try:
            vectors[candidate] = make(folder, lines)()
        except (ImportError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
            print(f"{candidate} is skipped: {type(error).__name__}: {error}"[:200], file=sys.stderr)
    return vectors


def lowest_cosine(first, second):
    """Return the lowest cosine similarity of corresponding vectors."""
    import torch

    return float(torch.cosine_similarity(torch.tensor(first), torch.tensor(second), dim=-1).min())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", choices=["minilm", "base"], default="minilm")
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--worker", nargs=3, metavar=("CANDIDATE", "FOLDER", "TEXTS"))
    options = parser.parse_args()
    if options.worker:
        candidate, folder, lines = options.worker
        serve(CANDIDATES[candidate](Path(folder), json.loads(Path(lines).read_text())))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = create(options.shape, Path(temporary))
        lines = texts(folder, options.sentences)
        path = Path(temporary) / "texts.json"
        path.write_text(json.dumps(lines))
        vectors = compute_vectors(folder, lines[:64])
        workers = [["--worker", candidate, str(folder), str(path)] for candidate in vectors]
        seconds = measure(__file__, workers, options.rounds)
    speed = {name: len(lines) / time for name, time in zip(vectors, seconds, strict=True)}
    for mine in ("ours", "ours_int8"):
        for peer in [name for name in speed if not name.startswith("ours")]:
            cosine = round(lowest_cosine(vectors[mine], vectors["transformers"]), 6)
            name = f"encode_{options.shape}_{mine}_{peer}"
            report(name, speed[mine], speed[peer], unit="sentences/s", cosine=cosine)


if __name__ == "__main__":
    main()
