"""Broken pictures and tables of pictures: makes many, trains on each with the real command, and checks the error.

python tests/reliability/broken_images.py             all through the command
python tests/reliability/broken_images.py --reader    through the functions that read and decode alone, without a model

Each error must name the file, with the line of a table, and the reason, and exit with code 3. The largest memory that
the process needed is printed, and must stay below a gigabyte: some pictures say that they are 30,000 x 30,000.
"""

import argparse
import gzip
import importlib
import io
import json
import os
import pickle
import re
import resource
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

SUBPROCESSES = 6  # of the cases, how many go through a process of their own: it is slow, and the code is the same
MEMORY = 1000  # MB
SIDE = 30_000
ROLES = {
    "image_classification": ("label",),
    "captioning": ("caption",),
    "visual_question_answering": ("question", "answer"),
    "reading": ("text",),
}
Outcome = tuple[int, str]


@dataclass(frozen=True)
class Broken:
    """One broken data set: its files, and where and what the error must say."""

    name: str
    files: Mapping[str, bytes]
    place: str
    """file of the error, with its line if it has one; empty: the data set itself"""
    expected: str
    task: str = "image_classification"
    given: str = ""
    """what is trained on, within the folder of the files; empty: the folder"""

    def write(self, folder: Path) -> Path:
        """Write the files and return the path to train on."""
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return folder / self.given if self.given else folder


