"""IDX files: pictures and labels of MNIST and its relatives as they are published, plain or in gzip."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from saccade.core.callback import Progress
from saccade.data.cache import EntryWriter, Record, cached, hash_file
from saccade.data.formats.image_layouts import ImageLayout, ImageRows, PictureBlock, join_blocks
from saccade.data.images.pictures import PixelPictures
from saccade.data.parts import TEST, part_of_file
from saccade.data.settings import ImageSettings
from saccade.data.tables.encodings import BLOCK, DAMAGE, explain, open_bytes
from saccade.data.tables.problems import BadRows, Problem
from saccade.data.tables.sniffing import format_size

NAME = re.compile(r"(?P<start>.*)images[-.]idx3[-.]ubyte(?P<end>(\.gz)?)", re.I)
BYTES = 0x08  # type of the values
MAX_SIDE = 1 << 12


class IdxPictures(ImageLayout):
    """Files of pictures, each with a file of labels beside it."""

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        self.path, self.files = path, tuple(files)

    @property
    def roles(self) -> tuple[tuple[str, ...], ...]:
        return (("label",),)

    def read(self, roles: Sequence[str], settings: ImageSettings, progress: Progress) -> ImageRows:
        if tuple(roles) != ("label",):
            raise self.refuse_roles(roles, "pictures with class labels")
        blocks = []
        for number, file in enumerate(self.files):
            blocks.append(_block(file, len(self.files) > 1))
            progress((number + 1) / len(self.files))
        return join_blocks(self.path, blocks)


def find_idx(path: Path) -> IdxPictures | None:
    """Return the IDX files of pictures of a path: a file, or those of a folder; None if there are none."""
    names = sorted(path.iterdir()) if path.is_dir() else [path]
    files = [file for file in names if NAME.fullmatch(file.name) and file.is_file()]
    plain = {file.name for file in files}
    files = [file for file in files if not (file.suffix == ".gz" and file.stem in plain)]  # unpacked beside it
    return IdxPictures(path, files) if files else None


def _block(file: Path, several: bool) -> PictureBlock:
    match = NAME.fullmatch(file.name)
    stem = match["start"] if match else ""
    endings = [f"labels{dash}idx1{dot}ubyte" for dash in "-." for dot in "-."]
    beside = [file.with_name(f"{stem}{ending}{suffix}") for ending in endings for suffix in ("", ".gz")]
    labels = next((path for path in beside if path.is_file()), None)
    if labels is None:
        what, step = "no file of labels beside it", "put both files into one folder"
        raise BadRows([Problem(file, None, None, what, f"'{stem}labels-idx1-ubyte.gz'", step)])
    pictures = _pictures(file)
    values = _values(labels)
    if len(values) != len(pictures):
        what, expected = f"{len(values):,} labels", f"{len(pictures):,}, one for each picture of {file.name}"
        raise BadRows([Problem(labels, None, None, what, expected, "download both files again")])
    part = part_of_file(file, file)
    part = TEST if part is None and file.name.lower().startswith("t10k") else part
    return PictureBlock(pictures, [str(value) for value in values], part if several else None)


def _pictures(file: Path) -> PixelPictures:
    def build(writer: EntryWriter) -> Record:
        with _open(file) as stream:
            shape = _shape(file, stream, 3)
            pixels = writer.array("pixels", "uint8")
            for data in _content(file, stream, math.prod(shape), last=True):
                pixels.write_bytes(data)
        return {"shape": list(shape)}

    entry = cached("idx", [hash_file(file)], build, [file])
    return PixelPictures(str(file), entry.arrays["pixels"].reshape(entry.record["shape"]), [entry.key])


def _values(file: Path) -> list[int]:
    with _open(file) as stream:
        (count,) = _shape(file, stream, 1)
        return list(b"".join(_content(file, stream, count, last=True)))


def _open(file: Path) -> io.BufferedIOBase:
    try:
        with file.open("rb") as stream:
            compressed = stream.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise explain(file, error) from error
    return open_bytes(file, compressed)


def _shape(file: Path, stream: io.BufferedIOBase, dimensions: int) -> tuple[int, ...]:
    """Return the sizes in the header of a file."""
    header = b"".join(_content(file, stream, 4 + 4 * dimensions))
    if header[:3] != bytes((0, 0, BYTES)) or header[3] != dimensions:
        what, expected = (
            f"starts with {header[:4].hex(' ')}",
            f"00 00 08 {dimensions:02x} (bytes, {dimensions} dimensions)",
        )
        raise BadRows([Problem(file, None, None, what, expected, "name an IDX file of MNIST, or download it again")])
    shape = tuple(int(size) for size in np.frombuffer(header, ">u4", offset=4))
    if not all(shape) or max(shape[1:], default=1) > MAX_SIDE:
        what = f"a size of {' x '.join(f'{size:,}' for size in shape)}"
        raise BadRows([Problem(file, None, None, what, f"at most {MAX_SIDE:,} pixels a side", "download it again")])
    return shape


def _content(file: Path, stream: io.BufferedIOBase, size: int, *, last: bool = False) -> Iterator[bytes]:
    """Yield that many bytes of a file; `last`: the file must end behind them, where gzip has its checksum."""
    missing = size
    while missing or last:
        try:
            data = stream.read(min(missing, BLOCK) or 1)
        except DAMAGE as error:
            what = f"damaged gzip data ({str(error) or type(error).__name__})"
            raise BadRows([Problem(file, None, None, what, "a complete file", "download it again")]) from error
        except OSError as error:
            raise explain(file, error) from error
        if not data and not missing:
            return
        if not data or not missing:
            what = f"the file ends {format_size(missing)} too early" if missing else "more bytes than its header says"
            raise BadRows([Problem(file, None, None, what, f"{format_size(size)} by its header", "download it again")])
        missing -= len(data)
        yield data
