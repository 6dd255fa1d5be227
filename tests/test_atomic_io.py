"""Atomic files and folders: all of the new one or none of it; what is read is a regular file of a bounded size."""

import errno
import json
import os
from pathlib import Path

import pytest
from safetensors import SafetensorError

from saccade import atomic_io
from saccade.errors import ModelFileError, ResourceError

FULL = OSError(errno.ENOSPC, "No space left on device")
RUST_FULL = SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def test_a_file_is_replaced_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_io.new_file(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a.html", "old")]
    with atomic_io.new_file(path) as file:
        file.write(b"new")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a.html", "new")]


def test_a_file_is_never_written_through_a_link_or_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "a.json.tmp").symlink_to(tmp_path / "precious")
    atomic_io.write_json(tmp_path / "a.json", {})
    os.mkfifo(tmp_path / "b.json.tmp")
    atomic_io.write_json(tmp_path / "b.json", {})
    assert (tmp_path / "precious").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json", "precious"]


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("error", [FULL, RUST_FULL])
def test_a_folder_is_filled_completely_or_not_at_all(tmp_path: Path, exists: bool, error: Exception) -> None:
    folder = tmp_path / "out"
    if exists:
        folder.mkdir()
    with (
        pytest.raises(ResourceError, match=r"no space left to save .*out: .*No space left.*; free some space"),
        atomic_io.new_folder(folder) as temporary,
    ):
        (temporary / "half").write_text("half")
        raise error
    assert list(tmp_path.rglob("*")) == ([folder] if exists else [])
    with atomic_io.new_folder(folder) as temporary:
        (temporary / "config.json").write_text("{}")
        (temporary / "weights").write_text("w")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["config.json", "out", "weights"]


def test_a_file_whose_folder_is_gone_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        ResourceError, match=r"gone was deleted or moved while it was in use, and a\.json cannot be saved"
    ):
        atomic_io.write_json(tmp_path / "gone" / "a.json", {})


@pytest.mark.parametrize("kind", ["mkfifo", "mkdir", "zero"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.json"
    path.symlink_to("/dev/zero") if kind == "zero" else getattr(os, kind)(path)
    for read in (atomic_io.read_json, atomic_io.read_sealed, atomic_io.hash_file):
        with pytest.raises(
            ModelFileError, match=r"a\.json (must be a regular file, but is not|cannot be read: Is a directory)"
        ):
            read(path)


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ModelFileError, match=r"a\.json must have at most 16,777,216 bytes, but has 1,099,511,627,776"):
        atomic_io.read_json(path)


def test_a_sealed_file_shows_any_change(tmp_path: Path) -> None:
    path, value = tmp_path / "a.json", {"a": [1, {"b": None}], "c": 0.5}
    atomic_io.write_sealed(path, value)
    assert atomic_io.read_sealed(path) == value
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(ModelFileError, match=r"a\.json"):
            atomic_io.read_sealed(path)
    deep: dict[str, object] = {}
    for _ in range(900):
        deep = {"a": deep}
    for content in (json.dumps(value), json.dumps(deep), '{"seal": 3}'):
        path.write_text(content)
        with pytest.raises(ModelFileError, match=r"a\.json (does not match the hash that it contains|is damaged)"):
            atomic_io.read_sealed(path)
