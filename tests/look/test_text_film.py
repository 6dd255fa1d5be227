"""Films of words: a frame for each query, its keys in the colours of the matrix."""

import io

import pytest
import torch

from saccade.core import AttentionMap, AttentionMaps, Prediction, Role, TextOutput, TokenAxis
from saccade.errors import UsageError
from saccade.look import film as module
from saccade.look import ramps, text_film
from saccade.look.figure import AttentionFigure
from saccade.look.film import film
from saccade.look.overlay import OverlayStyle

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'saccade[images]'")


def one_map(weights, queries, keys=None):
    axes = TokenAxis(Role.TARGET, queries), None if keys is None else TokenAxis(Role.SOURCE, keys)
    return AttentionMap("decoder.0.cross", torch.tensor(weights)[None], axes[0], axes[1] or axes[0])


def frames_of(data):
    with Image.open(io.BytesIO(data)) as opened:
        comment, seen = opened.info["comment"].decode().split("\n"), []
        for number in range(opened.n_frames):
            opened.seek(number)
            seen.append((opened.info["duration"], opened.convert("RGB")))
    return comment, seen


def test_a_film_of_words_has_a_frame_for_each_query():
    attention = one_map([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]], ("le", "chat"), ("the", "black", "cat"))
    labels, seen = frames_of(film(attention, title="A title"))
    assert labels == ["le", "chat"] and [duration for duration, _ in seen] == [700, 2000]
    assert seen[0][1].tobytes() != seen[1][1].tobytes() and seen[0][1].size == seen[1][1].size


def test_keys_have_the_colour_of_their_weight_in_every_frame():
    attention = one_map([[1.0, 0.0], [0.5, 0.5]], ("le", "chat"), ("the", "cat"))
    layout = text_film._layout(("le", "chat"), text_film.EDGE)
    keys = text_film._layout(("the", "cat"), layout.bottom + 2 * text_film.GAP)
    for sqrt in (False, True):
        shown = list(text_film.text_frames(attention, "", OverlayStyle(sqrt=sqrt)))
        levels = ramps.levels(attention.weights[0], sqrt=sqrt).tolist()
        for frame, row in zip(shown, levels, strict=True):
            for (x, y, _), level in zip(keys.boxes, row, strict=True):
                assert frame.getpixel((x + 10, y + 3)) == ramps.colours()[level]


def test_of_self_attention_the_query_is_marked_among_its_keys():
    first, second = text_film.text_frames(one_map([[1.0, 0.0], [0.0, 1.0]], ("le", "chat")), "", OverlayStyle())
    boxes = text_film._layout(("le", "chat"), text_film.EDGE).boxes
    for frame, at in ((first, 0), (second, 1)):
        marked = [frame.getpixel((x + width // 2, y + 1)) == text_film.MARK for x, y, width in boxes]
        assert marked == [number == at for number in range(2)]


def test_long_texts_are_set_in_lines_and_too_long_ones_refused(monkeypatch):
    words = tuple(f"word{number}" for number in range(60))
    layout = text_film._layout(words, 0)
    assert all(x + width <= text_film.WIDTH for x, _, width in layout.boxes)
    assert len({y for _, y, _ in layout.boxes}) > 3
    monkeypatch.setattr(module, "MOST", 3)
    with pytest.raises(UsageError, match=r"a film must have at most 3 keys, but 'decoder.0.cross' has 4"):
        film(one_map([[0.25] * 4], ("le",), tuple("abcd")))


def test_a_figure_of_a_text_is_written_as_a_film(tmp_path):
    attention = one_map([[1.0, 0.0], [0.5, 0.5]], ("le", "chat"), ("the", "cat"))
    prediction = Prediction({"text": "the cat"}, TextOutput("le chat"), {}, AttentionMaps([attention]))
    AttentionFigure.of(prediction).write(tmp_path / "film.gif")
    assert frames_of((tmp_path / "film.gif").read_bytes())[0] == ["le", "chat"]
