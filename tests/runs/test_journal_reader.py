"""Journals that are read again and again: what is read is what a fresh reader reads, and only new lines are parsed."""

import json

import pytest

from saccade.errors import ModelFileError
from saccade.runs import journal_reader
from saccade.runs.journal import JournalSummary, read_journal, summarize_journal
from saccade.runs.journal_reader import JournalReader


def lines(*steps, **more):
    return "".join(json.dumps({"step": step, **more}) + "\n" for step in steps)


@pytest.fixture
def records():
    return JournalReader(list, lambda known, record: [*known, record], files=2)


@pytest.fixture
def parsed(monkeypatch):
    """The numbers of the lines that were parsed."""
    numbers, parse = [], journal_reader.parse_record

    def counted(path, number, line):
        numbers.append(number)
        return parse(path, number, line)

    monkeypatch.setattr(journal_reader, "parse_record", counted)
    return numbers


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def test_only_new_lines_are_parsed(tmp_path, records, parsed):
    path = tmp_path / "metrics.jsonl"
    assert records(path) == []
    path.write_text(lines(1, 2))
    assert records(path) == records(path) == read_journal(path)
    append(path, lines(3) + '{"step"')
    assert records(path) == read_journal(path) and parsed == [1, 2, 3], "without the line that is being written"
    append(path, ": 4}\n")
    assert [record["step"] for record in records(path)] == [1, 2, 3, 4] and parsed == [1, 2, 3, 4]


@pytest.mark.parametrize("content", [lines(1), lines(7, 8), lines(7, 8, 9, 10, seconds=1.5), ""])
def test_a_file_that_was_cut_or_replaced_is_read_anew(tmp_path, records, content):
    path = tmp_path / "metrics.jsonl"
    path.write_text(lines(1, 2, 3))
    records(path)
    path.write_text(content)  # as after `resume`, also if it has grown past the old end by now
    assert records(path) == read_journal(path)


def test_a_damaged_line_is_named_each_time_and_read_when_it_is_mended(tmp_path, records):
    path = tmp_path / "metrics.jsonl"
    path.write_text(lines(1) + "{broken}\n")
    for _ in range(2):
        with pytest.raises(ModelFileError, match=r"metrics\.jsonl:2 is damaged"):
            records(path)
    path.write_text(lines(1, 2))
    assert records(path) == read_journal(path)


def test_the_files_read_last_are_kept(tmp_path, records, parsed):
    paths = [tmp_path / f"{name}.jsonl" for name in "abc"]
    for path in paths:
        path.write_text(lines(1))
        records(path)
    records(paths[2])
    records(paths[0])
    assert len(parsed) == 4


def test_a_summary_has_the_last_step_and_the_last_best(tmp_path):
    path, follow = tmp_path / "metrics.jsonl", JournalReader(JournalSummary, JournalSummary.add, files=1)
    assert follow(path) == summarize_journal(path) == JournalSummary(0, None)
    path.write_text(lines(1, 2) + lines(2, best=0.5) + lines(3))
    assert follow(path) == summarize_journal(path) == JournalSummary(3, 0.5)
    append(path, lines(4, best=0.4))
    assert follow(path) == summarize_journal(path) == JournalSummary(4, 0.4)
