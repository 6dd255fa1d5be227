"""MNIST, CIFAR and .npz files as they are published; pickles build arrays and run nothing."""

import gzip
import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest
import torch

from saccade.data.formats.image_rows import ImageSettings, read_image_rows, split_image_rows
from saccade.data.formats.pickles import UnsupportedPickle, parse_pickle
from saccade.data.images.decoded import decode_pictures
from saccade.data.images.resizing import Resize
from saccade.errors import DataError
from tests.data.images.conftest import colour, encode

RANDOM = np.random.default_rng(0)
CLASSES = ["airplane", "automobile", "bird"]


def read(path):
    return read_image_rows(path, ("label",), ImageSettings())


def refused(path):
    with pytest.raises(DataError) as error:
        read(path)
    return str(error.value)


def pixels(rows):
    decoded = decode_pictures(rows.pictures, Resize("none", 0))
    return decoded.batch(rows.picture)


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder, packed=True, train=5, test=3):
    pack, end = (gzip.compress, ".gz") if packed else (bytes, "")
    arrays = {}
    for name, count in (("train", train), ("t10k", test)):
        arrays[name] = RANDOM.integers(0, 256, (count, 4, 3), dtype=np.uint8)
        labels = (np.arange(count) % 2).astype(np.uint8)
        (folder / f"{name}-images-idx3-ubyte{end}").write_bytes(pack(idx(arrays[name])))
        (folder / f"{name}-labels-idx1-ubyte{end}").write_bytes(pack(idx(labels)))
    return arrays


@pytest.mark.parametrize("packed", [True, False])
def test_mnist(tmp_path, packed):
    arrays = write_mnist(tmp_path, packed)
    rows = read(tmp_path)
    assert rows.parts.tolist() == [2] * 3 + [0] * 5
    assert list(rows.texts["label"]) == ["0", "1", "0", "0", "1", "0", "1", "0"]
    expected = torch.from_numpy(np.concatenate([arrays["t10k"], arrays["train"]]))
    assert torch.equal(pixels(rows), expected[:, None].expand(-1, 3, -1, -1))
    assert rows.pictures.name(3).endswith(f"train-images-idx3-ubyte{'.gz' if packed else ''}: picture 1")
    train, valid = split_image_rows(rows, ImageSettings())
    assert (len(train), len(valid)) == (5, 3)


def test_broken_idx_files(tmp_path):
    write_mnist(tmp_path)
    images, labels = (tmp_path / f"train-{name}-ubyte.gz" for name in ("images-idx3", "labels-idx1"))
    whole = images.read_bytes()
    images.write_bytes(gzip.compress(gzip.decompress(whole)[:-7]))
    assert f"{images}: the file ends 7 bytes too early, expected 60 bytes by its header" in refused(tmp_path)
    images.write_bytes(whole[:-20])
    assert f"{images}: damaged gzip data (" in refused(tmp_path)
    images.write_bytes(gzip.compress(b"\1\2\3\4" + bytes(20)))
    assert f"{images}: starts with 01 02 03 04, expected 00 00 08 03 (bytes, 3 dimensions)" in refused(tmp_path)
    images.write_bytes(gzip.compress(b"\0\0\x08\x03" + struct.pack(">3I", 1, 30_000, 30_000)))
    assert f"{images}: a size of 1 x 30,000 x 30,000, expected at most 4,096 pixels a side" in refused(tmp_path)
    images.write_bytes(whole)
    labels.write_bytes(gzip.compress(idx(np.zeros(4, np.uint8))))
    assert f"{labels}: 4 labels, expected 5, one for each picture of {images.name}" in refused(tmp_path)
    labels.unlink()
    assert f"{images}: no file of labels beside it, expected 'train-labels-idx1-ubyte.gz'" in refused(tmp_path)


def batch(count):
    return RANDOM.integers(0, 256, (count, 3072), dtype=np.uint8), [number % 3 for number in range(count)]


