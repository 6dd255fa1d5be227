"""Training step of a translator: ours and Hugging Face's Marian, in turn, real source and target tokens per second.

Both have the published layout (post-norm, LayerNorm, ReLU, biases, sinusoidal, tied, dropout 0.1), no label smoothing
and a fused AdamW. Ours is the step of the real loop on pairs of like length. The peer is a plain loop over
transformers' MarianMTModel with its own loss: once with the pairs in the order of the file, as many a batch as ours
has on average, once with our very batches. Padding costs time but does not count. The data is Multi30k (English to
German) where SACCADE_DATA has it, else invented pairs of like lengths; one tokenizer for all.

    python bench/train_translation.py [--rounds 9]
"""

import argparse
import gzip
import os
import random
import tempfile
from pathlib import Path

from turns import race, serve, tell

DEPTH, DIM, HEADS, HIDDEN, VOCABULARY = 3, 256, 8, 1024, 8000
STEPS = 4  # of one turn, always the same ones

SHAPE = [
    f"model.transformer.depth={DEPTH}",
    f"model.transformer.decoder_depth={DEPTH}",
    f"model.transformer.dim={DIM}",
    f"model.transformer.heads={HEADS}",
    f"model.transformer.hidden={HIDDEN}",
    f"data.vocabulary={VOCABULARY}",
    "data.tokenizer=bpe",
    "train.steps=1000000",
]
PUBLISHED = [
    "model.transformer.activation=relu",
    "model.transformer.norm=layer",
    "model.transformer.norm_first=false",
    "model.transformer.position=sinusoidal",
    "model.transformer.score=scaled_dot",
    "model.transformer.bias=true",
    "model.transformer.tied=true",
    "model.transformer.embedding_norm=false",
    "model.transformer.begin=xavier",
    "train.optim.kind=adamw",
    "smoothing=0.0",
]


def gather(folder):
    """Write the pairs into the folder, learn their vocabulary and say what they are."""
    from saccade import api

    root = Path(os.environ.get("SACCADE_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
    found = root / "translation" / "multi30k"
    for side in ("en", "de"):
        path = found / f"train.{side}.gz"
        text = gzip.decompress(path.read_bytes()).decode() if path.exists() else invented(side)
        (folder / f"pairs.{side}").write_text(text)
    kind = api.load_task("translation")
    config, _ = api.configure(kind, [*SHAPE, "data.target=de"])
    kind.prepare(config, folder / "pairs.en", folder)
    return "multi30k" if (found / "train.en.gz").exists() else "invented"


def invented(side, count=29_000):
    """Lines of made-up words, as long as those of Multi30k: 12 words, give or take 4."""
    lengths, choice = random.Random(1), random.Random(side)
    words = ["".join(choice.choices("abcdefghijklmnopqrstuvwxyz", k=choice.randint(2, 9))) for _ in range(10_000)]
    often = [1 / (rank + 10) for rank in range(len(words))]
    rows = (max(4, round(lengths.gauss(12, 4))) for _ in range(count))
    return "".join(" ".join(choice.choices(words, often, k=size)) + "\n" for size in rows)


def trainer(folder, *settings):
    """Our loop, ready to step."""
    from saccade import api
    from saccade.training.loop import NullCallback, Trainer

    kind = api.load_task("translation")
    config, training = api.configure(kind, [*SHAPE, "data.target=de", *settings])
    task = kind.open(config, folder)
    task.load_data(folder / "pairs.en")
    return Trainer(task, training, Path(tempfile.mkdtemp()), NullCallback())


def own_batches(run):
    """The batches of the steps of one turn."""
    return [part for step in range(STEPS) for part in run.batches.at(step)]


def plain_batches(run):
    """As many pairs as ours have on average, in the order of the file."""
    from saccade.tasks.translation import make_batch

    pairs = run.batches.pairs
    size = round(len(pairs) / run.batches.per_epoch)
    return [make_batch(pairs, range(step * size, (step + 1) * size), run.task.marks) for step in range(STEPS)]


def real_tokens(batches):
    """What a reader would count: tokens of source and target with their end, without padding."""
    return sum(int(batch.keep.sum()) + batch.count for batch in batches)


def ours(folder, *settings):
    run = trainer(folder, *settings)

    def work():
        run.step = 0
        for _ in range(STEPS):
            run._train_step()

    return work


def peer(folder, choose):
    import torch
    from transformers import MarianConfig, MarianMTModel

    run = trainer(folder, *PUBLISHED)
    _, begin, end = run.task.marks
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIZES.items()}
    config = MarianConfig(
        vocab_size=run.task.reader.target.size,
        d_model=DIM,
        activation_function="relu",
        dropout=0.1,
        activation_dropout=0.1,
        scale_embedding=True,
        max_position_embeddings=256,
        pad_token_id=begin,
        eos_token_id=end,
        forced_eos_token_id=None,
        decoder_start_token_id=begin,
        **sides,
    )
    model = MarianMTModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    batches = choose(run)

    def work():
        for batch in batches:
            labels = batch.labels.masked_fill(batch.labels < 0, -100)
            loss = model(input_ids=batch.source, attention_mask=batch.keep.long(), labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()

    return work


SIZES = {"layers": DEPTH, "attention_heads": HEADS, "ffn_dim": HIDDEN}
CONTESTANTS = {
    "ours": lambda folder: ours(folder, *PUBLISHED),
    "ours-default": lambda folder: ours(folder),
    "peer": lambda folder: peer(folder, plain_batches),
    "peer-own": lambda folder: peer(folder, own_batches),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--worker", nargs=2, metavar=("CONTESTANT", "FOLDER"))
    options = parser.parse_args()
    if options.worker:
        contestant, folder = options.worker
        serve(CONTESTANTS[contestant](Path(folder)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = gather(folder)
        run = trainer(folder)
        own, plain = own_batches(run), plain_batches(run)
        tokens = {contestant: real_tokens(plain if contestant == "peer" else own) for contestant in CONTESTANTS}
        seconds = race(__file__, [["--worker", contestant, name] for contestant in CONTESTANTS], options.rounds)
    speed = {c: tokens[c] / s for c, s in zip(CONTESTANTS, seconds, strict=True)}
    more = {"unit": "tokens/s", "data": data}
    sizes = {"pairs": round(sum(len(batch.source) for batch in own) / STEPS, 1), "peer_pairs": len(plain[0].source)}
    tell("train_translation", speed["ours"], speed["peer"], **more, **sizes)
    tell("train_translation_same_batches", speed["ours"], speed["peer-own"], **more)
    tell("train_translation_default_recipe", speed["ours-default"], speed["peer"], **more)


if __name__ == "__main__":
    main()