def encode(image: Image.Image, format: str = "PNG", **options: object) -> bytes:
    """A picture as the bytes of a file."""
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def noise(seed: int = 0, size: int = 24) -> Image.Image:
    """A picture that cannot be compressed."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8))


def chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_header(width: int, height: int) -> bytes:
    """The start of a PNG file of any size."""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))


def frames(format: str) -> bytes:
    """A picture of three frames."""
    images = [Image.new("RGB", (8, 8), (value, 0, 0)) for value in (0, 100, 200)]
    return encode(images[0], format, save_all=True, append_images=images[1:])


def large_jpeg() -> bytes:
    """A JPEG file whose header says 30,000 x 30,000."""
    data = bytearray(encode(noise(), "JPEG"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", SIDE, SIDE)
    return bytes(data)


def large_tiff() -> bytes:
    """A TIFF file whose header says 30,000 x 30,000."""
    entries = [(256, SIDE), (257, SIDE), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, SIDE), (279, 9)]
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + directory + bytes(4)


def good() -> dict[str, bytes]:
    """Class folders whose pictures are all good."""
    return {
        f"{label}/{number}.png": encode(noise(number + len(label) * (label == "dogs")))
        for label in ("cats", "dogs")
        for number in range(3)
    }


def picture(name: str, content: bytes, expected: str) -> Broken:
    """Class folders with one bad picture."""
    return Broken(name, {**good(), f"cats/{name}": content}, f"cats/{name}", expected)


def undecodable() -> list[Broken]:
    """Files that are not pictures, or not of a kind that is decoded."""
    expected = "expected a picture (JPEG, PNG, GIF, WebP, BMP, TIFF, PPM)"
    return [
        picture("empty.jpg", b"", f"an empty file, {expected}"),
        picture("text.jpg", b"a text that was named as a picture\n", f"looks like text, {expected}"),
        picture("page.jpg", b"<!doctype html><title>404</title>", "looks like a web page or XML"),
        picture("paper.jpg", b"%PDF-1.7\n%\xe2\xe3\n", "looks like a PDF document"),
        picture("photo.png", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40), "looks like a HEIC picture"),
        picture("small.png", b"\0\0\0\x18ftypavif\0\0\0\0mif1avif" + bytes(40), "looks like an AVIF picture"),
        picture("drawing.png", b'<svg xmlns="http://www.w3.org/2000/svg"/>', "looks like an SVG drawing"),
        picture("layers.png", b"8BPS\0\1" + bytes(60), "looks like a Photoshop picture"),
        picture("wave.jpg", b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(60), "looks like a JPEG 2000 picture"),
        picture("pointer.jpg", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer"),
        picture("zeros.jpg", bytes(5000), f"zero bytes, {expected}"),
        picture("unknown.jpg", bytes(range(129, 256)) * 9, "an unknown kind of file"),
        picture("archive.jpg", zipped({"1.png": encode(noise())}), "looks like a zip archive"),
        picture("numbers.tiff", encode(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"), "floating-point numbers"),
    ]


def damaged() -> list[Broken]:
    """Pictures that are cut or changed."""
    cases = []
    for format, suffix in (
        ("JPEG", "jpg"),
        ("PNG", "png"),
        ("GIF", "gif"),
        ("BMP", "bmp"),
        ("TIFF", "tif"),
        ("PPM", "ppm"),
    ):
        whole = encode(noise(), format)
        cases.append(picture(f"half.{suffix}", whole[: len(whole) // 2], f"a damaged {format} picture ("))
    webp, png = encode(noise(), "WEBP"), bytearray(encode(noise()))
    png[png.index(b"IDAT") + 50] ^= 0xFF
    return [
        *cases,
        picture("half.webp", webp[: len(webp) // 2], "a damaged WebP picture ("),
        picture("start.jpg", encode(noise(), "JPEG")[:20], "a damaged JPEG picture ("),
        picture("start.png", encode(noise())[:20], "a damaged PNG picture ("),
        picture("changed.png", bytes(png), "a damaged PNG picture ("),
        picture("no-pixels.png", png_header(9, 9) + chunk(b"IEND", b""), "a damaged PNG picture ("),
    ]


def large_and_animated() -> list[Broken]:
    """Pictures of too many pixels or frames."""
    size = "30,000 x 30,000 pixels (900 million), expected at most 64 million"
    gif = bytearray(encode(noise(), "GIF"))
    gif[6:10] = struct.pack("<HH", SIDE, SIDE)
    bmp = b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, SIDE, SIDE, 1, 24, *[0] * 6)
    bits = chunk(b"IDAT", zlib.compress(bytes(SIDE * (SIDE // 8 + 1)), 1))
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 1, 0, 0, 0, 0)) + bits
    return [
        picture("bomb.png", png_header(SIDE, SIDE) + chunk(b"IDAT", zlib.compress(bytes(99))), size),
        picture("whole.png", whole + chunk(b"IEND", b""), size),
        picture("bomb.jpg", large_jpeg(), size),
        picture("bomb.gif", bytes(gif), size),
        picture("bomb.bmp", bmp, size),
        picture("bomb.tiff", large_tiff(), size),
        picture("bomb.ppm", b"P6\n30000 30000\n255\n" + bytes(99), size),
        picture("thin.png", encode(Image.new("RGB", (1, 200_000))), "1 x 200,000 pixels, resized 24 x 4,800,000"),
        picture("moving.gif", frames("GIF"), "3 frames in a GIF file, expected a picture of one frame"),
        picture("moving.png", frames("PNG"), "3 frames in a PNG file"),
        picture("moving.webp", frames("WEBP"), "3 frames in a WebP file"),
        picture("pages.tiff", frames("TIFF"), "3 frames in a TIFF file"),
    ]


def zipped(members: Mapping[str, bytes]) -> bytes:
    """A zip archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def tarred(members: Mapping[str, bytes]) -> bytes:
    """A tar archive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def archives() -> list[Broken]:
    """Archives with broken members, cut, or with paths out of them."""

    def archive(name: str, content: bytes, expected: str, member: str = "") -> Broken:
        return Broken(name, {name: content}, f"{name}/{member}" if member else name, expected, given=name)

    plain, changed = zipped(good()), bytearray(zipped(good()))
    changed[plain.index(good()["dogs/1.png"]) + 30] ^= 0xFF
    locked = bytearray(zipped({"cats/1.png": encode(noise()), "dogs/1.png": encode(noise(1))}))
    for signature, flag in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        for match in re.finditer(re.escape(signature), bytes(locked)):
            locked[match.start() + flag] |= 1
    outside = {**good(), "../../outside.png": encode(noise())}
    return [
        archive("changed.zip", bytes(changed), "a damaged member of a zip archive (Bad CRC-32", "dogs/1.png"),
        archive("half.zip", plain[: len(plain) // 2], "a damaged zip archive ("),
        archive("locked.zip", bytes(locked), "encrypted, expected a member without a password", "cats/1.png"),
        archive("outside.zip", zipped(outside), "'../../outside.png' is a path that leads out of the archive"),
        archive("text.zip", zipped({**good(), "cats/x.jpg": b"text"}), "looks like text", "cats/x.jpg"),
        archive("half.tar", tarred(good())[:5000], "a damaged tar archive ("),
        archive("half.tar.gz", gzip.compress(tarred(good()), mtime=0)[:3000], "a damaged tar archive ("),
        archive("outside.tar", tarred(outside), "is a path that leads out of the archive"),
        archive(
            "text.tar.gz",
            gzip.compress(tarred({**good(), "dogs/x.jpg": b"text"}), mtime=0),
            "looks like text",
            "dogs/x.jpg",
        ),
    ]


def folders() -> list[Broken]:
    """Folders whose pictures have no classes."""
    flat = {f"{number}.png": encode(noise(number)) for number in range(4)}
    single = {f"cats/{name}": content for name, content in flat.items()}
    caption = "pictures in 2 class folders, expected a caption for each picture"
    return [
        Broken("flat", flat, "", "no pictures in folders, expected at least two class folders"),
        Broken("single", single, "", "every picture is in the class 'cats', expected at least two class folders"),
        Broken("loose", {**good(), "lost.png": encode(noise())}, "lost.png", "a picture outside of the class folders"),
        Broken("no-captions", good(), "", caption, task="captioning"),
    ]


def table(name: str, lines: list[str] | bytes, place: str, expected: str, task: str = "image_classification") -> Broken:
    """A table beside good pictures."""
    content = lines if isinstance(lines, bytes) else ("\n".join(lines) + "\n").encode()
    return Broken(name, {**good(), name: content}, f"{name}{place}", expected, task=task, given=name)


def tables() -> list[Broken]:
    """Tables and lists with bad rows, or whose pictures are missing or bad."""
    head, rows = "image,label", ["cats/0.png,cat", "dogs/0.png,dog", "cats/1.png,cat"]
    listed = [f"cats/{number % 3}.png\tword {number}" for number in range(20)]
    objects = ['{"image": "cats/0.png", "label": "a"}', '{"image": "dogs/0.png", "label": "b"}']
    broken_file = Broken(
        "broken-file.csv",
        {**good(), "x.jpg": b"text", "labels.csv": "\n".join([head, *rows, "x.jpg,cat"]).encode()},
        "x.jpg",
        "looks like text",
        given="labels.csv",
    )
    metadata = Broken(
        "metadata",
        {**good(), "metadata.csv": b"file_name,text\ncats/0.png,a cat\ncats/9.png,a dog\n"},
        "metadata.csv:3",
        "no picture 'cats/9.png'",
        task="captioning",
    )
    captions = [f"{number}.png#0\ta caption" for number in (0, 1, 7)]
    return [
        table("missing.csv", [head, *rows, "cats/99.png,cat"], ":5", "no picture 'cats/99.png', expected a picture in"),
        table("no-label.csv", [head, *rows, "dogs/1.png,"], ":5", "the label of 'dogs/1.png' is empty"),
        table("wide.csv", [head, *rows, "dogs/1.png,dog,7"], ":5", "3 columns, expected 2 (image, label)"),
        table(
            "latin.csv",
            "\n".join([head, *rows, "dogs/1.png,café,"]).encode("latin-1"),
            ":5:15",
            "byte 0xE9 is not utf-8",
        ),
        table(
            "quote.csv",
            [head, *rows, 'dogs/1.png,"dog', "dogs/2.png,dog"],
            ":5:12",
            "the quote that opens here is never closed",
        ),
        table("nul.csv", [head, *rows, "dogs/1.png,do\0g"], ":5:14", "NUL character U+0000"),
        table("bad.jsonl", [*objects, '{"image": "dogs/1.png", "label": }'], ":3:34", "invalid JSON"),
        table("no-key.jsonl", [*objects, '{"image": "dogs/1.png"}'], ":3", "no key 'label'"),
        table("missing.jsonl", [*objects, '{"image": "gone.png", "label": "b"}'], ":3", "no picture 'gone.png'"),
        table(
            "gt.txt",
            [*listed, "no picture"],
            ":21",
            "'no picture', expected the path of a picture and a text",
            "reading",
        ),
        table("gone.txt", [*listed, "cats/77.png\tword"], ":21", "no picture 'cats/77.png'", "reading"),
        table("a.token.txt", captions, ":1", "several pictures are called '0.png'", "captioning"),
        table("no-text.csv", [head, *rows], "", "no column looks like an answer", "visual_question_answering"),
        broken_file,
        metadata,
    ]


def documents() -> list[Broken]:
    """JSON files with wrong entries, and questions without answers."""
    coco = {"images": [{"id": 1, "file_name": "cats/1.png"}], "annotations": [{"image_id": 1, "caption": "a cat"}]}
    unknown = {**coco, "annotations": [*coco["annotations"], {"image_id": 5, "caption": "a dog"}]}
    empty = {**coco, "annotations": [*coco["annotations"], {"image_id": 1, "caption": " "}]}
    gone = {**coco, "images": [{"id": 1, "file_name": "gone.png"}]}
    questions = {"questions": [{"question_id": 1, "image_id": 1, "question": "what is it?"}]}
    triples = [["what is it?", "a cat", 1], ["what is it?", 7]]
    qa = "visual_question_answering"
    return [
        table("cut.json", json.dumps(coco).encode()[:-9], ":1:", "invalid JSON", "captioning"),
        table("unknown.json", json.dumps(unknown).encode(), "", "annotation 2: no picture with the id 5", "captioning"),
        table("empty.json", json.dumps(empty).encode(), "", "annotation 2: 'caption' is ' '", "captioning"),
        table("gone.json", json.dumps(gone).encode(), "", "no picture 'gone.png'", "captioning"),
        table("questions.json", json.dumps(questions).encode(), "", "question 1: no answer to the question id 1", qa),
        table("triples.json", json.dumps(triples).encode(), "", 'item 2 is ["what is it?", 7]', qa),
    ]


class Evil:
    """A value whose pickle makes a folder when it is opened."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, ("/tmp/saccade-broken-images",)


