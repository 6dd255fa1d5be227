"""Training step of a translator: ours and Hugging Face's Marian, in real source and target tokens per second.

Both have the published layout (post-norm, LayerNorm, ReLU, biases, sinusoidal, tied, dropout 0.1), no label smoothing
and a fused AdamW. Ours is the step of the real loop on pairs of similar length. The peer is a plain loop over
transformers' MarianMTModel with its own loss: once with the pairs in the order of the file, as many per batch as
ours has on average, once with our own batches. Padding costs time but does not count. The data is Multi30k (English to
German) where SACCADE_DATA has it, else generated pairs of similar lengths; one tokenizer for all.

    python bench/train_translation.py [--rounds 9]
"""

import gzip
import os
import random
import tempfile
from pathlib import Path

from interleaved import measure, parse, report

DEPTH, DIM, HEADS, HIDDEN, VOCABULARY = 3, 256, 8, 1024, 8000
STEPS = 4  # per measurement, always the same ones

SHAPE = [
    f"model.transformer.depth={DEPTH}",
    f"model.transformer.decoder_depth={DEPTH}",
    f"model.transformer.dim={DIM}",
    f"model.transformer.heads={HEADS}",
    f"model.transformer.hidden={HIDDEN}",
    f"data.vocabulary_size={VOCABULARY}",
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
    "model.transformer.tie_embeddings=true",
    "model.transformer.embedding_norm=false",
    "model.transformer.init=xavier",
    "train.optim.kind=adamw",
    "label_smoothing=0.0",
]


def write_pairs(folder):
    """Write the pairs and their vocabulary into the folder and return the name of the data."""
    from saccade import api
    from saccade.tasks import load_task

    root = Path(os.environ.get("SACCADE_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
    source = root / "translation" / "multi30k"
    for side in ("en", "de"):
        path = source / f"train.{side}.gz"
        text = gzip.decompress(path.read_bytes()).decode() if path.exists() else generated(side)
        (folder / f"pairs.{side}").write_text(text)
    task_class = load_task("translation")
    config, _ = api.configure(task_class, [*SHAPE, "data.target=de"])
    task_class.prepare(config, folder / "pairs.en", folder)
    return "multi30k" if (source / "train.en.gz").exists() else "generated"


def generated(side, count=29_000):
    """Lines of random words, as long as those of Multi30k: 12 words, standard deviation 4."""
    lengths, choice = random.Random(1), random.Random(side)
    words = ["".join(choice.choices("abcdefghijklmnopqrstuvwxyz", k=choice.randint(2, 9))) for _ in range(10_000)]
    often = [1 / (rank + 10) for rank in range(len(words))]
    rows = (max(4, round(lengths.gauss(12, 4))) for _ in range(count))
    return "".join(" ".join(choice.choices(words, often, k=size)) + "\n" for size in rows)


def trainer(folder, *settings):
    """Our loop, ready to step."""
    from saccade import api
    from saccade.core import Callback
    from saccade.tasks import load_task
    from saccade.training.loop import Trainer

    task_class = load_task("translation")
    config, training = api.configure(task_class, [*SHAPE, "data.target=de", *settings])
    task = task_class.open(config, folder)
    task.load_data(folder / "pairs.en")
    return Trainer(task, training, Path(tempfile.mkdtemp()), Callback())


def own_batches(run):
    """The batches of the measured steps."""
    return [batch for step in range(STEPS) for batch in run.source.at(step)]


def plain_batches(run):
    """As many pairs as ours have on average, in the order of the file."""
    from saccade.core import Split
    from saccade.data.formats.bitext import collate_pairs

    pairs, special_ids = run.task.splits[Split.TRAIN], run.task.tokenizers.special
    size = round(len(pairs) / run.source.per_epoch)
    return [collate_pairs(pairs, range(step * size, (step + 1) * size), special_ids) for step in range(STEPS)]


def real_tokens(batches):
    """Count the tokens of source and target with their end tokens, without padding."""
    return sum(batch.units for batch in batches)


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
    _, start, end = run.task.tokenizers.special
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIZES.items()}
    config = MarianConfig(
        vocab_size=run.task.reader.target.size,
        d_model=DIM,
        activation_function="relu",
        dropout=0.1,
        activation_dropout=0.1,
        scale_embedding=True,
        max_position_embeddings=256,
        pad_token_id=start,
        eos_token_id=end,
        forced_eos_token_id=None,
        decoder_start_token_id=start,
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
CANDIDATES = {
    "ours": lambda folder: ours(folder, *PUBLISHED),
    "ours-default": lambda folder: ours(folder),
    "peer": lambda folder: peer(folder, plain_batches),
    "peer-own": lambda folder: peer(folder, own_batches),
}


def main():
    rounds = parse(__doc__, 9, CANDIDATES)
    if rounds is None:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = write_pairs(folder)
        run = trainer(folder)
        own, plain = own_batches(run), plain_batches(run)
        tokens = {candidate: real_tokens(plain if candidate == "peer" else own) for candidate in CANDIDATES}
        seconds = measure(__file__, [["--worker", candidate, name] for candidate in CANDIDATES], rounds)
    speed = {c: tokens[c] / s for c, s in zip(CANDIDATES, seconds, strict=True)}
    more = {"unit": "tokens/s", "data": data}
    sizes = {"pairs": round(sum(len(batch.source) for batch in own) / STEPS, 1), "peer_pairs": len(plain[0].source)}
    report("train_translation", speed["ours"], speed["peer"], **more, **sizes)
    report("train_translation_same_batches", speed["ours"], speed["peer-own"], **more)
    report("train_translation_default_recipe", speed["ours-default"], speed["peer"], **more)


if __name__ == "__main__":
    main()
