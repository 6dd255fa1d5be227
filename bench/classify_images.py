"""Classification with a ViT: ours, transformers and timm on the same random weights, in images per second.

All read 224 x 224 images that are in memory: ours as bytes, which the network normalizes, the peers as normalized
numbers in batches of 32. `agreement` is the fraction of images with the same label as the peer's; random weights make
the logits of a label nearly equal, so int8 changes more labels here than on a trained network. timm is no dependency:
it is left out unless it is installed beside, without its torch.

    pip install --no-deps --target peers timm torchvision

    PYTHONPATH=peers python bench/classify_images.py [--rounds 5] [--images 64]
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from interleaved import available, import_torchvision, measure, report, serve, timm_vit

BATCH, SIZE = 32, 224
SHAPE = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "intermediate_size": 1536}


def images(count):
    """Return random images (N, 3, 224, 224)."""
    import torch

    small = torch.randint(0, 256, (count, 3, 14, 14), generator=torch.Generator().manual_seed(1)).float()
    return torch.nn.functional.interpolate(small, size=SIZE, mode="bicubic").clamp(0, 255).to(torch.uint8)


def write_model(folder):
    """Write a ViT-S/16 with random weights, as transformers does."""
    import torch

    import_torchvision()
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(1)
    model = ViTForImageClassification(ViTConfig(**SHAPE, num_labels=1000))
    torch.nn.init.normal_(model.classifier.weight)
    model.save_pretrained(folder)
    ViTImageProcessor().save_pretrained(folder)


def ours(folder, count, prepare=lambda model: model):
    import saccade

    task = saccade.load(str(folder), device="cpu").task
    task.model, pixels = prepare(task.model), images(count)

    def work():
        return task.classify(pixels).argmax(-1).tolist()

    return work


def ours_int8(folder, count):
    from saccade.pretrained.quantize import quantize

    return ours(folder, count, quantize)


def transformers(folder, count):
    import torch

    import_torchvision()
    from transformers import ViTForImageClassification

    model = ViTForImageClassification.from_pretrained(folder, attn_implementation="sdpa").eval()
    pixels = images(count).float() / 127.5 - 1

    @torch.inference_mode()
    def work():
        return torch.cat([model(pixel_values=part).logits for part in pixels.split(BATCH)]).argmax(-1).tolist()

    return work


def timm(folder, count):
    import torch

    model, pixels = timm_model(folder), images(count).float() / 127.5 - 1

    @torch.inference_mode()
    def work():
        return torch.cat([model(part) for part in pixels.split(BATCH)]).argmax(-1).tolist()

    return work


def timm_model(folder):
    """Return timm's ViT with the weights of transformers'."""
    import torch

    import_torchvision()
    from transformers import ViTForImageClassification

    theirs = ViTForImageClassification.from_pretrained(folder)
    state, layers = theirs.state_dict(), SHAPE["num_hidden_layers"]
    names = {"norm": "vit.layernorm", "patch_embed.proj": "vit.embeddings.patch_embeddings.projection"}
    names["head"] = "classifier"
    for layer in range(layers):
        ours, old = f"blocks.{layer}", f"vit.layers.{layer}"
        names |= {f"{ours}.attn.proj": f"{old}.attention.o_proj", f"{ours}.norm1": f"{old}.layernorm_before"}
        names |= {f"{ours}.norm2": f"{old}.layernorm_after"}
        names |= {f"{ours}.mlp.{part}": f"{old}.mlp.{part}" for part in ("fc1", "fc2")}
    tensors = {"cls_token": state["vit.embeddings.cls_token"], "pos_embed": state["vit.embeddings.position_embeddings"]}
    for part in ("weight", "bias"):
        tensors |= {f"{new}.{part}": state[f"{old}.{part}"] for new, old in names.items()}
        for layer in range(layers):
            qkv = [state[f"vit.layers.{layer}.attention.{name}_proj.{part}"] for name in "qkv"]
            tensors[f"blocks.{layer}.attn.qkv.{part}"] = torch.cat(qkv)
    dim, heads = SHAPE["hidden_size"], SHAPE["num_attention_heads"]
    model = timm_vit(size=SIZE, patch=16, dim=dim, depth=layers, heads=heads, labels=1000)
    model.load_state_dict(tensors)
    return model.eval()


CANDIDATES = {"ours": ours, "ours_int8": ours_int8, "transformers": transformers, "timm": timm}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--worker", nargs=3, metavar=("CANDIDATE", "FOLDER", "IMAGES"))
    options = parser.parse_args()
    if options.worker:
        name, folder, count = options.worker
        work = CANDIDATES[name](Path(folder), int(count))
        (Path(folder) / f"{name}.json").write_text(json.dumps(work()))
        serve(work)
        return
    os.environ.setdefault("SACCADE_CACHE", tempfile.mkdtemp())
    candidates = available(CANDIDATES, "timm")
    with tempfile.TemporaryDirectory() as name:
        write_model(name)
        workers = [["--worker", candidate, name, str(options.images)] for candidate in candidates]
        seconds = dict(zip(candidates, measure(__file__, workers, options.rounds), strict=True))
        labels = {candidate: json.loads((Path(name) / f"{candidate}.json").read_text()) for candidate in candidates}
    speeds = {candidate: options.images / value for candidate, value in seconds.items()}
    for candidate in ("ours", "ours_int8"):
        for peer in candidates[2:]:
            same = sum(map(int.__eq__, labels[candidate], labels[peer])) / options.images
            name = f"classify_images_{candidate}" + ("" if peer == "transformers" else f"_{peer}")
            report(name, speeds[candidate], speeds[peer], unit="images/s", agreement=round(same, 3))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
