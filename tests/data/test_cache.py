"""The cache: what goes in comes out, damage and kills only cost time, and changed files are read again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saccade.data import cache as cache_module
from saccade.data.cache import EntryWriter, Record, cached, hash_file
from saccade.data.formats.pair_files import find_pairs
from saccade.data.formats.pairs import read_pairs
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.data.texts import Texts, TextWriter
from saccade.data.tokenization import tokenize, tokenize_with_offsets
from saccade.errors import DataError

TEXTS = st.lists(st.text(max_size=12), max_size=20)
unhurried = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def stored(texts: list[str]) -> Texts:
    def build(writer: EntryWriter) -> Record:
        column = TextWriter(writer, "texts")
        for text in texts:
            column.add(text)
        column.flush()
        return {}

    return Texts.open(cached("test", texts, build), "texts")


@unhurried
@given(TEXTS, st.data())
def test_texts_come_back_whole_in_part_and_from_memory(texts: list[str], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=6)) if texts else []
    for column in (stored(texts), Texts.of(texts)):
        assert list(column) == texts and len(column) == len(texts)
        assert list(column.take(rows)) == [texts[row] for row in rows]
        assert list(column.take(rows)[1:4]) == [texts[row] for row in rows][1:4]
        assert column.sizes.tolist() == [len(text.encode("utf-8", "surrogatepass")) for text in texts]
        assert column.take(rows).sizes.tolist() == [len(texts[row].encode("utf-8", "surrogatepass")) for row in rows]


@pytest.mark.parametrize("kind", ["characters", "words", "bpe"])
def test_tokens_are_those_of_the_tokenizer(kind: str) -> None:
    texts = ["the cat sat", "", "a dog ran", "the cat sat", "é the"]
    tokenizer = train_tokenizer(kind, texts, 300)
    for column in (stored(texts), Texts.of(texts)):
        assert [row.tolist() for row in map(tokenize(column, tokenizer).__getitem__, range(5))] == [
            tokenizer.encode(text) for text in texts
        ]
        some = tokenize(column.take([4, 0]), tokenizer)
        assert [some[0].tolist(), some[1].tolist()] == [tokenizer.encode(texts[4]), tokenizer.encode(texts[0])]
        spaced = tokenize(column, tokenizer, spaced=True)
        assert spaced[2].tolist() == tokenizer.encode(" a dog ran")
        tokens, spans = tokenize_with_offsets(column.take([2]), tokenizer)
        assert tokens[0].tolist() == tokenizer.encode("a dog ran")
        covered = spans[tokens.starts[0] : tokens.ends[0]].tolist()
        assert "".join("a dog ran"[first:last] for first, last in covered).replace(" ", "") == "adogran"


def test_a_builder_that_fails_leaves_nothing(cache: Path) -> None:
    def build(writer: EntryWriter) -> Record:
        writer.array("half", "int64").write([1, 2])
        raise DataError("row 3 is bad")

    for _ in range(2):
        with pytest.raises(DataError, match="row 3 is bad"):
            cached("test", 1, build)
        assert list((cache / "shards").iterdir()) == []


def test_bad_rows_are_raised_each_time_and_never_cached(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("a\tb\nc\td\te\nf\tg\n")
    for _ in range(2):
        with pytest.raises(DataError, match=r"t\.tsv:2: 3 columns, expected 2"):
            read_pairs(find_pairs(path))
    assert list((cache / "shards").iterdir()) == []
    path.write_text("a\tb\nc\td\nf\tg\n")
    assert len(read_pairs(find_pairs(path))) == 3


@pytest.mark.parametrize("name", ["sources.bin", "targets_offsets.bin", "lines.bin", "hashes.bin", "entry.json"])
def test_damaged_pairs_are_parsed_again(name: str, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("".join(f"source {number}\ttarget {number}\n" for number in range(50)))
    good = list(read_pairs(find_pairs(path)))
    (entry,) = (cache / "shards").iterdir()
    content = bytearray((entry / name).read_bytes())
    content[len(content) // 2] ^= 0x55
    (entry / name).write_bytes(content)
    again = read_pairs(find_pairs(path))
    assert list(again) == good
    assert "were damaged" in again.notes[0] and "have been built again" in again.notes[0]
    assert read_pairs(find_pairs(path)).notes == ()


KILLED = """
import sys, time
from pathlib import Path
from saccade.data.formats import pairs
from saccade.data.formats.pair_files import find_pairs

original = pairs.parse_pairs

def slow(files, progress):
    for number, item in enumerate(original(files, progress)):
        yield item
        if number == 5000:
            print("half", flush=True)
            time.sleep(60)

pairs.parse_pairs = slow
pairs.read_pairs(find_pairs(Path(sys.argv[1])))
"""


def test_a_killed_builder_does_no_harm(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("".join(f"source {number}\ttarget {number}\n" for number in range(10_000)))
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert [entry.name.startswith(".building-") for entry in (cache / "shards").iterdir()] == [True]
    pairs = read_pairs(find_pairs(path))
    assert len(pairs) == 10_000 and pairs[9999].target == "target 9999"


def test_a_file_is_hashed_again_only_if_it_may_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.txt"
    path.write_text("one")
    opened: list[Path] = []
    original = Path.open
    monkeypatch.setattr(
        Path, "open", lambda self, *rest, **named: opened.append(self) or original(self, *rest, **named)
    )
    first = hash_file(path)
    path.write_text("two")  # as long, and within the resolution of the clock: must not be missed
    assert hash_file(path) != first
    past = time.time() - 60
    os.utime(path, (past, past))
    opened.clear()
    assert hash_file(path) == hash_file(path)
    assert opened == [path]


def test_entries_of_another_format_are_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []

    def build(writer: EntryWriter) -> Record:
        writer.array("numbers", "int64").write([len(built)])
        built.append(1)
        return {}

    assert np.asarray(cached("test", 1, build).arrays["numbers"]).tolist() == [0]
    monkeypatch.setattr(cache_module, "FORMAT_VERSION", 99)
    assert np.asarray(cached("test", 1, build).arrays["numbers"]).tolist() == [1]


def test_a_file_that_changes_while_it_is_read_is_not_kept_under_its_old_hash(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("one")

    def build(writer: EntryWriter) -> Record:
        path.write_text("two")  # another program writes it
        column = TextWriter(writer, "texts")
        column.add(path.read_text())
        column.flush()
        return {}

    key = [hash_file(path)]
    with pytest.raises(DataError, match=r"text\.txt: changed while it was read; wait until it is complete"):
        cached("changing", key, build, [path])
    path.write_text("one")

    def build_again(writer: EntryWriter) -> Record:
        column = TextWriter(writer, "texts")
        column.add(path.read_text())
        column.flush()
        return {}

    assert list(Texts.open(cached("changing", key, build_again, [path]), "texts")) == ["one"]
