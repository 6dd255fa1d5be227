"""Every broken data file is named with its line: through the reading functions, and through the command."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from saccade.data.formats.documents import PIECE, documents
from saccade.data.tables.sniffing import sniff
from saccade.tasks import guess_task


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("broken_files", Path(__file__).with_name("broken_files.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["broken_files"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_there_are_many_different_files(script: ModuleType) -> None:
    files = script.every_file()
    assert len(files) >= 60
    assert len({file.content for file in files if file.content}) >= 60


def test_readers_name_every_line(script: ModuleType) -> None:
    right, total, failures = script.check_all(script.run_reader)
    assert not failures, "\n".join(failures)
    assert right == total


def test_large_files_are_answered_within_seconds(script: ModuleType) -> None:
    times, failures = script.check_large(script.run_reader)
    print(", ".join(f"{name} {seconds:.2f} s" for name, seconds in times))
    assert len(times) >= 15
    assert not failures, "\n".join(failures)


def test_a_long_line_is_read_in_small_pieces(script: ModuleType, tmp_path: Path) -> None:
    path, size = tmp_path / "one-line.txt", script.LARGE
    script.Broken(path.name, b"", "", "", b"words without any end ", size).write(path)
    assert guess_task(path) == "language_model"
    pieces = [len(document.text) for document in documents(sniff(path))]
    assert sum(pieces) == path.stat().st_size
    assert max(pieces) <= 2 * PIECE


@pytest.mark.slow
def test_the_command_names_every_line(script: ModuleType) -> None:
    if importlib.util.find_spec("saccade.cli") is None:
        pytest.skip("saccade.cli is not there")
    _, _, failures = script.check_all(script.run_command, script.SUBPROCESSES)
    assert not failures, "\n".join(failures)


def test_a_good_file_is_not_called_broken(script: ModuleType, tmp_path: Path) -> None:
    """The check itself must be able to fail: a good file is read, and a wrong line is noticed."""
    (tmp_path / "good.txt").write_bytes(script.TEXT)
    outcome = script.run_reader(tmp_path / "good.txt", tmp_path)
    assert outcome == (0, "")
    never = script.Broken("good.txt", script.TEXT, ":1", "anything")
    assert script.failure(never, tmp_path / "good.txt", outcome).startswith("exit code 0, expected 3")
    output = (3, f"error: {tmp_path / 'good.txt'}:2: anything")
    assert script.failure(never, tmp_path / "good.txt", output).startswith("no 'good.txt:1' in")
