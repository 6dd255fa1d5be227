"""Two processes train one run together: the numbers of one process, one checkpoint, one message, no hang."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import saccade
from saccade.errors import ModelFileError
from saccade.runs import checkpoint
from saccade.runs.equality import differences
from saccade.runs.journal import read_journal

ROOT = Path(__file__).parents[2]
SMALL = ["dim=32", "depth=2", "heads=2", "hidden=64", "max_positions=32", "dropout=0.1"]
SETTINGS = [*(f"model.{setting}" for setting in SMALL), "batch_size=8", "data.tokenizer=characters"]
LOOP = ["train.device=cpu", "train.optim.clip=1", "train.average=0.9", "train.save_every=2", "train.evaluate_every=4"]
STEPS = 8


@dataclass
class Result:
    codes: list[int | None]
    out: list[str]
    err: list[str]

    @property
    def lines(self) -> list[str]:
        """What was printed to stderr by all processes."""
        return [line for text in self.err for line in text.splitlines()]


class Job:
    """A command in one process, or in two that train together."""

    def __init__(
        self, forker: "subprocess.Popen[str]", folder: Path, arguments: list[str], size: int, hold: int
    ) -> None:
        self._forker, self.folder = forker, folder
        (folder / "continue").unlink(missing_ok=True)
        assert forker.stdin is not None and forker.stdout is not None
        forker.stdin.write(json.dumps([str(folder), arguments, size, hold]) + "\n")
        forker.stdin.flush()
        self.pids: list[int] = json.loads(forker.stdout.readline())

    def signal(self, rank: int, number: int, path: str) -> None:
        """Send a signal to a process that waits beside a checkpoint, and let all go on."""
        deadline = time.monotonic() + 60
        while not (self.folder / path).exists():
            assert time.monotonic() < deadline, f"{path} was never written"
            time.sleep(0.002)
        os.kill(self.pids[rank], number)
        (self.folder / "continue").touch()

    def result(self) -> Result:
        assert self._forker.stdout is not None
        ended = json.loads(self._forker.stdout.readline())
        return Result(*(list(part) for part in zip(*ended, strict=True)))


Start = Callable[..., Job]


@pytest.fixture(scope="module")
def forker() -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.training.forker"]
    environment = {**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR"}  # which `saccade` sets before it imports torch
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, cwd=ROOT, env=environment, **pipes) as process:
        yield process
        process.communicate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("distributed")
    lines = [f"line {number} of {number % 7} cats and {number % 3} dogs.\n" for number in range(200)]
    (path / "text.txt").write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def start(forker: "subprocess.Popen[str]", folder: Path) -> Start:
    def started(*arguments: str, size: int = 2, hold: int = 0) -> Job:
        return Job(forker, folder, list(arguments), size, hold)

    return started


def train(name: str, *settings: str) -> list[str]:
    named = ["train", "text.txt", "--task", "language_model", "--name", name, "--quiet", "--json"]
    return [*named, *SETTINGS, *LOOP, f"train.steps={STEPS}", *settings]


def resume(name: str) -> list[str]:
    return ["resume", name, "--quiet", "--json"]


def check(result: Result, code: int = 0) -> None:
    assert result.codes == [code] * len(result.codes), result.err


def losses(run: Path) -> list[dict[str, Any]]:
    """Return the records of a run without the clock."""
    records = read_journal(run / "metrics.jsonl")
    return [{key: value for key, value in one.items() if key not in ("seconds", "elapsed")} for one in records]


def check_equal(run: Path, other: Path, tolerance: float = 1e-5) -> None:
    """Compare every loss, norm and metric of two runs."""
    one, two = losses(run), losses(other)
    assert len(one) == len(two) == STEPS + STEPS // 4
    for record, expected in zip(one, two, strict=True):
        assert record.keys() == expected.keys()
        for key, value in expected.items():
            assert record[key] == (pytest.approx(value, abs=tolerance) if isinstance(value, float) else value), key


@pytest.fixture(scope="module")
def alone(start: Start, folder: Path) -> Path:
    """A run of one process that accumulates the gradients of two micro-batches."""
    check(start(*train("alone", "micro_batches=2"), size=1).result())
    return folder / "runs" / "alone"


@pytest.fixture(scope="module")
def sharded(start: Start, folder: Path) -> Path:
    """A run of two processes with a shard of the model each."""
    check(start(*train("sharded", "train.parallel=fsdp")).result())
    return folder / "runs" / "sharded"


@pytest.fixture(scope="module")
def paired(start: Start, folder: Path) -> Path:
    """A run of two processes with a copy of the model each."""
    result = start(*train("paired")).result()
    check(result)
    assert result.lines == []
    assert json.loads(result.out[0])["run"] == "runs/paired" and result.out[1] == ""  # rank 0 alone prints
    return folder / "runs" / "paired"


def test_ddp_computes_what_one_process_computes(alone: Path, paired: Path) -> None:
    check_equal(paired, alone)
    assert json.loads((paired / "run.json").read_text())["config"]["micro_batches"] == 2


def test_fsdp_computes_what_one_process_computes(alone: Path, sharded: Path) -> None:
    check_equal(sharded, alone)


def test_fsdp_writes_a_safetensors_file_per_process_that_one_process_reads(alone: Path, sharded: Path) -> None:
    path = sharded / "checkpoints" / f"step-{STEPS:06d}"
    shards = [f"shard-0000{number}-model-00001-of-00001.safetensors" for number in (1, 2)]
    for part in ("model", "optimizer", "average"):
        assert sorted(file.name for file in (path / part).iterdir()) == shards
    listed = checkpoint.read_manifest(path)["files"]
    assert sorted(listed) == sorted(
        ["state.json", *(f"{p}/{s}" for p in ("average", "model", "optimizer") for s in shards)]
    )
    saved, whole = checkpoint.read(path), checkpoint.read(alone / "checkpoints" / path.name)
    for part, tensors in whole.parts.items():
        assert saved.parts[part].keys() == tensors.keys()
        for name, value in tensors.items():
            assert float((saved.parts[part][name] - value).abs().max()) < 1e-4, (part, name)
    predictions = [saccade.load(run, device="cpu")("line 1", max_new_tokens=5).text for run in (sharded, alone)]
    assert predictions[0] == predictions[1]


def test_a_shard_has_no_random_order_of_its_metadata(sharded: Path) -> None:
    """Which safetensors writes in any order: equal checkpoints have equal bytes."""
    for path in sharded.glob("checkpoints/*/*/shard-*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        assert list(header["__metadata__"]) == sorted(header["__metadata__"]) and len(header["__metadata__"]) > 1, path


def test_a_damaged_or_missing_shard_is_noticed(sharded: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sharded / "checkpoints" / f"step-{STEPS:06d}", tmp_path / f"step-{STEPS:06d}")
    first, second = sorted((copy / "model").iterdir())
    content = second.read_bytes()
    second.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ModelFileError, match=f"{second.name} must have sha256"):
        checkpoint.read(copy)
    second.unlink()
    with pytest.raises(ModelFileError, match=f"{second.name} is missing"):
        checkpoint.read(copy)
    second.write_bytes(content)
    (copy / "model" / "shard-00003-model-00001-of-00001.safetensors").write_bytes(first.read_bytes())
    with pytest.raises(ModelFileError, match=r"must hold the 2 shards of the manifest alone, but holds .*00003"):
        checkpoint.read(copy)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_run_resumes_on_another_number_of_processes(start: Start, folder: Path, alone: Path, parallel: str) -> None:
    """Two processes, then one, then two: stopped by a signal to rank 1, by one to the process, then to the end."""
    name = f"moved-{parallel}"
    run = folder / "runs" / name
    arguments = train(name, f"train.parallel={parallel}")
    for size, step in ((2, 2), (1, 4)):
        job = start(*arguments, size=size, hold=step)
        job.signal(-1, signal.SIGTERM, f"runs/{name}/checkpoints/step-{step:06d}")
        result = job.result()
        check(result, 128 + signal.SIGTERM)
        (line,) = [line for line in result.lines if line.startswith("saccade: ")]
        assert line.startswith("saccade: stopped at") and line.endswith("the checkpoint is saved")
        arguments = resume(name)
    result = start(*arguments).result()
    check(result)
    check_equal(run, alone)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_killed_process_ends_the_other_with_one_message_and_the_run_continues_exactly(
    start: Start, folder: Path, request: pytest.FixtureRequest, parallel: str
) -> None:
    whole: Path = request.getfixturevalue({"ddp": "paired", "fsdp": "sharded"}[parallel])
    for victim in (1, 0):
        name = f"killed-{parallel}-{victim}"
        job = start(*train(name, f"train.parallel={parallel}"), hold=2)
        job.signal(victim, signal.SIGKILL, f"runs/{name}/checkpoints/step-000002")
        began = time.monotonic()
        result = job.result()
        assert time.monotonic() - began < 30
        assert result.codes[victim] == -signal.SIGKILL and result.codes[1 - victim] == 5
        (line,) = result.lines
        assert line.startswith("saccade: one of the 2 processes of this run has ended or does not answer (")
        assert "continue with `saccade resume` under torchrun" in line
        check(start(*resume(name)).result())
        assert differences(folder / "runs" / name, whole) == []


FAILURES = {
    "batch_size=2": (3, "text.txt:7: the disk of this machine has no such line"),
    "batch_size=8": (5, "step 1 needs more memory than cpu has; raise micro_batches, or lower the size of the batch"),
}


@pytest.mark.parametrize("setting", FAILURES)
def test_an_error_in_rank_1_ends_both_with_its_message_and_exit_code(start: Start, folder: Path, setting: str) -> None:
    code, message = FAILURES[setting]
    arguments = train("failed", setting)
    arguments[arguments.index("language_model")] = "tests.training.failing_task"
    result = start(*arguments).result()
    check(result, code)
    (line,) = result.lines
    assert line.startswith("saccade: ") and message in line
    shutil.rmtree(folder / "runs" / "failed", ignore_errors=True)


def test_a_loss_that_is_not_finite_is_one_message(start: Start) -> None:
    result = start(*train("diverged", "train.optim.lr=1e38", "train.optim.kind=adamw", "train.optim.clip=0")).result()
    check(result, 1)
    (line,) = result.lines
    assert "expected a finite number" in line


def test_a_usage_error_is_one_message(start: Start) -> None:
    for arguments, message in (
        (train("odd", "batch_size=7"), "micro_batches=2, but batch_size must be a multiple of micro_batches, but 7"),
        (train("odd", "train.paralel=ddp"), "did you mean 'train.parallel'"),
        (["train", "text.txt", "--stepz", "3"], "No such option"),
    ):
        result = start(*arguments).result()
        check(result, 2)
        assert message in "\n".join(result.lines) and "\n".join(result.lines).count("rror") <= 1
        assert result.err[1] == ""