def arrays() -> list[Broken]:
    """Arrays of pictures that are cut, or do not fit their labels."""

    def npz(name: str, expected: str, member: str = "", **values: np.ndarray) -> Broken:
        stream = io.BytesIO()
        np.savez(stream, **values)
        return Broken(name, {name: stream.getvalue()}, f"{name}{member}", expected, given=name)

    def idx(values: np.ndarray) -> bytes:
        return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()

    pixels, labels = np.zeros((4, 8, 8), np.uint8), np.arange(4, dtype=np.uint8) % 2
    images, names = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
    pack = gzip.compress
    mnist = {images: pack(idx(pixels)), names: pack(idx(labels))}
    encoded = np.frombuffer(encode(noise()) + b"text", np.uint8)
    offsets = np.array([0, len(encoded) - 4, len(encoded)])
    batch = {"data_batch_1.bin": bytes(3073 * 2), "test_batch.bin": bytes(3073 * 2 - 1)}
    evil = {"data_batch_1": pickle.dumps({b"data": Evil()}, 2), "batches.meta": pickle.dumps({}, 2)}
    return [
        npz("float.npz", "float64 pixels in 'x', expected uint8", x=pixels / 255, y=labels),
        npz("few-labels.npz", "the shape (3,) of 'y', expected (4,)", x=pixels, y=labels[:3]),
        npz("no-labels.npz", "the arrays x, expected images and labels", x=pixels),
        npz("offsets.npz", "'offsets' does not fit 'jpeg'", jpeg=encoded, offsets=offsets * 2, labels=labels[:2]),
        npz("text.npz", "looks like text", "/picture 2", jpeg=encoded, offsets=offsets, labels=labels[:2]),
        Broken("idx-cut", {**mnist, images: pack(idx(pixels)[:-9])}, images, "the file ends 9 bytes too early"),
        Broken("idx-gzip", {**mnist, images: pack(idx(pixels))[:-9]}, images, "damaged gzip data ("),
        Broken(
            "idx-magic", {**mnist, images: pack(b"\1" * 300)}, images, "starts with 01 01 01 01, expected 00 00 08 03"
        ),
        Broken("idx-labels", {**mnist, names: pack(idx(labels[:3]))}, names, "3 labels, expected 4"),
        Broken("idx-alone", {images: mnist[images]}, images, "no file of labels beside it"),
        Broken("cifar-cut", batch, "test_batch.bin", "6,145 bytes, expected records of 3,073 bytes"),
        Broken("cifar-code", evil, "data_batch_1", "a Python pickle with the code 'posix.mkdir'"),
    ]


