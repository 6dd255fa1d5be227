"""Vectors of sentences: ours, ours in 8 bits, transformers and others, in turn, sentences per second.

All have the same weights and the same texts of 16 to 128 tokens, tokenizing included; transformers reads batches of 32
padded to their longest, in the order given, and once more sorted by length. `cosine` is the worst likeness of a vector
to transformers' own. MiniLM comes from the catalogue; the shape of BERT-base has random weights. sentence-transformers,
ONNX Runtime and CTranslate2 take part where they are installed, and where they can open the model; who cannot is named.

    python bench/encode.py [--rounds 5] [--shape minilm|base] [--sentences 512]
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

from interleaved import measure, report, serve

BATCH, SHORTEST, LONGEST = 32, 16, 128


def words(folder):
    """Words of the vocabulary that are one token each."""
    from saccade.data.text.vocabularies import read_tokenizer

    tokenizer = read_tokenizer(folder)
    found = [tokenizer.token(number) for number in range(2000, 12000)]
    return [
        word for word in found if word.isascii() and word.isalpha() and tokenizer.encode(word) == [tokenizer.id(word)]
    ]


def texts(folder, count):
    """Texts of mixed length."""
    draw, known = random.Random(1), words(folder)
    return [" ".join(draw.choices(known, k=draw.randint(SHORTEST, LONGEST) - 2)) for _ in range(count)]


def create(shape, folder):
    """The folder of a model: MiniLM, or random weights of the shape of BERT-base with MiniLM's tokenizer."""
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
    from saccade import api
    from saccade.look import features

    opened = features.encoder_of(api.load(str(folder)))
    if int8:
        from saccade.pretrained.quantize import quantize

        opened.model = quantize(opened.model)
    return lambda: [one.values.tolist() for one in features.vectors(opened, lines)]


def theirs(folder, lines, ordered=False, int8=False):
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
        order = sorted(range(len(lines)), key=lambda at: len(lines[at])) if ordered else range(len(lines))
        found = {}
        for first in range(0, len(lines), BATCH):
            rows = list(order)[first : first + BATCH]
            tokenizer.enable_padding()
            encoded = tokenizer.encode_batch([lines[at] for at in rows])
            ids = torch.tensor([one.ids for one in encoded])
            keep = torch.tensor([one.attention_mask for one in encoded])
            hidden = model(ids, attention_mask=keep).last_hidden_state
            mean = (hidden * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)
            found |= dict(zip(rows, mean.tolist(), strict=True))
        return [found[at] for at in range(len(lines))]

    return work


def sentences(folder, lines):
    """sentence-transformers, which sorts by itself."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")  # a plain BERT gets the mean of its tokens
    return lambda: model.encode(lines, batch_size=BATCH, show_progress_bar=False).tolist()


def onnx(folder, lines, int8=False):
    """ONNX Runtime on what torch exports, sorted by length."""
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
    names, sample = ["input_ids", "attention_mask"], torch.ones(2, 8, dtype=torch.long)
    free = {name: {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for name in names}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.onnx"
        torch.onnx.export(
            model,
            (),
            path,
            kwargs=dict.fromkeys(names, sample),
            dynamic_shapes=free,
            output_names=["hidden"],
            verbose=False,
        )
        if int8:
            quantize_dynamic(path, Path(place) / "int8.onnx")
            path = Path(place) / "int8.onnx"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 2
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def work():
        order, found = sorted(range(len(lines)), key=lambda at: len(lines[at])), {}
        for first in range(0, len(lines), BATCH):
            rows = order[first : first + BATCH]
            encoded = tokenizer.encode_batch([lines[at] for at in rows])
            keep = numpy.array([one.attention_mask for one in encoded])
            fed = {"input_ids": numpy.array([one.ids for one in encoded]), "attention_mask": keep}
            hidden = session.run(["hidden"], fed)[0]
            mean = (hidden * keep[..., None]).sum(1) / keep.sum(1, keepdims=True)
            found |= dict(zip(rows, mean.tolist(), strict=True))
        return [found[at] for at in range(len(lines))]

    return work


def ctranslate2(folder, lines, kind="float32"):
    """CTranslate2's encoder, sorted by length."""
    import numpy
    from ctranslate2 import Encoder
    from ctranslate2.converters import TransformersConverter
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(512)
    tokenizer.no_padding()
    with tempfile.TemporaryDirectory() as place:
        TransformersConverter(str(folder)).convert(f"{place}/model", quantization=kind)
        encoder = Encoder(f"{place}/model", compute_type=kind, intra_threads=2)

    def work():
        rows = [one.ids for one in tokenizer.encode_batch(lines)]
        order, found = sorted(range(len(rows)), key=lambda at: len(rows[at])), {}
        for first in range(0, len(rows), BATCH):
            chosen = order[first : first + BATCH]
            hidden = numpy.array(encoder.forward_batch([rows[at] for at in chosen]).last_hidden_state)
            for at, one in zip(chosen, hidden, strict=True):
                found[at] = one[: len(rows[at])].mean(0).tolist()
        return [found[at] for at in range(len(rows))]

    return work


CONTESTANTS = {
    "ours": ours,
    "ours_int8": lambda *where: ours(*where, int8=True),
    "transformers": theirs,
    "transformers_sorted": lambda *where: theirs(*where, ordered=True),
    "sentence_transformers": sentences,
    "onnxruntime": onnx,
    "onnxruntime_int8": lambda *where: onnx(*where, int8=True),
    "ctranslate2": ctranslate2,
    "ctranslate2_int8": lambda *where: ctranslate2(*where, kind="int8"),
}


def first_words(folder, lines):
    """What each contestant says of a few lines; who cannot is left out and named."""
    said = {}
    for contestant, make in CONTESTANTS.items():
        try:
            said[contestant] = make(folder, lines)()
        except (ImportError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
            print(f"{contestant} takes no part: {type(error).__name__}: {error}"[:200], file=sys.stderr)
    return said


def likeness(one, other):
    """The worst cosine of vectors in pairs."""
    import torch

    return float(torch.cosine_similarity(torch.tensor(one), torch.tensor(other), dim=-1).min())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", choices=["minilm", "base"], default="minilm")
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--worker", nargs=3, metavar=("CONTESTANT", "FOLDER", "TEXTS"))
    options = parser.parse_args()
    if options.worker:
        contestant, folder, lines = options.worker
        serve(CONTESTANTS[contestant](Path(folder), json.loads(Path(lines).read_text())))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = create(options.shape, Path(place))
        lines = texts(folder, options.sentences)
        kept = Path(place) / "texts.json"
        kept.write_text(json.dumps(lines))
        said = first_words(folder, lines[:64])
        workers = [["--worker", contestant, str(folder), str(kept)] for contestant in said]
        seconds = measure(__file__, workers, options.rounds)
    speed = {c: len(lines) / s for c, s in zip(said, seconds, strict=True)}
    for mine in ("ours", "ours_int8"):
        for peer in [one for one in speed if not one.startswith("ours")]:
            cosine = round(likeness(said[mine], said["transformers"]), 6)
            name = f"encode_{options.shape}_{mine}_{peer}"
            report(name, speed[mine], speed[peer], unit="sentences/s", cosine=cosine)


if __name__ == "__main__":
    main()
