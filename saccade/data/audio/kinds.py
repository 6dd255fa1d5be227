"""Kinds of audio files, recognized by their first bytes whatever the file name says, and names that they have."""

from __future__ import annotations

from saccade.data.images.kinds import picture_format, suffix_of
from saccade.data.tables.kinds import PAGES, binary_kind

SUPPORTED = "WAV, FLAC, OGG, MP3, AIFF, AU, CAF or SPHERE"
SUFFIXES = frozenset(
    (
        *(".wav", ".wave", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".au", ".snd", ".caf", ".w64"),
        *(".sph", ".nist"),
    )
)
# Audio by its name that is not decoded.
OTHER_SUFFIXES = frozenset((".m4a", ".mp4", ".aac", ".wma", ".webm", ".amr", ".3gp", ".ape", ".wv", ".mka"))
RAW = ".raw"  # samples without a header, which only the layout of CMU Sphinx explains
SIGNATURES = (
    *((b"fLaC", "FLAC"), (b"OggS", "OGG"), (b"ID3", "MP3"), (b".snd", "AU"), (b"caff", "CAF")),
    (b"NIST_1A", "SPHERE"),
)
CONVERT = "convert it to WAV or FLAC, for example: ffmpeg -i INPUT OUTPUT.flac"
OTHER_SIGNATURES = (
    (b"#!AMR", "an AMR file"),
    (b"\x1aE\xdf\xa3", "a WebM or Matroska file"),
    (b"\x30\x26\xb2\x75", "a WMA file"),
    (b"MThd", "a MIDI file, which has notes and no sound"),
)


def audio_format(data: bytes) -> str:
    """Return the name of the format of an encoded sound by its first bytes; empty for everything else."""
    name = next((name for signature, name in SIGNATURES if data.startswith(signature)), "")
    if name:
        return name
    if data[:4] in (b"RIFF", b"RIFX", b"RF64") and data[8:12] == b"WAVE":
        return "WAV"
    if data[:4] == b"FORM" and data[8:12] in (b"AIFF", b"AIFC"):
        return "AIFF"
    if data[:4] == b"riff" and data[24:28] == b"wave":
        return "W64"
    # A frame of MPEG audio: eleven bits set, then a known version, layer and bit rate.
    frame = len(data) > 3 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0
    if frame and data[1] & 0x18 != 0x08 and data[1] & 0x06 == 0x02 and data[2] & 0xF0 not in (0x00, 0xF0):
        return "MP3"
    return ""


def unsupported(data: bytes) -> tuple[str, str, str]:
    """Return what bytes are that are not a sound in a format that is decoded, what was expected, and what to do."""
    expected = f"a sound ({SUPPORTED})"
    if not data:
        return "an empty file", expected, "record or download it again, or remove it"
    if data[4:8] == b"ftyp":
        return "looks like an MP4 or M4A file", expected, CONVERT
    name = next((name for signature, name in OTHER_SIGNATURES if data.startswith(signature)), "")
    if name:
        return f"looks like {name}", expected, CONVERT
    if data[:256].lstrip().lower().startswith(PAGES):
        step = "the download may have failed: open it in a browser, then download it again or remove it"
        return "looks like a web page or XML", expected, step
    if data.startswith(b"version https://git-lfs"):
        return "a pointer of Git LFS", expected, "fetch the file itself: git lfs pull"
    picture = picture_format(data)
    if picture is not None:
        return f"looks like a {picture.name} picture", expected, "remove it"
    kind = binary_kind(data[:4096])
    if kind is not None:
        return f"looks like {kind[0]}", expected, kind[1] or "remove it"
    if not any(data[:4096]):
        return "zero bytes", expected, "record or download it again, or remove it"
    return "an unknown kind of file", expected, CONVERT


def is_audio_name(name: str) -> bool:
    """Whether a file is a sound in a format that is decoded, by its name."""
    return suffix_of(name) in SUFFIXES


def is_other_audio_name(name: str) -> bool:
    """Whether a file is a sound in a format that is not decoded, by its name."""
    return suffix_of(name) in OTHER_SUFFIXES


def is_raw_name(name: str) -> bool:
    """Whether a file may be samples without a header, by its name."""
    return suffix_of(name) == RAW
