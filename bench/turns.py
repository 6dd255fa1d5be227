"""Turns: contestants run in processes of their own, one at a time, round after round; medians and ratios count.

A machine is noisy, so only a ratio within one run means something. Every benchmark prints JSON lines with `name`,
`ours`, `peer` and `ratio`.
"""

import json
import os
import statistics
import subprocess
import sys
import time


def serve(work):
    """In a contestant's process: run `work()` once for each line read, and answer with the seconds it took."""
    work()
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        work()
        print(time.perf_counter() - began, flush=True)


def race(script, contestants, rounds, threads=2):
    """Median seconds of each contestant, a list of command-line words for `script`, taking turns."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    processes = [
        subprocess.Popen(
            [sys.executable, script, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        for words in contestants
    ]
    try:
        for words, process in zip(contestants, processes, strict=True):
            if process.stdout.readline().strip() != "ready":
                raise SystemExit(f"{script} {' '.join(words)} did not start; run it alone to see why")
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


def tell(name, ours, peer, *, lower=False, **more):
    """Print one result; a `ratio` above 1 means that we are better. `lower`: the lower figure is the better one."""
    ratio = peer / ours if lower else ours / peer
    print(json.dumps({"name": name, "ours": round(ours, 4), "peer": round(peer, 4), "ratio": round(ratio, 3), **more}))
    sys.stdout.flush()
