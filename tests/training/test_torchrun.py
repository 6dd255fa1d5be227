"""The real torchrun: a killed process is restarted and continues its run, and two agents train one run together."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from saccade.runs.journal import read_journal
from tests.training.forker import free_port
from tests.training.test_distributed import LOOP, SETTINGS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
STEPS = 60


def torchrun(folder: Path, options: list[str], *settings: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "saccade", "train", "text.txt"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "SACCADE_CACHE": str(folder / "c")}
    loop = [*LOOP, f"train.steps={STEPS}"]
    return subprocess.Popen(
        [*command, "--task", "language_model", "--quiet", "--json", *SETTINGS, *loop, *settings],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("".join(f"line {n} of {n % 7} cats.\n" for n in range(200)))
    return tmp_path


def children(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


def steps(folder: Path) -> list[int]:
    return [record["step"] for record in read_journal(folder / "metrics.jsonl") if "lr_scale" in record]


def test_a_killed_process_is_restarted_and_continues_the_run_that_it_created(folder: Path) -> None:
    process = torchrun(folder, ["--nproc-per-node", "2", "--max-restarts", "1"])
    deadline = time.monotonic() + 90
    while not (folder / "runs/text-1/checkpoints/step-000004").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(children(process.pid)[1], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    messages = [line for line in err.splitlines() if line.startswith("saccade: ")]
    assert len(messages) == 1 and "one of the 2 processes of this run has ended or does not answer" in messages[0]
    assert json.loads(out)["run"] == "runs/text-1"
    assert [path.name for path in (folder / "runs").iterdir()] == ["text-1"]  # no second run
    assert steps(folder / "runs" / "text-1") == list(range(1, STEPS + 1))


def test_two_agents_on_two_addresses_train_one_run(folder: Path) -> None:
    """As on two machines that share a disk; with a shard of the model each."""
    port = free_port()
    common = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "job-7"]
    agents = [
        torchrun(
            folder,
            [*common, "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"],
            "micro_batches=2",
            "train.parallel=fsdp",
        )
        for _ in range(2)
    ]
    results = [agent.communicate(timeout=120) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], results
    assert sum(bool(out) for out, _ in results) == 1  # rank 0 alone prints
    (run,) = (folder / "runs").iterdir()
    assert json.loads((run / "run.json").read_text())["launch"] == "job-7"
    assert steps(run) == list(range(1, STEPS + 1))
