"""Token shards: they hold exactly the ids of the text, are used again, and are built again when damaged."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from saccade.data.cache import default_cache, open_entry
from saccade.data.formats.corpus import read_corpus
from saccade.data.shards import Shard, build_shards, separator
from saccade.data.splitting import SplitSettings
from saccade.data.tables.problems import BadRows
from saccade.data.tables.sniffing import sniff
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.data.text.tokenizers import END, Tokenizer
from saccade.errors import DataError, ResourceError

TEXT = "".join(f"line {number} of the text, with some words\n" for number in range(400))
SETTINGS = SplitSettings()


def shards(
    path: Path, tokenizer: Tokenizer, settings: SplitSettings = SETTINGS, valid: Path | None = None
) -> tuple[Shard, Shard]:
    corpus = read_corpus([sniff(path)], None if valid is None else [sniff(valid)], settings)
    return build_shards(corpus, tokenizer)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer("characters", [TEXT], 500)


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_shards_hold_exactly_the_text(source: Path, tokenizer: Tokenizer) -> None:
    seen: list[float] = []
    corpus = read_corpus([sniff(source)], None, SETTINGS, progress=seen.append)
    assert seen[-1] == 1.0
    seen.clear()
    train, valid = build_shards(corpus, tokenizer, progress=seen.append)
    assert tokenizer.decode(train.ids) + tokenizer.decode(valid.ids) == TEXT
    assert train.size == int(len(TEXT) * 0.9) == len(train.ids)
    assert train.bytes + valid.bytes == len(TEXT.encode())
    assert train.ids.dtype == np.uint16
    assert seen == sorted(seen) and seen[-1] == 1.0
    assert files_below(train.path) == ["entry.json", "train.bin", "valid.bin"]
    assert [path.name.partition("-")[0] for path in sorted(train.path.parent.iterdir())] == ["documents", "running"]


def test_shards_are_used_again(source: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    first, _ = shards(source, tokenizer)
    written = (first.path / "train.bin").stat().st_mtime_ns
    source.rename(tmp_path / "moved.txt")
    again, _ = shards(tmp_path / "moved.txt", tokenizer)
    assert (again.path, (again.path / "train.bin").stat().st_mtime_ns) == (first.path, written)


def test_other_content_settings_or_tokenizer_give_another_entry(source: Path, tokenizer: Tokenizer) -> None:
    paths = {shards(source, tokenizer)[0].path}
    paths.add(shards(source, tokenizer, SplitSettings(fraction=0.2))[0].path)
    paths.add(shards(source, train_tokenizer("bpe", [TEXT], 300))[0].path)
    source.write_text(TEXT[:-1])
    paths.add(shards(source, tokenizer)[0].path)
    source.write_text(TEXT[:-2] + "t")  # as long as before, and at nearly the same time
    paths.add(shards(source, tokenizer)[0].path)
    assert len(paths) == 5


def shorten(entry: Path) -> None:
    (entry / "train.bin").write_bytes((entry / "train.bin").read_bytes()[:-2])


def flip(entry: Path) -> None:
    content = bytearray((entry / "valid.bin").read_bytes())
    content[7] ^= 1
    (entry / "valid.bin").write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (shorten, r"train.bin has [\d,]+ bytes, expected"),
        (flip, "valid.bin has a different checksum"),
        (lambda entry: (entry / "valid.bin").unlink(), "FileNotFoundError"),
        (lambda entry: (entry / "entry.json").write_text("{"), "JSONDecodeError"),
        (lambda entry: (entry / "entry.json").write_text('{"version": 99}'), "version 99"),
        (lambda entry: (entry / "entry.json").write_text("[]"), "TypeError"),
    ],
)
def test_damaged_shards_are_built_again(source: Path, tokenizer: Tokenizer, damage, reason: str) -> None:
    good, _ = shards(source, tokenizer)
    expected = {name: (good.path / name).read_bytes() for name in ("train.bin", "valid.bin", "entry.json")}
    damage(good.path)
    train, valid = shards(source, tokenizer)
    assert re.search(reason, train.notes[0])
    assert "have been built again" in train.notes[0]
    assert valid.notes[0] == train.notes[0]
    assert {name: (good.path / name).read_bytes() for name in expected} == expected


def test_rows_end_in_the_end_token(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text\n" + "".join(f"row {number}\n" for number in range(100)))
    bytes_ = train_tokenizer("bpe", ["row 1"], 300, [END])
    train, valid = shards(path, bytes_)
    ends = int((train.ids == bytes_.specials[END]).sum()) + int((valid.ids == bytes_.specials[END]).sum())
    assert ends == 100
    assert train.ids[-1] == bytes_.specials[END]
    assert separator(train_tokenizer("characters", ["ab\n"], 9)) == [0]
    assert separator(train_tokenizer("characters", ["ab"], 9)) == []


def test_a_validation_file_is_used_and_its_overlap_told(source: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("line 7 of the text, with some words\nline of other text with some words\n")
    train, valid = shards(source, tokenizer, valid=other)
    assert tokenizer.decode(train.ids) == TEXT
    assert tokenizer.decode(valid.ids) == other.read_text()
    assert train.notes == ("1 of 2 validation lines of 20 characters or more are also in the training part",)
    record = json.loads((train.path / "entry.json").read_text())["record"]
    assert record["overlap"][0]["valid_also_in_train"] == 1


def test_an_unknown_character_in_the_validation_file_is_named(
    source: Path, tokenizer: Tokenizer, tmp_path: Path, cache: Path
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("line\nwith ж\n", encoding="utf-8")
    with pytest.raises(BadRows, match=r"other.txt:2:6: character 'ж' \(U\+0436\), expected one seen"):
        shards(source, tokenizer, valid=other)
    assert [path.name for path in (cache / "shards").iterdir() if not path.name.startswith("documents-")] == []


def test_an_empty_part_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text\nline\n")
    with pytest.raises(
        DataError, match=r"t\.csv: the (training|validation) part must have text, but is empty; give more data"
    ):
        shards(path, tokenizer)


def test_bad_data_leaves_nothing_in_the_cache(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text(TEXT + "bell \x07\n")
    with pytest.raises(BadRows, match=r"t.txt:401:6: control character U\+0007"):
        shards(path, train_tokenizer("bpe", [TEXT], 300))
    assert list((cache / "shards").iterdir()) == []


def test_large_vocabularies_take_four_bytes(source: Path) -> None:
    every = "".join(chr(code) for code in range(0x20, 0x11000) if not 0xD800 <= code <= 0xDFFF and code != 0x7F)
    tokenizer = train_tokenizer("characters", [every + "\n"], 100_000)
    train, _ = shards(source, tokenizer)
    assert train.ids.dtype == np.uint32
    assert tokenizer.decode(train.ids) == TEXT[: train.size]


def test_a_cache_that_cannot_be_written_is_named(
    source: Path, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ResourceError, match=r"the cache folder must be writable, .*set SACCADE_CACHE"):
        shards(source, tokenizer)


def test_what_a_killed_builder_left_and_unused_entries_are_removed(
    source: Path, tokenizer: Tokenizer, tmp_path: Path, cache: Path
) -> None:
    old, new, unused, recent = (
        cache / "shards" / name for name in (".building-old", ".building-new", "pairs-1", "pairs-2")
    )
    for folder in (old, new, unused, recent):
        folder.mkdir(parents=True)
    yesterday = time.time() - 2 * 24 * 3600
    os.utime(old, (yesterday, yesterday))
    os.utime(recent, (yesterday, yesterday))
    os.utime(unused, (0, 0))
    shards(source, tokenizer)
    assert [folder.exists() for folder in (old, new, unused, recent)] == [False, True, False, True]


def test_builders_at_the_same_time_agree(source: Path, cache: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from saccade.data.tables.sniffing import *;"
        "from saccade.data.shards import *; from saccade.data.text.tokenizer_training import *;"
        "from saccade.data.formats.corpus import *;"
        "p = Path(sys.argv[1]); t = train_tokenizer('characters', [p.read_text()], 500);"
        "print(build_shards(read_corpus([sniff(p)], None, SplitSettings()), t)[0].path)"
    )
    command = [sys.executable, "-c", script, str(source)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    printed = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0] * 4
    assert len(printed) == 1
    assert len(list((cache / "shards").iterdir())) == 2
    assert len(open_entry(Path(printed.pop().strip())).arrays) == 2


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", "/somewhere")
    assert default_cache() == Path("/somewhere")
    monkeypatch.delenv("SACCADE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert default_cache() == Path("/caches/saccade")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache() == Path.home() / ".cache" / "saccade"


def test_tiny_shakespeare_has_the_usual_split(dataset: Callable[[str], Path]) -> None:
    path = dataset("lm/tinyshakespeare.txt")
    tokenizer = train_tokenizer("characters", [path.read_text(encoding="utf-8")], 1000)
    train, valid = shards(path, tokenizer)
    assert (tokenizer.size, train.size, valid.size) == (65, 1_003_854, 111_540)
    assert tokenizer.encode("First") == [18, 47, 56, 57, 58]
