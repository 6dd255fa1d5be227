"""Path matching: one rule for all paths of a table, which drops as few folders as it can."""

import pytest

from saccade.data.path_matching import PathIndex, match_paths

FILES = ("data/sp1/1.wav", "data/sp1/2.wav", "data/sp2/2.wav", "data/sp2/3.flac")


def places(names, folder="", files=FILES):
    index = PathIndex((name, name) for name in files)
    matches = match_paths(names, folder, lambda key, rule: index.find(key, rule.stem))
    return [matches[name].place for name in names]


@pytest.mark.parametrize("start", ["", "./", "data/", "/home/ann/", "C:\\corpus\\data\\"])
@pytest.mark.parametrize("suffix", [".wav", ""])
def test_paths_may_start_anywhere_and_lack_their_suffix(start, suffix):
    names = [f"{start}sp1/1{suffix}", f"{start}sp1/2{suffix}", f"{start}sp2/2{suffix}", f"{start}sp2/1{suffix}"]
    assert places(names) == ["data/sp1/1.wav", "data/sp1/2.wav", "data/sp2/2.wav", None]


def test_the_folder_of_the_table_comes_first_for_all_rows_or_for_none():
    assert places(["1.wav", "2.wav"], "data/sp1") == ["data/sp1/1.wav", "data/sp1/2.wav"]
    assert places(["2.wav", "1.wav"], "data/sp2") == ["data/sp2/2.wav", None]
    assert places(["sp1/1.wav", "sp2/2.wav"], "tables") == ["data/sp1/1.wav", "data/sp2/2.wav"]


def test_a_file_of_a_unique_name_in_another_folder_is_not_taken():
    assert places(["sp1/1.wav", "sp1/3.flac"]) == ["data/sp1/1.wav", None]
    assert places(["1.wav", "3.flac"], "data/sp1") == ["data/sp1/1.wav", None]


def test_a_complete_path_is_not_ambiguous():
    assert places(["1.wav"], files=("1.wav", "old/1.wav")) == ["1.wav"]
    assert places(["1.wav"], files=("a/1.wav", "b/1.wav")) == [None]


def test_two_paths_never_mean_one_file_by_leaving_out_folders():
    index = PathIndex((name, name) for name in ("1.wav", "2.wav", "3.wav", "4.wav"))
    names = ["/a/1.wav", "/a/2.wav", "/a/3.wav", "/a/4.wav", "/b/1.wav"]
    matches = match_paths(names, "", lambda key, rule: index.find(key, rule.stem))
    assert [matches[name].place for name in names] == ["1.wav", "2.wav", "3.wav", "4.wav", None]
    assert matches["/b/1.wav"].same_as == "/a/1.wav" and matches["/a/1.wav"].same_as == ""
    assert places(["", " 1.wav "], files=("1.wav",)) == [None, "1.wav"]