def tarred(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def write_members(folder, members):
    for name, data in members.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def cifar_binary(train, test):
    def records(pictures, labels):
        return b"".join(bytes([label]) + picture.tobytes() for picture, label in zip(pictures, labels, strict=True))

    return {
        "cifar-10-batches-bin/batches.meta.txt": "\n".join(CLASSES).encode() + b"\n\n",
        "cifar-10-batches-bin/data_batch_1.bin": records(*train),
        "cifar-10-batches-bin/test_batch.bin": records(*test),
        "cifar-10-batches-bin/readme.html": b"<html>",
    }


def cifar_python(train, test, protocol=2):
    def pickled(pictures, labels):
        content = {b"data": pictures, b"labels": labels, b"batch_label": b"batch", b"filenames": [b"a.png"]}
        return pickle.dumps(content, protocol)

    return {
        "cifar-10-batches-py/batches.meta": pickle.dumps({b"label_names": [name.encode() for name in CLASSES]}, 0),
        "cifar-10-batches-py/data_batch_1": pickled(*train),
        "cifar-10-batches-py/test_batch": pickled(*test),
    }


@pytest.mark.parametrize("layout", [cifar_binary, cifar_python])
@pytest.mark.parametrize("packed", [True, False])
def test_cifar_10(tmp_path, layout, packed):
    train, test = batch(4), batch(2)
    members = layout(train, test)
    path = tarred(tmp_path / "cifar-10.tar.gz", members) if packed else write_members(tmp_path, members)
    rows = read(path)
    assert rows.parts.tolist() == [0] * 4 + [2] * 2
    assert list(rows.texts["label"]) == ["airplane", "automobile", "bird", "airplane", "airplane", "automobile"]
    expected = np.concatenate([train[0], test[0]]).reshape(-1, 3, 32, 32)
    assert torch.equal(pixels(rows), torch.from_numpy(expected))
    assert "data_batch_1" in rows.pictures.name(0) and rows.pictures.name(0).endswith(": picture 1")


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_pickles_of_every_protocol(protocol):
    array = RANDOM.integers(0, 256, (3, 4), dtype=np.uint8)
    content = {b"data": array, "labels": [1, 2, 70_000, -1], "names": ["ä", b"b"], "none": None, "pair": (True, 1)}
    parsed = parse_pickle(pickle.dumps(content, protocol))
    assert np.array_equal(parsed[b"data"], array)
    assert (parsed["labels"], parsed["names"], parsed["none"], parsed["pair"]) == (
        [1, 2, 70_000, -1],
        ["ä", b"b"],
        None,
        (True, 1),
    )


def test_pickles_of_python_2():
    """As Python 2 wrote them, of which the published files are: strings of bytes without an encoding."""
    raw = bytes(range(6))
    data = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
        b"(K\x01K\x02K\x03\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89U\x06" + raw + b"tbU\x06labelsq\x08]q\x09(K\x03K\x04eu."
    )
    parsed = parse_pickle(data)
    assert parsed["data"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert parsed["labels"] == [3, 4]


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_runs_code_is_refused_and_not_run(tmp_path, protocol):
    path = tmp_path / "cifar" / "cifar-10-batches-py" / "data_batch_1"
    write_members(tmp_path / "cifar", cifar_python(batch(2), batch(2)))
    path.write_bytes(pickle.dumps({b"data": Evil(str(tmp_path / "ran")), b"labels": [1]}, protocol))
    message = refused(tmp_path / "cifar")
    assert message.startswith(
        f"{path}: a Python pickle with the code '{os.name}.mkdir', expected byte arrays, lists and"
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pickle.dumps({1: np.zeros(3)}), "an array that is not one of bytes"),
        (pickle.dumps(1.5), "the instruction BINFLOAT"),
        (pickle.dumps({1, 2}, 4), "the instruction EMPTY_SET"),
        (pickle.dumps([1, 2])[:-4], "damaged data: "),
        (b"", "damaged data: "),
        (b"\x80\x02}q\x00(K\x01u.", "damaged data: "),
        (b"cos\nsystem\n(S'true'\ntR.", "the code 'os.system'"),
        (b"(S'true'\nios\nsystem\n.", "the instruction INST"),
        (b"\x80\x02Kx\x85Q.", "the instruction BINPERSID"),
    ],
)
def test_other_pickles_are_refused(data, reason):
    with pytest.raises(UnsupportedPickle) as error:
        parse_pickle(data)
    assert str(error.value).startswith(reason)


def test_cifar_100_uses_fine_labels(tmp_path):
    pictures, _ = batch(2)
    binary = b"".join(bytes([9, label]) + picture.tobytes() for picture, label in zip(pictures, (1, 0), strict=True))
    members = {"c/train.bin": binary, "c/test.bin": binary, "c/fine_label_names.txt": b"apple\nbear\n"}
    assert list(read(tarred(tmp_path / "b.tar.gz", members)).texts["label"]) == ["bear", "apple"] * 2
    content = {b"data": pictures, b"fine_labels": [1, 0], b"coarse_labels": [9, 9]}
    names = pickle.dumps({b"fine_label_names": [b"apple", b"bear"]}, 2)
    members = {"p/train": pickle.dumps(content, 2), "p/test": pickle.dumps(content, 2), "p/meta": names}
    assert list(read(tarred(tmp_path / "p.tar.gz", members)).texts["label"]) == ["bear", "apple"] * 2


