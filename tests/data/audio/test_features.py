"""Features and their augmentation: equal to an independent computation, cached, and a pure function of the seed."""

import numpy as np
import pytest
import torch

from saccade.data.audio.augment import AudioAugment, augment_features, change_speed
from saccade.data.audio.features import compute_features, typical_rate
from saccade.data.audio.log_mel import FLOOR, LogMel, log_mel, mel_filters, standardize
from saccade.data.audio.recordings import SampleRecordings
from saccade.data.cache import hash_file
from saccade.errors import DataError
from tests.data.audio.sounds import tone

SETTINGS = LogMel(4000, 16)


def independent(samples: np.ndarray, settings: LogMel) -> np.ndarray:
    """Log-mel energies by numpy alone, band by band and frame by frame."""
    width, hop, size = settings.window_samples, settings.hop_samples, settings.fft_size
    window = np.hanning(width + 1)[:-1]
    top = 2595 * np.log10(1 + settings.rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, settings.bands + 2) / 2595) - 1)
    frequencies = np.arange(size // 2 + 1) * settings.rate / size
    frames = []
    for start in range(0, len(samples), hop):
        part = np.zeros(width)
        part[: len(samples[start : start + width])] = samples[start : start + width]
        power = np.abs(np.fft.rfft(part * window, size)) ** 2
        bands = [
            (np.interp(frequencies, edges[band : band + 3], [0, 1, 0]) * power).sum() for band in range(settings.bands)
        ]
        frames.append(np.log(np.array(bands) / (window**2).sum() + FLOOR))
    return np.array(frames)


@pytest.mark.parametrize("settings", [SETTINGS, LogMel(8000, 40), LogMel(16_000, 80, window=0.02, hop=0.02)])
def test_features_equal_an_independent_computation(settings):
    samples = tone("abcd", rate=settings.rate)
    features = log_mel(torch.from_numpy(samples), settings)
    assert features.shape == (settings.frames(len(samples)), settings.bands)
    np.testing.assert_allclose(features.numpy(), independent(samples.astype(np.float64), settings), atol=2e-3)


def test_a_tone_is_loudest_in_its_band():
    features = log_mel(torch.sin(2 * torch.pi * 1000 * torch.arange(4000) / 4000), SETTINGS)
    band = int(mel_filters(4000, SETTINGS.fft_size, 16)[round(1000 / 4000 * SETTINGS.fft_size)].argmax())
    assert (features[:-3].argmax(1) == band).all()


def test_standardized_features_do_not_depend_on_loudness_and_silence_is_zero():
    samples = torch.from_numpy(tone("abcd"))
    loud, quiet = (standardize(log_mel(scale * samples, SETTINGS)) for scale in (1.0, 0.3))
    assert float((loud - quiet).abs().max()) < 0.05
    assert float(loud.mean(0).abs().max()) < 1e-5 and float(loud.std(0).max()) < 1.1
    assert float(standardize(log_mel(torch.zeros(4000), SETTINGS)).abs().max()) < 1e-4


def recordings(path, parts):
    path.write_bytes(b"stands for the file of these samples")
    samples = np.concatenate([(part * 32767).astype(np.int16) for part in parts])
    offsets = np.cumsum([0, *map(len, parts)]).tolist()
    return SampleRecordings(path, samples, offsets, 4000, [hash_file(path)])


def test_features_are_computed_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    parts = [tone("ab"), tone("abc"), tone("ab")]
    stored = recordings(tmp_path / "a.npz", parts)
    first = compute_features(stored, SETTINGS, 30)
    expected = standardize(log_mel(stored.read(1)[0], SETTINGS))
    torch.testing.assert_close(first[1], expected, atol=3e-3, rtol=1e-3)
    assert first.hashes[0] == first.hashes[2] != first.hashes[1]
    assert first.samples.tolist() == [len(part) for part in parts]
    monkeypatch.setattr("saccade.data.audio.features.read_features", None)  # must not be called again
    again = compute_features(stored, SETTINGS, 30)
    assert torch.equal(again[2], first[2]) and again.fingerprint() == first.fingerprint()
    assert typical_rate(stored, 16_000, [0, 1]) == 4000 and typical_rate(stored, 3000, [0]) == 3000


def test_recordings_that_are_too_long_are_all_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    stored = recordings(tmp_path / "a.npz", [tone("abcd"), tone("a"), tone("abc")])
    with pytest.raises(DataError) as error:
        compute_features(stored, SETTINGS, 0.4)
    assert "a.npz: recording 1: 0.6 seconds, expected at most 0.4 (max_seconds)" in str(error.value)
    assert "recording 3: 0.5 seconds" in str(error.value) and "recording 2:" not in str(error.value)


def test_augmentation_is_a_pure_function_of_the_seed():
    features = torch.randn(3, 50, 16) + 5
    lengths = torch.tensor([50, 40, 30])
    config = AudioAugment()
    first, again, other = (augment_features(features, lengths, config, 4000, seed) for seed in (1, 1, 2))
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert first[0].shape != other[0].shape or not torch.equal(first[0], other[0])


def test_without_changes_features_stay_the_same():
    features, lengths = torch.randn(2, 20, 16), torch.tensor([20, 20])
    none = AudioAugment(speed=0, time_masks=0, frequency_masks=0)
    assert torch.equal(augment_features(features, lengths, none, 4000, 1)[0], features)


def test_masks_cover_whole_frames_and_whole_bands_within_their_limits():
    features, lengths = torch.ones(200, 50, 16), torch.full((200,), 50)
    times = AudioAugment(speed=0, time_masks=1, time_mask=0.2, frequency_masks=0)
    masked = augment_features(features, lengths, times, 4000, 3)[0]
    rows = masked.amin(2)
    assert torch.equal(rows, masked.amax(2)) and int((rows == 0).sum(1).max()) == 9  # below 0.2 x 50
    bands = AudioAugment(speed=0, time_masks=0, frequency_masks=1, frequency_mask=4)
    masked = augment_features(features, lengths, bands, 4000, 3)[0]
    columns = masked.amin(1)
    assert torch.equal(columns, masked.amax(1)) and set((columns == 0).sum(1).tolist()) == {0, 1, 2, 3, 4}


def test_another_speed_is_the_sound_that_is_played_faster():
    """A tone at speed 1.25 is as long as 1 / 1.25 of it, and its pitch is 1.25 times as high."""
    settings = LogMel(8000, 40)
    sound = log_mel(torch.sin(2 * torch.pi * 800 * torch.arange(8000) / 8000), settings)[None]
    faster, lengths = change_speed(sound, torch.tensor([sound.shape[1]]), torch.tensor([1.25]).double(), 8000)
    played = log_mel(torch.sin(2 * torch.pi * 1000 * torch.arange(6400) / 8000), settings)
    assert lengths.tolist() == [len(played)] == [80]
    assert abs(int(faster[0, 40].argmax()) - int(played[40].argmax())) <= 1
    same, unchanged = change_speed(sound, torch.tensor([100]), torch.ones(1).double(), 8000)
    torch.testing.assert_close(same, sound, atol=1e-4, rtol=1e-4)
    assert unchanged.tolist() == [100]


def test_settings_out_of_range_are_refused():
    for values, message in [
        ({"speed": 0.6}, "speed must be from 0 to 0.5, but is 0.6"),
        ({"time_mask": 2.0}, "time_mask must be from 0 to 1, but is 2.0"),
        ({"frequency_masks": -1}, "frequency_masks must be at least 0, but is -1"),
    ]:
        with pytest.raises(ValueError, match=message):
            AudioAugment(**values)
    with pytest.raises(ValueError, match="bands must be at least 1, but is 0"):
        LogMel(8000, 0)
