"""Times of letters and words from attention over sound, their files, and figures over a spectrogram."""

import io
import itertools
import re

import pytest
import torch
from PIL import Image

from saccade.core import AttentionMap, AttentionMaps, Prediction, Role, StepAxis, TextOutput, TimeAxis, TokenAxis
from saccade.errors import UsageError
from saccade.look import draw, spectrogram
from saccade.look.figure import AttentionFigure
from saccade.look.serialize import prediction_to_json
from saccade.look.times import letter_times, monotone_path, srt, text_grid, word_times

TEXT, POSITIONS = "hi you", (2, 3, 5, 8, 9, 11)
SPECTROGRAM = torch.arange(8 * 48, dtype=torch.float32).remainder(256).to(torch.uint8).reshape(1, 8, 48)
SOUND = TimeAxis(Role.AUDIO, 12, 0.04, SPECTROGRAM)


def alignment(text=TEXT, positions=POSITIONS, words=()):
    weights = torch.full((1, len(text), 12), 0.01)
    for row, position in enumerate(positions):
        weights[0, row, position] = 0.89
    return AttentionMap("decoder.0.cross", weights, TokenAxis(Role.TARGET, tuple(text), tuple(words)), SOUND)


def prediction():
    over = alignment()
    return Prediction({"audio": b"RIFF"}, TextOutput(TEXT), {}, AttentionMaps([over]), alignment=over)


def test_the_best_monotone_path_equals_a_search_through_all_of_them():
    torch.manual_seed(0)
    for _ in range(5):
        weights = torch.rand(4, 5)
        paths = [path for path in itertools.product(range(5), repeat=4) if list(path) == sorted(path)]
        best = max(paths, key=lambda path: sum(weights[row, key].log() for row, key in enumerate(path)))
        assert monotone_path(weights) == list(best)


def test_letters_follow_each_other_without_gaps_around_their_weights():
    letters = letter_times(alignment())
    assert "".join(letter.text for letter in letters) == TEXT
    assert all(before.end == after.start for before, after in itertools.pairwise(letters))
    for letter, position in zip(letters, POSITIONS, strict=True):
        assert letter.start <= (position + 0.5) * 0.04 <= letter.end
    assert letters[0].start >= 0 and letters[-1].end <= 12 * 0.04


def test_words_are_letters_between_spaces_or_the_words_of_tokens():
    words = word_times(letter_times(alignment()))
    assert [word.text for word in words] == ["hi", "you"]
    assert words[0].start == letter_times(alignment())[0].start and words[1].end == letter_times(alignment())[-1].end
    pieces = AttentionMap(
        "c", alignment().weights[:, :3], TokenAxis(Role.TARGET, ("he", "llo", "you"), (0, 0, 1)), SOUND
    )
    assert [word.text for word in word_times(letter_times(pieces), (0, 0, 1))] == ["hello", "you"]
    assert [word.text for word in word_times(letter_times(pieces))] == ["he", "llo", "you"]


def test_a_text_grid_covers_all_of_the_sound():
    text = text_grid(alignment())
    assert text.startswith('File type = "ooTextFile"\nObject class = "TextGrid"') and 'name = "letters"' in text
    for tier in text.split("item [")[2:]:
        borders = re.findall(r"intervals \[\d+\]:\n\s+xmin = ([\d.]+)\n\s+xmax = ([\d.]+)", tier)
        assert borders[0][0] == "0.000" and borders[-1][1] == "0.480"
        assert all(before[1] == after[0] for before, after in itertools.pairwise(borders))
    assert re.findall(r'text = "(.+)"', text.split("item [2]")[0]) == ["hi", "you"]
    quoted = text_grid(alignment('a"bcde'))
    assert 'text = """"' in quoted


def test_subtitles_have_a_word_each():
    cues = srt(alignment()).split("\n\n")
    assert [cue.strip().splitlines()[0] for cue in cues] == ["1", "2"]
    assert re.fullmatch(r"1\n00:00:00,\d{3} --> 00:00:00,\d{3}\nhi", cues[0].strip())


def test_a_figure_writes_times_and_pictures_by_the_ending(tmp_path):
    figure = AttentionFigure.of(prediction())
    for name, start in [
        ("a.TextGrid", b"File type"),
        ("a.srt", b"1\n00:00"),
        ("a.svg", b"<svg"),
        ("a.png", b"\x89PNG"),
        ("a.html", b"<!"),
    ]:
        figure.write(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start), name
    with pytest.raises(UsageError, match=r"\.TextGrid or \.srt, but ends on '\.doc'"):
        figure.write(tmp_path / "a.doc")
    assert figure.alignment == ""


def test_times_are_part_of_the_json():
    times = prediction_to_json(prediction())["times"]
    assert [word["text"] for word in times["words"]] == ["hi", "you"] and len(times["letters"]) == len(TEXT)
    assert prediction_to_json(prediction())["maps"][0]["keys"]["size"] == [48, 8]


def test_the_terminal_says_when_each_word_was_heard():
    lines = draw.terminal(alignment(), width=80, colour=False).splitlines()
    assert [line.split()[-1] for line in lines] == ["hi", "you"] and float(lines[0].split()[0]) < 0.12


def test_a_figure_has_the_spectrogram_and_the_largest_weight_where_the_letter_is():
    picture = Image.open(io.BytesIO(spectrogram.png(alignment(), "title")))
    assert picture.width > spectrogram.WIDTH
    svg = spectrogram.svg(alignment(), "<title>")
    assert svg.count("<image") == 2 and "&lt;title&gt;" in svg and svg.count('class="m"') == len(TEXT)
    marks = [float(x) for x in re.findall(r'<line class="m" x1="([\d.]+)"', svg)]
    assert marks == sorted(marks)
    weights = torch.zeros(1, 1, 12)
    weights[0, 0, 6] = 1
    lone = AttentionMap("cross", weights, StepAxis(Role.LABEL, ("label",)), SOUND)
    pixels = Image.open(io.BytesIO(spectrogram.png(lone))).convert("RGB")
    left = pixels.width - spectrogram.EDGE - spectrogram.WIDTH
    row = spectrogram.EDGE + spectrogram.HIGH + 8 + spectrogram.ROW // 2
    blue = [x for x in range(left + 2, left + spectrogram.WIDTH - 2) if pixels.getpixel((x, row)) == spectrogram.SHADE]
    assert min(blue) == pytest.approx(left + 6 / 12 * spectrogram.WIDTH, abs=2)
    assert max(blue) == pytest.approx(left + 7 / 12 * spectrogram.WIDTH, abs=2)


def test_times_need_a_text_and_a_sound():
    over_time = AttentionMap("encoder.0.self", torch.full((1, 12, 12), 1 / 12), SOUND, SOUND)
    with pytest.raises(UsageError, match="times need attention from a text to a sound, but the keys of 'enc"):
        text_grid(over_time)
    assert spectrogram.svg(over_time).count("<image") == 2
