"""Decoded pictures: once, in order, on threads, into a memory-mapped cache that a changed picture never passes."""

import os
import tarfile
import threading
import zipfile

import numpy as np
import pytest
import torch

from saccade.data.images import decoded as module
from saccade.data.images import decoding
from saccade.data.images.decoded import decode_pictures, hash_picture, picture_hashes
from saccade.data.images.pictures import JoinedPictures, PictureFiles, PixelPictures
from saccade.data.images.resizing import Resize
from saccade.data.images.trees import open_tree
from saccade.errors import DataError
from tests.data.images.conftest import colour, encode

WHOLE = Resize("none", 0)


@pytest.fixture
def decodes(monkeypatch):
    """Names of the pictures that are decoded."""
    names = []
    original = module.decode_image

    def decode(data, name):
        names.append(name)
        return original(data, name)

    monkeypatch.setattr(module, "decode_image", decode)
    return names


def test_pictures_are_decoded_once_and_in_order(write, decodes):
    names = [f"{number:03}.png" for number in range(50)]
    pictures = PictureFiles(write(*names), names)
    fractions = []
    decoded = decode_pictures(pictures, WHOLE, fractions.append)
    assert len(decoded) == 50
    assert [int(decoded[number][0, 0, 0]) for number in range(50)] == list(range(50))
    assert decoded[-1].shape == (3, 6, 5) and decoded[0].dtype == torch.uint8
    assert decoded.uniform
    assert sorted(fractions) == fractions and fractions[-1] == 1.0
    again = decode_pictures(PictureFiles(pictures.folder, names), WHOLE)
    assert len(decodes) == 50
    assert torch.equal(again.batch([3, 1]), torch.stack([decoded[3], decoded[1]]))
    assert again.fingerprint() == decoded.fingerprint()


def test_pictures_of_different_shapes_have_no_batch(tmp_path):
    (tmp_path / "a.png").write_bytes(encode(colour(1, size=(4, 4))))
    (tmp_path / "b.png").write_bytes(encode(colour(2, size=(4, 7))))
    decoded = decode_pictures(PictureFiles(tmp_path, ["a.png", "b.png"]), WHOLE)
    assert decoded.shapes.tolist() == [[4, 4], [4, 7]]
    assert not decoded.uniform
    assert decoded[1].shape == (3, 4, 7) and int(decoded[1][0].max()) == 2
    with pytest.raises(ValueError, match="a batch needs pictures of one shape"):
        decoded.batch([0, 1])
    same = decode_pictures(PictureFiles(tmp_path, ["a.png", "b.png"]), Resize("exact", 3))
    assert same.batch([1, 0]).shape == (2, 3, 3, 3)
    assert same.fingerprint() != decoded.fingerprint()
    assert same.hashes.tolist() == decoded.hashes.tolist()


def test_a_changed_picture_is_decoded_again_even_with_the_same_size_and_time(write):
    folder = write("a.png", "b.png")
    path = folder / "a.png"
    state = path.stat()
    first = decode_pictures(PictureFiles(folder, ["a.png", "b.png"]), WHOLE)
    assert int(first[0][0, 0, 0]) == 0
    changed = encode(colour(99, 0, 7))
    assert len(changed) == state.st_size
    path.write_bytes(changed)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    second = decode_pictures(PictureFiles(folder, ["a.png", "b.png"]), WHOLE)
    assert int(second[0][0, 0, 0]) == 99
    assert second.fingerprint() != first.fingerprint()


def test_a_renamed_folder_is_not_decoded_again(write, decodes):
    folder = write("photos/a.png", "photos/b.png") / "photos"
    decode_pictures(PictureFiles(folder, ["a.png", "b.png"]), WHOLE)
    moved = folder.rename(folder.with_name("pictures"))
    decode_pictures(PictureFiles(moved, ["a.png", "b.png"]), WHOLE)
    assert len(decodes) == 2


