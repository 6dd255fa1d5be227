"""Short forms of the reliability scripts: kills, damage, full disks; each ends on a line with its figure."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.serve_load import failures

HERE = Path(__file__).parent
NO_FAULTS = ".* 0 crashes, 0 hangs, 0 unclear errors; .*"
LINUX = partial(  # a trial whose memory is limited to more than what it has, as /proc tells
    pytest.param, marks=pytest.mark.skipif(sys.platform != "linux", reason="the size of a process is read from /proc")
)


def figure(script: str, *arguments: str) -> str:
    """The last line of a script that must succeed."""
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        cwd=HERE.parents[1],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_killed_runs_end_with_the_same_folder() -> None:
    trials = ["language_model", "masked_language_model", "translation", "lora", "head", "toy_corridor", "minutes"]
    line = figure("kill.py", "--kills", "1", "--trials", *trials)
    result = re.fullmatch(
        r"kill: (\d+)/(\d+) kills of 7 trials survived, \d+ inside a save; every file .* identical", line
    )
    assert result is not None
    assert result[1] == result[2]
    assert int(result[1]) >= len(trials)


@pytest.mark.slow
def test_killed_runs_of_two_processes_end_with_the_same_folder() -> None:
    """Once each with a whole model, and once each with a shard of it."""
    options = ["--kills", "2", "--processes", "2", "--inside", "1"]
    line = figure("kill.py", *options, "--trials", "language_model", "fsdp")
    text = r"kill: (\d+)/(\d+) kills of 2 trials in 2 processes survived, [1-9]\d* inside a save .* identical"
    result = re.fullmatch(text, line)
    assert result is not None
    assert result[1] == result[2]
    assert int(result[1]) >= 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [
        ("damage.py", ["--count", "24"], r"corruption: 24/24 damaged files .* 0 silent, 0 tracebacks, 0 hangs"),
        ("disk.py", ["--count", "4"], r"disk full: ([45])/\1 full disks .*"),
        ("signals.py", ["--count", "6"], r"signals: 6/6 signals \(2 SIGHUP, 2 SIGINT, 2 SIGTERM\): .*"),
        ("two_trainers.py", ["--count", "2"], r"two trainers: 2/2 runs with several trainers: [2-4] refused .*"),
        ("not_finite.py", ["--count", "4"], r"not finite: 4/4 runs of 4 tasks stopped .*"),
        (
            "data_order.py",
            ["--steps", "3"],
            r"data order: (\d+)/\1 tasks: .* identical for 0, 1 and 4 workers .* 2 ranks .*",
        ),
        LINUX(
            "hostile_models.py", ["--count", "120"], r"model files: 120/120 .* 0 crashes, 0 hangs, 0 unclear errors; .*"
        ),
        LINUX("fuzzed_data.py", ["--count", "240"], r"data files: 240/240 .* 0 crashes, 0 hangs, 0 unclear errors; .*"),
        (
            "studio_delay.py",
            ["--slack", "20"],
            r"studio delay: (\d+)/\1 .* by 20 s; longest delay of others: [\d.-]+ s",
        ),
        ("serve_requests.py", ["--count", "400"], r"server requests: 400/400 hostile requests .* 5xx 0, .* 0 failures"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.endswith(".py") else "",
)
def test_a_short_form_finds_nothing(script: str, arguments: list[str], expected: str) -> None:
    line = figure(script, *arguments)
    assert re.fullmatch(expected, line), line


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize(
    ("part", "change", "name"),
    [
        ("", {}, ""),
        ("", {"lost": 1}, "lost"),
        ("", {"answered": 0}, "answered"),
        ("disconnects", {"p50_ms": 90.0, "p99_ms": 300.0}, "disconnects"),  # a row that is kept to the end of its text
        ("overload", {"refusal_p50_ms": 500.0, "refusal_p99_ms": 900.0}, "refusals"),  # that waits for a place
        ("overload", {"lost": 1}, "refusals"),
        ("overload", {"refused": 0}, "refusals"),
        ("overload", {"memory_mb": [400, 500, 400]}, "memory"),
        ("drain", {"finished": 39}, "drain"),
    ],
)
def test_the_load_test_can_fail(busy: bool, part: str, change: dict[str, Any], name: str) -> None:
    figures: dict[str, Any] = {"lost": 0, "mixed": 0, "server_errors": 0, "answered": 9}
    figures["overload"] = {"alone_ms": 100.0, "refusal_p50_ms": 5.0, "refusal_p99_ms": 40.0, "lost": 0, "refused": 9}
    figures["overload"]["memory_mb"] = [400, 410, 400]
    figures["disconnects"] = {"alone_ms": 100.0, "p50_ms": 8.0, "p99_ms": 20.0}
    figures["drain"] = {"in_flight": 40, "finished": 40, "exit_code": 0}
    (figures[part] if part else figures).update(change)
    assert failures(figures, busy) == ([name] if name else [])


@pytest.mark.slow
def test_a_server_under_load_loses_and_mixes_nothing() -> None:
    arguments = ["--clients", "100", "--minutes", "0.5", "--disconnects", "30", "--busy", "--json"]
    figures = json.loads(figure("serve_load.py", *arguments))
    assert figures["good"] == figures["total"] == figures["requests"]
    assert figures["failures"] == [] and figures["answered"] > 20 and figures["disconnects"]["count"] == 30
