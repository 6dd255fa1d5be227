"""Interleaved timing: candidates run in processes of their own, one at a time, round after round; medians are compared.

A machine is noisy, so only a ratio within one run means something. Every benchmark prints JSON lines with `name`,
`ours`, `peer`, `ratio` and `cpu`.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path


def serve(work):
    """In the process of a candidate: run `work()` once per line read, and answer with the seconds it took."""
    work()
    print("ready", flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        work()
        print(time.perf_counter() - started, flush=True)


def parse(description, rounds, candidates):
    """Return the number of rounds; in the process of a candidate serve it and return None."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--worker", nargs=2, metavar=("CANDIDATE", "FOLDER"))
    options = parser.parse_args()
    if not options.worker:
        return options.rounds
    candidate, folder = options.worker
    serve(candidates[candidate](Path(folder)))
    return None


def measure(script, candidates, rounds, threads=2, interpreters=None):
    """Return the median seconds of each candidate, given as a list of arguments of `script`, in alternating order.

    `interpreters`: the Python of each candidate, where one has an environment of its own.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    processes = [
        subprocess.Popen(
            [interpreter, script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        for interpreter, arguments in zip(interpreters or [sys.executable] * len(candidates), candidates, strict=True)
    ]
    try:
        for arguments, process in zip(candidates, processes, strict=True):
            if process.stdout.readline().strip() != "ready":
                raise SystemExit(f"{script} {' '.join(arguments)} did not start; run it alone to see why")
        times = [[] for _ in processes]
        for round_ in range(rounds):
            order = list(enumerate(processes))
            for index, process in order if round_ % 2 else reversed(order):
                process.stdin.write("go\n")
                process.stdin.flush()
                times[index].append(float(process.stdout.readline()))
    finally:
        for process in processes:
            process.stdin.close()
            process.wait()
    return [statistics.median(values) for values in times]


def import_torchvision():
    """Import torchvision where it is installed, also one for GPUs beside a torch for the CPU.

    That one cannot load its operators and then misses the names of two of them, which are not used here. transformers
    and timm import it themselves, and fail if this did not come first.
    """
    import torch

    if importlib.util.find_spec("torchvision") is None:
        return
    try:
        import torchvision
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        import torchvision  # noqa: F401


def available(candidates, package):
    """Return the candidates; that of a package that is not installed is left out, with a message."""
    if package not in candidates or importlib.util.find_spec(package) is not None:
        return list(candidates)
    step = f"pip install --no-deps --target peers {package} torchvision, and set PYTHONPATH=peers"
    print(f"{package} is not installed and left out; {step}", file=sys.stderr)
    return [name for name in candidates if name != package]


def timm_vit(*, size, patch, dim, depth, heads, labels):
    """Return timm's ViT of a shape, with a class token and without dropout."""
    import_torchvision()
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=size, patch_size=patch, embed_dim=dim, depth=depth, num_heads=heads, num_classes=labels
    )


def processor():
    """Return the name of the CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def report(name, ours, peer, *, lower_is_better=False, **more):
    """Print one result with the CPU; a `ratio` above 1 means that ours is better, null that it would divide by 0."""
    numerator, denominator = (peer, ours) if lower_is_better else (ours, peer)
    ratio = round(numerator / denominator, 3) if denominator else None
    result = {"name": name, "ours": round(ours, 4), "peer": round(peer, 4), "ratio": ratio, **more}
    print(json.dumps({**result, "cpu": processor()}))
    sys.stdout.flush()
