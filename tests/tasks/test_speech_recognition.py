"""Speech recognition: learns tones, reports decoder and CTC head apart, and refuses what it cannot read."""

import math
from pathlib import Path

import pytest
import torch

from saccade.atomic_io import read_json, write_json
from saccade.config import override
from saccade.core import Pretrained, Split, bind
from saccade.decode.search import Hypothesis, Search
from saccade.errors import DataError, UsageError
from saccade.tasks import load_task
from saccade.tasks._seq2seq import to_text
from saccade.tasks.speech_recognition import SpeechConfig, Task
from tests.data.audio import sounds
from tests.tasks.battery import CONVOLUTIONAL, DECODER, SETTINGS
from tests.tasks.untrained import open_untrained

TRANSFORMER = [*CONVOLUTIONAL, *DECODER, "model.decoder=transformer", "model.transformer.dropout=0"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))


def opened(tmp_path: Path, settings, std=0.3) -> Task:
    data = sounds.write_speech(tmp_path, 24)
    config = override(SpeechConfig(), settings)
    task, _ = open_untrained(Task, config, data, tmp_path, std=std)
    return task


def test_decoder_and_ctc_head_are_scored_together_and_alone(tmp_path):
    task = opened(tmp_path, SETTINGS["speech_recognition"])
    evaluation = task.evaluate(Split.VALID)
    names = [f"{part}{rate}" for part in ("", "attention_", "ctc_") for rate in ("cer", "wer")]
    assert set(evaluation.values) == {*names, "loss", "recordings"}
    outputs = task.transcribe(task.splits[Split.VALID], [0, 1], task.config.search)
    assert set(outputs) == {"", "attention_", "ctc_"} and all(len(texts) == 2 for texts in outputs.values())
    plain = opened(tmp_path / "plain", [*SETTINGS["speech_recognition"], "ctc=0"])
    assert set(plain.evaluate(Split.VALID).values) == {"cer", "wer", "loss", "recordings"}


def test_predictions_are_those_of_the_evaluation_and_in_any_order(tmp_path):
    task = opened(tmp_path, CONVOLUTIONAL)
    examples = task.splits[Split.VALID]
    expected = task.transcribe(examples, range(len(examples)), task.config.search)[""]
    sources = [{"audio": task.example_input(examples, row)} for row in range(len(examples))]
    options = task.Options(beam=task.config.search.beam, attention=False)
    assert [prediction.text for prediction in task.predict(sources, options)] == expected
    assert [prediction.text for prediction in task.predict(sources[::-1], options)] == expected[::-1]


@pytest.mark.parametrize("search", [{"beam": 1}, {"beam": 3, "no_repeat_ngram_size": 2}], ids=["greedy", "ngrams"])
def test_the_decoder_alone_is_scored_where_it_alone_predicts(tmp_path, search):
    task = opened(tmp_path, CONVOLUTIONAL)
    examples = task.splits[Split.VALID]
    outputs = task.transcribe(examples, range(len(examples)), Search(**search))
    assert outputs[""] == outputs["attention_"] != outputs["ctc_"]
    sources = [{"audio": task.example_input(examples, row)} for row in range(len(examples))]
    options = task.Options(**search, attention=False)
    assert [prediction.text for prediction in task.predict(sources, options)] == outputs[""]


def test_the_maximum_length_follows_the_length_of_the_recording(tmp_path):
    task = opened(tmp_path, CONVOLUTIONAL)
    rate = read_json(tmp_path / "lengths.json")["per_second"]
    assert rate == pytest.approx(1 / 0.16, rel=0.01)  # a letter of a tone and a gap
    second = 25  # positions of 4 frames of 0.01 seconds
    assert task.limit((), 1) == task.max_length < task.limit((), 10 * second) < task.limit((), 30 * second)
    assert task.limit((), 30 * second) == math.ceil(1.2 * rate * 30) + 10
    learned = ["model.transformer.position=learned", "model.transformer.max_positions=40"]
    bounded = opened(tmp_path / "learned", [*TRANSFORMER, *learned])
    assert bounded.limit((), 30 * second) == 39 and bounded.limit((1, 2), 30 * second) == 37
    write_json(tmp_path / "lengths.json", {"target": 17})  # as it was written before
    assert Task.open(task.config, tmp_path).limit((), 30 * second) == 17


def test_a_text_that_was_cut_off_has_a_note(tmp_path, monkeypatch):
    task = opened(tmp_path, CONVOLUTIONAL)
    example = bind(task.inputs, [(torch.from_numpy(sounds.tone("abc")), sounds.RATE)])
    found = [[Hypothesis((4, 5, 6), -1.0, -1.0, ended=False), Hypothesis((4,), -2.0, -2.0)]]
    monkeypatch.setattr(to_text, "search_memory", lambda *_: found)
    (prediction,) = task.predict([example], task.Options(attention=False))
    note = "the text was cut after 3 tokens, the maximum for this input: its end may be missing"
    assert prediction.notes == (note,) and prediction.alternatives[0].notes == ()
    found[0].reverse()
    (prediction,) = task.predict([example], task.Options(attention=False))
    assert prediction.notes == ()