def every_case() -> list[Broken]:
    """All broken data sets."""
    return [
        *(*undecodable(), *damaged(), *large_and_animated(), *archives()),
        *(*folders(), *tables(), *documents(), *arrays()),
    ]


def run_reader(broken: Broken, path: Path, runs: Path) -> Outcome:
    """Read and decode everything with the functions that the command uses."""
    from saccade.data.formats.image_rows import ImageSettings, read_image_rows, split_image_rows
    from saccade.data.images.decoded import decode_pictures
    from saccade.data.images.resizing import Resize
    from saccade.errors import SaccadeError

    try:
        rows = read_image_rows(path, ROLES[broken.task], ImageSettings())
        decoded = decode_pictures(rows.pictures, Resize("crop", 24))
        split_image_rows(rows, ImageSettings(), decoded.hashes)
    except SaccadeError as error:
        return error.exit_code, f"error: {error}"
    return 0, ""


def train(broken: Broken, path: Path, runs: Path) -> list[str]:
    """Return the arguments of the command."""
    return ["train", str(path), "--task", broken.task, "--steps", "1", "--runs", str(runs)]


def run_command(broken: Broken, path: Path, runs: Path) -> Outcome:
    """Train with the command line, in this process."""
    from click.testing import CliRunner

    command = importlib.import_module("saccade.cli").main
    result = CliRunner().invoke(command, train(broken, path, runs))
    trace = f"Traceback: {result.exception!r}" if isinstance(result.exception, Exception) else ""
    return result.exit_code, result.stderr + trace


