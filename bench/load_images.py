"""Loading and augmentation of a folder of JPEG files: ours against torchvision's DataLoader, in images per second.

Both shuffle, shift by up to an eighth beyond the reflected border, mirror and normalize to batches of 128 float images
on the same two cores. `first` is an epoch with an empty cache, in which ours decodes every file; in `later` epochs it
reads its memory map, where torchvision decodes again. torchvision runs with two worker processes and with none, and
both are reported. torchvision is no dependency: install it beside, without its torch, and name the folder.

    pip install --no-deps --target peers torchvision

    PYTHONPATH=peers python bench/load_images.py [--rounds 5] [--size 32] [--images 4096]
"""

import argparse
import functools
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from interleaved import import_torchvision, measure, report, serve

BATCH, CLASSES = 128, 10
SMALL = 64  # pixels; larger pictures are stored larger and resized
MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def create(folder, count, size):
    """Write a folder of classes: smooth random pictures, a third larger than `size` if that is above 64."""
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(1)
    side = size if size <= SMALL else size * 4 // 3
    for number in range(count):
        path = folder / f"class{number % CLASSES}" / f"{number:05}.jpg"
        path.parent.mkdir(exist_ok=True)
        coarse = Image.fromarray(generator.integers(256, size=(8, 8, 3), dtype=np.uint8))
        shape = (side, side) if size <= SMALL else (side * 4 // 3, side)
        coarse.resize(shape, Image.Resampling.BICUBIC).save(path, quality=90)


def ours(folder, size, first=False):
    import numpy as np
    import torch

    from saccade.data.images.augment import Augment, augment
    from saccade.data.images.decoded import decode_pictures
    from saccade.data.images.pictures import PictureFiles
    from saccade.data.images.resizing import Resize
    from saccade.models.vision.encoder import normalize_pixels
    from saccade.tasks._vision.image_format import to_array, to_tensor
    from saccade.training.device import keep_freed_memory

    keep_freed_memory()  # as the training loop does
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.jpg"))
    config = Augment(flip=True, shift=size // 8)
    mean, std = torch.tensor(MEAN), torch.tensor(STD)
    epochs = iter(range(1_000_000))

    def open_pictures():
        return decode_pictures(PictureFiles(folder, names), Resize("crop", size))

    opened = open_pictures()

    def work():
        epoch = next(epochs)
        pictures = opened
        if first:
            shutil.rmtree(os.environ["SACCADE_CACHE"])
            pictures = open_pictures()
        order = np.random.default_rng(epoch).permutation(len(pictures))
        for step in range(0, len(order), BATCH):
            images = to_array(pictures.batch(order[step : step + BATCH]))
            pixels = to_tensor(augment(images, size, config, epoch * len(order) + step))
            batch = normalize_pixels(pixels, mean, std)
        assert batch.shape[1:] == (3, size, size)

    return work


def theirs(folder, size, workers):
    from torch.utils.data import DataLoader

    dataset = torchvision_folder(folder, size)
    options = {"num_workers": workers, "persistent_workers": True} if workers else {}
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, **options)

    def work():
        assert sum(len(batch) for batch, _ in loader) == len(dataset)

    return work


def torchvision_folder(folder, size):
    import_torchvision()
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    steps = [
        transforms.RandomCrop(size, padding=size // 8, padding_mode="reflect"),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    if size > SMALL:
        bicubic = transforms.InterpolationMode.BICUBIC
        steps[:0] = [transforms.Resize(size, interpolation=bicubic), transforms.CenterCrop(size)]
    return ImageFolder(str(folder), transforms.Compose(steps))


CANDIDATES = {
    "ours_later": ours,
    "ours_first": functools.partial(ours, first=True),
    "workers_2": functools.partial(theirs, workers=2),
    "workers_0": functools.partial(theirs, workers=0),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--worker", nargs=2, metavar=("CANDIDATE", "FOLDER"))
    options = parser.parse_args()
    if options.worker:
        candidate, folder = options.worker
        # A cache of its own for each candidate: one of them empties it.
        os.environ["SACCADE_CACHE"] = f"{folder}-cache-{candidate}"
        serve(CANDIDATES[candidate](Path(folder), options.size))
        return
    if importlib.util.find_spec("torchvision") is None:
        raise SystemExit(
            "torchvision is missing; pip install --no-deps --target peers torchvision, and set PYTHONPATH=peers"
        )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "pictures"
        folder.mkdir()
        create(folder, options.images, options.size)
        workers = [["--size", str(options.size), "--worker", name, str(folder)] for name in CANDIDATES]
        seconds = measure(__file__, workers, options.rounds)
    speed = {name: options.images / time for name, time in zip(CANDIDATES, seconds, strict=True)}
    for mine in ("later", "first"):
        for workers in (2, 0):
            name = f"load_images_{options.size}_{mine}_workers_{workers}"
            report(name, speed[f"ours_{mine}"], speed[f"workers_{workers}"], unit="images/s")


if __name__ == "__main__":
    main()
