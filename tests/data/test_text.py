"""Token shards: they hold exactly the ids of the text, are used again, and are made again when damaged."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from saccade.data.cache import build_shards, default_cache, open_shards, separator
from saccade.data.tables.files import BadRows, SplitSettings, sniff
from saccade.data.text.tokenizers import END, Tokenizer, train_tokenizer
from saccade.errors import DataError, ResourceError

TEXT = "".join(f"line {number} of the text, with some words\n" for number in range(400))
SETTINGS = SplitSettings()


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


def test_shards_hold_exactly_the_text(source: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    train, valid = build_shards(
        [sniff(source)],
        None,
        tokenizer,
        tmp_path / "cache",
        SETTINGS,
        advance=lambda done, total: seen.append((done, total)),
    )
    assert tokenizer.decode(train.ids) + tokenizer.decode(valid.ids) == TEXT
    assert train.size == int(len(TEXT) * 0.9) == len(train.ids)
    assert train.bytes + valid.bytes == len(TEXT.encode())
    assert train.ids.dtype == np.uint16
    assert seen[-1] == (len(TEXT), len(TEXT))
    entry = train.path.parent.name
    assert len(entry) == 16
    assert files_below(tmp_path / "cache") == [f"{entry}/{name}" for name in ("shards.json", "train.bin", "valid.bin")]


def test_shards_are_used_again(source: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    first, _ = build_shards([sniff(source)], None, tokenizer, tmp_path / "cache", SETTINGS)
    written = first.path.stat().st_mtime_ns
    source.rename(tmp_path / "moved.txt")
    again, _ = build_shards([sniff(tmp_path / "moved.txt")], None, tokenizer, tmp_path / "cache", SETTINGS)
    assert (again.path, again.path.stat().st_mtime_ns) == (first.path, written)


def test_other_content_settings_or_tokenizer_give_another_entry(
    source: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    paths = {build_shards([sniff(source)], None, tokenizer, cache, SETTINGS)[0].path}
    paths.add(build_shards([sniff(source)], None, tokenizer, cache, SplitSettings(fraction=0.2))[0].path)
    paths.add(build_shards([sniff(source)], None, train_tokenizer("bpe", [TEXT], 300), cache, SETTINGS)[0].path)
    source.write_text(TEXT[:-1])
    paths.add(build_shards([sniff(source)], None, tokenizer, cache, SETTINGS)[0].path)
    assert len(paths) == 4


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
        (flip, "valid.bin has another checksum"),
        (lambda entry: (entry / "valid.bin").unlink(), "FileNotFoundError"),
        (lambda entry: (entry / "shards.json").write_text("{"), "JSONDecodeError"),
        (lambda entry: (entry / "shards.json").write_text('{"version": 99}'), "version 99"),
        (lambda entry: (entry / "shards.json").write_text("[]"), "TypeError"),
    ],
)
def test_damaged_shards_are_made_again(source: Path, tokenizer: Tokenizer, tmp_path: Path, damage, reason: str) -> None:
    cache = tmp_path / "cache"
    good, _ = build_shards([sniff(source)], None, tokenizer, cache, SETTINGS)
    expected = {name: (good.path.parent / name).read_bytes() for name in ("train.bin", "valid.bin", "shards.json")}
    damage(good.path.parent)
    train, valid = build_shards([sniff(source)], None, tokenizer, cache, SETTINGS)
    assert re.search(reason, train.notes[0])
    assert "have been made again" in train.notes[0]
    assert valid.notes[0] == train.notes[0]
    assert {name: (good.path.parent / name).read_bytes() for name in expected} == expected


def test_rows_end_in_the_end_token(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text\n" + "".join(f"row {number}\n" for number in range(100)))
    bytes_ = train_tokenizer("bpe", ["row 1"], 300, [END])
    train, valid = build_shards([sniff(path)], None, bytes_, tmp_path / "cache", SETTINGS)
    ends = int((train.ids == bytes_.specials[END]).sum()) + int((valid.ids == bytes_.specials[END]).sum())
    assert ends == 100
    assert train.ids[-1] == bytes_.specials[END]
    assert separator(train_tokenizer("characters", ["ab\n"], 9)) == [0]
    assert separator(train_tokenizer("characters", ["ab"], 9)) == []


def test_a_validation_file_is_used_and_its_overlap_told(source: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("line 7 of the text, with some words\nline of other text with some words\n")
    train, valid = build_shards([sniff(source)], [sniff(other)], tokenizer, tmp_path / "cache", SETTINGS)
    assert tokenizer.decode(train.ids) == TEXT
    assert tokenizer.decode(valid.ids) == other.read_text()
    assert train.notes == ("1 of 2 validation lines of 20 characters or more also stand in the training part",)
    record = json.loads((train.path.parent / "shards.json").read_text())
    assert record["overlap"][0]["valid_also_in_train"] == 1


def test_an_unknown_character_in_the_validation_file_is_named(
    source: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("line\nwith ж\n", encoding="utf-8")
    with pytest.raises(BadRows, match=r"other.txt:2:6: character 'ж' \(U\+0436\), expected one seen"):
        build_shards([sniff(source)], [sniff(other)], tokenizer, tmp_path / "cache", SETTINGS)
    assert files_below(tmp_path / "cache") == []


def test_an_empty_part_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text\nline\n")
    with pytest.raises(DataError, match=r"the (training|validation) part must hold text, but is empty; give more data"):
        build_shards([sniff(path)], None, tokenizer, tmp_path / "cache", SETTINGS)


def test_bad_data_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text(TEXT + "bell \x07\n")
    with pytest.raises(BadRows, match=r"t.txt:401:6: control character U\+0007"):
        build_shards([sniff(path)], None, train_tokenizer("bpe", [TEXT], 300), tmp_path / "cache", SETTINGS)
    assert list((tmp_path / "cache").iterdir()) == []


def test_large_vocabularies_take_four_bytes(source: Path, tmp_path: Path) -> None:
    every = "".join(chr(code) for code in range(0x20, 0x11000) if not 0xD800 <= code <= 0xDFFF and code != 0x7F)
    tokenizer = train_tokenizer("characters", [every + "\n"], 100_000)
    train, _ = build_shards([sniff(source)], None, tokenizer, tmp_path / "cache", SETTINGS)
    assert train.ids.dtype == np.uint32
    assert tokenizer.decode(train.ids) == TEXT[: train.size]


def test_a_cache_that_cannot_be_written_is_named(source: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ResourceError, match=r"the cache folder must take the tokens, .*set SACCADE_CACHE"):
        build_shards([sniff(source)], None, tokenizer, tmp_path / "file" / "cache", SETTINGS)


def test_what_a_killed_builder_left_is_swept_away(source: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    old, new = cache / ".building-old", cache / ".building-new"
    old.mkdir(parents=True)
    new.mkdir()
    os.utime(old, (0, 0))
    build_shards([sniff(source)], None, tokenizer, cache, SETTINGS)
    assert (old.exists(), new.exists()) == (False, True)


def test_builders_at_the_same_time_agree(source: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from saccade.data.tables.files import *;"
        "from saccade.data.cache import *; from saccade.data.text.tokenizers import *;"
        "p = Path(sys.argv[1]); t = train_tokenizer('characters', [p.read_text()], 500);"
        "print(build_shards([sniff(p)], None, t, Path(sys.argv[2]), SplitSettings())[0].path)"
    )
    command = [sys.executable, "-c", script, str(source), str(tmp_path / "cache")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    printed = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0] * 4
    assert len(printed) == 1
    assert len(files_below(tmp_path / "cache")) == 3
    open_shards(Path(printed.pop().strip()).parent)


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", "/somewhere")
    assert default_cache() == Path("/somewhere")
    monkeypatch.delenv("SACCADE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert default_cache() == Path("/caches/saccade")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache() == Path.home() / ".cache" / "saccade"


def test_tiny_shakespeare_splits_as_everybody_splits_it(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    path = Path(os.environ.get("SACCADE_DATA", root.parent / "shared" / "data")) / "lm" / "tinyshakespeare.txt"
    if not path.exists():
        pytest.skip("no tinyshakespeare here: set SACCADE_DATA to a folder that has lm/tinyshakespeare.txt")
    tokenizer = train_tokenizer("characters", [path.read_text(encoding="utf-8")], 1000)
    train, valid = build_shards([sniff(path)], None, tokenizer, tmp_path, SETTINGS)
    assert (tokenizer.size, train.size, valid.size) == (65, 1_003_854, 111_540)
    assert tokenizer.encode("First") == [18, 47, 56, 57, 58]
