"""Broken data files: makes many, trains on each with the real command, and checks that the error names file and line.

python tests/reliability/broken_files.py             every file through the command
python tests/reliability/broken_files.py --reader    through the reading functions alone, without a model

Large files that are something else than they seem must be answered in five seconds; their times are printed.
"""

import argparse
import gzip
import importlib
import io
import json
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SUBPROCESSES = 8  # of the files, how many go through a process of their own: it is slow, and the code is the same
Outcome = tuple[int, str]
GOOD = [f"line {number} of a text with enough words to learn from" for number in range(1, 60)]
NEWLINE, ZERO = b"\n", b"\0"
BLOCK = 1 << 20  # bytes written at once
SECONDS = 5.0  # within which every file must be answered
LARGE = 24 << 20  # bytes of a large file
TEXT = ("\n".join(GOOD) + "\n").encode()


@dataclass(frozen=True)
class Broken:
    """One broken file: its name and bytes, and where and what the error must say."""

    name: str
    content: bytes
    place: str
    expected: str
    filler: bytes = b""
    """what follows the content, again and again"""
    size: int = 0
    """bytes of the file with its filler"""

    def write(self, path: Path) -> None:
        """Write the file; zero bytes at its end take no space on disk."""
        with path.open("wb") as stream:
            stream.write(self.content)
            if self.filler == ZERO:
                stream.truncate(self.size)
            elif self.filler:
                block = self.filler * (BLOCK // len(self.filler))
                while stream.tell() < self.size:
                    stream.write(block)


def table(rows: list[str], header: str = "text,label") -> bytes:
    """A csv file whose first rows are good."""
    return ("\n".join([header, "a good text,1", "another good text,0", *rows]) + "\n").encode()


def objects(lines: list[str]) -> bytes:
    """A jsonl file whose first two rows are good."""
    return ("\n".join(['{"text": "a good text"}', '{"text": "another"}', *lines]) + "\n").encode()


def inserted(line: int, bad: bytes) -> bytes:
    """The good text with something put before a line."""
    lines = TEXT.split(b"\n")
    return b"\n".join([*lines[: line - 1], bad, *lines[line - 1 :]])


def packed(content: bytes) -> bytes:
    """The content as gzip, the same bytes every time."""
    return gzip.compress(content, mtime=0)


def noisy_gzip() -> bytes:
    """A gzip file with bytes changed in the middle of its data."""
    good = bytearray(packed(b"\n".join(f"{n * 7919 % 1009} {n * n}".encode() for n in range(60_000))))
    middle = len(good) // 2
    good[middle : middle + 64] = bytes(64)
    return bytes(good)


def wrong_sum() -> bytes:
    """A gzip file whose checksum does not fit its data."""
    good = bytearray(packed(TEXT))
    good[-8] ^= 0xFF
    return bytes(good)


def readable_end(content: bytes) -> str:
    """Where the good text of a damaged gzip file ends: counted here, as it varies with the version of zlib."""
    unpacker, text = zlib.decompressobj(31), bytearray()
    try:
        for index in range(len(content)):
            text += unpacker.decompress(content[index : index + 1])
    except zlib.error:
        pass
    return f":{text.count(NEWLINE) + 1}:{len(text) - text.rfind(NEWLINE)}"


def zipped(name: str) -> bytes:
    """A zip archive with one file in it."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, "content")
    return stream.getvalue()


def tarred() -> bytes:
    """A tar archive with one file in it."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        entry = tarfile.TarInfo("inside.txt")
        entry.size = len(TEXT)
        archive.addfile(entry, io.BytesIO(TEXT))
    return stream.getvalue()


def encodings() -> list[Broken]:
    """Files whose bytes are not the text they seem to be."""
    wide = "\n".join(GOOD).encode("utf-16")
    return [
        Broken("latin.txt", inserted(7, b"caf\xe9 au lait"), ":7:4", "byte 0xE9 is not utf-8"),
        Broken("first-byte.txt", b"\xe9" + TEXT, ":1:1", "byte 0xE9 is not utf-8"),
        Broken("windows.txt", inserted(12, b"it\x92s"), ":12:3", "byte 0x92 is not utf-8"),
        Broken("overlong.txt", inserted(4, b"ab\xc0\x80"), ":4:3", "byte 0xC0 is not utf-8"),
        Broken("surrogate.txt", inserted(5, b"x\xed\xa0\x80"), ":5:2", "byte 0xED is not utf-8"),
        Broken("after-wide.txt", inserted(3, "日本".encode() + b"\xff"), ":3:3", "byte 0xFF is not utf-8"),
        Broken("cut-character.txt", TEXT + b"end \xe2\x82", ":60:5", "the file ends inside a character"),
        Broken("crlf-bad.txt", inserted(9, b"bad\xe9").replace(b"\n", b"\r\n"), ":9:4", "byte 0xE9"),
        Broken("cr-bad.txt", inserted(9, b"bad\xe9").replace(b"\n", b"\r"), ":9:4", "byte 0xE9"),
        Broken("bom-bad.txt", b"\xef\xbb\xbf" + inserted(2, b"b\xe9"), ":2:2", "byte 0xE9"),
        Broken("odd-utf16.txt", wide[:-1], ":59:", "the file ends inside a character"),
        Broken("no-bom-le.txt", wide[2:], ":1:1", "utf-16-le text without a byte order mark"),
        Broken("no-bom-be.txt", "\n".join(GOOD).encode("utf-16-be"), ":1:1", "utf-16-be text without"),
        Broken("late-bad.txt", TEXT * 500 + b"late \xe9\n", ":29501:6", "byte 0xE9 is not utf-8"),
        Broken("half-binary.txt", TEXT + bytes(range(128, 256)) * 50, ":60:1", "byte 0x80 is not utf-8"),
        Broken("bad.csv", table(["caf\u00e9,1"]).replace("é".encode(), b"\xe9"), ":4:4", "byte 0xE9"),
        Broken("bad.jsonl", objects(['{"text": "@"}']).replace(b"@", b"\xe9"), ":3:11", "byte 0xE9"),
    ]


def characters() -> list[Broken]:
    """Files with characters that no text should hold."""
    return [
        Broken("nul.txt", inserted(6, b"a\x00b"), ":6:2", "NUL character U+0000"),
        Broken("bell.txt", inserted(8, b"ring \x07"), ":8:6", "control character U+0007"),
        Broken("escape.txt", inserted(3, b"\x1b[31mred"), ":3:1", "control character U+001B"),
        Broken("delete.txt", inserted(3, b"x\x7f"), ":3:2", "control character U+007F"),
        Broken("late-nul.txt", TEXT * 400 + b"ab\x00\n", ":23601:3", "NUL character U+0000"),
        Broken("nul.csv", table(["with\x00nul,1"]), ":4:5", "NUL character U+0000"),
        Broken("nul.tsv", b"text\tlabel\ngood text\t1\nb\x00d\t0\n", ":3:2", "NUL character U+0000"),
        Broken("nul.jsonl", objects(['{"text": "a\\u0000b"}']), ":3:12", "NUL character U+0000"),
        Broken("surrogate.jsonl", objects(['{"text": "a\\ud800b"}']), ":3:12", "lone surrogate U+D800"),
        Broken("low-surrogate.jsonl", objects(['{"text": "\\udc00"}']), ":3:11", "lone surrogate U+DC00"),
        Broken("tab.jsonl", objects(['{"text": "a\tb"}']), ":3:12", "Invalid control character"),
        Broken("quoted-bell.csv", table(['"two\nlines \x07",1']), ":5:7", "control character U+0007"),
    ]


def emptiness() -> list[Broken]:
    """Files with nothing in them."""
    return [
        Broken("empty.txt", b"", ":1", "an empty file"),
        Broken("empty.csv", b"", ":1", "an empty file"),
        Broken("empty.jsonl", b"", ":1", "an empty file"),
        Broken("blank.txt", b" \n\t\n\n", ":1", "nothing but white space"),
        Broken("mark-only.txt", b"\xef\xbb\xbf", ":1", "nothing but white space"),
        Broken("empty.txt.gz", packed(b""), ":1", "the gzip file holds nothing"),
        Broken("header-only.csv", b"text,label\n", ":1", "a header and no rows"),
        Broken("blank.jsonl", b"\n\n\n", ":1", "no rows"),
        Broken("empty-text.csv", table([",1"]), ":4", "empty text"),
        Broken("blank-text.csv", table(['"  ",1']), ":4", "empty text"),
        Broken("empty-text.jsonl", objects(['{"text": ""}']), ":3", "empty text"),
        Broken("empty-text.tsv", b"text\tlabel\ngood text\t1\n\t0\n", ":3", "empty text"),
    ]


def tables() -> list[Broken]:
    """Tables with bad rows, quotes and headers."""
    long_field = '"' + "x" * (1 << 23) + "x\n"
    return [
        Broken("wide.csv", table(["one,two,three"]), ":4", "3 columns, expected 2 (text, label)"),
        Broken("narrow.csv", table(["only one"]), ":4", "1 column, expected 2 (text, label)"),
        Broken("wide.tsv", b"text\tlabel\ngood text\t1\na\tb\tc\n", ":3", "3 columns, expected 2 (text, label)"),
        Broken("after-quoted.csv", table(['"two\nlines",1', "a,b,c"]), ":6", "3 columns, expected 2"),
        Broken("open-quote.csv", table(['"never closed,1', "more,0"]), ":4:1", "never closed"),
        Broken("open-second.csv", table(['x,"never closed', "more,0"]), ":4:3", "never closed"),
        Broken("after-quote.csv", table(['"closed" early,1']), ":4:9", "' ' after the closing quote"),
        Broken("stray-quote.csv", table(['"opens,1', "middle,0", 'end" x,1']), ":4:1", "at line 6, column 5"),
        Broken("long-field.csv", table([long_field]), ":4:1", "not closed within 8,388,608 characters"),
        Broken("twice.csv", table([], "text,text"), ":1", "two columns are called 'text'"),
        Broken("no-text.csv", b"price,colour\n1,red\n2,green\n", ":1", "expected one of: price, colour"),
        Broken("page.csv", b"<!DOCTYPE html><html><body>404</body></html>", ":1:1", "looks like a web page"),
        Broken("crlf-wide.csv", table(["one,two,three"]).replace(b"\n", b"\r\n"), ":4", "3 columns, expected 2"),
    ]


def json_lines() -> list[Broken]:
    """JSON lines that are not objects with a text."""
    huge = '{"text": "' + "x" * (1 << 23) + "x" * (1 << 20)
    return [
        Broken("comma.jsonl", objects(['{"text": "a",}']), ":3:", "invalid JSON"),
        Broken("cut.jsonl", objects(['{"text": "a']), ":3:10", "Unterminated string"),
        Broken("single-quotes.jsonl", objects(["{'text': 'a'}"]), ":3:2", "invalid JSON"),
        Broken("two.jsonl", objects(['{"text": "a"} {"text": "b"}']), ":3:15", "Extra data"),
        Broken("list.jsonl", objects(['["a"]']), ":3:1", "the JSON is a list, expected a JSON object"),
        Broken("string.jsonl", objects(['"a"']), ":3:1", "the JSON is a string, expected a JSON object"),
        Broken("null.jsonl", objects(["null"]), ":3:1", "the JSON is null, expected a JSON object"),
        Broken("number.jsonl", objects(['{"text": 5}']), ":3:2", "'text' is a number (5), expected a string"),
        Broken("null-text.jsonl", objects(['{"text": null}']), ":3:2", "'text' is null (null)"),
        Broken("nested.jsonl", objects(['{"text": {"a": 1}}']), ":3:2", "'text' is an object"),
        Broken("missing.jsonl", objects(['{"txt": "a"}']), ":3", "no key 'text' (keys: txt)"),
        Broken("twice.jsonl", objects(['{"text": "a", "text": "b"}']), ":3:15", "the key 'text' occurs twice"),
        Broken("deep.jsonl", objects(["[" * 100_000]), ":3:1", "JSON nested too deeply"),
        Broken("whole.json", json.dumps([{"text": "a"}], indent=1).encode(), ":1:1", "one JSON document"),
        Broken("pretty.jsonl", json.dumps([{"text": "a"}], indent=1).encode(), ":1:2", "invalid JSON"),
        Broken("long-line.jsonl", huge.encode(), ":1", "a line of more than 8,388,608 characters"),
    ]


def foreign() -> list[Broken]:
    """Files that are something else altogether."""
    safetensors = struct.pack("<Q", 40) + b'{"weight":{"dtype":"F32"}}' + bytes(64)
    short = packed(TEXT * 300)[:-40]
    return [
        Broken("picture.txt", b"\x89PNG\r\n\x1a\n" + bytes(64), ":1:1", "looks like a PNG image"),
        Broken("paper.txt", b"%PDF-1.7\n%\xe2\xe3\n", ":1:1", "looks like a PDF document"),
        Broken("archive.txt", zipped("a.txt"), ":1:1", "looks like a zip archive"),
        Broken("sheet.csv", zipped("xl/workbook.xml"), ":1:1", "looks like an Excel workbook"),
        Broken("letter.txt", zipped("word/document.xml"), ":1:1", "looks like a Word document"),
        Broken("books.tar", tarred(), ":1:1", "looks like a tar archive"),
        Broken("books.tar.gz", packed(tarred()), ":1:1", "looks like a tar archive"),
        Broken("data.pkl", b"\x80\x04\x95\x05\x00\x00\x00.", ":1:1", "looks like a Python pickle"),
        Broken("data.parquet", b"PAR1\x15\x04\x15" + bytes(64), ":1:1", "looks like a Parquet file"),
        Broken("array.npy", b"\x93NUMPY\x01\x00" + bytes(64), ":1:1", "looks like a NumPy array"),
        Broken("model.safetensors", safetensors, ":1:1", "looks like a safetensors file"),
        Broken("base.db", b"SQLite format 3\x00" + bytes(64), ":1:1", "looks like an SQLite database"),
        Broken("packed.txt", b"\x28\xb5\x2f\xfd" + bytes(64), ":1:1", "looks like a zstd file"),
        Broken("pointer.csv", b"version https://git-lfs.github.com/spec/v1\n", ":1:1", "looks like a Git LFS pointer"),
        Broken("short.txt.gz", short, readable_end(short), "the gzip data ends too early"),
        Broken("noise.txt.gz", noisy_gzip(), readable_end(noisy_gzip()), "the gzip data is damaged"),
        Broken("sum.txt.gz", wrong_sum(), ":60:1", "the gzip data is damaged"),
        Broken("not-packed.txt.gz", TEXT, ":1:1", "not gzip data"),
    ]


def large() -> list[Broken]:
    """Large files that are wrong all over, or that have no line ends."""
    long_line, size = "a line of more than 8,388,608 characters, expected shorter rows; check that rows end", LARGE
    header, zeros = b"text,label\n", 3 * LARGE
    return [
        Broken("zeros.txt", ZERO, ":1:1", "4,096 of the first 4,096 bytes are zero, expected text; name", ZERO, zeros),
        Broken("zeros.csv", ZERO, ":1:1", "4,096 of the first 4,096 bytes are zero, expected text; name", ZERO, zeros),
        Broken("zeros.txt.gz", packed(ZERO * size), ":1:1", "4,096 of the first 4,096 bytes are zero, expected"),
        Broken("late-zeros.txt", TEXT * 20, ":1181:1", "more, where reading stopped next: remove such", ZERO, zeros),
        Broken("late-zeros.csv", table(["x,1"] * 999), ":1003", long_line, ZERO, zeros),
        Broken("bells.txt", TEXT * 20, ":1181:1", "control character U+0007, expected printable", b"\x07", size),
        Broken("nul-rows.csv", header, ":2:13", "and 980 more, where reading stopped", b"a good text \0,1\n", size),
        Broken("wide-rows.csv", header, ":2", "and 980 more, where reading stopped next: quote", b"a b,1,2\n", size),
        Broken("objects.jsonl", b'{"text": "a"}\n', ":2:2", "and 980 more, where reading stopped", b"{\n", size),
        Broken("numbers.jsonl", b'{"text": "a"}\n', ":2:2", "980 more, where reading stopped", b'{"text": 1}\n', size),
        Broken("one-line.csv", header, ":2", long_line, b"x", size),
        Broken("one-line.jsonl", b'{"text": "', ":1", long_line, "wörter ".encode(), size),
        Broken("open-quote.csv", header + b'"', ":2:1", "not closed within 8,388,608 characters", b"a b,1\n", size),
        Broken("blank.txt", b"", ":1", "nothing but white space", NEWLINE, size),
        Broken("spaces.txt", b"", ":1", "nothing but white space in 1 line", b" ", size),
    ]


def every_file() -> list[Broken]:
    """All broken files."""
    return [*encodings(), *characters(), *emptiness(), *tables(), *json_lines(), *foreign()]


def run_reader(path: Path, runs: Path) -> Outcome:
    """Read a file to its end with the functions that the command uses."""
    from saccade.data.formats.documents import documents
    from saccade.data.tables.files import find
    from saccade.data.tables.sniffing import sniff
    from saccade.errors import SaccadeError
    from saccade.tasks import guess_task

    try:
        guess_task(path)
        for file in find(path):
            for _ in documents(sniff(file)):
                pass
    except SaccadeError as error:
        return error.exit_code, f"error: {error}"
    return 0, ""


def train(path: Path, runs: Path) -> list[str]:
    """Return the arguments of a command that reads a file as text, whatever labels a table has."""
    return ["train", str(path), "--task", "language_model", "--steps", "1", "--runs", str(runs)]


def run_command(path: Path, runs: Path) -> Outcome:
    """Train on a file with the command line, in this process."""
    from click.testing import CliRunner

    command = importlib.import_module("saccade.cli").main
    result = CliRunner().invoke(command, train(path, runs))
    trace = f"Traceback: {result.exception!r}" if isinstance(result.exception, Exception) else ""
    return result.exit_code, result.stderr + trace


def run_process(path: Path, runs: Path) -> Outcome:
    """Train on a file with the command line, in a process of its own."""
    command = [sys.executable, "-m", "saccade", *train(path, runs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stderr


def failure(broken: Broken, path: Path, outcome: Outcome) -> str | None:
    """What is wrong with what a person was output, or None."""
    code, output = outcome
    if code != 3:
        return f"exit code {code}, expected 3: {output[:300]}"
    if "Traceback" in output:
        return f"a traceback: {output[:300]}"
    # A command may fold its message to the width of the terminal.
    plain = " ".join(output.split())
    # ":4" must not be satisfied by ":41"; a place that ends in a colon leaves the rest open.
    place = re.compile(re.escape(f"{path}{broken.place}") + ("" if broken.place.endswith(":") else r"(?!\d)"))
    if not place.search(output.replace("\n", "")) and not place.search(plain):
        return f"no '{path.name}{broken.place}' in: {output[:300]}"
    return None if broken.expected in plain else f"no '{broken.expected}' in: {output[:300]}"


def check_all(run: Callable[[Path, Path], Outcome], processes: int = 0) -> tuple[int, int, list[str]]:
    """Run every file; how many were named rightly, of how many, and the failures."""
    files = every_file()
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        step = max(len(files) // processes, 1) if processes else len(files) + 1
        for index, broken in enumerate(files):
            path = Path(folder) / f"{index:03}" / broken.name
            path.parent.mkdir()
            broken.write(path)
            apart = processes and index % step == 0
            wrong = failure(broken, path, (run_process if apart else run)(path, Path(folder) / "runs"))
            if wrong is not None:
                failures.append(f"{broken.name}: {wrong}")
    return len(files) - len(failures), len(files), failures


def check_large(run: Callable[[Path, Path], Outcome]) -> tuple[list[tuple[str, float]], list[str]]:
    """Run every large file; the seconds that each took, and the failures."""
    times, failures = [], []
    with tempfile.TemporaryDirectory() as folder:
        for broken in large():
            path = Path(folder) / broken.name
            broken.write(path)
            start = time.perf_counter()
            outcome = run(path, Path(folder) / "runs")
            times.append((broken.name, time.perf_counter() - start))
            wrong = failure(broken, path, outcome)
            if wrong is None and times[-1][1] > SECONDS:
                wrong = f"took {times[-1][1]:.1f} s, expected at most {SECONDS:g}"
            if wrong is not None:
                failures.append(f"{broken.name}: {wrong}")
            path.unlink()
    return times, failures


def main() -> int:
    """Check all files, print each failure and one line of result."""
    from tests.reliability.figures import Figure, print_figure

    parser = argparse.ArgumentParser(description="Check that every broken data file is named with its line.")
    parser.add_argument("--reader", action="store_true", help="use the reading functions alone, not the command")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    reader = chosen.reader
    right, total, failures = check_all(run_reader if reader else run_command, 0 if reader else SUBPROCESSES)
    times, slow = check_large(run_reader if reader else run_command)
    for line in [*failures, *slow]:
        print(line, file=sys.stderr)
    for name, seconds in times:
        print(f"{name:16}{seconds:6.2f} s", file=sys.stderr)
    large = f"{len(times) - len(slow)}/{len(times)} large ones within {SECONDS:g} s"
    text = f"broken files named with the right line; of these {large}"
    figure = Figure("broken files", right + len(times) - len(slow), total + len(times), text)
    return print_figure(figure, chosen.json)


if __name__ == "__main__":
    # So that the script runs from a checkout that is not installed.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main())
