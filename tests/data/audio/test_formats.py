"""Formats: every published layout gives the same recordings and texts, and the task is found by the data."""

import io
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from saccade.data.audio.decoding import decode
from saccade.data.audio.features import compute_features
from saccade.data.audio.log_mel import LogMel
from saccade.data.formats.audio_rows import find_audio, read_audio_rows, split_audio_rows
from saccade.data.settings import AudioSettings
from saccade.errors import DataError
from saccade.tasks import guess_task
from tests.data.audio.sounds import encode, tone, write_classes

WORDS = {"one": "ab cd", "two": "ba dc", "three": "abba", "four": "dad"}
SOUND = {name: encode(tone("abcd"[number]), format="WAV") for number, name in enumerate(WORDS)}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))


def write(folder: Path, files: dict[str, bytes | str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def sounds(pattern: str) -> dict[str, bytes]:
    return {pattern.format(name): content for name, content in SOUND.items()}


def table(header: str, row: str) -> str:
    return "\n".join([*([header] if header else []), *(row.format(name, text) for name, text in WORDS.items())]) + "\n"


LAYOUTS = {
    "csv": {**sounds("{}.wav"), "metadata.csv": table("file_name,text", "{0}.wav,{1}")},
    "tsv": {**sounds("wavs/{}.wav"), "labels.tsv": table("path\ttranscript", "wavs/{0}.wav\t{1}")},
    "jsonl": {
        **sounds("audio/{}.wav"),
        "data.jsonl": table("", '{{"audio_filepath": "/elsewhere/audio/{0}.wav", "duration": 1.5, "text": "{1}"}}'),
    },
    "no header": {**sounds("{}.wav"), "list.csv": table("", "{0}.wav,{1}")},
    "common voice": {
        **sounds("clips/{}.wav"),
        "train.tsv": table("client_id\tpath\tsentence\tup_votes\tage", "x{0}\t{0}.wav\t{1}\t2\t"),
    },
    "ljspeech": {**sounds("wavs/{}.wav"), "metadata.csv": table("", '{0}|"{1}|{1}')},
    "librispeech": {
        **{f"dev-clean/84/12/84-12-{n}.wav": SOUND[name] for n, name in enumerate(WORDS)},
        "dev-clean/84/12/84-12.trans.txt": "".join(f"84-12-{n} {text}\n" for n, text in enumerate(WORDS.values())),
    },
    "kaldi": {
        **sounds("audio/{}.wav"),
        "wav.scp": table("", "utt-{0} audio/{0}.wav"),
        "text": table("", "utt-{0} {1}"),
        "utt2spk": table("", "utt-{0} ann"),
    },
    "kaldi with tabs": {
        **sounds("audio/{}.wav"),
        "wav.scp": table("", "utt-{0}\taudio/{0}.wav"),
        "text": table("", "utt-{0}\t{1}"),
    },
    "sphinx": {
        **sounds("an4/wav/an4_clstk/ann/{}.sph"),
        "an4/etc/an4_train.fileids": table("", "an4_clstk/ann/{0}"),
        "an4/etc/an4_train.transcription": table("", "<s> {1} </s> ({0})"),
        "an4/etc/an4.dic": "ab AH B",
    },
    "lines": {**sounds("{}.wav"), "transcripts.txt": table("", "{0}.wav {1}")},
    "a text beside each": {**sounds("{}.wav"), **{f"{name}.txt": f"{text}\n" for name, text in WORDS.items()}},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_has_the_same_recordings_and_texts(name, tmp_path):
    folder = write(tmp_path / "data", LAYOUTS[name])
    assert guess_task(folder) == "speech_recognition"
    rows = read_audio_rows(folder, "text", AudioSettings())
    read = {
        rows.recordings.read(int(number)): text for number, text in zip(rows.recording, rows.texts["text"], strict=True)
    }
    assert read == {SOUND[key]: text for key, text in WORDS.items()}


def test_speakers_and_parts_are_read_where_the_data_name_them(tmp_path):
    rows = read_audio_rows(write(tmp_path / "a", LAYOUTS["librispeech"]), "text", AudioSettings())
    assert set(rows.texts["speaker"]) == {"84"} and rows.parts is not None and set(rows.parts.tolist()) == {1}
    rows = read_audio_rows(write(tmp_path / "b", LAYOUTS["common voice"]), "text", AudioSettings())
    assert list(rows.texts["speaker"]) == [f"x{name}" for name in WORDS]
    parts = {"train.tsv": "path\tsentence\none.wav\tab\ntwo.wav\tba\n", "dev.tsv": "path\tsentence\nfour.wav\tdad\n"}
    rows = read_audio_rows(write(tmp_path / "c", {**sounds("clips/{}.wav"), **parts}), "text", AudioSettings())
    assert rows.parts is not None and rows.parts.tolist() in ([0, 0, 1], [1, 0, 0])


def write_sphinx(folder: Path, recordings: dict[str, bytes], suffix: str) -> Path:
    """The recordings ann/1, bob/1 and eve/2, the last one of the test part, whose text has no marks."""
    return write(
        folder,
        {
            **{f"wav/{name}{suffix}": content for name, content in recordings.items()},
            "etc/an4_train.fileids": "ann/1\nbob/1\n",
            "etc/an4_train.transcription": "<s> AB </s> (1)\n<s> C <sil> D </s> (1)\n",
            "etc/an4_test.fileids": "eve/2\n",
            "etc/an4_test.transcription": "D A D (eve/2)\n",
        },
    )


@pytest.mark.parametrize("suffix", [".sph", ".raw"])
def test_lists_of_sphinx_with_speakers_and_parts(tmp_path, suffix):
    sounds = {"ann/1": tone("ab", rate=16_000), "bob/1": tone("cd", rate=16_000), "eve/2": tone("dad", rate=16_000)}

    def stored(samples: np.ndarray) -> bytes:
        plain = (samples * 32767).astype("<i2").tobytes()
        return plain if suffix == ".raw" else encode(samples, 16_000, "NIST", "PCM_16")

    folder = write_sphinx(tmp_path / "an4", {name: stored(samples) for name, samples in sounds.items()}, suffix)
    with tarfile.open(tmp_path / "an4.tar.gz", "w:gz") as archive:
        archive.add(folder, "an4")
    for path in (folder, tmp_path / "an4.tar.gz"):
        assert guess_task(path) == "speech_recognition"
        rows = read_audio_rows(path, "text", AudioSettings())
        order = sorted(range(3), key=lambda row: rows.texts["speaker"][row])
        assert [rows.texts["text"][row] for row in order] == ["AB", "C D", "D A D"]
        assert rows.parts is not None and [int(rows.parts[row]) for row in order] == [0, 0, 2]
        for row, samples in zip(order, sounds.values(), strict=True):
            sound = rows.recordings.read(int(rows.recording[row]))
            decoded, rate = decode(sound, "a.sph") if isinstance(sound, bytes) else sound
            assert rate == 16_000 and np.abs(decoded.numpy() - samples).max() < 1e-3


def test_samples_without_a_header_that_cannot_be_read_are_named(tmp_path):
    plain = (tone("abc", rate=16_000) * 32767).astype("<i2")
    sounds = {"ann/1": plain.tobytes()[:-1], "bob/1": plain.byteswap().tobytes(), "eve/2": plain.tobytes()}
    rows = read_audio_rows(write_sphinx(tmp_path / "an4", sounds, ".raw"), "text", AudioSettings())
    with pytest.raises(DataError) as error:
        compute_features(rows.recordings, LogMel(4000, 8), 30)
    size = 2 * len(plain) - 1
    assert f"ann/1.raw: {size:,} bytes of samples, expected an even number: each has 2 bytes" in str(error.value)
    assert "bob/1.raw: samples in big-endian order, expected little-endian ones" in str(error.value)
    table = write(
        tmp_path / "table", {"1.raw": plain.tobytes(), "2.wav": SOUND["one"], "a.csv": "path,text\n1.raw,a\n"}
    )
    with pytest.raises(DataError, match=r"a\.csv:2: '1\.raw' is in a format that is not decoded, expected WAV, FLAC"):
        read_audio_rows(table / "a.csv", "text", AudioSettings(audio_column="path"))


def test_parts_that_only_some_rows_have_are_not_used(tmp_path):
    files = {"train-clean-100/84/1/84-1-0.wav": SOUND["one"], "train-clean-100/84/1/84-1.trans.txt": "84-1-0 AB\n"}
    files |= {"mine/85/1/85-1-0.wav": SOUND["two"], "mine/85/1/85-1.trans.txt": "85-1-0 BA\n"}
    rows = read_audio_rows(write(tmp_path / "data", files), "text", AudioSettings())
    note = "the parts that the data name are not used: 1 of 2 rows are in no part (first: 85-1.trans.txt:1)"
    assert rows.parts is None and note in rows.read_notes


def test_tables_are_read_by_their_own_name_and_by_given_columns(tmp_path):
    folder = write(tmp_path / "data", {**sounds("{}.wav"), "t.csv": table("name,spoken,who", "{0}.wav,{1},ann")})
    with pytest.raises(DataError, match=r"data\.text_column"):
        read_audio_rows(folder / "t.csv", "text", AudioSettings())
    settings = AudioSettings(text_column="spoken", speaker_column="who")
    rows = read_audio_rows(folder / "t.csv", "text", settings)
    assert list(rows.texts["text"]) == list(WORDS.values()) and set(rows.texts["speaker"]) == {"ann"}
    assert guess_task(folder / "t.csv", ["data.text_column=spoken"]) == "speech_recognition"


def test_folders_archives_and_names_of_classes(tmp_path):
    files = {f"{label}/{number}.wav": encode(tone(label, number)) for label in "ab" for number in range(3)}
    folder = write(tmp_path / "classes", files)
    with zipfile.ZipFile(tmp_path / "classes.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(f"classes/{name}", content)
    with tarfile.open(tmp_path / "classes.tar.gz", "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    for path in (folder, tmp_path / "classes.zip", tmp_path / "classes.tar.gz"):
        assert guess_task(path) == "audio_classification"
        rows = read_audio_rows(path, "label", AudioSettings())
        read = {
            rows.recordings.read(int(number)): text
            for number, text in zip(rows.recording, rows.texts["label"], strict=True)
        }
        assert read == {content: name[0] for name, content in files.items()}


def test_names_of_class_speaker_and_number(tmp_path):
    folder = write_classes(tmp_path)
    assert guess_task(folder) == "audio_classification"
    rows = read_audio_rows(folder, "label", AudioSettings())
    assert set(rows.texts["label"]) == set("abcd") and set(rows.texts["speaker"]) == {"ann", "bob", "eve"}


def test_whole_speakers_are_held_out_on_request(tmp_path):
    rows = read_audio_rows(write_classes(tmp_path), "label", AudioSettings())
    features = compute_features(rows.recordings, LogMel(4000, 8), 30)
    train, valid = split_audio_rows(rows, AudioSettings(split="speakers"), features)
    assert len(set(valid.texts["speaker"])) == 1 and not set(valid.texts["speaker"]) & set(train.texts["speaker"])
    assert f"held out: all recordings of {valid.texts['speaker'][0]}" in train.read_notes
    train, valid = split_audio_rows(rows, AudioSettings(valid_fraction=0.2), features)
    assert {label: list(valid.texts["label"]).count(label) for label in "abcd"} == dict.fromkeys("abcd", 3)
    folder = write(tmp_path / "nameless", {f"{c}/{n}.wav": encode(tone(c, n)) for c in "ab" for n in range(2)})
    nameless = read_audio_rows(folder, "label", AudioSettings())
    with pytest.raises(DataError, match="no speaker is named for each recording, expected speakers"):
        split_audio_rows(nameless, AudioSettings(split="speakers"), features)


def test_copies_of_a_recording_are_never_in_both_parts(tmp_path):
    files = {f"{label}/{n}.wav": encode(tone(label, n % 3)) for label in "ab" for n in range(12)}
    rows = read_audio_rows(write(tmp_path / "copies", files), "label", AudioSettings())
    features = compute_features(rows.recordings, LogMel(4000, 8), 30)
    train, valid = split_audio_rows(rows, AudioSettings(valid_fraction=0.3), features)
    assert not set(features.hashes[train.recording]) & set(features.hashes[valid.recording])
    assert any("training recordings are duplicates" in note for note in train.read_notes)


def test_samples_in_an_npz_file(tmp_path):
    parts = [(tone(word) * 32767).astype(np.int16) for word in ("ab", "c", "dd")]
    offsets = np.cumsum([0, *map(len, parts)])
    arrays = {"audio": np.concatenate(parts), "offsets": offsets, "text": ["ab", "c", "dd"], "rate": 4000}
    np.savez_compressed(tmp_path / "a.npz", **arrays, split=["train", "train", "test"])
    assert guess_task(tmp_path / "a.npz") == "speech_recognition"
    rows = read_audio_rows(tmp_path / "a.npz", "text", AudioSettings())
    samples, rate = rows.recordings.read(2)
    assert rate == 4000 and np.abs(samples.numpy() * 32768 - parts[2]).max() < 1e-2
    assert rows.parts is not None and rows.parts.tolist() == [0, 0, 2] and list(rows.texts["text"]) == ["ab", "c", "dd"]


def test_other_data_have_no_recordings(tmp_path):
    write(tmp_path / "x", {"a.csv": "text,label\nhello,1\nworld,0\n", "b.txt": "hello\n"})
    assert find_audio(tmp_path / "x" / "a.csv", AudioSettings()) is None
    assert find_audio(tmp_path / "x" / "b.txt", AudioSettings()) is None
    assert find_audio(tmp_path / "x", AudioSettings()) is None


@pytest.mark.parametrize("name", ["an4_8k.npz", "fsdd.zip"])
def test_published_data(name):
    folder = os.environ.get("SACCADE_DATA")
    if not folder or not (Path(folder) / "speech" / name).is_file():
        pytest.skip("SACCADE_DATA does not name a folder with this data set")
    path = Path(folder) / "speech" / name
    role = "text" if name.startswith("an4") else "label"
    rows = read_audio_rows(path, role, AudioSettings())
    assert len(rows) == {"an4_8k.npz": 1065, "fsdd.zip": 3000}[name]
    assert guess_task(path) == ("speech_recognition" if role == "text" else "audio_classification")
    if role == "label":
        assert sorted(set(rows.texts["label"])) == list("0123456789") and len(set(rows.texts["speaker"])) == 6
