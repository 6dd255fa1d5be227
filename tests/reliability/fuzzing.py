"""Fuzzing: random changes of files, and a forked process that reads them within limits of time and memory."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import processes  # first: it sets the number of threads

os.environ["TOKENIZERS_PARALLELISM"] = "false"

SPARE = 1 << 30  # bytes of address space above what the process needs for valid files
SECONDS = 20.0  # of one case, after which it counts as one that hangs: far more than any needs on a busy machine
GRACE = 40.0  # further seconds for code that no Python signal handler can interrupt
CASES_A_PROCESS = 1000
LONGEST, LONGEST_LINE = 20_000, 2000  # characters of a message, which may list several problems, and of each
FAULTS = {"crash": "crashes", "hang": "hangs", "unclear": "unclear errors"}
# A sentence that leaks how the program is written says nothing to its user.
INTERNAL = re.compile(
    r"Traceback|NoneType|object has no|object is not|not subscriptable|unhashable|list index|string index|out of bounds"
    r"|\b(Key|Type|Value|Index|Attribute|Runtime|Unicode\w*|Recursion|Overflow|Assertion)Error\b"
    r"|<class |\bat 0x[0-9a-f]{6}"
)
RULE = re.compile(
    r"expected|must|cannot|could not|needs?\b|damaged|unsupported|not |no |missing|looks like|too |never "
)


@dataclass(frozen=True)
class Outcome:
    """What became of one case: read, refused, memory (too large for the limit), or a failure."""

    kind: str
    message: str = ""
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.kind in FAULTS


class _TimeUp(BaseException):
    pass


class Worker:
    """A forked process that calls a function on one case after another; it is replaced when a case ends it."""

    def __init__(self, function: Callable[[Any], None], warm_up: Sequence[Any]) -> None:
        self.function, self.warm_up = function, warm_up
        self._pid = self._done = 0
        self._requests: IO[str] | None = None
        self._answers: IO[str] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - for the life of the worker

    def run(self, case: Any, names: Sequence[str]) -> Outcome:
        """Return the outcome of a case, whose message must contain one of some names."""
        if self._done >= CASES_A_PROCESS:
            self._end()
        if not self._pid:
            self._start()
        self._done += 1
        started = time.monotonic()
        answer = self._ask(case)
        if answer is None:
            late = time.monotonic() - started >= SECONDS
            noise = self._noise()
            return Outcome(
                "hang" if late else "crash", f"the process ended: {noise[-500:]}", time.monotonic() - started
            )
        kind, message, seconds = answer
        if noise := self._noise():
            return Outcome("unclear", f"output of a library: {noise[:500]}", seconds)
        if kind == "wrong setting":  # of the test, such as a vocabulary that is too small for the changed text
            kind, names = "refused", ("",)
        if kind == "refused" and (reason := unclear(message, names)):
            return Outcome("unclear", f"{reason}: {message}", seconds)
        return Outcome(kind, message, seconds)

    def close(self) -> None:
        """End the process, and close its files."""
        self._end()
        self._errors.close()

    def _end(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        for stream in (self._requests, self._answers):
            if stream is not None:
                stream.close()
        self._requests = self._answers = None
        self._pid = self._done = 0

    def _start(self) -> None:
        (read_case, write_case), (read_answer, write_answer) = os.pipe(), os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if not self._pid:
            os.close(write_case)
            os.close(read_answer)
            self._serve(os.fdopen(read_case), os.fdopen(write_answer, "w"))
        os.close(read_case)
        os.close(write_answer)
        self._requests, self._answers = os.fdopen(write_case, "w"), os.fdopen(read_answer)
        for case in self.warm_up:  # imports, and the memory that valid files need
            answer = self._ask(case, 10 * SECONDS)
            if answer is None or answer[0] != "read":
                raise SystemExit(f"valid files are not read: {case}: {answer}: {self._noise()}")
        self._noise()
        self._ask("limit")

    def _ask(self, case: Any, timeout: float = SECONDS + GRACE) -> tuple[str, str, float] | None:
        assert self._requests is not None and self._answers is not None
        self._requests.write(json.dumps(case) + "\n")
        self._requests.flush()
        ready, _, _ = select.select([self._answers], [], [], timeout)
        answer = self._answers.readline() if ready else ""
        if not answer:
            self._end()
            return None
        kind, message, seconds = json.loads(answer)
        return kind, message, seconds

    def _noise(self) -> str:
        """Return what was written to stdout or stderr since the last case."""
        self._errors.seek(0)
        noise = self._errors.read().decode(errors="replace")
        self._errors.seek(0)
        self._errors.truncate()
        return noise

    def _serve(self, requests: IO[str], answers: IO[str]) -> None:
        """Answer until the parent closes the pipe; never returns."""
        try:
            for number in (1, 2):
                os.dup2(self._errors.fileno(), number)
            faulthandler.disable()  # a crash is reported by the parent
            signal.signal(signal.SIGALRM, _raise_time_up)
            for line in requests:
                case, started = json.loads(line), time.monotonic()
                answer = ("limited", "") if case == "limit" and _limit_memory() else self._judge(case)
                answers.write(json.dumps([*answer, time.monotonic() - started]) + "\n")
                answers.flush()
        finally:
            os._exit(0)

    def _judge(self, case: Any) -> tuple[str, str]:
        from saccade.errors import SaccadeError, UsageError

        signal.setitimer(signal.ITIMER_REAL, SECONDS, 1.0)
        try:
            self.function(case)
        except SaccadeError as error:
            return "wrong setting" if isinstance(error, UsageError) else "refused", str(error)
        except MemoryError:
            return "memory", ""
        except _TimeUp:
            return "hang", traceback.format_exc()[-1500:]
        except BaseException as error:
            if isinstance(error, RuntimeError) and "allocate memory" in str(
                error
            ):  # torch's own; the command has a message
                return "memory", ""
            return "crash", traceback.format_exc()[-1500:]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return "read", ""


def _raise_time_up(number: int, frame: object) -> None:
    raise _TimeUp


def _limit_memory() -> bool:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + SPARE
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    return True


def unclear(message: str, names: Sequence[str]) -> str:
    """Return what is wrong with a message to a user; empty: nothing."""
    if not message.strip() or not message.replace("\n", " ").replace("\t", " ").isprintable():
        return "empty or not printable"
    if len(message) > LONGEST or max(map(len, message.splitlines())) > LONGEST_LINE:
        return f"{len(message):,} characters long"
    if leak := INTERNAL.search(message):
        return f"shows {leak[0]!r}"
    if not any(name in message for name in names):
        return f"names none of {', '.join(names)}"
    return "" if RULE.search(message) else "has no rule"


@dataclass
class Tally:
    """Outcomes of all cases."""

    counts: Counter[str]
    groups: Counter[str]
    failures: list[str]
    slowest: float = 0.0

    @classmethod
    def new(cls) -> Tally:
        return cls(Counter(), Counter(), [])

    def add(self, label: str, group: str, outcome: Outcome) -> None:
        self.counts[outcome.kind] += 1
        self.groups[group] += 1
        self.slowest = max(self.slowest, outcome.seconds)
        if outcome.failed:
            self.failures.append(f"{label}: {outcome.kind}: {outcome.message}")
            print(self.failures[-1], file=sys.stderr, flush=True)

    def figures(self) -> dict[str, Any]:
        names = {"read": "read", "refused": "refused", "memory": "too large for the memory limit"}
        total = sum(self.counts.values())
        return {
            "good": total - len(self.failures),
            "total": total,
            **{name: self.counts[kind] for kind, name in (names | FAULTS).items()},
            "slowest_seconds": round(self.slowest, 1),
            "kinds": len(self.groups),
        }


# changes of bytes

Bytes = bytes
Change = Callable[[random.Random, bytes], bytes]
NUMBERS = (
    b"0",
    b"-1",
    b"1e999",
    b"NaN",
    b"-Infinity",
    b"99999999999999999999",
    b"2147483648",
    b"0.1.2",
    b"1_0",
    b"\xd9\xa3",
)
TOKENS = (b"null", b"true", b"[]", b"{}", b'""', b'"', b"'", b",", b"\t", b"\n", b"\r", b"\0", b"\xff", b"\xef\xbb\xbf")
TOKENS += (
    b"\xed\xa0\x80",
    b"\xe2\x80\xa8",
    b"[" * 2000,
    b'{"a":' * 2000,
    b"A" * 70_000,
    b"../../x",
    b"\\u0000",
    b"\\ud800",
)
TOKENS += (b"<!--", b"&x;", b"%s%n", b"\x1b[31m", b"  ", b";", b"#", b":", b"=", b"(", b")", b"|")


def flip(rng: random.Random, data: bytes) -> bytes:
    """Change a few bits."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8, 40))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwrite(rng: random.Random, data: bytes) -> bytes:
    """Write an integer that is at some limit."""
    value = rng.choice(
        (0, 1, -1, 127, 255, 1 << 15, 1 << 16, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))
    )
    form = rng.choice(("<q", ">q", "<i", ">i", "<h", ">h", "<b"))
    packed = struct.pack(form.lower(), value & 0x7F if form == "<b" else _fit(value, form))
    at = rng.randrange(len(data))
    return data[:at] + packed + data[at + len(packed) :]