def run_process(broken: Broken, path: Path, runs: Path) -> Outcome:
    """Train with the command line, in a process of its own."""
    command = [sys.executable, "-m", "saccade", *train(broken, path, runs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stderr


def failure(broken: Broken, folder: Path, outcome: Outcome) -> str | None:
    """What is wrong with the error that a user saw, or None."""
    code, output = outcome
    if code != 3:
        return f"exit code {code}, expected 3: {output[:300]}"
    if "Traceback" in output:
        return f"a traceback: {output[:300]}"
    # A command may fold its message to the width of the terminal.
    plain, joined = " ".join(output.split()), output.replace("\n", "")
    # ":4" must not be satisfied by ":41"; a place that ends in a colon leaves the rest open.
    name = f"{folder}/{broken.place}" if broken.place else str(folder)
    place = re.compile(
        re.escape(name) + ("" if name.endswith(":") else r"(?=: |:1: |:\d)" if ":" not in name else r"(?!\d)")
    )
    if not place.search(joined) and not place.search(plain):
        return f"no '{broken.place or folder.name}' in: {output[:300]}"
    return (
        None if broken.expected in plain or broken.expected in joined else f"no '{broken.expected}' in: {output[:300]}"
    )


def check_all(run: Callable[[Broken, Path, Path], Outcome], processes: int = 0) -> tuple[int, int, list[str]]:
    """Run every case; how many were named rightly, of how many, and the failures."""
    cases = every_case()
    failures = []
    with tempfile.TemporaryDirectory() as temporary:
        step = max(len(cases) // processes, 1) if processes else len(cases) + 1
        for index, broken in enumerate(cases):
            folder = Path(temporary) / f"{index:03}"
            path = broken.write(folder)
            apart = processes and index % step == 0
            wrong = failure(broken, folder, (run_process if apart else run)(broken, path, Path(temporary) / "runs"))
            if wrong is not None:
                failures.append(f"{broken.name}: {wrong}")
    return len(cases) - len(failures), len(cases), failures


def peak_memory() -> int:
    """Return the largest memory of this process and its children so far, in MB.

    On Linux `getrusage` also counts what the parent had when it started this process; /proc does not.
    """
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // unit
    status = Path("/proc/self/status")
    if status.exists():
        return max(children, int(status.read_text().partition("VmHWM:")[2].split()[0]) >> 10)
    return max(children, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit)


def main() -> int:
    """Check all cases, print each failure and one line of result."""
    from tests.reliability.figures import Figure, print_figure

    parser = argparse.ArgumentParser(description="Check that every broken picture and table of pictures is named.")
    parser.add_argument("--reader", action="store_true", help="use the reading functions alone, not the command")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    reader = chosen.reader
    right, total, failures = check_all(run_reader if reader else run_command, 0 if reader else SUBPROCESSES)
    for line in failures:
        print(line, file=sys.stderr)
    peak = peak_memory()
    text = f"broken pictures and tables named with the right file and reason, {peak} MB at most"
    code = print_figure(Figure("broken pictures", right, total, text, {"megabytes": peak}), chosen.json)
    return code if peak < MEMORY else 1


if __name__ == "__main__":
    # So that the script runs from a checkout that is not installed.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main())
