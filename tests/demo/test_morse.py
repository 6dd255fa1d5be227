"""The Morse demo: recordings whose texts can be heard, the same for the same seed."""

import csv

from saccade.data.audio.decoding import decode
from saccade.demo.morse import EXAMPLES, write_morse


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_files_are_written_and_no_validation_text_is_in_the_training_data(tmp_path):
    files = write_morse(tmp_path / "a", train_rows=30, valid_rows=10)
    train, valid = rows(files.train), rows(files.valid)
    assert len(train) == 30 and len(valid) == 10
    held_out = {row["text"] for row in valid} | set(EXAMPLES)
    assert not held_out & {row["text"] for row in train}
    for row in train:
        samples, rate = decode((files.train.parent / row["audio"]).read_bytes(), row["audio"])
        assert 0.2 < len(samples) / rate < 30 and samples.abs().max() > 0.05


def test_the_same_seed_writes_the_same_files(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_morse(tmp_path / name, train_rows=3, valid_rows=2, seed=seed)
    sounds = {name: (tmp_path / name / "train" / "00001.wav").read_bytes() for name in "abc"}
    assert sounds["a"] == sounds["b"] != sounds["c"]