def _fit(value: int, form: str) -> int:
    bits = 8 * struct.calcsize(form)
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def cut(rng: random.Random, data: bytes) -> bytes:
    """Lose the end."""
    return data[: rng.randrange(len(data))]


def remove(rng: random.Random, data: bytes) -> bytes:
    """Lose a part in the middle."""
    at = rng.randrange(len(data))
    return data[:at] + data[at + 1 + int(len(data) ** rng.random()) :]


def insert(rng: random.Random, data: bytes) -> bytes:
    """Gain something that some parser treats specially, or random bytes."""
    at = rng.randrange(len(data) + 1)
    part = rng.choice(TOKENS) if rng.random() < 0.8 else rng.randbytes(rng.randint(1, 40))
    return data[:at] + part + data[at:]


def repeat(rng: random.Random, data: bytes) -> bytes:
    """Repeat a part."""
    start = rng.randrange(len(data))
    part = data[start : start + 1 + int(min(len(data), 5000) ** rng.random())]
    return data[:start] + part * rng.choice((2, 2, 3, 100)) + data[start:]


def zero(rng: random.Random, data: bytes) -> bytes:
    """Lose a block, as a disk does."""
    at, size = rng.randrange(len(data)), 1 << rng.randrange(10)
    return data[:at] + bytes(len(data[at : at + size])) + data[at + size :]