def test_of_data_with_parts_the_test_part_is_evaluated(tmp_path):
    task = opened(tmp_path, CONVOLUTIONAL)
    table = tmp_path / "speech" / "parts.csv"
    for parts, note in (
        ("train valid test test", ("evaluated: the test part of the data, 2 of 4 recordings",)),
        ("train valid train train", ("evaluated: the validation part of the data, 1 of 4 recordings",)),
        ("train train train train", ()),
        ("test test test test", ()),
    ):
        rows = [f"{number:03}.wav,ab,{part}" for number, part in enumerate(parts.split())]
        table.write_text("\n".join(["file_name,text,split", *rows, ""]))
        notes = task.load_data(table, eval_only=True)
        assert task.data_notes == note and set(note) <= set(notes)
        assert len(task.splits[Split.VALID]) == (int(note[0].split()[-4]) if note else 4)
    task.load_data(tmp_path / "speech" / "metadata.csv")
    assert task.data_notes == ()


def test_training_batches_are_changed_by_seed_and_step_and_validation_is_not(tmp_path):
    task = opened(tmp_path, CONVOLUTIONAL)
    first, again = (task.source(Split.TRAIN, 1).at(2)[0] for _ in range(2))
    other = task.source(Split.TRAIN, 1).at(2 + task.source(Split.TRAIN, 1).per_epoch)[0]
    assert torch.equal(first.source, again.source) and torch.equal(first.keep, again.keep)
    assert first.source.shape != other.source.shape or not torch.equal(first.source, other.source)
    assert first.source.shape[1] == 4 * first.keep.shape[1] and (first.keep.sum(1) == -(-first.frames // 4)).all()
    valid = task.source(Split.VALID, 1).at(0)[0]
    assert torch.equal(valid.source, task.source(Split.VALID, 9).at(0)[0].source)


@pytest.mark.parametrize(
    ("settings", "name"),
    [(TRANSFORMER, "decoder.0.cross"), (CONVOLUTIONAL, "attention"), (SETTINGS["speech_recognition"], "attention")],
    ids=["transformer", "location", "pyramid"],
)
def test_attention_is_over_time(tmp_path, settings, name):
    task = opened(tmp_path, settings)
    example = bind(task.inputs, [(torch.from_numpy(sounds.tone("abc")), sounds.RATE)])
    (prediction,) = task.predict([example], task.Options(beam=1, target="abc"))
    cross = prediction.attention[name]
    assert cross.keys.kind == "time" and cross.queries.labels[:3] == ("a", "b", "c")
    seconds = cross.keys.seconds_per_frame * len(cross.keys)
    assert abs(seconds - 0.48) < 0.05 and cross.keys.spectrogram is not None
    assert cross.keys.spectrogram.shape[1] == task.config.bands
    torch.testing.assert_close(cross.weights.sum(-1), torch.ones(cross.shape[:2]))
    trace = task.rerun(prediction)
    assert len(trace.inputs[0]) in (len(cross.keys), 4 * len(cross.keys))


def test_byte_pairs_can_be_the_tokens(tmp_path):
    task = opened(tmp_path, [*CONVOLUTIONAL, "tokenizer=bpe", "vocabulary_size=300"])
    assert task.target.tokenizer.kind != "characters" and task.evaluate(Split.VALID).values["recordings"] > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["bands=12"], "bands must be a multiple of 8, as every stage of model.convolutional.widths halves them"),
        (["bands=4"], "bands must be at least 8, but is 4"),
        (["max_seconds=0"], r"max_seconds must be above 0 and at most 3600, but is 0"),
        (["hop=0.5"], r"hop must be from 0.001 to 0.1, but is 0.5"),
        (["rate=300"], "rate must be 0 or at least 1000, but is 300"),
        (["ctc=-1"], "ctc must be at least 0, but is -1"),
        (["label_smoothing=1"], "label_smoothing must be at least 0 and below 1, but is 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises((ValueError, UsageError), match=message):
        override(SpeechConfig(), settings)


def test_inputs_that_are_too_long_or_no_sound_are_refused(tmp_path):
    task = opened(tmp_path, [*CONVOLUTIONAL, "max_seconds=2"])
    with pytest.raises(UsageError, match=r"audio must have at most 2 seconds, but has 3\.0; cut it"):
        task.read_input((torch.zeros(12_000), 4000), None)
    with pytest.raises(UsageError, match="audio: an unknown kind of file"):
        task.read_input(b"hello", None)
    with pytest.raises(DataError, match=r"seconds, expected at most 0\.2"):
        opened(tmp_path / "long", [*CONVOLUTIONAL, "max_seconds=0.2"])


@pytest.mark.parametrize("name", ["speech_recognition", "audio_classification"])
def test_other_networks_are_refused(name):
    pretrained = Pretrained(torch.nn.Identity(), None, None, None, "translation", None)
    with pytest.raises(UsageError, match=f"a translation cannot run as the task {name}"):
        load_task(name).from_pretrained(pretrained)
    with pytest.raises(UsageError, match=f"{name} cannot be fine-tuned from a pretrained model yet"):
        load_task(name).prepare(None, Path("x"), Path("y"), base=pretrained)
