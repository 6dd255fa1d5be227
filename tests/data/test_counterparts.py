"""Counterparts: the file that goes with another is found by its name or by the part that differs."""

from pathlib import Path

import pytest

from saccade.data.tables.counterparts import counterpart, swap_rule
from saccade.errors import DataError


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("train.en.gz", "de", "train.de.gz"),
        ("train-en.txt", "de", "train-de.txt"),
        ("en_train.txt", "de", "de_train.txt"),
        ("train.en-de.en", "de", "train.en-de.de"),
        ("train.zh-CN", "en", "train.en"),
        ("questions.txt", "answers", "answers.txt"),
        ("train.en", "other.lines", "other.lines"),
    ],
)
def test_a_counterpart_is_named_or_made_by_one_part(tmp_path: Path, source: str, target: str, expected: str) -> None:
    write(tmp_path, source, "x")
    write(tmp_path, expected, "y")
    assert counterpart(tmp_path / source, target) == tmp_path / expected
    assert counterpart(tmp_path / source, str(tmp_path / expected)) == tmp_path / expected


@pytest.mark.parametrize(
    ("source", "target", "part"),
    [
        ("data/train.en", "data/train.de", "de"),
        ("train.en.gz", "train.de.gz", "de"),
        ("train-en.txt", "train-de.txt", "de"),
        ("train.en", "train.zh-CN", "zh-CN"),
        ("train.pt-BR", "train.pt-PT", "PT"),
        ("train.en", "de", "de"),
        ("english", "german", "german"),
    ],
)
def test_the_part_that_differs_is_a_rule_for_other_files(source: str, target: str, part: str) -> None:
    assert swap_rule(Path(source), target) == part


@pytest.mark.parametrize("target", ["valid.de", "data/train.en", "train.de.gz", "train_de", "train-en"])
def test_names_that_differ_otherwise_give_no_rule(target: str) -> None:
    with pytest.raises(DataError) as caught:
        swap_rule(Path("train.en"), f"./{target}")
    assert str(caught.value) == (
        f"./{target}: the names of source and target must differ in one part, as train.en and train.de do, "
        f"but the source is train.en and the target {Path(target).name}; rename one of them"
    )


def test_two_possible_counterparts_are_refused(tmp_path: Path) -> None:
    for name in ("en.en", "de.en", "en.de"):
        write(tmp_path, name, "x")
    with pytest.raises(
        DataError, match=r"en\.en: both de\.en and en\.de have 'de' in place of .*; name one: data.target=FILE"
    ):
        counterpart(tmp_path / "en.en", "de")


def test_a_name_too_long_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: File name too long"):
        counterpart(write(tmp_path, "a.en", "x"), "x" * 5000)


def test_many_files_beside_are_not_all_listed(tmp_path: Path) -> None:
    for number in range(14):
        write(tmp_path, f"file{number:02}", "x")
    with pytest.raises(
        DataError, match=r"expected one of: file01, .*, file10 and 3 more; name the file: data.target=FILE$"
    ):
        counterpart(tmp_path / "file00", "zz")
