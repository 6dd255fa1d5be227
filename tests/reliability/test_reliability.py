"""Short forms of the reliability scripts: kills, damage, full disks; each ends on a line with its figure."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def figure(script: str, *arguments: str) -> str:
    """The last line of a script that must succeed."""
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        cwd=HERE.parents[1],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_killed_runs_end_with_the_same_folder() -> None:
    trials = ["language_model", "masked_language_model", "translation", "lora", "head", "toy_corridor", "minutes"]
    line = figure("kill.py", "--kills", "1", "--trials", *trials)
    result = re.fullmatch(r"(\d+)/(\d+) kills of 7 trials survived, every file of the run folder identical", line)
    assert result is not None
    assert result[1] == result[2]
    assert int(result[1]) >= len(trials)


@pytest.mark.slow
def test_damage_to_any_file_of_a_run_is_noticed_or_harmless() -> None:
    line = figure("damage.py", "--count", "24")
    assert line.startswith("24/24 damaged files noticed"), line
    assert line.endswith("0 silent, 0 tracebacks, 0 hangs"), line


@pytest.mark.slow
def test_nobody_waits_for_a_reader_that_stalls_or_a_huge_text() -> None:
    result = re.fullmatch(r"longest delay of others: (\d+\.\d+) s", figure("studio_delay.py"))
    assert result is not None
    assert float(result[1]) < 1


@pytest.mark.slow
def test_trouble_ends_with_one_message() -> None:
    result = re.match(r"(\d)/(\d) troubles ended with one message and lost nothing", figure("disk.py"))
    assert result is not None
    assert result[1] == result[2]
    assert int(result[1]) >= 6  # eight where a small disk may be mounted
