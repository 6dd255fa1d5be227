"""Folders and archives: hidden files are left out, nothing is unpacked, and damage is named."""

import io
import os
import re
import tarfile
import zipfile

import pytest

from saccade.data.formats.image_rows import ImageSettings, read_image_rows
from saccade.data.images.decoded import decode_pictures
from saccade.data.images.resizing import Resize
from saccade.data.images.trees import is_archive, open_tree
from saccade.errors import DataError
from saccade.tasks import guess_task
from tests.data.images.conftest import colour, encode

WHOLE = Resize("none", 0)
PICTURE = encode(colour(5))


def zipped(path, members, **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def tarred(path, members, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_hidden_files_are_left_out(tmp_path, write):
    write("cats/1.png", "cats/.2.png", ".git/3.png", "__MACOSX/4.png", "Thumbs.db")
    assert open_tree(tmp_path).names == ("cats/1.png",)
    members = dict.fromkeys(["cats/1.png", "cats/._1.png", "__MACOSX/cats/._1.png", ".DS_Store"], PICTURE)
    assert open_tree(zipped(tmp_path / "a.zip", members)).names == ("cats/1.png",)
    assert open_tree(tarred(tmp_path / "a.tar", {"./cats/1.png": PICTURE})).names == ("./cats/1.png",)


@pytest.mark.parametrize("table", ["captions.txt", "Flickr8k/metadata.csv", "annotations/captions.json"])
def test_a_table_inside_an_archive_is_named(tmp_path, table):
    pictures = {f"Images/{number}.png": encode(colour(number)) for number in range(4)}
    lines = "image,caption\n" + "".join(f"{number}.png,a picture {number} of a thing\n" for number in range(4))
    path = zipped(tmp_path / "Flickr8k.zip", {"README.md": "x", "classes.txt": "x", **pictures, table: lines})
    message = (
        f"{path / table}: a file inside an archive, expected the texts of its pictures outside of it; "
        "unpack the archive, or copy the file beside it and name that file"
    )
    for roles in (("caption",), ("label",), ("question", "answer")):
        with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
            read_image_rows(path, roles, ImageSettings())
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        guess_task(path)
    assert list(read_image_rows(path, ("text",), ImageSettings()).texts["text"]) == ["0", "1", "2", "3"]
    (tmp_path / "captions.txt").write_text(lines)
    rows = read_image_rows(tmp_path / "captions.txt", ("caption",), ImageSettings())
    assert len(rows) == 4 and rows.pictures.name(0) == str(path / "Images/0.png")


def test_links_to_folders_are_followed_once(tmp_path, write):
    write("real/cats/1.png")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "felines").symlink_to(tmp_path / "real" / "cats")
    (tmp_path / "real" / "cats" / "loop").symlink_to(tmp_path / "data")
    assert open_tree(tmp_path / "data").names == ("felines/1.png",)


@pytest.mark.parametrize("name", ["../../outside.png", "/tmp/absolute.png", "cats/../../x.png", "..\\..\\x.png"])
def test_paths_that_lead_out_of_an_archive_are_refused(tmp_path, name):
    path = zipped(tmp_path / "evil.zip", {name: PICTURE})
    with pytest.raises(
        DataError, match=r"evil\.zip: '.*' is a path that leads out of the archive, expected paths within"
    ):
        _ = open_tree(path).names
    for suffix, mode in ((".tar", "w"), (".tar.gz", "w:gz")):
        path = tarred(tmp_path / f"evil{suffix}", {name: PICTURE}, mode)
        with pytest.raises(DataError, match="leads out of the archive"):
            _ = open_tree(path).names
    assert not (tmp_path.parent / "outside.png").exists()


def test_links_and_devices_in_a_tar_are_not_files(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("cats/passwd.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        pipe = tarfile.TarInfo("cats/pipe.png")
        pipe.type = tarfile.FIFOTYPE
        archive.addfile(pipe)
    assert open_tree(tmp_path / "a.tar").names == ()


def test_a_broken_member_of_a_zip_is_named(tmp_path):
    path = zipped(tmp_path / "a.zip", {"cats/1.png": PICTURE, "cats/2.png": PICTURE})
    data = bytearray(path.read_bytes())
    at = data.index(PICTURE, data.index(b"cats/2.png"))
    data[at + 20] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(DataError) as error:
        decode_pictures(open_tree(path).pictures(["cats/1.png", "cats/2.png"]), WHOLE)
    assert str(error.value).startswith(f"{path}/cats/2.png: a damaged member of a zip archive (Bad CRC-32")


def test_an_encrypted_member_is_named(tmp_path):
    path = zipped(tmp_path / "a.zip", {"1.png": PICTURE})
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"a\.zip/1\.png: encrypted, expected a member without a password"):
        decode_pictures(open_tree(path).pictures(["1.png"]), WHOLE)


def test_truncated_archives(tmp_path):
    path = zipped(tmp_path / "a.zip", {"1.png": PICTURE})
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(
        DataError, match=r"a\.zip: a damaged zip archive \(.*\), expected a complete one; download or pack it"
    ):
        _ = open_tree(path).names
    for suffix, mode in ((".tar", "w"), (".tar.gz", "w:gz")):
        path = tarred(tmp_path / f"b{suffix}", {f"{n}.png": os.urandom(3000) for n in range(9)}, mode)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(DataError, match=rf"b\{suffix}: a damaged tar archive \("):
            _ = open_tree(path).names


def test_what_is_an_archive(tmp_path):
    assert is_archive(zipped(tmp_path / "photos", {"1.png": PICTURE}))
    assert is_archive(tarred(tmp_path / "more", {"1.png": PICTURE}))
    assert not is_archive(zipped(tmp_path / "letter.docx", {"word/media/1.png": PICTURE}))
    assert not is_archive(zipped(tmp_path / "arrays.npz", {"x.npy": b""}))
    (tmp_path / "a.txt").write_text("text")
    assert open_tree(tmp_path / "a.txt") is None
