"""What pages may do to runs: delete with the name confirmed, notes that no hash covers, a training that is started."""

import base64
import json
import shutil
import time

import pytest
from starlette.testclient import TestClient

from saccade import api
from saccade.runs import folder as runs
from saccade.runs.equality import differences
from saccade.studio.app import make_app
from saccade.studio.sessions import Sessions
from tests.studio.conftest import HOME, LOOP, MINE, PAIRS

ANIMALS, PLACES = ("cat", "dog", "cow", "hen"), ("mat", "hat", "box", "ox")
LINES = [f"the {one} sat on the {two} {n} times" for one in ANIMALS for two in PLACES for n in range(10)]
TABLE = "source\ttarget\n" + "".join(f"{line}\t{line.upper()}\n" for line in LINES)
UNNAMED = "".join(f"the {one} sat on a {two}\tTHE {one} ON A {two}\n" for one in ANIMALS for two in PLACES) * 10


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder of runs with two runs."""
    folder = tmp_path_factory.mktemp("actions")
    (folder / "pairs.tsv").write_text(TABLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(tmp_path_factory.mktemp("cache")))
        overrides = [*PAIRS, "batch_tokens=400", *LOOP]
        for name in ("one", "two"):
            api.train(folder / "pairs.tsv", name=name, root=folder / "runs", overrides=overrides, progress=False)
    return folder


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """A copy of the folder, in which the studio is started."""
    shutil.copytree(trained, tmp_path / "place")
    (tmp_path / "place" / "cache").mkdir()
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


@pytest.fixture
def client(place):
    result = TestClient(make_app(Sessions(place / "runs"), "secret", 8000), base_url=HOME)
    assert result.get("/runs?key=secret").status_code == 200
    return result


def post(client, path, body):
    headers = {**MINE, "content-type": "application/json"}
    return client.post(path, content=json.dumps(body), headers=headers)


def names(client):
    return {run["name"] for run in client.get("/runs.json").json()["runs"]}


def test_a_run_is_listed_with_its_metric_unit_direction_and_time(client):
    one = next(run for run in client.get("/runs.json").json()["runs"] if run["name"] == "one")
    assert (one["metric"]["label"], one["metric"]["higher_is_better"]) in {("BLEU", True), ("Exact match", True)}
    assert one["seconds"] > 0 and one["notes"] == ""
    names = client.get("/api/runs/one").json()["names"]
    assert names["loss"] | {} == {"name": "loss", "label": "Loss", "unit": "nats", "higher_is_better": False}
    assert names["exact"]["label"] == "Exact match" and names["exact"]["higher_is_better"]


def test_a_run_is_deleted_alone_and_only_when_its_name_is_confirmed(client, place):
    before = {path: path.stat().st_mtime_ns for path in (place / "runs" / "two").rglob("*")}
    for body in ({}, {"confirm": "two"}, {"confirm": True}, {"confirm": ["one"]}):
        answer = post(client, "/api/runs/one/delete", body)
        assert answer.status_code == 400 and "confirm must be the name of the run, 'one'" in answer.json()["error"]
    assert (place / "runs" / "one").is_dir()
    assert post(client, "/api/runs/one/delete", {"confirm": "one"}).status_code == 200
    assert names(client) == {"two"}
    assert sorted(path.name for path in (place / "runs").iterdir()) == ["two"], "nothing is left of it"
    assert before == {path: path.stat().st_mtime_ns for path in (place / "runs" / "two").rglob("*")}
    assert (place / "pairs.tsv").is_file()


def test_a_run_that_is_trained_is_not_deleted(client, place):
    run = runs.Run(place / "runs" / "one")
    with run.lock():
        answer = post(client, "/api/runs/one/delete", {"confirm": "one"})
        assert answer.status_code == 400 and "is being trained; stop it first" in answer.json()["error"]
    assert run.folder.is_dir()


@pytest.mark.parametrize("name", ["../cache", "..", ".", "nothing", "%2e%2e%2fcache", "cache"])
def test_nothing_but_a_run_is_deleted(client, place, name):
    (place / "runs" / "cache").mkdir()
    answer = post(client, f"/api/runs/{name}/delete", {"confirm": name})
    assert answer.status_code in (400, 404, 405)
    assert (place / "cache").is_dir() and (place / "runs" / "cache").is_dir()


def test_a_link_to_a_run_elsewhere_is_not_followed(client, place, tmp_path):
    shutil.move(place / "runs" / "one", tmp_path / "elsewhere")
    (place / "runs" / "one").symlink_to(tmp_path / "elsewhere")
    answer = post(client, "/api/runs/one/delete", {"confirm": "one"})
    assert answer.status_code == 400 and "is a link or a file; remove it yourself" in answer.json()["error"]
    assert (tmp_path / "elsewhere" / "run.json").is_file()


def test_a_request_of_another_site_deletes_nothing(client, place):
    headers = {"origin": "http://evil.example", "content-type": "application/json"}
    assert client.post("/api/runs/one/delete", json={"confirm": "one"}, headers=headers).status_code == 403
    assert (place / "runs" / "one").is_dir()


def test_notes_are_kept_and_disturb_no_hash(client, place):
    assert post(client, "/api/runs/one/notes", {"notes": "  warmup was\r\ntoo short \u202e "}).status_code == 200
    assert (place / "runs" / "one" / "notes.txt").read_text() == "warmup was\ntoo short \\u202e\n"
    assert client.get("/api/runs/one").json()["notes"].startswith("warmup was\ntoo short")
    summary = next(run for run in client.get("/runs.json").json()["runs"] if run["name"] == "one")
    assert summary["notes"].startswith("warmup was")
    assert differences(place / "runs" / "one", place / "runs" / "two") == []
    assert api.resume("one", root=place / "runs", progress=False).name == "one", "all hashes are as they were"
    post(client, "/api/runs/one/notes", {"notes": ""})
    assert not (place / "runs" / "one" / "notes.txt").exists()
    assert "must have at most 4,000" in post(client, "/api/runs/one/notes", {"notes": "x" * 4001}).json()["error"]
    assert "notes must be a text" in post(client, "/api/runs/one/notes", {"notes": 3}).json()["error"]


def test_the_files_of_the_folder_are_offered_and_what_is_in_them_is_told(client, place):
    (place / "photos").mkdir()
    (place / "photos" / "a.png").write_bytes(b"")
    (place / ".hidden.csv").write_text("a,b\n")
    offered = client.get("/train.json").json()
    assert offered["files"] == ["pairs.tsv", "photos"], "no hidden files, no runs, no caches"
    assert "translation" in {task["name"] for task in offered["tasks"]}
    found = post(client, "/api/train/inspect", {"path": "pairs.tsv"}).json()
    assert found["task"] == "translation" and found["name"] == "pairs-1" and found["parameters"] > 1000
    assert found["notes"][0] == "task: translation" and "147" in " ".join(found["notes"])
    assert found["presets"] == client.get("/api/tasks/translation").json()["presets"]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../outside.tsv",
        "a/../../outside.tsv",
        ".hidden.csv",
        "link.tsv",
        "",
        "none.tsv",
        "a\\b",
        "\0",
        "\ud800",
        "x" * 5000,
    ],
)
def test_a_path_is_never_outside_the_folder(client, place, path):
    (place.parent / "outside.tsv").write_text(TABLE)
    (place / ".hidden.csv").write_text(TABLE)
    (place / "link.tsv").symlink_to(place.parent / "outside.tsv")
    for action in ("inspect", "start"):
        answer = post(client, f"/api/train/{action}", {"path": path})
        assert answer.status_code == 400 and answer.json()["field"] == "data", answer.text
    assert names(client) == {"one", "two"}


@pytest.mark.parametrize("upload", ["../../pairs.tsv", "0" * 32 + "/../x", "0" * 32 + "/x.tsv", "x", "/etc/passwd"])
def test_an_upload_is_never_another_file(client, upload):
    answer = post(client, "/api/train/inspect", {"upload": upload})
    assert answer.status_code == 400 and "was not uploaded here" in answer.json()["error"]


def test_a_file_is_uploaded_and_read(client, place):
    url = "data:text/plain;base64," + base64.b64encode(TABLE.encode()).decode()
    upload = post(client, "/api/train/upload", {"name": "../../my pairs.tsv", "url": url}).json()["upload"]
    assert upload.endswith("/my pairs.tsv")
    assert (place / "runs" / ".uploads" / upload).read_text() == TABLE
    assert post(client, "/api/train/inspect", {"upload": upload}).json()["name"] == "my-pairs-1"
    assert names(client) == {"one", "two"}, "uploads are no runs"
    for url in ("data:;base64,!!", "data:;base64,\u00e9", "data:;base64,", "data:", "x", 3):
        damaged = post(client, "/api/train/upload", {"name": "a.tsv", "url": url})
        assert damaged.status_code == 400 and damaged.json()["field"] == "data", url


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"task": "os"}, "task", "no task 'os'"),
        ({"task": "os.path"}, "task", "no task 'os.path'"),
        ({"preset": "tiny"}, "preset", "choose the task first"),
        ({"task": "translation", "preset": "nope"}, "preset", "no preset 'nope' of translation"),
        ({"minutes": 0}, "minutes", "above 0"),
        ({"minutes": "5"}, "minutes", "above 0"),
        ({"minutes": True}, "minutes", "above 0"),
        ({"name": "one"}, "name", "a run 'one' exists"),
        ({"name": "../x"}, "name", "at most 100 letters"),
        ({"name": ".x"}, "name", "at most 100 letters"),
        ({"path": "broken.tsv", "task": "translation"}, "data", "broken.tsv:3"),
        ({"path": "unnamed.tsv"}, "data", "2 columns without names"),
        ({"target": "/etc/passwd"}, "data", "target must be the name of a column"),
        ({"source": "..\\x"}, "data", "source must be the name of a column"),
        ({"text_column": 1}, "data", "text_column must be a text"),
        ({"label_column": "\ud800"}, "data", "label_column must be the name of a column"),
        ({"text_column": "nope", "task": "language_model"}, "data", "nope"),
    ],
)
def test_a_mistake_is_told_for_its_control(client, place, body, field, message):
    (place / "unnamed.tsv").write_text(UNNAMED)
    (place / "broken.tsv").write_text("a\tb\n" * 2 + "only one\n" + "a\tb\n" * 20)
    for action in ("inspect", "start"):
        answer = post(client, f"/api/train/{action}", {"path": "pairs.tsv", **body})
        assert answer.status_code == 400, answer.text
        assert answer.json()["field"] == field and message in answer.json()["error"]
    assert names(client) == {"one", "two"}
    assert not list((place / "runs").glob(".*.log"))


def test_columns_without_names_are_chosen_in_the_form(client, place):
    (place / "unnamed.tsv").write_text(UNNAMED)
    body = {"path": "unnamed.tsv", "source": "1", "target": "2"}
    assert post(client, "/api/train/inspect", body).json()["task"] == "translation"


def test_the_module_of_an_unknown_task_is_never_imported(client):
    answer = client.get("/api/tasks/tests.training.failing_task")
    assert answer.status_code == 400 and "no task" in answer.json()["error"]


def test_a_training_is_started_in_a_process_of_its_own(client, place):
    body = {"path": "pairs.tsv", "minutes": 20, "name": "started"}
    assert post(client, "/api/train/start", body).json() == {"name": "started"}
    run = runs.Run(place / "runs" / "started")
    assert run.running() and run.describe()["train"]["minutes"] == 20
    assert (run.folder / "studio.log").exists()
    end = time.monotonic() + 60
    while not client.get("/api/runs/started").json()["steps"] and time.monotonic() < end:
        time.sleep(0.2)
    assert post(client, "/api/runs/started/delete", {"confirm": "started"}).status_code == 400
    assert post(client, "/api/runs/started/stop", {}).status_code == 200
    while run.running() and time.monotonic() < end:
        time.sleep(0.2)
    assert not run.running() and client.get("/api/runs/started").json()["steps"]
    assert post(client, "/api/runs/started/delete", {"confirm": "started"}).status_code == 200
