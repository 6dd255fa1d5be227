"""Journals: complete lines only, truncated to a step, and a kill while truncating loses none."""

import json
import re
from pathlib import Path

import pytest

from saccade.errors import ModelFileError, ResourceError
from saccade.runs.journal import Journal, read_journal


def written(path: Path, *records: dict[str, object]) -> None:
    journal = Journal(path, 0)
    for record in records:
        journal.write(record)
    journal.close()


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    records = [{"step": 1, "text": "a\u2028b\x85c\nd é"}, {"step": 2, "loss": 0.1}]  # a line ends on \n alone
    written(tmp_path / "a.jsonl", *records)
    assert read_journal(tmp_path / "a.jsonl") == records
    assert len((tmp_path / "a.jsonl").read_bytes().split(b"\n")) == 3


def test_records_after_the_checkpoint_are_removed_and_the_others_keep_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    written(path, *({"step": step, "text": "né\u2028"} for step in (1, 2, 2, 3)))
    whole = path.read_bytes()
    journal = Journal(path, 2)
    assert [record["step"] for record in read_journal(path)] == [1, 2, 2]
    journal.write({"step": 3, "text": "né\u2028"})
    journal.close()
    assert path.read_bytes() == whole


@pytest.mark.parametrize("torn", [b'{"step": 3, "lo', b'{"step": 3', b"\xff\xfe", b"{"])
def test_an_incomplete_line_is_left_out(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "a.jsonl"
    written(path, {"step": 1}, {"step": 2})
    path.write_bytes(path.read_bytes() + torn)
    assert [record["step"] for record in read_journal(path)] == [1, 2]
    Journal(path, 5).close()
    assert path.read_bytes() == b'{"step": 1}\n{"step": 2}\n'


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


def test_a_kill_while_truncating_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    written(path, *({"step": step} for step in range(5)))
    before = path.read_bytes()

    def killed(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(SystemExit):
        Journal(path, 3)
    assert path.read_bytes() == before


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl", 0)
    journal._file.close()
    journal._file = Path("/dev/full").open("a")  # noqa: SIM115 - closed below
    journal.write({"step": 1})
    with pytest.raises(ResourceError, match=r"cannot write .*a\.jsonl: .*No space left"):
        journal.flush()
    journal.close()


def test_no_file_is_no_record(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "none.jsonl") == []


def test_lines_are_json(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", {"step": 1, "loss": 0.5})
    assert json.loads((tmp_path / "a.jsonl").read_text()) == {"step": 1, "loss": 0.5}