def test_equal_pictures_in_another_folder_are_other_pictures(write, decodes):
    folder = write("x/a.png", "y/a.png")
    first, second = (decode_pictures(PictureFiles(folder / name, ["a.png"]), WHOLE) for name in "xy")
    assert (int(first[0][0, 0, 0]), int(second[0][0, 0, 0])) == (0, 1)


def test_a_picture_that_changes_while_it_is_read_is_refused(write, monkeypatch):
    folder = write("a.png", "b.png")
    original = PictureFiles.read

    def read(self, number):
        content = original(self, number)
        if number == 1:
            (folder / "a.png").write_bytes(encode(colour(77)))
        return content

    monkeypatch.setattr(PictureFiles, "read", read)
    with pytest.raises(DataError, match=r"a\.png: changed while it was read; wait until it is complete"):
        decode_pictures(PictureFiles(folder, ["a.png", "b.png"]), WHOLE)


def test_a_picture_that_is_being_written_is_reported_as_changed_not_as_broken(write, monkeypatch):
    folder = write("a.png")
    original = PictureFiles.read

    def read(self, number):
        (folder / "a.png").write_bytes(b"")
        return original(self, number)

    monkeypatch.setattr(PictureFiles, "read", read)
    with pytest.raises(DataError, match=r"a\.png: changed while it was read; wait until it is complete"):
        decode_pictures(PictureFiles(folder, ["a.png"]), WHOLE)


def test_all_bad_pictures_are_named_together(write, cache):
    folder = write("a.png", "b.png", "c.png", "d.png")
    (folder / "b.png").write_bytes(b"no picture")
    (folder / "d.png").write_bytes(b"")
    with pytest.raises(DataError) as error:
        decode_pictures(PictureFiles(folder, ["a.png", "b.png", "c.png", "d.png"]), WHOLE)
    lines = str(error.value).splitlines()
    assert lines[0].startswith(f"{folder / 'b.png'}: looks like text, expected a picture")
    assert lines[1].startswith(f"{folder / 'd.png'}: an empty file, expected a picture")
    assert not list((cache / "shards").iterdir())


def test_hashes_are_those_of_the_content(write):
    folder = write("a.png", "b.png")
    (folder / "c.png").write_bytes((folder / "a.png").read_bytes())
    pictures = PictureFiles(folder, ["a.png", "b.png", "c.png"])
    decoded = decode_pictures(pictures, Resize("exact", 2))
    assert decoded.hashes[0] == decoded.hashes[2] != decoded.hashes[1]
    assert picture_hashes(pictures).tolist() == decoded.hashes.tolist()
    assert decoded.hashes[0] == hash_picture((folder / "a.png").read_bytes())


def test_zip_and_tar_members_are_read_in_place(write, tmp_path):
    folder = write("cats/1.png", "dogs/2.png")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("cats/1.png", "dogs/2.png"):
            archive.write(folder / name, name)
    for suffix, mode in ((".tar", "w"), (".tar.gz", "w:gz"), (".tar.xz", "w:xz")):
        with tarfile.open(tmp_path / f"all{suffix}", mode) as archive:
            archive.add(folder / "cats", "cats")
            archive.add(folder / "dogs", "dogs")
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    for name in ("all.zip", "all.tar", "all.tar.gz", "all.tar.xz"):
        tree = open_tree(tmp_path / name)
        assert tree.names == ("cats/1.png", "dogs/2.png")
        pictures = tree.pictures(["dogs/2.png", "cats/1.png"])
        assert pictures.name(0) == str(tmp_path / name / "dogs/2.png")
        decoded = decode_pictures(pictures, WHOLE)
        assert [int(decoded[number][0, 0, 0]) for number in range(2)] == [1, 0]
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


