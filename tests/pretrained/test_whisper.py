"""Whisper: spectrograms, texts, timestamps and attention are those of transformers; refusals by name."""

import json
import re

import numpy as np
import pytest
import torch

pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

import transformers
from click.testing import CliRunner

import saccade
from saccade.cli import main
from saccade.core import TimeAxis, TokenAxis
from saccade.errors import DataError, ModelFileError, UsageError
from saccade.nn.packed import pack
from saccade.pretrained.audio_processor import LogMel
from saccade.pretrained.opening import describe, open_pretrained
from saccade.tasks._speech.whisper import WhisperOptions
from saccade.tasks._speech.whisper_maps import WhisperMaps
from saccade.tasks._speech.windows import cut_segments
from tests.pretrained.tiny_whisper import FIRST_TIMESTAMP, IDS, POSITIONS, RATE, sound, write


@pytest.fixture(scope="module")
def english(tmp_path_factory):
    """The folder of a model of English, and transformers' network."""
    folder = tmp_path_factory.mktemp("english")
    return folder, write(folder)


@pytest.fixture(scope="module")
def stamped(tmp_path_factory):
    """A model of English that writes timestamps."""
    folder = tmp_path_factory.mktemp("stamped")
    network = write(folder, stamps=True)
    return folder, network, saccade.load(str(folder), device="cpu")


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory):
    folder = tmp_path_factory.mktemp("multilingual")
    return folder, write(folder, multilingual=True, seed=6)


@pytest.fixture(scope="module")
def model(english):
    return saccade.load(str(english[0]), device="cpu")


def theirs(folder, network, sounds, **options):
    """Return the tokens that transformers generates for sounds, one after the other, without the end."""
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(folder)
    results = []
    for samples in sounds:
        long = {"truncation": False, "padding": "longest"} if len(samples) > RATE else {}
        features = extractor(samples.numpy(), sampling_rate=RATE, return_tensors="pt", **long).input_features
        ids = network.generate(features, **options)[0].tolist()
        results.append(single_stamps([token for token in ids if token != IDS["endoftext"]]))
    return results


def single_stamps(ids):
    """Return tokens with one of each pair of timestamps: transformers keeps both of the last pair."""
    pairs = zip(ids, [*ids[1:], 0], strict=True)
    return [token for token, after in pairs if token != after or token < FIRST_TIMESTAMP]


def ours(model, sounds, **options):
    """Return the same from our model."""
    predictions = list(
        model.task.predict([{"audio": (samples, RATE)} for samples in sounds], WhisperOptions(**options))
    )
    tokens = [[token for window in windows(model, p, options) for token in window] for p in predictions]
    return list(map(single_stamps, tokens)), predictions


def windows(model, prediction, options):
    """Return the tokens of the segments of each window, timestamps included."""
    recording = model.task._open(prediction.inputs, WhisperOptions(**options))
    transcriber = model.task._transcriber(model.task.model, WhisperOptions(**options), recording.timestamps)
    transcriber.run([recording])
    return [[token for *_, ids in window.segments for token in ids] for window in recording.windows]


SOUNDS = [sound(seconds, seed) for seed, seconds in enumerate((1.0, 0.31, 0.77, 0.02, 0.5))]


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("samples", [1, 50, 3000, 48_123, 479_700, 479_999, 480_000, 500_000])
def test_spectrograms_are_those_of_transformers(mels, samples):
    draw = np.random.default_rng(samples)
    wave = (draw.standard_normal(samples) * 0.1 * np.sin(np.arange(samples) / 7)).astype(np.float32)
    extractor = transformers.WhisperFeatureExtractor(feature_size=mels)
    expected = extractor(wave, sampling_rate=RATE, return_tensors="pt").input_features[0]
    features = LogMel(feature_size=mels)
    torch.testing.assert_close(features.window(torch.from_numpy(wave)), expected, atol=1e-4, rtol=0)
    assert expected.shape == (mels, features.frames) == (mels, 3000)
    if samples > features.samples:
        expected = extractor(wave, sampling_rate=RATE, return_tensors="pt", truncation=False, padding="longest")
        whole = features.whole(torch.from_numpy(wave))
        torch.testing.assert_close(whole, expected.input_features[0], atol=1e-4, rtol=0)


