"""Training step of a small GPT: ours, Hugging Face's GPT-2 and the matrix products alone, in tokens per second.

Ours is the step of the real loop (batch from the shard, seeding, clipping, AdamW). The peer is transformers' GPT-2
(sdpa, no dropout) in a plain loop with torch's AdamW on one fixed batch, with `fused=True` or without, whichever is
faster here. Both sides have the same GELU, the tanh form or the exact one; the default recipe of `saccade train` is
compared with the tanh form, the default of transformers. The limit does only the matrix products of
forward and backward, by torch.mm, into memory that is allocated already; ours can be above it where other products are
faster (saccade/nn/linear.py).

    python bench/train_gpt.py [--rounds 15]
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

from interleaved import measure, report, serve


@dataclass(frozen=True)
class Shape:
    depth: int
    dim: int
    heads: int
    context: int
    batch: int
    steps: int
    vocabulary: int = 65

    @property
    def tokens(self):
        return self.batch * self.context


SHAPES = {"small": Shape(4, 128, 4, 64, 12, 20), "medium": Shape(6, 384, 6, 256, 16, 1)}


def trainer(shape, *settings):
    """Our loop on a text of random characters, ready to step."""
    import random

    from saccade import api
    from saccade.core import Callback
    from saccade.tasks import load_task
    from saccade.training.loop import Trainer

    folder = Path(tempfile.mkdtemp())
    letters = [chr(60 + i) for i in range(shape.vocabulary)]
    text = "".join(letters) + "".join(random.Random(1).choices(letters, k=400_000))
    (folder / "text.txt").write_text(text)
    overrides = [
        f"model.dim={shape.dim}",
        f"model.depth={shape.depth}",
        f"model.heads={shape.heads}",
        f"model.hidden={4 * shape.dim}",
        f"model.max_positions={shape.context}",
        f"batch_size={shape.batch}",
        "data.tokenizer=characters",
        "train.steps=1000000",
        *settings,
    ]
    task_class = load_task("language_model")
    config, training = api.configure(task_class, overrides)
    task_class.prepare(config, folder / "text.txt", folder)
    task = task_class.open(config, folder)
    task.load_data(folder / "text.txt")
    return Trainer(task, training, folder, Callback())


GPT2 = (
    "model.norm=layer",
    "model.position=learned",
    "model.score=scaled_dot",
    "model.bias=true",
    "model.tie_embeddings=true",
    "model.embedding_norm=false",
    "model.init=gpt2",
    "train.optim.kind=adamw",
)


def ours(shape, *settings):
    run = trainer(shape, *settings)

    def work():
        for _ in range(shape.steps):
            run._train_step()

    return work


def peer(shape, activation, *, fused):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=shape.depth,
        n_embd=shape.dim,
        n_head=shape.heads,
        n_positions=shape.context,
        vocab_size=shape.vocabulary,
        activation_function=activation,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        attn_implementation="sdpa",
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
    ids = torch.randint(shape.vocabulary, (shape.batch, shape.context + 1))

    def work():
        for _ in range(shape.steps):
            logits = model(input_ids=ids[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()

    return work


def limit(shape):
    import torch

    tokens, width = shape.tokens, shape.dim
    sizes = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)] * shape.depth
    sizes.append((width, shape.vocabulary))
    layers = [(torch.randn(tokens, i), torch.randn(o, i), torch.randn(tokens, o)) for i, o in sizes]
    pairs, head = shape.batch * shape.heads, width // shape.heads
    q, scores = torch.randn(pairs, shape.context, head), torch.randn(pairs, shape.context, shape.context)
    outs = [(torch.empty_like(y), torch.empty_like(x), torch.empty_like(w)) for x, w, y in layers]
    wide, square = torch.empty_like(q), torch.empty_like(scores)

    def work():
        for _ in range(shape.steps):
            for (x, w, y), (out_y, out_x, out_w) in zip(layers, outs, strict=True):
                torch.mm(x, w.t(), out=out_y)
                torch.mm(y, w, out=out_x)
                torch.mm(y.t(), x, out=out_w)
            for _ in range(shape.depth):
                for _ in range(2):  # the scores, and the gradient of the weights
                    torch.bmm(q, q.transpose(1, 2), out=square)
                for _ in range(4):  # the weighted sum, and the gradients of q, k and v
                    torch.bmm(scores, q, out=wide)

    return work


CANDIDATES = {
    "ours-tanh": lambda shape: ours(shape, *GPT2, "model.activation=gelu_tanh"),
    "ours-exact": lambda shape: ours(shape, *GPT2, "model.activation=gelu"),
    "ours-default": lambda shape: ours(shape),
    "peer-tanh": lambda shape: peer(shape, "gelu_new", fused=None),
    "peer-tanh-fused": lambda shape: peer(shape, "gelu_new", fused=True),
    "peer-exact": lambda shape: peer(shape, "gelu", fused=None),
    "peer-exact-fused": lambda shape: peer(shape, "gelu", fused=True),
    "limit": limit,
}
COMPARISONS = {
    "tanh": ("ours-tanh", "tanh"),
    "exact": ("ours-exact", "exact"),
    "default_recipe": ("ours-default", "tanh"),
    "limit": ("limit", "tanh"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES))
    parser.add_argument("--worker", nargs=2, metavar=("CANDIDATE", "SHAPE"))
    options = parser.parse_args()
    if options.worker:
        candidate, shape = options.worker
        serve(CANDIDATES[candidate](SHAPES[shape]))
        return
    for name in options.shapes:
        shape = SHAPES[name]
        seconds = measure(__file__, [["--worker", candidate, name] for candidate in CANDIDATES], options.rounds)
        speed = {c: shape.tokens * shape.steps / s for c, s in zip(CANDIDATES, seconds, strict=True)}
        for title, (candidate, gelu) in COMPARISONS.items():
            plain, fused = speed[f"peer-{gelu}"], speed[f"peer-{gelu}-fused"]
            named = f"transformers, {gelu} GELU, AdamW {'fused=True' if fused > plain else 'fused=None'}"
            more = {"peer_is": named, "unit": "tokens/s"}
            report(f"train_gpt_{name}_{title}", speed[candidate], max(plain, fused), **more)


if __name__ == "__main__":
    main()
