"""One odd run takes down no list: it is shown as damaged with its reason, and every other run as it is."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from saccade import api
from saccade.cli import main
from saccade.runs import folder as runs
from saccade.runs.folder import Run
from saccade.studio.app import make_app
from saccade.studio.sessions import Sessions

HOME = "http://127.0.0.1:8000"
STEP = {"step": 1, "lr_scale": 1.0, "loss": 2.5, "unit": "tokens", "tokens": 64, "seconds": 0.5}
EVALUATION = {"step": 1, "elapsed": 0.5, "loss": 2.25, "best": 2.25}


def create(root: Path, name: str) -> Run:
    """A run without weights, whose journal has a step and an evaluation."""
    run = runs.create(root, name, "language_model", {"config": {}, "train": {}}, root / "data.txt")
    (run.folder / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in (STEP, EVALUATION)))
    return run


def append(line: bytes) -> Callable[[Run], Any]:
    def damage(run: Run) -> None:
        path = run.folder / "metrics.jsonl"
        path.write_bytes(path.read_bytes() + line)

    return damage


def replaced(name: str, make: Callable[[Path], Any]) -> Callable[[Run], Any]:
    def damage(run: Run) -> None:
        (run.folder / name).unlink(missing_ok=True)
        make(run.folder / name)

    return damage


ODD: dict[str, tuple[Callable[[Run], Any], str]] = {
    "a folder for the journal": (replaced("metrics.jsonl", Path.mkdir), "metrics.jsonl cannot be read: Is a directory"),
    "a folder for run.json": (replaced("run.json", Path.mkdir), "run.json"),
    "a pipe for the journal": (replaced("metrics.jsonl", os.mkfifo), "metrics.jsonl must be"),
    "a pipe for run.json": (replaced("run.json", os.mkfifo), "run.json must be"),
    "a line that is not JSON": (append(b"{\n" + json.dumps(STEP).encode() + b"\n"), "metrics.jsonl:3 is damaged"),
    "bytes that are not UTF-8": (append(b'{"step": 2, "a": "\xff"}\n'), "metrics.jsonl:3 is damaged"),
    "a line without a step": (append(b'{"loss": 2}\n'), "metrics.jsonl:3 must be a JSON object with a step"),
    "a line that is no object": (append(b"[1]\n"), "metrics.jsonl:3 must be a JSON object with a step"),
    "nan": (append(b'{"step": 2, "best": NaN}\n'), "metrics.jsonl:3 is damaged: a number must be finite, but is NaN"),
    "infinity": (append(b'{"step": 2, "best": -Infinity}\n'), "a number must be finite, but is -Infinity"),
    "a number of 5,000 digits": (append(b'{"step": ' + b"9" * 5000 + b"}\n"), "metrics.jsonl:3 is damaged"),
    "a line nested too deep": (append(b"[" * 99999 + b"\n"), "metrics.jsonl:3 is damaged"),
    "a name that is not UTF-8": (
        lambda run: run.folder.rename(run.folder.with_name(os.fsdecode(b"odd\xff"))),
        r"the name of a run must be printable UTF-8, but is 'odd\udcff'; rename its folder",
    ),
    "a name with an escape": (
        lambda run: run.folder.rename(run.folder.with_name("odd\x1b[2J")),
        r"the name of a run must be printable UTF-8, but is 'odd\x1b[2J'; rename its folder",
    ),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    create(tmp_path / "runs", "one")
    create(tmp_path / "runs", "two")
    return tmp_path / "runs"


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_run_is_listed_as_damaged_and_the_others_as_they_are(root: Path, odd: str) -> None:
    damage, reason = ODD[odd]
    damage(create(root, "odd"))
    listed = {run["name"]: run for run in api.list_runs(root)}
    good = {name: run for name, run in listed.items() if "error" not in run}
    assert {name: (run["step"], run["best"]) for name, run in good.items()} == {"one": (1, 2.25), "two": (1, 2.25)}
    (damaged,) = (run for run in listed.values() if "error" in run)
    assert damaged["name"].startswith("odd") and damaged["name"].isprintable()
    assert reason in damaged["error"] and damaged["error"].isprintable()

    shown = CliRunner().invoke(main, ["runs", "--runs", str(root)])
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.stdout.splitlines() if "step 1" in line] == ["one", "two"]
    assert f"damaged: {damaged['error']}" in shown.stdout
    assert strict(CliRunner().invoke(main, ["runs", "--runs", str(root), "--json"]).stdout) == list(listed.values())

    client = TestClient(make_app(Sessions(root), "secret", 8000), base_url=HOME)
    assert client.get("/runs?key=secret").status_code == 200
    assert strict(client.get("/runs.json").text)["runs"] == list(reversed(listed.values()))
    assert {"one", "two"} <= set(client.get("/look.json").json()["models"])


def strict(text: str) -> Any:
    """The value of JSON that has no NaN."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_run_that_is_deleted_while_it_is_listed_hides_no_other(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [root / "one" / "run.json", root / "gone" / "run.json"]
    monkeypatch.setattr(Path, "glob", lambda *_: found)
    listed = {run["name"]: run for run in api.list_runs(root)}
    assert listed["one"]["step"] == 1
    assert "run.json cannot be read: No such file or directory" in listed["gone"]["error"]


def test_the_last_line_of_a_run_that_was_killed_may_be_incomplete(root: Path) -> None:
    append(b'{"step": 2, "lo')(Run(root / "one"))
    assert next(run for run in api.list_runs(root) if run["name"] == "one")["step"] == 1


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"step": 2, "lr_scale": 1.0}, "the record of step 2 must have seconds, a unit and its count"),
        ({**STEP, "step": 2, "tokens": "many"}, "the record of step 2 must have seconds, a unit and its count"),
        ({**STEP, "step": 2, "unit": ["tokens"]}, "the record of step 2 must have seconds, a unit and its count"),
    ],
)
def test_a_record_without_its_numbers_is_told_on_the_page_of_the_run(root: Path, record: Any, reason: str) -> None:
    append(json.dumps(record).encode() + b"\n")(Run(root / "one"))
    client = TestClient(make_app(Sessions(root), "secret", 8000), base_url=HOME)
    client.get("/?key=secret", follow_redirects=False)
    answer = client.get("/api/runs/one")
    assert (answer.status_code, reason in answer.json()["error"]) == (400, True)
    assert client.get("/api/runs/two").json()["steps"] == [STEP]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"examples": [1]}', '{"examples": [{"inputs": 3}]}'])
def test_a_damaged_snapshot_is_told_and_nothing_else_is_lost(root: Path, content: str) -> None:
    (root / "one" / "attention").mkdir()
    (root / "one" / "attention" / "step-00000001.json").write_text(content)
    client = TestClient(make_app(Sessions(root), "secret", 8000), base_url=HOME)
    client.get("/?key=secret", follow_redirects=False)
    answer = client.get("/api/runs/one/attention/1")
    assert (answer.status_code, "step-00000001.json" in answer.json()["error"]) == (400, True)
    assert client.get("/api/runs/one").json()["snapshots"] == [1]
