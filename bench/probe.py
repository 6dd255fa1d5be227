"""Cost of the probe: time and memory of a watched forward pass on one long input, compared with an unwatched one.

Prints one JSON line per figure. Goals: time ratio below 1.15, memory ratio below 1.2.

Memory is counted twice. `probe_memory` is exact: the bytes of every distinct storage that is alive after the watched
forward and was not before, so a view that keeps something larger alive counts in full. `probe_peak` checks it from
outside: how much higher the resident memory of a fresh process climbs when it watches; the kernel's page counts and
the allocator's re-use of freed blocks make it coarser, so it has no goal.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.probe import watch

GPT2 = {"activation": "gelu_tanh", "norm": "layer", "position": "learned", "score": "scaled_dot", "bias": True}
SHAPES = {"default": {}, "gpt2": GPT2}
VOCABULARY = 256


def make(shape: str, tokens: int) -> tuple[GPT, torch.Tensor]:
    torch.manual_seed(0)
    config = GPTConfig(dim=384, depth=6, heads=6, hidden=1536, max_positions=tokens, **SHAPES[shape])
    return GPT(config, VOCABULARY).eval(), torch.randint(VOCABULARY, (1, tokens))


def seconds(model: GPT, ids: torch.Tensor, *, watched: bool) -> float:
    began = time.perf_counter()
    if watched:
        with watch(model):
            model(ids)
    else:
        model(ids)
    return time.perf_counter() - began


def measure_time(model: GPT, ids: torch.Tensor, repeats: int) -> tuple[float, float]:
    """Return the median seconds with and without the probe, alternating so that noise affects both."""
    for watched in (True, False):  # the first calls pay for allocations and angles
        seconds(model, ids, watched=watched)
    pairs = [(seconds(model, ids, watched=True), seconds(model, ids, watched=False)) for _ in range(repeats)]
    with_probe, without = zip(*pairs, strict=True)
    return statistics.median(with_probe), statistics.median(without)


def bytes_alive() -> int:
    """Return the bytes of every distinct storage that a tensor of this process holds."""
    gc.collect()
    tensors = [item for item in gc.get_objects() if type(item) in (torch.Tensor, torch.nn.Parameter)]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def measure_memory(model: GPT, ids: torch.Tensor) -> int:
    before = bytes_alive()
    with watch(model) as maps:
        model(ids)
    added = bytes_alive() - before
    assert all(attention_map.shape[2] == ids.shape[1] for attention_map in maps.values())
    return added


def bytes_of_q_and_k(model: GPT, ids: torch.Tensor) -> int:
    config = model.config
    heads = config.heads + (config.kv_heads or config.heads)
    return config.depth * ids.numel() * heads * (config.dim // config.heads) * model.embedding.weight.element_size()


def peak_resident() -> int:
    """Linux's own high-water mark; getrusage would begin a child at the peak of the parent that forked it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def peak_growth(shape: str, tokens: int, *, watched: bool) -> int:
    """Return the bytes by which the peak resident memory of this process rises during one forward."""
    model, ids = make(shape, tokens)
    model(ids[:, :64])  # loads the kernels
    before = peak_resident()
    seconds(model, ids, watched=watched)
    return peak_resident() - before


def measure_peak(shape: str, tokens: int, threads: int, repeats: int) -> int:
    """Return the added peak, measured in fresh processes since a peak never falls."""

    def growth(mode: str) -> float:
        command = [sys.executable, __file__, "--peak-of", mode, "--shapes", shape]
        command += ["--tokens", str(tokens), "--threads", str(threads)]
        # A fixed threshold gives every large block back at once; else holes in the heap count as memory.
        exact = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
        runs = [subprocess.run(command, check=True, capture_output=True, text=True, env=exact) for _ in range(repeats)]
        return statistics.median(int(run.stdout) for run in runs)

    return int(growth("watched") - growth("plain"))


def report(name: str, shape: str, ours: float, peer: float) -> None:
    print(
        json.dumps({"name": name, "shape": shape, "ours": ours, "peer": peer, "ratio": round(ours / peer, 4)}),
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--peak-of", choices=["watched", "plain"], help="print the peak growth of this process and stop"
    )
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    with torch.no_grad():
        if given.peak_of:
            print(peak_growth(given.shapes[0], given.tokens, watched=given.peak_of == "watched"))
            return
        for shape in given.shapes:
            model, ids = make(shape, given.tokens)
            report("probe_time", shape, *measure_time(model, ids, given.repeats))
            needed = bytes_of_q_and_k(model, ids)
            report("probe_memory", shape, measure_memory(model, ids), needed)
            report("probe_peak", shape, measure_peak(shape, given.tokens, given.threads, repeats=3), needed)


if __name__ == "__main__":
    main()