def test_greedy_texts_are_those_of_transformers_and_do_not_depend_on_the_batch(english, model):
    folder, network = english
    expected = theirs(folder, network, SOUNDS)
    assert len(expected[0]) > 3 and expected[0] != expected[1]  # the sound decides
    assert not {1, 2, 7} & {token for ids in expected for token in ids}
    tokens, predictions = ours(model, SOUNDS)
    assert tokens == expected
    tokenizer = transformers.WhisperTokenizer.from_pretrained(folder)
    texts = [tokenizer.decode(ids, skip_special_tokens=True).strip() for ids in expected]
    assert [prediction.text for prediction in predictions] == texts
    assert [model((samples, RATE), attention=False).text for samples in SOUNDS] == texts


def detect(model, network):
    """Return the languages that our model and transformers hear in each sound."""
    features = torch.stack([model.task.processor.features.window(samples) for samples in SOUNDS])
    codes = {IDS[code]: code for code in ("en", "de", "fr")}
    _, predictions = ours(model, SOUNDS)
    spoken = [prediction.output.language for prediction in predictions]
    return spoken, [codes[token] for token in network.detect_language(features).tolist()]


def test_languages_are_detected_as_in_transformers(tmp_path):
    network = write(tmp_path, multilingual=True, seed=7)
    spoken, expected = detect(saccade.load(str(tmp_path), device="cpu"), network)
    assert spoken == expected and len(set(spoken)) == 2


def test_the_language_and_the_task_change_the_text_as_in_transformers(multilingual):
    folder, network = multilingual
    model = saccade.load(str(folder), device="cpu")
    detected, _ = detect(model, network)
    tokens, _ = ours(model, SOUNDS)
    spoken = {code: theirs(folder, network, SOUNDS, language=code, task="transcribe") for code in ("en", "de", "fr")}
    assert tokens == [spoken[code][at] for at, code in enumerate(detected)]
    for task in ("transcribe", "translate"):
        for code in ("de", "fr"):
            expected = theirs(folder, network, SOUNDS, language=code, task=task)
            assert ours(model, SOUNDS, language=code, task=task)[0] == expected
    assert spoken["de"] != spoken["fr"]
    with pytest.raises(UsageError, match=r"^language must be de, en, fr, but is 'dee'; did you mean 'de'"):
        model((SOUNDS[0], RATE), language="dee")


def test_timestamps_come_in_pairs_as_in_transformers(stamped):
    folder, network, model = stamped
    sounds = [sound(1.0, seed) for seed in range(6)]
    expected = theirs(folder, network, sounds, return_timestamps=True)
    assert ours(model, sounds, timestamps=True)[0] == expected
    assert all(ids[0] >= FIRST_TIMESTAMP for ids in expected)
    prediction = model((sounds[0], RATE), timestamps=True, attention=False)
    first = prediction.output.segments[0]
    assert 0 <= first.start <= 0.4 and first.end <= 1.0 + 1e-9
    assert not re.search(r"<\|\d", prediction.text)


@pytest.mark.parametrize("seconds", [1.01, 2.7, 4.0])
def test_long_recordings_are_read_in_windows_as_by_transformers(stamped, seconds):
    folder, network, model = stamped
    sounds = [sound(seconds, seed) for seed in (1, 2)]
    expected = theirs(folder, network, sounds, return_timestamps=True)
    tokens, predictions = ours(model, sounds)
    assert tokens == expected
    for prediction in predictions:
        starts = [segment.start for segment in prediction.output.segments]
        assert starts == sorted(starts) and starts[-1] > 0.5 and prediction.output.segments[-1].end <= seconds + 0.02
    assert [one.text for one in predictions] == ["".join(map(str, model.stream((s, RATE)))) for s in sounds]


def test_segments_end_at_pairs_of_timestamps():
    stamp = 100
    assert cut_segments([100, 1, 2, 110], stamp, 60) == (((0, 10, (100, 1, 2, 110)),), 60)
    both = [100, 1, 105, 105, 2, 110]
    assert cut_segments(both, stamp, 60) == (((0, 5, (100, 1, 105)), (5, 10, (105, 2, 110))), 60)
    unfinished = [100, 1, 105, 105, 2]
    assert cut_segments(unfinished, stamp, 60) == (((0, 5, (100, 1, 105)),), 10)
    assert cut_segments([1, 2], stamp, 61) == (((0, 30, (1, 2)),), 61)


