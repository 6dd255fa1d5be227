"""Films: one frame for each word, light where it looks, with the word below and the path of the gaze."""

import io
import itertools

import pytest
import torch

from saccade.core import AttentionMap, GridAxis, NodeAxis, StepAxis, TokenAxis
from saccade.core.axes import Role
from saccade.errors import UsageError
from saccade.look import film as module
from saccade.look.film import film, frames
from saccade.look.overlay import OverlayStyle
from saccade.look.replay import LIGHT
from tests.look.image_maps import at_cells, self_map, word_map

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'saccade[images]'")
WORDS = ("a", "red", "dog", "dog")
CELLS = [(0, 0), (1, 2), (0, 1), (0, 1)]
WHITE = torch.full((3, 40, 60), 255, dtype=torch.uint8)


def film_map():
    return word_map(at_cells(CELLS), WORDS, image=WHITE)


def test_a_film_has_one_frame_for_each_word_and_loops():
    with Image.open(io.BytesIO(film(film_map()))) as opened:
        assert (opened.format, opened.n_frames, opened.info["loop"]) == ("GIF", 4, 0)
        assert opened.info["comment"].decode().split("\n") == list(WORDS)
        seen = []
        for number in range(4):
            opened.seek(number)
            seen.append((opened.info["duration"], opened.convert("RGB").tobytes()))
    assert [duration for duration, _ in seen] == [700, 700, 700, 2000]
    assert all(a[1] != b[1] for a, b in itertools.combinations(seen, 2)), "also of a word that is repeated"


def test_each_frame_has_its_word_and_its_gaze():
    shown = frames(film_map())
    assert [frame.label for frame in shown] == list(WORDS)
    assert [frame.gaze for frame in shown] == [
        (pytest.approx((column + 0.5) / 3), pytest.approx((row + 0.5) / 2)) for row, column in CELLS
    ]


@pytest.mark.parametrize("smooth", [True, False])
def test_the_image_is_light_where_the_word_looks_and_dark_elsewhere(smooth):
    shown = frames(film_map(), OverlayStyle(smooth=smooth, opacity=1.0))
    high, wide = module.fit(film_map().keys, module.AREA)
    for frame, looked in zip(shown, CELLS, strict=True):
        brightness = {}
        for row, column in itertools.product(range(2), range(3)):
            x, y = round((column + 0.75) * wide / 3), round((row + 0.75) * high / 2)  # beside the path
            brightness[row, column] = sum(frame.image.getpixel((x, y)))
        assert max(brightness, key=brightness.get) == looked


def test_letters_are_read_faster_and_without_spaces(monkeypatch):
    texts = []
    monkeypatch.setattr(module, "_canvas", lambda image, word, text, progress: texts.append(text) or image)
    shown = frames(word_map(at_cells([(0, 0), (0, 1), (0, 2)]), ("c", "a", "t")))
    assert texts == ["c", "ca", "cat"]
    assert [frame.milliseconds for frame in shown] == [300, 300, 2000]


def test_only_words_over_an_image_or_over_words_make_a_film():
    nodes = NodeAxis(Role.GRAPH, ("a", "b"))
    with pytest.raises(UsageError, match="a film must show an image or words, but 'self' attends to nodes"):
        film(AttentionMap("self", torch.eye(2)[None], nodes, nodes))
    with pytest.raises(UsageError, match=r"those of 'encoder.0.self' are cells of the image; write a \.png"):
        film(self_map(torch.eye(7)))
    with pytest.raises(UsageError, match="a film must have 1 to 400 words, but 'cross' has 0"):
        film(word_map(torch.zeros(0, 6), ()))


def episode_map(keys, weights):
    colours = torch.arange(3, dtype=torch.uint8)[:, None, None, None] * 80 + 40
    stills = tuple(colours.expand(3, 3, 32, 48).contiguous())  # another grey at every step
    return AttentionMap("words", weights, StepAxis(Role.TARGET, ("forward", "left", "stop"), stills), keys)


def test_a_replay_shows_each_step_and_lights_the_words_it_attended_to():
    words = TokenAxis(Role.TEXT, ("go", "left", "now"))
    shown = frames(episode_map(words, torch.eye(3)[None]))
    assert [frame.label for frame in shown] == ["forward", "left", "stop"]
    assert [frame.gaze for frame in shown] == [None] * 3
    assert [frame.milliseconds for frame in shown] == [700, 700, 2000]
    for number, frame in enumerate(shown):
        assert frame.image.getpixel((frame.image.width // 2, 10)) == (40 + 80 * number,) * 3, "what was there"
    lit = [
        [
            x
            for x in range(frame.image.width)
            for y in range(frame.image.height)
            if frame.image.getpixel((x, y)) == LIGHT
        ]
        for frame in shown
    ]
    centres = [sum(columns) / len(columns) for columns in lit]
    assert centres == sorted(centres) and centres[0] + 20 < centres[1] < centres[2] - 20, "one word after another"


def test_a_replay_over_frames_lights_each_frame_where_it_was_looked_at():
    grid = GridAxis(Role.IMAGE, 2, 3, WHITE)
    cells = torch.eye(6)[[0, 2, 5]][None]
    shown = frames(episode_map(grid, cells), OverlayStyle(smooth=False))
    assert [frame.gaze for frame in shown] == [
        pytest.approx(point, abs=0.01) for point in ((1 / 6, 0.25), (5 / 6, 0.25), (5 / 6, 0.75))
    ]
    for number, frame in enumerate(shown):
        x, y = (round(part * size) for part, size in zip(frame.gaze, (490, 327), strict=True))
        lights = [
            frame.image.getpixel(((x + 20) % 490, (y + 20) % 327)),
            frame.image.getpixel(((x + 245) % 490, y + 20)),
        ]
        assert lights[0][0] > lights[1][0], f"step {number}"
        assert max(frame.image.getpixel((x + 20, y + 20))) <= 41 + 80 * number, "the frame of that step, not the first"
