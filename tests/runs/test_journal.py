"""Journals: complete lines only, truncated to what a checkpoint recorded, which must not have changed."""

import json
import os
import re
from pathlib import Path

import pytest

from saccade.errors import ModelFileError, ResourceError
from saccade.runs.journal import Journal, Written, read_journal


def written(path: Path, *records: dict[str, object]) -> Written:
    """Write a journal; return how much a checkpoint would record of it."""
    journal = Journal(path)
    for record in records:
        journal.write(record)
    result = journal.flush()
    journal.close()
    return result


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    records = [{"step": 1, "text": "a\u2028b\x85c\nd é"}, {"step": 2, "loss": 0.1}]  # a line ends on \n alone
    written(tmp_path / "a.jsonl", *records)
    assert read_journal(tmp_path / "a.jsonl") == records
    assert len((tmp_path / "a.jsonl").read_bytes().split(b"\n")) == 3


def test_records_after_the_checkpoint_are_removed_and_the_others_keep_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records = [{"step": step, "text": "né\u2028"} for step in (1, 2, 2, 3)]
    before = written(tmp_path / "b.jsonl", *records[:3])
    after = written(path, *records)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"step": 4, "lo')  # a line that a kill cut off
    journal = Journal(path, before)
    assert [record["step"] for record in read_journal(path)] == [1, 2, 2]
    journal.write(records[3])
    assert journal.flush() == after
    journal.close()
    assert path.read_bytes() == whole


def test_a_journal_before_the_first_checkpoint_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    written(path, {"step": 1})
    Journal(path).close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("torn", [b'{"step": 3, "lo', b'{"step": 3', b"\xff\xfe", b"{"])
def test_an_incomplete_line_is_left_out(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "a.jsonl"
    written(path, {"step": 1}, {"step": 2})
    path.write_bytes(path.read_bytes() + torn)
    assert [record["step"] for record in read_journal(path)] == [1, 2]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "a.jsonl:2 is damaged: Expecting"),
        (b"", "a.jsonl:2 is damaged: Expecting value"),
        (b'{"step": 2, "loss": NaN}', "a.jsonl:2 is damaged: a number must be finite, but is NaN"),
        (b'{"loss": 2}', "a.jsonl:2 must be a JSON object with a step, but is b"),
        (b'{"step": true}', "a.jsonl:2 must be a JSON object with a step, but is b"),
    ],
)
def test_any_other_damaged_line_is_named(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
    with pytest.raises(ModelFileError, match=re.escape(reason)):
        read_journal(path)


def test_a_number_that_is_not_finite_is_written_as_null(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", {"step": 1, "loss": float("nan"), "norm": float("inf"), "text": "NaN"})
    assert (tmp_path / "a.jsonl").read_text() == '{"step": 1, "loss": null, "norm": null, "text": "NaN"}\n'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "is shorter than the 24 bytes that were written by then"),
        (lambda data: data.replace(b"2", b"7"), "differs from the 24 bytes that were written by then"),
    ],
)
def test_a_journal_that_was_cut_or_altered_is_refused(tmp_path: Path, change, message: str) -> None:
    path = tmp_path / "a.jsonl"
    before = written(path, {"step": 1}, {"step": 2})
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ModelFileError, match=rf"a\.jsonl {message}"):
        Journal(path, before)
    path.unlink()
    with pytest.raises(ModelFileError, match=r"a\.jsonl cannot be read: No such file"):
        Journal(path, before)


def test_a_journal_that_is_a_pipe_or_a_link_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="pipe must be a regular file"):
        Journal(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="pipe must be a regular file"):
        read_journal(tmp_path / "pipe")
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ResourceError, match=r"cannot write .*link"):
        Journal(tmp_path / "link")
    assert (tmp_path / "elsewhere").read_text() == "precious"


@pytest.mark.parametrize(("gone", "message"), [("file", r"a\.jsonl was"), ("folder", "the run folder .*run was")])
def test_a_file_or_folder_that_is_deleted_meanwhile_is_named(tmp_path: Path, gone: str, message: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    journal = Journal(folder / "a.jsonl")
    journal.write({"step": 1})
    (folder / "a.jsonl").unlink()
    if gone == "folder":
        folder.rmdir()
    with pytest.raises(ResourceError, match=f"{message} deleted, moved or replaced while the run was trained"):
        journal.flush()
    journal.close()


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    journal._file.close()
    journal._file = Path("/dev/full").open("ab")  # noqa: SIM115 - closed below
    journal.write({"step": 1})
    with pytest.raises(ResourceError, match=r"cannot write .*a\.jsonl: .*No space left"):
        journal.flush()
    journal.close()


def test_no_file_is_no_record(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "none.jsonl") == []


def test_lines_are_json(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", {"step": 1, "loss": 0.5})
    assert json.loads((tmp_path / "a.jsonl").read_text()) == {"step": 1, "loss": 0.5}