def test_a_stream_is_the_text_and_a_beam_is_not_worse(model):
    for samples in SOUNDS:
        greedy = model((samples, RATE), attention=False)
        tokens = list(model.stream((samples, RATE), attention=True))
        assert "".join(map(str, tokens)) == greedy.text
        weights = tokens[-1].attention["decoder.1.cross"].rows(0, 3)
        assert weights.shape == (3, 3, POSITIONS)
        assert tokens[0].prompt[:3] == ("0.00", "0.02", "0.04")
        wide = model((samples, RATE), beam=4, length_penalty=0, attention=False)
        assert wide.scores["log_probability"] >= greedy.scores["log_probability"] - 1e-4


def test_attention_is_that_of_transformers_and_its_axes_are_sound_and_text(english, model):
    folder, _ = english
    network = transformers.WhisperForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").eval()
    prediction = model((SOUNDS[1], RATE))
    window = prediction.trace
    ids = torch.tensor([[*window.prompt, *window.hypothesis.ids]])
    with torch.no_grad():
        out = network(window.features[None], decoder_input_ids=ids, output_attentions=True)
    kinds = {"encoder": out.encoder_attentions, "decoder": out.decoder_attentions, "cross": out.cross_attentions}
    for layer in range(2):
        for name, kind in (
            ("encoder.{}.self", "encoder"),
            ("decoder.{}.self", "decoder"),
            ("decoder.{}.cross", "cross"),
        ):
            weights = prediction.attention[name.format(layer)].weights
            torch.testing.assert_close(weights, kinds[kind][layer][0], atol=1e-5, rtol=1e-4)
    cross = prediction.attention["decoder.0.cross"]
    assert isinstance(cross.queries, TokenAxis) and isinstance(cross.keys, TimeAxis)
    assert len(cross.queries) == ids.shape[1] and cross.queries.labels[-1] == "<|endoftext|>"
    assert len(cross.keys) == POSITIONS and cross.keys.seconds_per_frame == pytest.approx(0.02)
    assert cross.keys.spectrogram.shape == (1, 12, 100) and cross.keys.spectrogram.dtype == torch.uint8
    assert len(prediction.alignment.keys) == 15  # 0.31 seconds
    assert prediction.alignment.shape == (1, len(window.text_ids(FIRST_TIMESTAMP)), 15)


def test_maps_of_later_windows_have_their_number(stamped):
    model = stamped[2]
    prediction = model((sound(2.7), RATE))
    assert {"decoder.0.cross", "window.2.decoder.0.cross"} <= set(prediction.attention)
    with pytest.raises(UsageError, match=r"explanations need a recording of at most 1 seconds, but this one is longer"):
        model.explain(prediction).importance()


def test_explanations_recompute_the_text(model):
    prediction = model((SOUNDS[0], RATE))
    with torch.no_grad():
        trace = model.task.rerun(prediction, layers=True)
    assert trace.chosen == (*prediction.trace.hypothesis.ids, IDS["endoftext"])
    total = trace.logits.log_softmax(-1).gather(1, torch.tensor(trace.chosen)[:, None]).sum()
    assert trace.logits.shape[0] == len(trace.chosen) == len(trace.positions)
    torch.testing.assert_close(trace.layers[-1][1], trace.logits)
    assert float(total) < 0


def test_a_packed_copy_and_the_model_agree(model):
    network = model.task.model
    mel = torch.stack([model.task.processor.features.window(samples) for samples in SOUNDS])
    with torch.no_grad():
        expected = network.encode_windows(mel).values
        torch.testing.assert_close(pack(network, 50).encode_windows(mel).values, expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="a window must have 100 frames, but has 99"):
        network.encode_windows(mel[..., 1:])


@pytest.mark.parametrize("kind", ["english", "multilingual"])
def test_an_exported_folder_is_opened_by_transformers_and_by_us(kind, request, tmp_path):
    folder, network = request.getfixturevalue(kind)
    model = saccade.load(str(folder), device="cpu")
    assert model.export(tmp_path / "out")[:1] == [f"{tmp_path / 'out'}: a whisper for transformers"]
    exported = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "out").eval()
    processor = transformers.WhisperProcessor.from_pretrained(tmp_path / "out")
    assert processor.feature_extractor.nb_max_frames == 100 and processor.tokenizer.eos_token == "<|endoftext|>"
    options = {"language": "de", "task": "translate"} if kind == "multilingual" else {}
    expected = theirs(folder, network, SOUNDS, **options)
    assert theirs(tmp_path / "out", exported, SOUNDS, **options) == expected
    again = saccade.load(str(tmp_path / "out"), device="cpu")
    assert ours(again, SOUNDS, **options)[0] == ours(model, SOUNDS, **options)[0]
    old, new = (open_pretrained(str(place)).processor for place in (folder, tmp_path / "out"))
    assert {k: v for k, v in vars(old).items() if k != "tokenizer"} == {
        k: v for k, v in vars(new).items() if k != "tokenizer"
    }


