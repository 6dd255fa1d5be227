"""The checks of the fuzzers can fail: crashes, hangs, unclear errors and noise are told from reading and refusing."""

import ctypes
import os
import random
import sys
import time
from pathlib import Path

import pytest

from saccade.errors import DataError

sys.path.insert(0, str(Path(__file__).parent))

import fuzzing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the size of a process is read from /proc")


def act(case):
    """Behave as the case says."""
    match case:
        case "good":
            return
        case "refuse":
            raise DataError("set/rows.csv:3: 'x', expected a number; correct it")
        case "unnamed":
            raise DataError("expected a number")
        case "internal":
            raise DataError("set/rows.csv: 'NoneType' object is not iterable, expected a table")
        case "exception":
            raise KeyError("label")
        case "abort":
            os.abort()
        case "segfault":
            ctypes.string_at(0)
        case "loop":
            while True:
                time.sleep(0.01)
        case "noise":
            os.write(2, b"libpng warning\n")
        case "large":
            bytes(8 << 30)
        case "torch":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(fuzzing, "SECONDS", 0.5)
    worker = fuzzing.Worker(act, ["good"])
    yield worker
    worker.close()


@pytest.mark.parametrize(
    ("case", "kind", "message"),
    [
        ("good", "read", ""),
        ("refuse", "refused", "expected a number"),
        ("unnamed", "unclear", "names none of rows.csv: expected a number"),
        ("internal", "unclear", "shows 'NoneType'"),
        ("exception", "crash", "KeyError: 'label'"),
        ("abort", "crash", "the process ended"),
        ("segfault", "crash", "the process ended"),
        ("loop", "hang", "_TimeUp"),
        ("noise", "unclear", "output of a library: libpng warning"),
        ("large", "memory", ""),
        ("torch", "memory", ""),
    ],
)
def test_a_worker_tells_what_became_of_a_case_and_goes_on(worker, case, kind, message):
    for _ in range(2):
        outcome = worker.run(case, ["rows.csv"])
        assert outcome.kind == kind and message in outcome.message, outcome
        assert worker.run("good", ["rows.csv"]).kind == "read"


def test_failures_are_counted_with_their_cases(capsys):
    tally = fuzzing.Tally.new()
    for number, kind in enumerate(("read", "refused", "crash", "hang", "unclear", "memory")):
        tally.add(f"case {number}", "csv", fuzzing.Outcome(kind, "why", 0.25))
    figures = tally.figures()
    assert (figures["good"], figures["total"]) == (3, 6)
    assert (figures["crashes"], figures["hangs"], figures["unclear errors"]) == (1, 1, 1)
    assert "case 3: hang: why" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["text.txt", "data.json", "rows.jsonl", "picture.png"])
def test_changes_are_reproducible_and_change_something(name):
    content = {
        "data.json": b'{"a": [1, {"b": "c"}]}',
        "rows.jsonl": b'{"a": 1}\n{"a": 2}\n',
        "picture.png": b"\x89PNG\r\n\x1a\n" * 9,
    }
    data = content.get(name, b"some words, 3 lines\nof text\n")
    changed = [fuzzing.change(random.Random(number), data, name) for number in range(200)]
    assert changed == [fuzzing.change(random.Random(number), data, name) for number in range(200)]
    assert sum(result != data for result, _ in changed) > 180 and len({way for _, way in changed}) > 5