def number(rng: random.Random, data: bytes) -> bytes:
    """Replace a number of a text."""
    places = [match.span() for match in re.finditer(rb"-?\d+(\.\d+)?", data[:200_000])]
    if not places:
        return flip(rng, data)
    start, end = rng.choice(places)
    return data[:start] + rng.choice(NUMBERS) + data[end:]


def word(rng: random.Random, data: bytes) -> bytes:
    """Replace a word or a mark of a text."""
    places = [match.span() for match in re.finditer(rb"[A-Za-z_]+|[^A-Za-z_0-9\s]", data[:200_000])]
    if not places:
        return flip(rng, data)
    start, end = rng.choice(places)
    return data[:start] + rng.choice((*TOKENS, *NUMBERS, b"", b"x")) + data[end:]


def lines(rng: random.Random, data: bytes) -> bytes:
    """Swap, repeat, remove or join lines."""
    rows = data.split(b"\n")
    at = rng.randrange(len(rows))
    way = rng.randrange(4)
    if way == 0:
        rows.insert(rng.randrange(len(rows)), rows[at])
    elif way == 1:
        del rows[at]
    elif way == 2:
        rows[at] = b"".join(rows[at : at + 2])
    else:
        rows[at] = b""
    return b"\n".join(rows)


CHANGES: tuple[Change, ...] = (flip, overwrite, cut, remove, insert, repeat, zero)
TEXT_CHANGES: tuple[Change, ...] = (number, number, word, word, lines, insert, cut, remove, flip, repeat)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 0.5, 1e300, -0.0, 1 << 20, 1 << 31, 1 << 40, 1 << 64, 10**400),
    *(
        "",
        "x",
        "8",
        "a" * 20_000,
        "\0",
        "\ud800",
        "../../x",
        "nan",
        [],
        [[]],
        [None],
        [1] * 3000,
        {},
        {"a": 1},
        [[1, 2], [3]],
    ),
    *(float("nan"), float("inf")),
)


