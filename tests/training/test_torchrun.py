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


def torchrun(folder: Path, options: list[str], *settings: str, resume: str = "") -> "subprocess.Popen[str]":
    """Start torchrun with `saccade train`, or with `saccade resume` of a run."""
    verb = ["resume", resume] if resume else ["train", "text.txt", "--task", "language_model"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "saccade", *verb, "--quiet", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "SACCADE_CACHE": str(folder / "c")}
    loop = [*LOOP, f"train.steps={STEPS}"]
    return subprocess.Popen(
        command if resume else [*command, *SETTINGS, *loop, *settings],
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


def agent(folder: Path, port: int, *options: str, resume: str = "") -> "subprocess.Popen[str]":
    """Start the agent of one of two machines that share a disk."""
    common = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "job-7"]
    place = ["--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]
    return torchrun(folder, [*common, *place, *options], "micro_batches=2", "train.parallel=fsdp", resume=resume)


def finish(agents: list["subprocess.Popen[str]"]) -> str:
    """Wait for agents and return what they wrote to stderr: they succeed, and rank 0 alone prints."""
    results = [agent.communicate(timeout=180) for agent in agents]
    assert [agent.returncode for agent in agents] == [0] * len(agents), results
    assert sum(bool(out) for out, _ in results) == 1
    return "".join(err for _, err in results)


def wait_for_checkpoint(folder: Path, agents: list["subprocess.Popen[str]"]) -> None:
    deadline = time.monotonic() + 90
    while not list((folder / "runs").glob("text-1/checkpoints/step-*")):
        assert all(agent.poll() is None for agent in agents) and time.monotonic() < deadline
        time.sleep(0.01)


def test_two_agents_on_two_addresses_train_one_run(folder: Path) -> None:
    """As on two machines that share a disk; with a shard of the model each."""
    port = free_port()
    finish([agent(folder, port) for _ in range(2)])
    (run,) = (folder / "runs").iterdir()
    assert json.loads((run / "run.json").read_text())["launch"] == "job-7"
    assert steps(run) == list(range(1, STEPS + 1))


@pytest.mark.parametrize("killed", [0, 1])
def test_a_process_of_one_of_two_agents_is_killed_and_both_go_on(folder: Path, killed: int) -> None:
    """Each agent counts restarts on its own: that of the process that was killed has counted one, the other may not."""
    port = free_port()
    agents = [agent(folder, port, "--max-restarts", "1") for _ in range(2)]
    wait_for_checkpoint(folder, agents)
    os.kill(children(agents[killed].pid)[0], signal.SIGKILL)
    finish(agents)
    (run,) = (folder / "runs").iterdir()
    assert steps(run) == list(range(1, STEPS + 1))


def test_a_job_that_a_scheduler_starts_anew_continues_its_run(folder: Path) -> None:
    """Of the same --rdzv-id; one of the machines may resume the run that the other trains."""
    port = free_port()
    agents = [agent(folder, port) for _ in range(2)]
    wait_for_checkpoint(folder, agents)
    for one in agents:
        one.terminate()
    for one in agents:
        one.communicate(timeout=60)
    (run,) = (folder / "runs").iterdir()
    assert 0 < len(steps(run)) < STEPS
    port = free_port()
    finish([agent(folder, port), agent(folder, port, resume="text-1")])
    assert [path.name for path in (folder / "runs").iterdir()] == ["text-1"]
    assert steps(run) == list(range(1, STEPS + 1))
