"""Vectors of sentences: ours, ours in 8 bits, transformers and others, in turn, sentences per second.

All have the same weights and the same texts of 16 to 128 tokens, tokenizing included; transformers reads batches of 32
padded to their longest, in the order given, and once more sorted by length. `cosine` is the worst likeness of a vector
to transformers' own. MiniLM comes from the catalogue; the shape of BERT-base has random weights.

    python bench/encode.py [--rounds 5] [--shape minilm|base] [--sentences 256]
"""

import argparse
import json
import random
import tempfile
from pathlib import Path

from turns import race, serve, tell

BATCH, SHORTEST, LONGEST = 32, 16, 128


def words(folder):
    """Words of the vocabulary that are one token each."""
    from saccade.data.vocabularies import read_tokenizer

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

    from saccade.adapt.catalogue import get

    source = get("minilm")
    if shape == "minilm":
        return source
    torch.manual_seed(1)
    BertModel(BertConfig(vocab_size=30522)).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        if (source / name).exists():
            shutil.copy(source / name, folder)
    return folder


def ours(folder, lines, int8=False):
    from saccade import api, features

    opened = features.encoder_of(api.load(str(folder)))
    if int8:
        from saccade.adapt.quantize import quantize

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


CONTESTANTS = {
    "ours": ours,
    "ours_int8": lambda *where: ours(*where, int8=True),
    "transformers": theirs,
    "transformers_sorted": lambda *where: theirs(*where, ordered=True),
}


def likeness(one, other):
    """The worst cosine of vectors in pairs."""
    import torch

    return float(torch.cosine_similarity(torch.tensor(one), torch.tensor(other), dim=-1).min())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", choices=["minilm", "base"], default="minilm")
    parser.add_argument("--sentences", type=int, default=256)
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
        few = lines[:64]
        said = {contestant: make(folder, few)() for contestant, make in CONTESTANTS.items()}
        workers = [["--worker", contestant, str(folder), str(kept)] for contestant in CONTESTANTS]
        seconds = race(__file__, workers, options.rounds)
    speed = {c: len(lines) / s for c, s in zip(CONTESTANTS, seconds, strict=True)}
    for mine in ("ours", "ours_int8"):
        for peer in ("transformers", "transformers_sorted"):
            cosine = round(likeness(said[mine], said["transformers"]), 6)
            name = f"encode_{options.shape}_{mine}_{peer}"
            tell(name, speed[mine], speed[peer], unit="sentences/s", cosine=cosine)


if __name__ == "__main__":
    main()