def json_value(rng: random.Random, data: bytes) -> bytes:
    """Replace, remove or repeat one value of a JSON document, or of one line of several; other data: a word."""
    try:
        rows = [json.loads(data)]
    except ValueError:
        try:
            rows = [json.loads(line) for line in data.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return word(rng, data)
    except RecursionError:
        return word(rng, data)
    if not rows:
        return word(rng, data)
    at = rng.randrange(len(rows))
    rows[at] = _changed(rng, rows[at])
    return "\n".join(json.dumps(row) for row in rows).encode("utf-8", "surrogatepass")


def _changed(rng: random.Random, value: Any) -> Any:
    """Return a JSON value with one part of it changed."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return rng.choice(ODD_VALUES)
    if isinstance(value, list):
        at = rng.randrange(len(value))
        changed = [*value[:at], _changed(rng, value[at]), *value[at + 1 :]]
        return rng.choice((changed, changed, changed, [*value, value[at]], value[:at] + value[at + 1 :]))
    key = rng.choice(list(value))
    if rng.random() < 0.15:
        return {name: entry for name, entry in value.items() if name != key}
    if rng.random() < 0.1:
        return {**{name: entry for name, entry in value.items() if name != key}, key + rng.choice("s_ x"): value[key]}
    return {**value, key: _changed(rng, value[key])}


def is_text(data: bytes) -> bool:
    """Whether most of a file is text."""
    return all(byte >= 32 or byte in b"\t\r\n" for byte in data[:300])


def change(rng: random.Random, data: bytes, name: str) -> tuple[bytes, str]:
    """Return changed bytes of a file, and how they were changed."""
    if not data or rng.random() < 0.02:
        return rng.choice((b"", b"\0", b"\n", rng.randbytes(200), b"\xff\xfe", b"{", b"[]")), "replace"
    ways = TEXT_CHANGES if is_text(data) else CHANGES
    if name.endswith((".json", ".jsonl")) and rng.random() < 0.6:
        ways = (json_value,)
    used = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        way = rng.choice(ways)
        data = way(rng, data) if data else b"\n"
        used.append(way.__name__)
    return data, "+".join(used)


def damage_tree(rng: random.Random, folder: Path, files: Sequence[str]) -> str:
    """Change one file of a folder, or what it is; return what was done."""
    name = rng.choice(list(files))
    path, kind = folder / name, rng.random()
    if kind < 0.015:
        path.unlink()
        return f"delete {name}"
    if kind < 0.03:
        path.unlink()
        return f"{_special(rng, path)} {name}"
    if kind < 0.05 and len(files) > 1:
        shutil.copyfile(folder / rng.choice(list(files)), folder / "other.tmp")
        (folder / "other.tmp").replace(path)
        return f"swap {name}"
    content, way = change(rng, path.read_bytes(), name)
    path.write_bytes(content)
    return f"{way} {name}"


def _special(rng: random.Random, path: Path) -> str:
    """Put something else than a file in its place."""
    kind = rng.choice(("pipe", "folder", "/dev/zero", "itself", "nowhere", "unreadable"))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "unreadable":
        path.write_bytes(b"secret")
        path.chmod(0)
    else:
        path.symlink_to(path if kind == "itself" else kind)
    return kind


def preload() -> None:
    """Import the package before the workers are forked."""
    processes.preloaded()
