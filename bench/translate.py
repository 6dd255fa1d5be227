"""Beam search with a base Transformer: ours, Hugging Face's generate and CTranslate2, in sentences per second.

The three have the same random weights (a Marian model of 6 + 6 layers, 512 wide, 32,000 tokens, float32), the same 64
sources of 18 to 24 tokens and 4 beams. The end of a sentence is made impossible, so that each output has 30 tokens and
all do the same work; `same` is the fraction of sentences with identical tokens.

    python bench/translate.py [--rounds 7]
"""

import random
import tempfile
from pathlib import Path

from interleaved import measure, parse, report

VOCABULARY, DIM, DEPTH, HEADS, HIDDEN = 32_000, 512, 6, 8, 2048
SENTENCES, BEAMS, LENGTH = 64, 4, 30
END, PAD = 0, VOCABULARY - 1


def sources():
    """Random ids of each source, with its end token."""
    draw = random.Random(1)
    return [[*(draw.randrange(2, PAD) for _ in range(draw.randint(17, 23))), END] for _ in range(SENTENCES)]


def padded_sources():
    """The sources as one padded batch, and which of its tokens are real."""
    import torch

    width = max(map(len, sources()))
    ids = torch.tensor([row + [PAD] * (width - len(row)) for row in sources()])
    return ids, ids != PAD


def create(folder):
    """Write a Marian model of random weights that never ends a sentence, for transformers and for CTranslate2."""
    import torch
    from ctranslate2.converters import TransformersConverter
    from transformers import MarianConfig, MarianMTModel

    class Converter(TransformersConverter):
        def load_tokenizer(self, *_, **__):
            return Tokens()

    sizes = {"layers": DEPTH, "attention_heads": HEADS, "ffn_dim": HIDDEN}
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=DIM,
        init_std=0.05,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=64,
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=None,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()},
    )
    torch.manual_seed(1)
    model = MarianMTModel(config).eval()
    with torch.no_grad():  # feature 0 is always 10 at the output, and the end weighs it by -10
        last, table = model.model.decoder.layers[-1].final_layer_norm, model.model.shared.weight
        last.weight[0], last.bias[0] = 0.0, 10.0
        table[:, 0], table[END], table[PAD] = 0.0, 0.0, 0.0
        table[END, 0] = -10.0
    model.save_pretrained(folder / "marian")
    Converter(str(folder / "marian")).convert(str(folder / "ctranslate2"))


class Tokens:
    """What the converter needs of a tokenizer."""

    eos_token, unk_token = "</s>", "<unk>"

    def get_vocab(self):
        return {name(number): number for number in range(VOCABULARY)}


def name(number):
    return {END: "</s>", 1: "<unk>", PAD: "<pad>"}.get(number, f"t{number}")


def marian(folder):
    from transformers import MarianMTModel
    from transformers.utils.logging import set_verbosity_error

    set_verbosity_error()
    return MarianMTModel.from_pretrained(folder / "marian").eval()


def ours(folder):
    import torch

    from saccade.decode.search import Search, search
    from saccade.models.seq2seq.interface import DecoderState
    from saccade.nn.packed import pack
    from saccade.pretrained.opening import read_network

    model, (ids, keep) = read_network(folder / "marian").network.eval(), padded_sources()

    @torch.no_grad()
    def work():
        packed = pack(model, SENTENCES * BEAMS)  # measured too, since the task does it for every call
        state = DecoderState(packed, packed.encode(ids, keep), LENGTH + 1)
        hypotheses = search(state, [LENGTH] * SENTENCES, start_id=PAD, end_id=END, settings=Search(beam=BEAMS))
        return [list(best[0].ids) for best in hypotheses]

    return work


def generate(folder):
    import torch

    model, (ids, keep) = marian(folder), padded_sources()
    settings = {"num_beams": BEAMS, "max_new_tokens": LENGTH, "do_sample": False, "use_cache": True}

    @torch.no_grad()
    def work():
        return model.generate(ids, attention_mask=keep.long(), **settings)[:, 1:].tolist()

    return work


def translator(folder):
    import os

    import ctranslate2

    threads = int(os.environ.get("OMP_NUM_THREADS", 2))
    model = ctranslate2.Translator(
        str(folder / "ctranslate2"), compute_type="float32", inter_threads=1, intra_threads=threads
    )
    texts = [[name(number) for number in row] for row in sources()]

    def work():
        results = model.translate_batch(texts, beam_size=BEAMS, max_decoding_length=LENGTH)
        return [[int(token[1:]) for token in result.hypotheses[0]] for result in results]

    return work


CANDIDATES = {"ours": ours, "generate": generate, "ctranslate2": translator}


def main():
    rounds = parse(__doc__, 7, CANDIDATES)
    if rounds is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        create(Path(folder))
        outputs = {candidate: make(Path(folder))() for candidate, make in CANDIDATES.items()}
        seconds = measure(__file__, [["--worker", candidate, folder] for candidate in CANDIDATES], rounds)
    if {len(row) for rows in outputs.values() for row in rows} != {LENGTH}:
        raise SystemExit(f"every output must have {LENGTH} tokens, but some have not: the work is not the same")
    speed = {c: SENTENCES / s for c, s in zip(CANDIDATES, seconds, strict=True)}
    for peer in ("generate", "ctranslate2"):
        same = sum(a == b for a, b in zip(outputs["ours"], outputs[peer], strict=True)) / SENTENCES
        report(f"translate_{peer}", speed["ours"], speed[peer], unit="sentences/s", same=round(same, 3))


if __name__ == "__main__":
    main()
