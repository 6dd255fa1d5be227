"""Every broken recording and table of recordings is named with the reason, by the real command, with exit code 3."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.data.audio.sounds import encode, tone
from tests.reliability.broken_images import Broken, failure, run_command

SPEECH, CLASSES = "speech_recognition", "audio_classification"
GOOD = {f"{label}/{number}.wav": encode(tone(label, number)) for label in "ab" for number in range(4)}
WAVE = encode(tone("abcd"))


def sound(name: str, content: bytes, expected: str) -> Broken:
    """A folder of classes with one bad recording."""
    return Broken(name, {**GOOD, "a/9.wav": content}, "a/9.wav", expected, CLASSES)


def table(name: str, lines: list[str], place: str, expected: str, given: str = "") -> Broken:
    """A table of recordings with a bad row."""
    files = {f"{number}.wav": encode(tone("ab", number)) for number in range(4)}
    return Broken(name, {**files, name: "\n".join([*lines, ""]).encode()}, f"{name}{place}", expected, SPEECH, given)


def rate(value: int) -> bytes:
    data = bytearray(WAVE)
    data[24:28] = value.to_bytes(4, "little")
    return bytes(data)


def zipped(files: dict[str, bytes], damage: bool = False) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    data = stream.getvalue()
    at = data.index(WAVE[50:90]) if damage else 0
    return data[:at] + bytes(40) + data[at + 40 :] if damage else data


def arrays(**changes: object) -> bytes:
    parts = [(tone(word) * 32767).astype(np.int16) for word in ("ab", "c", "dd", "a")]
    values = {
        "audio": np.concatenate(parts),
        "offsets": np.cumsum([0, *map(len, parts)]),
        "text": np.array(["ab", "c", "dd", "a"]),
        "rate": np.array(4000),
    }
    kept = {name: value for name, value in {**values, **changes}.items() if value is not None}
    stream = io.BytesIO()
    np.savez(stream, **kept)
    return stream.getvalue()


def npz(name: str, expected: str, **changes: object) -> Broken:
    return Broken(name, {"a.npz": arrays(**changes)}, "a.npz", expected, SPEECH, "a.npz")


ROWS = ["file_name,text", "0.wav,ab", "1.wav,cd", "2.wav,ab"]
LIBRI = {"84/1/84-1-0.wav": WAVE, "84/1/84-1-1.wav": encode(tone("b"))}
CASES = [
    sound("empty", b"", "an empty file, expected a sound"),
    sound("zeros", bytes(5000), "zero bytes"),
    sound("page", b"<!DOCTYPE html><title>404</title>", "looks like a web page or XML"),
    sound("text", b"not a sound at all", "an unknown kind of file"),
    sound("m4a", b"\0\0\0\x20ftypM4A " + bytes(100), "looks like an MP4 or M4A file"),
    sound("webm", b"\x1aE\xdf\xa3" + bytes(100), "looks like a WebM or Matroska file"),
    sound("picture", b"\x89PNG\r\n\x1a\n" + bytes(100), "looks like a PNG picture"),
    sound("pointer", b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
    sound("shorten", b"NIST_1A\n   1024\nsample_coding -s26 pcm,embedded-shorten-v2.00\nend_head\n".ljust(1100),
          "a NIST SPHERE file that is compressed with shorten"),
    sound("sphere", b"NIST_1A\n   1024\n" + bytes(100), "a damaged SPHERE file"),
    sound("sphere cut", encode(tone("abcd"), format="NIST")[:-1000], "a SPHERE file without the last 1.0 kB"),
    sound("aiff cut", encode(tone("abcd"), format="AIFF")[:-1000], "an AIFF file without the last 1.0 kB"),
    sound("mp3 cut", encode(tone("abcd"), 16_000, "MP3")[:-700], "an MP3 file without the last 700 bytes"),
    sound("midi", b"MThd" + bytes(100), "a MIDI file, which has notes and no sound"),
    sound("cut", WAVE[:-1000], "a WAV file without the last 1.0 kB of its samples"),
    sound("header", WAVE[:30], "a WAV file without a chunk of samples"),
    sound("no samples", encode(np.zeros(0, np.float32)), "a WAV file without samples"),
    sound("slow", rate(5), "5 samples a second, expected 1,000 to 768,000"),
    sound("nan", encode(np.full(900, np.nan, np.float32), subtype="FLOAT"), "samples that are not finite"),
    sound("flac cut", encode(tone("abcd"), format="FLAC")[:-900], "FLAC file"),
    sound("ogg cut", encode(tone("abcd"), format="OGG")[:-300], "an OGG file without its last page"),
    sound("flac noise", b"fLaC" + bytes(range(250)), "a damaged FLAC file"),
    sound("long", encode(np.zeros(31 * 4000, np.float32)), "31.0 seconds, expected at most 30 (max_seconds)"),
    sound("hours", encode(np.zeros(61 * 60 * 1000, np.float32), 1000), "61 minutes of sound, expected at most 60"),
    Broken("loose", {**GOOD, "9.wav": WAVE}, "9.wav", "a recording outside of the class folders", CLASSES),
    Broken("one class", {"a/0.wav": WAVE, "a/1.wav": WAVE}, "", "every recording is in the class 'a'", CLASSES),
    Broken("other format", {"a/0.m4a": b"x", "b/0.m4a": b"y"}, "", "2 files that are not decoded", CLASSES),
    Broken("no recordings", {"a.txt": b"hello\n"}, "", "no recordings, nor a table of paths of recordings", SPEECH),
    table("gone.csv", [*ROWS, "7.wav,ab"], ":5", "no recording '7.wav'"),
    table("other.csv", [*ROWS, "8.m4a,ab"], ":5", "'8.m4a' is in a format that is not decoded"),
    table("said.csv", [*ROWS, "3.wav,"], ":5", "the text of '3.wav' is empty"),
    table("columns.csv", [*ROWS, "3.wav,ab,c"], ":5", "3 columns"),
    table("rows.csv", ["file_name,text"], "", "", "rows.csv"),
    table("bad.jsonl", ['{"audio": "0.wav", "text": "ab"}', '{"audio": "1.wav"}'], ":2", "text"),
    table("broken.jsonl", ['{"audio": "0.wav", "text": "ab"}', '{"audio": '], ":2", "JSON"),
    table("several.csv", ["file_name,first,last", "0.wav,a,b", "1.wav,c,d"], ":1", "data.text_column"),
    table("lines.txt", ["0.wav ab", "1.wav cd", "2.wav"], ":3", "the text of '2.wav' is empty"),
    Broken("twice", {"a/0.wav": WAVE, "b/0.wav": WAVE, "t.csv": b"path,text\n0.wav,ab\n0.wav,cd\n"}, "t.csv:2",
           "several recordings are called '0.wav'", SPEECH, "t.csv"),
    Broken("other speaker", {"sp1/1.wav": WAVE, "sp1/2.wav": WAVE, "sp2/2.wav": WAVE,
                             "t.csv": b"path,text\nsp1/1.wav,a\nsp2/1.wav,b\nsp2/2.wav,c\n"}, "t.csv:3",
           "no recording 'sp2/1.wav'", SPEECH, "t.csv"),
    Broken("other machine", {"sp1/1.wav": WAVE, "sp1/2.wav": WAVE, "sp2/2.wav": WAVE,
                             "t.csv": b"path,text\n/x/sp1/1.wav,a\n/x/sp2/1.wav,b\n/x/sp2/2.wav,c\n"}, "t.csv:3",
           "no recording '/x/sp2/1.wav'", SPEECH, "t.csv"),
    Broken("same recording", {**{f"{n}.wav": WAVE for n in range(4)}, "t.csv": "\n".join(
        ["path,text", *(f"/a/{n}.wav,a" for n in range(4)), "/b/3.wav,b", ""]).encode()}, "t.csv:6",
           "'/b/3.wav' and '/a/3.wav' would both be the recording '3.wav'", SPEECH, "t.csv"),
    Broken("split", {**{f"{n}.wav": WAVE for n in range(3)},
                     "t.csv": b"path,text,split\n0.wav,a,train\n1.wav,b,tset\n2.wav,c,test\n"}, "t.csv:3",
           "'tset' in column 'split', expected a part of the data: train, training", SPEECH, "t.csv"),
    Broken("sphinx text", {"wav/a/1.sph": WAVE, "etc/x.fileids": b"a/1\n", "etc/x.transcription": b"HELLO\n"},
           "etc/x.transcription:1", "'HELLO', expected a text and the id of its recording: TEXT (ID)", SPEECH),
    Broken("sphinx id", {"wav/a/1.sph": WAVE, "etc/x.fileids": b"a/1\n", "etc/x.transcription": b"AB (1)\nC (2)\n"},
           "etc/x.transcription:2", "no recording of '2', expected a line in", SPEECH),
    Broken("sphinx list", {"wav/a/1.sph": WAVE, "etc/x.fileids": b"a/1\na/2\n", "etc/x.transcription": b"AB (1)\n"},
           "etc/x.fileids:2", "no text of 'a/2', expected a line in", SPEECH),
    Broken("sphinx gone", {"wav/a/1.sph": WAVE, "etc/x.fileids": b"a/1\na/2\n",
                           "etc/x.transcription": b"AB (1)\nAB (2)\n"},
           "etc/x.transcription:2", "no recording 'a/2'", SPEECH),
    Broken("kaldi paths", {"a.wav": WAVE, "wav.scp": b"u1 a.wav\nu2 \xff.wav\n", "text": b"u1 ab\n"},
           "wav.scp:2:4", "not UTF-8", SPEECH),
    Broken("kaldi texts", {"a.wav": WAVE, "wav.scp": b"u1 a.wav\n", "text": b"u1 a\xff\n", "utt2spk": b"u1 x\n"},
           "text:1:5", "not UTF-8", SPEECH),
    Broken("libri", {**LIBRI, "84/1/84-1.trans.txt": b"84-1-0 AB\n84-1-1 B\n84-1-2 C\n"}, "84/1/84-1.trans.txt:3",
           "no recording '84-1-2'", SPEECH),
    Broken("encoding", {**LIBRI, "84/1/84-1.trans.txt": b"84-1-0 AB\n84-1-1 \xff\n"}, "84/1/84-1.trans.txt:2:8",
           "not UTF-8", SPEECH),
    Broken("kaldi", {"a.wav": WAVE, "wav.scp": b"u1 a.wav\nu2 sox a.wav |\n", "text": b"u1 ab\nu2 cd\nu3 ef\n"},
           "text:3", "no recording of 'u3'", SPEECH),
    Broken("command", {"a.wav": WAVE, "wav.scp": b"u1 a.wav\nu2 sox a.wav |\n", "text": b"u1 ab\nu2 cd\n"},
           "wav.scp:2", "a command 'sox a.wav |'", SPEECH),
    Broken("sidecar", {"a.wav": WAVE, "a.txt": b"ab", "b.wav": WAVE, "b.txt": b"b", "c.wav": WAVE}, "c.wav",
           "no text for 'c.wav'", SPEECH),
    Broken("zip", {"a.zip": b"PK\x03\x04 damaged"}, "a.zip", "zip archive", CLASSES, "a.zip"),
    Broken("member", {"a.zip": zipped({"a/0.wav": WAVE, "b/0.wav": encode(tone("b"))}, damage=True)}, "a.zip/a/0.wav",
           "a damaged member of a zip archive", CLASSES, "a.zip"),
    npz("floats", "'audio' has float64 values of shape (10,)", audio=np.zeros(10)),
    npz("no rate", "no array 'rate'", rate=None),
    npz("bad rate", "'rate' is [3]", rate=np.array(3)),
    npz("texts", "the shape (2,) of 'text'", text=np.array(["ab", "c"])),
    npz("empty text", "the text of recording 2 is empty", text=np.array(["ab", "", "dd", "a"])),
    npz("offsets", "'offsets' does not fit 'audio'", offsets=np.array([0, 5, 3, 8, 9])),
    npz("silence", "recording 2 has no samples", offsets=np.array([0, 5, 5, 8, 9])),
    npz("parts", "'dev2x' in 'split'", split=np.array(["train", "dev2x", "test", "train"])),
]  # fmt: skip


def test_there_are_many_different_cases():
    assert len(CASES) >= 40 and len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_command_names_the_file_and_the_reason(case: Broken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    path = case.write(tmp_path / "data")
    outcome = run_command(case, path, tmp_path / "runs")
    assert failure(case, tmp_path / "data", outcome) is None


def test_good_data_are_not_called_broken(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    good = Broken("good", GOOD, "a/9.wav", "anything", CLASSES)
    outcome = run_command(good, good.write(tmp_path / "data"), tmp_path / "runs")
    assert outcome[0] == 0
    assert (failure(good, tmp_path / "data", outcome) or "").startswith("exit code 0, expected 3")
