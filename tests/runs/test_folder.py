"""Run folders: created completely or not at all, found by name or folder, locked by one trainer."""

import errno
import os
from pathlib import Path

import pytest

from saccade.core import Evaluation, Metric, Table
from saccade.errors import ModelFileError, ResourceError, UsageError
from saccade.runs import folder as runs
from saccade.runs.folder import Run

SETTINGS = {"config": {"a": 1}, "train": {"steps": 2}}


def create(root: Path, name: str) -> Run:
    return runs.create(root, name, "language_model", SETTINGS, Path("text.txt"))


def test_a_run_describes_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    description = create(tmp_path / "runs", "a-1").describe()
    assert (description["task"], description["config"], description["train"]) == (
        "language_model",
        {"a": 1},
        {"steps": 2},
    )
    assert description["data"] == str(tmp_path / "text.txt")  # wherever it is resumed from
    assert {"created", "saccade_version", "python_version"} <= description.keys()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a-1"]


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "x" * 101, "a\n"])
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"a run name must be at most 100 letters, digits, '-', '_' or '\.', but is"):
        create(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_a_taken_name_is_refused_and_left_alone(tmp_path: Path) -> None:
    run = create(tmp_path, "a")
    before = (run.folder / "run.json").read_bytes()
    with pytest.raises(
        UsageError, match=r"run 'a' exists in .*; continue it with `saccade resume .*/a` or choose another"
    ):
        create(tmp_path, "a")
    assert (run.folder / "run.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match=r"cannot create the run folder .*file/a: Not a directory"):
        create(tmp_path / "file", "a")


def test_a_kill_while_it_is_created_leaves_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(SystemExit):
            create(tmp_path, "a")
    assert runs.list_runs(tmp_path) == []
    assert create(tmp_path, "a").describe()["format"] == 2


def test_names_are_numbered(tmp_path: Path) -> None:
    assert runs.free_name(tmp_path, "my book") == "my-book-1"
    create(tmp_path, "my-book-1")
    assert runs.free_name(tmp_path, "my book") == "my-book-2"
    assert runs.free_name(tmp_path, "//") == "run-1"


def test_runs_are_listed_newest_last(tmp_path: Path) -> None:
    assert runs.list_runs(tmp_path / "none") == []
    for age, name in enumerate(["b", "c", "a"]):
        os.utime(create(tmp_path, name).folder / "run.json", (age, age))
    (tmp_path / "other").mkdir()
    assert [run.name for run in runs.list_runs(tmp_path)] == ["b", "c", "a"]


def test_a_run_is_found_by_name_or_folder(tmp_path: Path) -> None:
    run = create(tmp_path, "book-1")
    assert runs.find(tmp_path, "book-1").folder == run.folder
    assert runs.find(Path("elsewhere"), str(run.folder)).folder == run.folder
    with pytest.raises(UsageError, match=r"no run 'bok-1' in .*; did you mean 'book-1'\?"):
        runs.find(tmp_path, "bok-1")
    with pytest.raises(UsageError, match=r"no run 'x' in .*; train one first"):
        runs.find(tmp_path / "none", "x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "run.json is damaged: .*; restore it from a copy, or train a new run"),
        ("[]", "run.json must hold a JSON object, but holds list"),
        ("[" * 100_000, "run.json is damaged"),
        ("{}", "format must be 2, but is None"),
        ('{"format": 2, "task": 5}', "'task' must be str, but is 5"),
        ('{"format": 2, "task": "x"}', "'config' must be dict, but is None"),
        ('{"format": 9}', "format must be 2, but is 9; open it with the version of saccade that wrote it"),
    ],
)
def test_a_damaged_description_is_named(tmp_path: Path, content: str, message: str) -> None:
    run = create(tmp_path, "a")
    (run.folder / "run.json").write_text(content)
    with pytest.raises(ModelFileError, match=message):
        run.describe()


def test_a_missing_description_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"run\.json cannot be read: No such file"):
        Run(tmp_path).describe()


def test_only_one_trainer_locks_a_run(tmp_path: Path) -> None:
    run = create(tmp_path, "a")
    assert not run.running()
    with run.lock():
        assert run.running()
        with pytest.raises(ResourceError, match=f"run 'a' is being trained by process {os.getpid()};"), run.lock():
            pass
    assert not run.running()
    with run.lock():
        assert (run.folder / "run.lock").read_text() == str(os.getpid())


def test_the_card_shows_metrics_units_signatures_tables_and_notes(tmp_path: Path) -> None:
    run = create(tmp_path, "a")
    assert not run.finished()
    table = Table("Confusion matrix", ("", "cat", "dog"), (("cat", "5", "1"), ("dog", "0", "4")))
    evaluation = Evaluation({"accuracy": 90.0, "rows": 10}, {"accuracy": "v1|n:10"}, [table], ["2 rows were empty"])
    run.write_card(evaluation, Metric("accuracy", True, "%"))
    card = (run.folder / "card.md").read_text()
    assert run.finished()
    lines = card.splitlines()
    assert lines[0] == "# a" and lines[2].startswith("Task `language_model`, trained on `text.txt`, started 20")
    assert "| **accuracy**                  | 90.0000 % |" in lines
    assert "| rows                          | 10.0000   |" in lines
    assert "accuracy: `v1|n:10`  " in lines
    at = lines.index("## Confusion matrix")
    assert lines[at + 2 : at + 6] == [*table.to_markdown()]
    assert "2 rows were empty" in lines
    run.write_card(Evaluation({"accuracy": 1.0}), Metric("accuracy", True))
    assert "##" not in (run.folder / "card.md").read_text()
    assert not list(run.folder.glob("*.tmp"))


def test_a_lock_is_never_a_file_elsewhere_or_a_pipe(tmp_path: Path) -> None:
    run = create(tmp_path, "a")
    lock, precious = run.folder / "run.lock", tmp_path / "precious"
    precious.write_text("1234")
    lock.symlink_to(precious)
    with pytest.raises(ResourceError, match=r"cannot lock .*run\.lock: Too many levels of symbolic links"), run.lock():
        pass
    assert precious.read_text() == "1234"
    lock.unlink()
    os.mkfifo(lock)
    assert not run.running()
    with pytest.raises(ResourceError, match=r"cannot lock .*run\.lock: it must be a regular file"), run.lock():
        pass
    lock.unlink()
    lock.mkdir()
    assert not run.running()
    with pytest.raises(ResourceError, match=r"cannot lock .*run\.lock: Is a directory"), run.lock():
        pass


def test_a_folder_that_cannot_be_filled_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    message = r"no space left to save .*run\.json: .*No space left.*; free some space, then run the command again"
    with pytest.raises(ResourceError, match=message):
        create(tmp_path, "a")
    assert list(tmp_path.iterdir()) == []
