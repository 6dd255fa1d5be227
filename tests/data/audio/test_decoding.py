"""Decoding and resampling: every format and rate gives the same sound, and damage is named."""

import sys

import numpy as np
import pytest
import torch
from scipy.signal import resample_poly

from saccade.core import Audio
from saccade.data.audio.decoding import decode, to_samples
from saccade.data.audio.resampling import resample
from saccade.data.tables.problems import BadRows
from saccade.errors import DataError, UsageError
from tests.data.audio.sounds import encode, tone

SHORTENED = b"NIST_1A\n   1024\nsample_coding -s26 pcm,embedded-shorten-v2.00\nend_head\n".ljust(1024) + b"ajkg\x02"


@pytest.mark.parametrize(
    ("format", "subtype", "error"),
    [
        ("WAV", "PCM_16", 1e-4),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "PCM_U8", 1e-2),
        ("WAV", "FLOAT", 1e-7),
        ("WAV", "ULAW", 2e-2),
        ("FLAC", "PCM_16", 1e-4),
        ("OGG", "VORBIS", 0.2),
        ("AIFF", "PCM_16", 1e-4),
        ("AU", "PCM_16", 1e-4),
        ("CAF", "PCM_16", 1e-4),
        ("W64", "PCM_16", 1e-4),
        ("RF64", "PCM_16", 1e-4),
        ("NIST", "PCM_16", 1e-4),
        ("NIST", "ULAW", 2e-2),
    ],
)
def test_every_format_gives_the_samples_that_were_written(format, subtype, error):
    samples = tone("abca", rate=16_000)
    decoded, rate = decode(encode(samples, 16_000, format, subtype), "a.wav")
    assert rate == 16_000 and decoded.dtype == torch.float32 and decoded.shape == (len(samples),)
    assert np.abs(decoded.numpy() - samples).max() < error


def test_an_mp3_file_has_the_sound_and_the_length():
    samples = tone("abca", rate=16_000)
    decoded, rate = decode(encode(samples, 16_000, "MP3"), "a.mp3")
    assert rate == 16_000 and abs(len(decoded) - len(samples)) < 2500
    spectrum, expected = (np.abs(np.fft.rfft(part, 1 << 15)) for part in (decoded.numpy(), samples))
    assert np.corrcoef(spectrum, expected)[0, 1] > 0.95


def test_channels_are_averaged():
    left, right = tone("ab"), tone("ba")
    decoded, _ = decode(encode(np.stack([left, right], 1), subtype="FLOAT"), "a.wav")
    np.testing.assert_allclose(decoded.numpy(), (left + right) / 2, atol=1e-6)


def test_a_streamed_wave_file_of_unknown_size_is_complete():
    data = bytearray(encode(tone("ab")))
    at = data.index(b"data")
    data[at + 4 : at + 8] = b"\xff\xff\xff\xff"
    assert len(decode(bytes(data), "a.wav")[0]) == len(tone("ab"))


def test_an_mp3_file_that_does_not_say_how_long_it_is_is_read_as_far_as_it_goes():
    data = encode(tone("abcd", rate=16_000), 16_000, "MP3")
    plain = data.replace(b"Xing", b"\0\0\0\0")
    assert 0 < len(decode(plain[:-700], "a.mp3")[0]) < len(decode(data, "a.mp3")[0])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "a.wav: an empty file, expected a sound"),
        (b"\0" * 500, "a.wav: zero bytes"),
        (b"<!DOCTYPE html><html></html>", "looks like a web page or XML"),
        (b"\0\0\0\x20ftypM4A ....", "looks like an MP4 or M4A file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "a pointer of Git LFS"),
        (b"\x89PNG\r\n\x1a\n....", "looks like a PNG picture"),
        (b"#!AMR\n....", "looks like an AMR file"),
        (encode(tone("ab"))[:900], "a WAV file without the last"),
        (encode(tone("ab"))[:30], "a WAV file without a chunk of samples"),
        (encode(tone(""))[:44][:-4] + b"\0\0\0\0", "a WAV file without samples"),
        (encode(tone("abcd"), format="FLAC")[:-800], "FLAC file"),
        (encode(tone("abcd"), format="OGG")[:-300], "an OGG file without its last page"),
        (encode(tone("abcd"), format="AIFF")[:-700], "an AIFF file without the last 700 bytes of its samples"),
        (encode(tone("abcd"), format="AU")[:-700], "an AU file without the last 700 bytes of its samples"),
        (encode(tone("abcd"), format="CAF")[:-700], "a CAF file without the last"),
        (encode(tone("abcd"), format="CAF")[:100], "a CAF file without a chunk of samples"),
        (encode(tone("abcd"), format="W64")[:-700], "a W64 file without the last 700 bytes of its samples"),
        (encode(tone("abcd"), format="RF64")[:-700], "a WAV file without the last 700 bytes of its samples"),
        (encode(tone("abcd"), format="NIST")[:-700], "a SPHERE file without the last 700 bytes of its samples"),
        (encode(tone("abcd"), 16_000, "MP3")[:-700], "an MP3 file without the last 700 bytes of its samples"),
        (SHORTENED, "a NIST SPHERE file that is compressed with shorten, expected one that is not compressed"),
        (b"fLaC" + bytes(range(200)), "a damaged FLAC file"),
        (encode(np.array([0.1, np.nan], np.float32), subtype="FLOAT"), "samples that are not finite"),
    ],
    ids=lambda value: value if isinstance(value, str) else "sound",
)
def test_what_cannot_be_decoded_is_named_with_the_reason(content, expected):
    with pytest.raises(BadRows) as error:
        decode(content, "a.wav")
    assert expected in str(error.value)


