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
@pytest.mark.parametrize(("kills", "more"), [(8, []), (3, ["--task", "translation", "--kinds", "muon-average-micro"])])
def test_killed_runs_end_the_same(kills: int, more: list[str]) -> None:
    line = figure("kill.py", "--kills", str(kills), *more)
    result = re.fullmatch(r"(\d+)/(\d+) kills survived, weights, optimizer and losses bit-identical", line)
    assert result is not None
    assert result[1] == result[2]
    assert int(result[1]) >= kills


@pytest.mark.slow
def test_damaged_checkpoints_are_noticed() -> None:
    line = figure("damage.py", "--count", "200")
    assert line == "200/200 damaged checkpoints noticed, 200/200 fell back"


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
    assert int(result[1]) >= 6  # seven where a small disk may be mounted
