"""Parts of published data: their names, which of them an evaluation scores, and counts that are not plotted."""

from pathlib import Path

import numpy as np
import pytest

from saccade.data.parts import TEST, TRAIN, VALID, are_parts, complete_parts, evaluated_part, part_of_file, unknown_part
from saccade.studio.live import NOT_PLOTTED
from saccade.tasks import audio_classification, captioning, reading, speech_recognition
from saccade.tasks._speech import whisper


@pytest.mark.parametrize(
    ("name", "part"),
    [("an4_train.fileids", TRAIN), ("captions_val2014.json", VALID), ("test/a.csv", TEST), ("a.csv", None)],
)
def test_files_are_parts_by_their_names_and_folders(name, part):
    assert part_of_file(Path("/data") / name, Path("/data")) == part


def test_the_test_part_is_evaluated_else_the_validation_part():
    assert evaluated_part([TRAIN, VALID, TEST]) == TEST and evaluated_part({TRAIN, VALID}) == VALID
    assert evaluated_part([TRAIN]) is evaluated_part([]) is evaluated_part([None]) is None


def test_a_column_is_of_parts_by_its_name_and_one_value():
    assert are_parts("Split", ["train", "tset"]) and not are_parts("split", ["red", "blue"])
    assert not are_parts("colour", ["train", "test"])
    assert str(unknown_part(Path("a.csv"), 3, "set", "tset")).startswith("a.csv:3: 'tset' in column 'set', expected a")


def test_parts_of_some_rows_alone_are_not_used():
    parts, notes = complete_parts([0, 2], str)
    assert parts is not None and parts.dtype == np.int8 and parts.tolist() == [0, 2] and not notes
    assert complete_parts([-1, -1], str) == (None, ())
    note = "the parts that the data name are not used: 1 of 3 rows are in no part (first: row 1)"
    assert complete_parts([0, -1, 2], lambda row: f"row {row}") == (None, (note,))


def test_counts_of_rows_are_not_plotted():
    metrics = [module.METRICS for module in (audio_classification, captioning, reading, speech_recognition, whisper)]
    counts = {metric.unit for group in metrics for metric in group.values() if metric.unit == metric.name}
    assert {"recordings", "images"} <= counts <= NOT_PLOTTED and "test_nodes" in NOT_PLOTTED
