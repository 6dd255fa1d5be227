"""Training step of a ViT: ours, Hugging Face's and timm's ViT in a plain loop, interleaved, in images per second.

Ours is the step of the real loop: images from the cache, augmentation, seeding, AdamW; `published` has the layers of
the peer (LayerNorm, exact GELU, biases, class token), `fastest` also the precision that is faster on this machine, the
default of image tasks. The peers are transformers' ViTForImageClassification (sdpa, no dropout) and timm's
VisionTransformer with torch's AdamW on one fixed batch of normalized images: they load and augment nothing. timm is no
dependency: it is left out unless it is installed beside, without its torch.

    pip install --no-deps --target peers timm torchvision

    PYTHONPATH=peers python bench/train_vit.py [--rounds 7] [--shape small]
"""

import argparse
import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path

from interleaved import available, import_torchvision, measure, report, serve, timm_vit


@dataclass(frozen=True)
class Shape:
    size: int
    patch: int
    dim: int
    depth: int
    heads: int
    batch: int
    steps: int


SHAPES = {"small": Shape(32, 4, 192, 6, 3, 128, 1), "medium": Shape(128, 16, 384, 6, 6, 32, 1)}
LABELS = 10


def settings(shape):
    """Return the overrides of a ViT with the layers of the publication."""
    vit = {
        "dim": shape.dim,
        "depth": shape.depth,
        "heads": shape.heads,
        "hidden": 4 * shape.dim,
        "patch": shape.patch,
        "activation": "gelu",
        "norm": "layer",
        "score": "scaled_dot",
        "bias": "true",
        "class_token": "true",
        "pooling": "class",
        "embedding_norm": "false",
        "init": "normal",
    }
    return [
        "model.architecture=vit",
        *(f"model.vit.{name}={value}" for name, value in vit.items()),
        f"size={shape.size}",
        f"batch_size={shape.batch}",
        "train.optim.kind=adamw",
        "train.steps=1000000",
    ]


def write_images(path, shape):
    """Write random images with labels as arrays."""
    import numpy as np

    draw = np.random.default_rng(1)
    count = 40 * shape.batch  # a tenth is held out: 36 full batches
    images = draw.integers(0, 256, (count, shape.size, shape.size, 3), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(count) % LABELS)


def ours(shape, *overrides):
    from saccade import api
    from saccade.core import Callback
    from saccade.tasks import load_task
    from saccade.training.loop import Trainer

    folder = Path(tempfile.mkdtemp())
    data = folder / "images.npz"
    write_images(data, shape)
    task_class = load_task("image_classification")
    config, training = api.configure(task_class, [*settings(shape), *overrides])
    task_class.prepare(config, data, folder)
    task = task_class.open(config, folder)
    task.load_data(data)
    run = Trainer(task, training, folder, Callback())

    def work():
        for _ in range(shape.steps):
            run._train_step()

    return work


def transformers_model(shape):
    """Return a function of pixels to logits, transformers' ViT of a shape, and its weights."""
    import_torchvision()
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=shape.dim,
        num_hidden_layers=shape.depth,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.dim,
        image_size=shape.size,
        patch_size=shape.patch,
        num_labels=LABELS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    model = ViTForImageClassification(config).train()
    return lambda pixels: model(pixel_values=pixels).logits, model.parameters()


def timm_model(shape):
    """Return timm's ViT of a shape, and its weights."""
    sizes = {"size": shape.size, "patch": shape.patch, "dim": shape.dim, "depth": shape.depth, "heads": shape.heads}
    model = timm_vit(**sizes, labels=LABELS).train()
    return model, model.parameters()


def peer(shape, build):
    import torch

    model, weights = build(shape)
    optimizer = torch.optim.AdamW(weights, lr=1e-3)
    pixels, labels = torch.randn(shape.batch, 3, shape.size, shape.size), torch.arange(shape.batch) % LABELS

    def work():
        for _ in range(shape.steps):
            loss = torch.nn.functional.cross_entropy(model(pixels), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()

    return work


CANDIDATES = {
    "published": lambda shape: ours(shape, "train.precision=float32"),
    "fastest": ours,
    "transformers": functools.partial(peer, build=transformers_model),
    "timm": functools.partial(peer, build=timm_model),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--worker", nargs=2, metavar=("CANDIDATE", "SHAPE"))
    options = parser.parse_args()
    if options.worker:
        candidate, name = options.worker
        serve(CANDIDATES[candidate](SHAPES[name]))
        return
    candidates = available(CANDIDATES, "timm")
    for name, shape in SHAPES.items():
        if options.shape in (None, name):
            workers = [["--worker", candidate, name] for candidate in candidates]
            seconds = dict(zip(candidates, measure(__file__, workers, options.rounds), strict=True))
            images = {candidate: shape.batch * shape.steps / value for candidate, value in seconds.items()}
            for candidate in ("published", "fastest"):
                speed = images[candidate]
                report(f"train_vit_{name}_{candidate}", speed, images["transformers"], unit="images/s")
                if "timm" in images:
                    report(f"train_vit_{name}_{candidate}_timm", speed, images["timm"], unit="images/s")


if __name__ == "__main__":
    main()