def test_a_rate_that_is_no_sound_and_too_long_a_sound_are_refused():
    data = bytearray(encode(tone("ab")))
    data[24:28] = (7).to_bytes(4, "little")
    with pytest.raises(DataError, match="7 samples a second, expected 1,000 to 768,000"):
        decode(bytes(data), "a.wav")
    with pytest.raises(DataError, match="67 minutes of sound, expected at most 60"):
        decode(encode(np.zeros(4_000_000, np.float32), 1000), "a.wav")


def test_inputs_are_samples_with_their_rate_or_a_file():
    samples = torch.ones(10)
    assert torch.equal(to_samples((samples, 8000), "audio")[0], samples)
    for value, message in [
        ((samples, 10), "audio must have a sample rate of 1,000 to 768,000 Hz, but has 10"),
        ((samples[:0], 8000), "audio must have samples, but has none"),
        ((samples * torch.inf, 8000), "audio must have finite samples, but one is inf"),
        (b"no sound", "audio: an unknown kind of file"),
    ]:
        with pytest.raises(UsageError, match=message):
            to_samples(value, "audio")


def test_an_input_that_was_read_from_a_file_is_refused_by_its_name(tmp_path):
    path = tmp_path / "second.wav"
    path.write_bytes(encode(np.zeros(400, np.float32), 8000)[:-20])
    with pytest.raises(UsageError, match=r"second\.wav: a WAV file without the last 20 bytes of its samples, expected"):
        to_samples(Audio("audio").read(path), "audio")


def test_a_missing_package_is_named_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(UsageError, match=r"sounds need soundfile, which is not installed: pip install 'saccade\[audio"):
        decode(b"RIFF\0\0\0\0WAVEdata\0\0\0\0", "a.wav")


@pytest.mark.parametrize(("rate", "target"), [(16_000, 8_000), (44_100, 16_000), (8_000, 16_000), (11_025, 8_000)])
def test_resampling_equals_scipy_on_a_band_limited_signal(rate, target):
    """Both are compared with the signal itself, sampled at the other rate."""
    seconds, rng = 1.0, np.random.default_rng(3)
    frequencies = rng.uniform(50, 0.4 * min(rate, target), 12)
    phases = rng.uniform(0, 6, 12)

    def signal(at):
        return np.sin(2 * np.pi * np.arange(round(seconds * at))[:, None] / at * frequencies + phases).sum(1) / 12

    result = resample(torch.from_numpy(signal(rate)).float(), rate, target).numpy()
    expected = signal(target)
    by_scipy = resample_poly(signal(rate), target, rate)
    inner = slice(target // 10, -target // 10)  # away from the ends, where both read zeros
    assert len(result) == len(expected)
    assert np.abs(result - expected)[inner].max() < 2e-3
    assert np.abs(result - by_scipy)[inner].max() < 1e-2


def test_what_the_lower_rate_cannot_hold_is_removed():
    tone = torch.sin(2 * torch.pi * 6000 * torch.arange(16_000).double() / 16_000).float()
    assert float(resample(tone, 16_000, 8_000)[500:-500].abs().max()) < 1e-3
    assert torch.equal(resample(tone, 16_000, 16_000), tone)