def test_arrays_of_pixels():
    grey = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    decoded = decode_pictures(PixelPictures("x.npz", grey, ["1"]), WHOLE)
    assert torch.equal(decoded[1], torch.from_numpy(grey[1]).expand(3, 3, 4))
    colours = np.arange(2 * 3 * 2 * 4, dtype=np.uint8).reshape(2, 3, 2, 4)
    decoded = decode_pictures(PixelPictures("x.npz", colours, ["2"], channels_first=True), WHOLE)
    assert torch.equal(decoded.batch([0, 1]), torch.from_numpy(colours))
    assert PixelPictures("x.npz", colours, ["2"]).name(1) == "x.npz: picture 2"


def test_several_sets_of_pictures_are_numbered_through(write):
    folder = write("a/1.png", "a/2.png", "b/3.png")
    joined = JoinedPictures([PictureFiles(folder / "a", ["1.png", "2.png"]), PictureFiles(folder / "b", ["3.png"])])
    assert len(joined) == 3
    assert joined.name(2) == str(folder / "b/3.png")
    decoded = decode_pictures(joined, WHOLE)
    assert [int(decoded[number][0, 0, 0]) for number in range(3)] == [0, 1, 2]


def test_small_files_are_decoded_by_the_caller_and_large_ones_on_threads(tmp_path, monkeypatch):
    threads, original = set(), module.decode_image

    def decode(data, name):
        threads.add(threading.current_thread().name.split("_")[0])
        return original(data, name)

    monkeypatch.setattr(module, "decode_image", decode)
    noise = np.random.default_rng(0).integers(0, 256, (90, 90, 3), dtype=np.uint8)
    (tmp_path / "small.png").write_bytes(encode(colour(1, size=(90, 90))))
    (tmp_path / "large.png").write_bytes(encode(noise))
    with zipfile.ZipFile(tmp_path / "large.zip", "w") as archive:
        archive.write(tmp_path / "large.png", "large.png")
    with tarfile.open(tmp_path / "small.tar", "w") as archive:
        archive.add(tmp_path / "small.png", "small.png")
    small, large = (PictureFiles(tmp_path, [f"{name}.png"]) for name in ("small", "large"))
    for pictures, size, expected in (
        (small, 64, "MainThread"),
        (small, 224, "decode"),  # resizing takes long
        (large, 64, "decode"),
        (open_tree(tmp_path / "large.zip").pictures(["large.png"]), 64, "decode"),
        (open_tree(tmp_path / "small.tar").pictures(["small.png"]), 64, "MainThread"),
        (JoinedPictures([large, large]), 64, "decode"),
    ):
        threads.clear()
        decode_pictures(pictures, Resize("exact", size, interpolation="bilinear"))
        assert threads == {expected}
    assert PixelPictures("x.npz", noise[None], ["1"]).encoded_bytes == 0


def test_large_pictures_are_decoded_together_within_the_limit():
    budget, order = decoding._PixelBudget(100), []
    inside, finish = threading.Event(), threading.Event()

    def hold():
        with budget.take(60):
            inside.set()
            finish.wait(10)
            order.append("first")

    def wait():
        with budget.take(50):
            order.append("second")

    workers = [threading.Thread(target=work) for work in (hold, wait)]
    workers[0].start()
    assert inside.wait(10)
    with budget.take(40):
        order.append("beside it")
    workers[1].start()
    finish.set()
    for worker in workers:
        worker.join(10)
    assert order == ["beside it", "first", "second"]


def test_memory_stays_small(write, tmp_path, monkeypatch):
    """Pictures that wait to be written are few, however many there are."""
    names = [f"{number}.png" for number in range(300)]
    folder = write(*names)
    waiting, most = 0, 0
    original = module._Decoded

    class Counted(original):
        def __init__(self, *values):
            nonlocal waiting, most
            super().__init__(*values)
            waiting += 1
            most = max(most, waiting)

        def __del__(self):
            nonlocal waiting
            waiting -= 1

    monkeypatch.setattr(module, "_Decoded", Counted)
    decode_pictures(PictureFiles(folder, names), WHOLE)
    assert most <= (module.AHEAD + 2) * (os.cpu_count() or 1) + 2