def test_any_rate_and_encoded_files_are_read(model, tmp_path):
    soundfile = pytest.importorskip("soundfile", reason="decodes sounds; installed with the [audio] extra")
    soundfile.write(tmp_path / "a.wav", SOUNDS[0].numpy(), RATE, subtype="FLOAT")
    assert model(str(tmp_path / "a.wav"), attention=False).text == model((SOUNDS[0], RATE), attention=False).text
    assert model((SOUNDS[0][::2], RATE // 2), attention=False).text
    for value, message in (
        ((torch.zeros(0), RATE), "audio must have samples, but has none"),
        ((torch.tensor([0.0, float("nan")]), RATE), "audio must have finite samples, but one is nan"),
        ((torch.zeros(5), 3), "audio must have a sample rate of 1,000 to 768,000 Hz, but has 3"),
    ):
        with pytest.raises(UsageError, match=message):
            model(value)


def test_evaluate_counts_wrong_words_with_and_without_case_and_punctuation(model, tmp_path):
    soundfile = pytest.importorskip("soundfile", reason="decodes sounds; installed with the [audio] extra")
    lines = ["path\ttext"]
    for number, samples in enumerate(SOUNDS[:2]):
        soundfile.write(tmp_path / f"{number}.wav", samples.numpy(), RATE, subtype="FLOAT")
        lines.append(f"{number}.wav\tsome words {number}")
    (tmp_path / "texts.tsv").write_text("\n".join(lines) + "\n")
    evaluation = model.evaluate(tmp_path)
    assert evaluation["recordings"] == 2 and evaluation["wer"] > 0 and evaluation["plain_cer"] > 0
    assert evaluation.tables[0].rows[0] == ("some words 0", model((SOUNDS[0], RATE), attention=False).text)
    assert set(evaluation.values) == {"wer", "cer", "plain_wer", "plain_cer", "recordings"}
    with pytest.raises(UsageError, match="a Whisper runs as it is and cannot be trained yet"):
        model.task.load_data(tmp_path)


def test_evaluate_takes_the_test_part_and_names_damaged_recordings(english, model, tmp_path):
    soundfile = pytest.importorskip("soundfile", reason="decodes sounds; installed with the [audio] extra")
    for number in range(3):
        soundfile.write(tmp_path / f"{number}.wav", SOUNDS[1].numpy(), RATE)
    table = tmp_path / "texts.tsv"
    table.write_text("path\ttext\tsplit\n0.wav\ta\ttrain\n1.wav\tb\ttest\n2.wav\tc\ttest\n")
    evaluation = model.evaluate(table)
    assert evaluation["recordings"] == 2
    assert tuple(evaluation.notes) == ("evaluated: the test part of the data, 2 of 3 recordings",)
    command = ["evaluate", str(english[0]), "--data", str(table), "--json"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0 and json.loads(done.stdout)["recordings"] == 2
    assert evaluation.notes[0] in " ".join(done.stderr.split())
    for name in ("1.wav", "2.wav"):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-20])
    with pytest.raises(DataError) as error:
        model.evaluate(table)
    for name in ("1.wav", "2.wav"):
        assert f"{tmp_path / name}: a WAV file without the last 20 bytes of its samples" in str(error.value)
    assert CliRunner().invoke(main, command).exit_code == error.value.exit_code == 3


def test_times_of_words_follow_the_prompt_of_the_task(multilingual, monkeypatch):
    model = saccade.load(str(multilingual[0]), device="cpu")
    prompts, times = [], WhisperMaps._token_times
    monkeypatch.setattr(
        WhisperMaps, "_token_times", lambda self, *given: prompts.append(given[1]) or times(self, *given)
    )
    for task in ("transcribe", "translate"):
        model((SOUNDS[0], RATE), language="de", task=task, word_times=True, attention=False)
        assert prompts.pop() == (IDS["startoftranscript"], IDS["de"], IDS[task], IDS["notimestamps"])


def test_a_text_that_reaches_the_maximum_length_has_a_note(model):
    predictions = list(model.task.predict([{"audio": (samples, RATE)} for samples in SOUNDS], WhisperOptions()))
    cut = [p for p in predictions if not p.trace.hypothesis.ended]
    assert cut and all(f"cut after {len(p.trace.hypothesis.ids)} tokens, the maximum" in p.notes[0] for p in cut)
    assert all(p.notes == () for p in predictions if p.trace.hypothesis.ended)


def test_options_of_another_model_are_refused(model):
    with pytest.raises(UsageError, match=r"^language must be en, which is all the model knows, but is 'de'"):
        model((SOUNDS[0], RATE), language="de")
    with pytest.raises(UsageError, match=r"^task must be transcribe for a model of English alone, but is 'translate'"):
        model((SOUNDS[0], RATE), task="translate")
    with pytest.raises(UsageError, match="beam must be at least 1, but is 0"):
        model((SOUNDS[0], RATE), beam=0)
    assert model((SOUNDS[0], RATE), language="en", attention=False).text == model((SOUNDS[0], RATE)).text


REFUSED = (
    ("preprocessor_config.json", {"dither": 0.1}, "dither must be 0, but is 0.1"),
    ("preprocessor_config.json", {"padding_value": 1.0}, "padding_value must be 0, but is 1.0"),
    ("preprocessor_config.json", {"do_normalize": True}, "do_normalize must be"),
    ("preprocessor_config.json", {"feature_size": 80}, r"must be num_mel_bins of config.json \(12\), but is 80"),
    ("preprocessor_config.json", {"chunk_length": 2}, "each of the 50 max_source_positions .*, but has 200"),
    (
        "preprocessor_config.json",
        {"hop_length": 161},
        "hop_length must divide the 16000 samples of a window, but is 161",
    ),
    ("preprocessor_config.json", {"n_fft": 0}, "n_fft must be from 1 to 1,048,576, but is 0"),
    (
        "preprocessor_config.json",
        {"feature_extractor_type": "Other"},
        "feature_extractor_type must be 'WhisperFeatureEx",
    ),
    ("generation_config.json", {"suppress_tokens": [4000]}, "suppress_tokens must be a token .*, but is 4000"),
    ("generation_config.json", {"no_timestamps_token_id": 300}, "there must be 51 tokens of timestamps .*, but are 23"),
    (
        "generation_config.json",
        {"alignment_heads": [[2, 0]]},
        r"a layer below 2 and a head below 3, but one is \[2, 0\]",
    ),
    ("generation_config.json", {"max_length": 0}, "max_length must be at least 1, but is 0"),
    ("generation_config.json", {"median_filter_width": 4}, "median_filter_width must be odd, but is 4"),
    ("generation_config.json", {"decoder_start_token_id": "x"}, "decoder_start_token_id must be"),
)


@pytest.mark.parametrize(("name", "change", "message"), REFUSED)
def test_settings_that_would_change_the_text_are_refused_by_name(tmp_path, name, change, message):
    write(tmp_path)
    path = tmp_path / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ModelFileError, match=message) as error:
        open_pretrained(str(tmp_path))
    assert str(path) in str(error.value)


def test_settings_may_be_missing_or_in_other_files(tmp_path):
    write(tmp_path, multilingual=True, lang_to_id=None, task_to_id=None)
    (tmp_path / "processor_config.json").write_text(
        json.dumps({"feature_extractor": json.loads((tmp_path / "preprocessor_config.json").read_text())})
    )
    (tmp_path / "preprocessor_config.json").unlink()
    processor = open_pretrained(str(tmp_path)).processor
    assert processor.features == LogMel(feature_size=12, chunk_length=1)
    assert processor.languages == {code: IDS[code] for code in ("en", "de", "fr")}
    assert processor.tasks == {task: IDS[task] for task in ("transcribe", "translate")}
    (tmp_path / "generation_config.json").unlink()
    processor = open_pretrained(str(tmp_path)).processor
    assert (processor.start, processor.end) == (IDS["startoftranscript"], IDS["endoftext"])
    assert processor.no_timestamps == IDS["notimestamps"] and processor.alignment_heads == ()
    described = describe(str(tmp_path))
    assert described["task"] == "speech_recognition" and described["sampling_rate"] == RATE