def test_broken_cifar_files(tmp_path):
    members = cifar_binary(batch(2), batch(2))
    members["cifar-10-batches-bin/data_batch_1.bin"] += b"x"
    path = write_members(tmp_path, members) / "cifar-10-batches-bin/data_batch_1.bin"
    assert f"{path}: 6,147 bytes, expected records of 3,073 bytes; download the archive again" in refused(tmp_path)


def test_encoded_pictures_in_an_npz(tmp_path):
    encoded = [encode(colour(value)) for value in (1, 2, 3)]
    offsets = np.cumsum([0, *map(len, encoded)])
    for name, order in (("train", [0, 1, 2]), ("test", [2])):
        data = np.frombuffer(b"".join(encoded[number] for number in order), np.uint8)
        ends = np.cumsum([0, *(len(encoded[number]) for number in order)])
        np.savez(tmp_path / f"{name}.npz", jpeg=data, offsets=ends, labels=np.array(order), classes=np.array(CLASSES))
    rows = read(tmp_path)
    assert rows.parts.tolist() == [2, 0, 0, 0]
    assert list(rows.texts["label"]) == ["bird", *CLASSES]
    assert pixels(rows)[:, 0, 0, 0].tolist() == [3, 1, 2, 3]
    assert len(read(tmp_path / "train.npz")) == 3 and len(offsets) == 4


@pytest.mark.parametrize(
    "arrays",
    [
        {"x_train": (4, 5, 6), "y_train": 4, "x_test": (2, 5, 6), "y_test": 2},
        {"train_images": (4, 5, 6, 3), "train_labels": 4, "val_images": (2, 5, 6, 3), "val_labels": 2},
        {"images": (4, 3, 5, 6), "labels": 4},
        {"arr_0": (4, 5, 6, 1), "arr_1": 4},
    ],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_in_an_npz(tmp_path, arrays, save):
    values = {
        name: RANDOM.integers(0, 256, shape, dtype=np.uint8)
        if isinstance(shape, tuple)
        else np.arange(shape)[:, None] % 2
        for name, shape in arrays.items()
    }
    save(tmp_path / "data.npz", **values)
    rows = read(tmp_path / "data.npz")
    first = next(iter(values.values()))
    if first.ndim == 3:
        first = first[..., None]
    first = first if first.shape[1] == 3 else first.transpose(0, 3, 1, 2)
    assert torch.equal(pixels(rows)[:4], torch.from_numpy(np.broadcast_to(first, (4, 3, 5, 6)).copy()))
    assert list(rows.texts["label"])[:4] == ["0", "1", "0", "1"]
    assert (rows.parts is None) == (len(arrays) == 2)


def test_broken_npz_files(tmp_path):
    path = tmp_path / "data.npz"

    def message(**arrays):
        np.savez(path, **arrays)
        return refused(path)

    good = np.zeros((2, 4, 4), np.uint8)
    assert "the arrays sound, labels, expected images and labels" in message(sound=good, labels=np.arange(2))
    assert "float64 pixels in 'x', expected uint8; scale them" in message(x=np.zeros((2, 4, 4)), y=np.arange(2))
    assert "the shape (2, 4, 4, 7) of 'x', expected" in message(x=np.zeros((2, 4, 4, 7), np.uint8), y=np.arange(2))
    assert "the shape (3,) of 'y', expected (2,), one for each picture" in message(x=good, y=np.arange(3))
    assert "'y' has Python objects" in message(x=good, y=np.array([{}, {}]))
    assert "the label 7 in 'y', expected 0 to 2, as there are 3 classes" in message(
        x=good, y=np.array([1, 7]), classes=np.array(CLASSES)
    )
    assert "'jpeg' has one dimension and no array 'offsets'" in message(jpeg=good.ravel(), labels=np.arange(2))
    assert "'offsets' does not fit 'jpeg', expected ascending numbers from 0 to 32" in message(
        jpeg=good.ravel(), labels=np.arange(2), offsets=np.array([0, 50, 60])
    )
    np.savez(path, x=good, y=np.arange(2))
    path.write_bytes(path.read_bytes()[:-30])
    assert f"{path}: a damaged zip archive (" in refused(path)


def test_a_bad_picture_in_an_npz_is_named(tmp_path):
    data = encode(colour(1)) + b"broken"
    ends = np.array([0, len(data) - 6, len(data)])
    np.savez(tmp_path / "a.npz", jpeg=np.frombuffer(data, np.uint8), offsets=ends, labels=np.arange(2))
    with pytest.raises(DataError, match=r"a\.npz/picture 2: looks like text, expected a picture"):
        pixels(read(tmp_path / "a.npz"))
