"""Reliability report: runs the long forms one after another and writes their figures to docs/reliability.md.

python tests/reliability/report.py                    all of them, as `make reliability` does
python tests/reliability/report.py signals disk       some of them; the other rows stay as they are
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
NOT_RUN = "not run"
ROW = re.compile(
    r"^\| `(?P<name>[\w-]+)` \| (?P<figure>.*) \| (?P<time>.*) \| (?P<commit>.*) \| `(?P<command>.*)` \|$", re.MULTILINE
)
TEMPLATE = """\
# Reliability

What happens when things go wrong, measured. Each row is a script of `tests/reliability/` that prints its figure as the
last line (`--json`: as JSON) and exits with 1 if a single trial is not as promised; `make test` runs short forms.
`make reliability` runs the long forms below, one after another, and writes this page. N/N: trials as promised, of all.

| test | figure | time | commit | command, in `tests/reliability/` |
| --- | --- | --- | --- | --- |
{rows}

Machine: {machine}; one thread of torch for each process. The times are those beside other work, and measure no speed.
The commit is that of the code that was measured; `+`: with changes that were not committed; -: it was not recorded.

## What is promised

| test | a trial is as promised if |
| --- | --- |
{promises}
"""


@dataclass(frozen=True)
class Test:
    """A long form and what it promises."""

    name: str
    command: str
    promise: str


TESTS = {
    test.name: test
    for test in (
        Test(
            "hostile-models",
            "hostile_models.py --count 10000",
            "a changed model file (safetensors, GGUF, config.json, tokenizer.json, SentencePiece, adapters, ...) "
            "is opened and run, or refused with an error that names file and rule, within 20 seconds and 1 GB; no "
            "library prints",
        ),
        Test(
            "fuzzed-data",
            "fuzzed_data.py --count 10000",
            "a changed data file (tables, texts, JSON, SQuAD, CoNLL, pictures, sound, graphs, trajectories, "
            "archives, ...) is read into batches, or refused with an error that names file and rule, within the "
            "same limits",
        ),
        Test(
            "corruption",
            "damage.py --count 1000",
            "a file of a run folder that is cut, flipped, deleted, swapped, or replaced by a folder, link, pipe "
            "or hostile JSON is named by `look`, `runs` and `resume`, or changes nothing of their results",
        ),
        Test(
            "signals",
            "signals.py --count 100",
            "SIGINT, SIGTERM or SIGHUP at a random moment of training saves the step and exits with 128 + its "
            "number; the resumed run ends with the same files as one that was left alone, byte by byte",
        ),
        Test(
            "not-finite",
            "not_finite.py --count 100",
            "a weight, gradient, loss or update that becomes NaN or infinite stops the run with exit code 1, "
            "step, rows and parameter; the newest checkpoint is finite; without the fault the run resumes to the "
            "same files",
        ),
        Test(
            "disk-full",
            "disk.py --count 100",
            "a full disk or a limit on file sizes ends the run with exit code 5 and one message; no checkpoint is "
            "lost or half written; the resumed run ends with the same files",
        ),
        Test(
            "kill",
            "kill.py --kills 7 --inside 50",
            "a run of any task that is killed with SIGKILL at random moments, at least 50 of them inside a save, and "
            "resumed, ends with the same files",
        ),
        Test(
            "kill-two-processes",
            "kill.py --processes 2 --kills 25 --inside 10 --trials language_model fsdp",
            "the same of runs that two processes train together, with DDP and with FSDP2, of which a random one is "
            "killed: the other ends with it",
        ),
        Test(
            "two-trainers",
            "two_trainers.py --count 20",
            "a second trainer of a run is refused with exit code 5 and the number of the first process, which "
            "ends with the same files",
        ),
        Test(
            "data-order",
            "data_order.py --steps 40",
            "the batches of a task are the same bit by bit, for 0, 1 and 4 workers that prepare them; what 2 ranks "
            "compute of a step is what 1 rank computes, each micro-batch once",
        ),
        Test(
            "broken-files",
            "broken_files.py",
            "a broken text, table or JSON file is named with the right line and reason; a large one within 5 seconds",
        ),
        Test(
            "broken-images",
            "broken_images.py",
            "a broken picture or table of pictures is named with the right reason",
        ),
        Test(
            "studio-requests",
            "hostile_requests.py --count 3000",
            "a hostile request to the studio is answered without an error of the server, with its content "
            "security policy",
        ),
        Test(
            "server-requests",
            "serve_requests.py --count 5000",
            "the same of `serve`, and each error has OpenAI's form",
        ),
        Test(
            "server-load",
            "serve_load.py --clients 100 --minutes 5",
            "under load, disconnects and overload no request is lost, mixed with another or met by an error of "
            "the server",
        ),
        Test(
            "studio-delay",
            "studio_delay.py",
            "a client that does not read, or sends a huge text, delays no other client by more than a second",
        ),
    )
}


@dataclass(frozen=True)
class Result:
    """The row of a test."""

    figure: str = NOT_RUN
    time: str = "-"
    commit: str = "-"


def run(test: Test) -> Result:
    """Run a long form and return its row; a failure is shown as such."""
    began = time.perf_counter()
    command = [sys.executable, str(Path(__file__).with_name(test.command.split()[0])), *test.command.split()[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    figure = lines[-1] if lines else f"no figure, exit code {done.returncode}"
    if done.returncode:
        figure = f"**failed**: {figure}"
    minutes = (time.perf_counter() - began) / 60
    return Result(
        re.sub(r"^(\*\*failed\*\*: )?[\w -]+: (?=\d)", r"\1", figure).replace("|", "\\|"),
        f"{minutes:.1f} min",
        commit(),
    )


def commit() -> str:
    """Return the short hash of the code; + where files other than the page have changed, - without git."""
    arguments = ("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "-uno", "--", ".", ":!docs/reliability.md")
    try:
        name, changed = (
            subprocess.run(["git", *given], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
            for given in arguments
        )
    except (OSError, subprocess.CalledProcessError):
        return "-"
    return f"`{name}`{'+' if changed else ''}"


def read_page() -> dict[str, Result]:
    """Return the rows of the page, of the commands that are still the same."""
    if not PAGE.exists():
        return {}
    rows = {match["name"]: match for match in ROW.finditer(PAGE.read_text())}
    return {
        name: Result(match["figure"], match["time"], match["commit"])
        for name, match in rows.items()
        if name in TESTS and match["command"] == TESTS[name].command
    }


def machine() -> str:
    """Return processor and versions."""
    import torch

    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    name = model[1] if model else platform.processor() or platform.machine()
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    return f"{name}, {os.cpu_count()} cores; {system}, Python {platform.python_version()}, torch {torch.__version__}"


def write_page(results: dict[str, Result]) -> None:
    """Write the page with a row for every test."""
    rows, promises = [], []
    for test in TESTS.values():
        result = results.get(test.name, Result())
        rows.append(f"| `{test.name}` | {result.figure} | {result.time} | {result.commit} | `{test.command}` |")
        promises.append(f"| `{test.name}` | {test.promise} |")
    PAGE.write_text(TEMPLATE.format(rows="\n".join(rows), promises="\n".join(promises), machine=machine()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", metavar="TEST", help=f"of {', '.join(TESTS)}; all by default")
    chosen = parser.parse_args().tests
    if unknown := [name for name in chosen if name not in TESTS]:
        parser.error(f"no test {', '.join(unknown)}; there are {', '.join(TESTS)}")
    failed = False
    for name in chosen or TESTS:
        print(f"{name}: {TESTS[name].command}", file=sys.stderr, flush=True)
        result = run(TESTS[name])
        print(f"{name}: {result.figure} ({result.time})", flush=True)
        failed = failed or not re.match(r"\d", result.figure)
        write_page({**read_page(), name: result})  # after each: hours of work are not lost with the last one
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
