"""Figures: the page in a notebook, in a sandboxed frame; which map is chosen."""

import errno
import html
import os
import re
from dataclasses import replace

import pytest
import torch

from saccade.core import AttentionMap, AttentionMaps, GridAxis, Prediction, Role, TextOutput, TokenAxis
from saccade.errors import ResourceError, UsageError
from saccade.look.figure import AttentionFigure
from saccade.look.overlay import OverlayStyle
from saccade.model import ModelPrediction
from tests.look.image_maps import gradient, self_map


def test_a_notebook_gets_the_page_in_a_frame_of_its_own():
    axis = TokenAxis(Role.TEXT, ("a", '"><script>alert(1)</script>'))
    maps = AttentionMaps([AttentionMap("self", torch.rand(2, 2, 2).softmax(-1), axis, axis)])
    figure = AttentionFigure.of(Prediction({"text": 'in "quotes" <b>'}, TextOutput("out"), {}, maps))
    shown = figure._repr_html_()
    frame = re.fullmatch(
        r'<iframe title="([^"]*)" sandbox="allow-scripts" style="[^"]*" srcdoc="([^"]*)"></iframe>', shown
    )
    assert frame is not None
    assert html.unescape(frame[1]) == 'in "quotes" <b> - self'
    assert html.unescape(frame[2]) == figure.page()


def test_the_map_is_chosen_by_layer_and_head():
    source, target = TokenAxis(Role.SOURCE, ("a", "b")), TokenAxis(Role.TARGET, ("c", "d"))
    maps = [AttentionMap(f"decoder.{n}.cross", torch.eye(2).expand(2, 2, 2), target, source) for n in range(2)]
    prediction = Prediction({"source": "a b"}, TextOutput("c d"), {}, AttentionMaps(maps))
    assert AttentionFigure.of(prediction).attention.name == "decoder.1.cross"
    assert AttentionFigure.of(prediction, "decoder.0.cross", 1).alignment == "0-0 1-1"
    with pytest.raises(UsageError, match=r"no attention 'decoder.0.crss'; did you mean 'decoder.0.cross'"):
        AttentionFigure.of(prediction, "decoder.0.crss")
    with pytest.raises(UsageError, match=r"head must be 0 to 1 in 'decoder.0.cross', but is 2"):
        AttentionFigure.of(prediction, "decoder.0.cross", 2)
    with pytest.raises(UsageError, match="this model has no attention to show"):
        AttentionFigure.of(Prediction({}, TextOutput("")))


def caption(**more):
    words = TokenAxis(Role.TARGET, ("a", " d", "og"), (0, 1, 1))
    grid = GridAxis(Role.IMAGE, 2, 3, gradient())
    weights = torch.zeros(2, 3, 6)
    weights[:, 0, 0] = weights[:, 1, 5] = weights[:, 2, 5] = 1
    cross = AttentionMap("decoder.0.cross", weights, words, grid)
    layers = [self_map(torch.eye(7).expand(2, 7, 7), name=f"encoder.{number}.self") for number in range(2)]
    alignment = AttentionMap("decoder.0.cross", weights[:1], words, grid)
    maps = AttentionMaps([*layers, cross])
    return Prediction({"image": b"\xff\xd8\xff"}, TextOutput("a dog"), {}, maps, alignment=alignment, **more)


def test_a_caption_has_a_gaze_for_each_word_and_no_alignment_of_words():
    figure = AttentionFigure.of(caption())
    assert figure.alignment == "" and figure.attention.queries.labels == ("a", "dog")
    value = figure.to_json()
    assert value["alignment"] is None
    assert value["gaze"] == [{"word": "a", "x": 0.1667, "y": 0.25}, {"word": "dog", "x": 0.8333, "y": 0.75}]
    assert len(value["images"]) == 1 and {entry["keys"]["image"] for entry in value["maps"]} == {0}
    assert value["maps"][0]["keys"]["size"] == [60, 40]
    assert ModelPrediction.of(caption()).to_json()["gaze"] == value["gaze"]


def test_a_figure_over_an_image_is_titled_by_its_texts_and_its_output():
    assert "<title>a dog - Decoder 0 · cross-attention</title>" in AttentionFigure.of(caption()).page()
    asked = replace(caption(), inputs={"image": b"", "question": "what is it?"}, output=TextOutput("dog"))
    assert "<title>what is it? → dog - Decoder 0 · cross-attention</title>" in AttentionFigure.of(asked).page()


def test_a_drawing_is_titled_by_its_map_and_head():
    axis = TokenAxis(Role.TEXT, ("a", "b"))
    maps = AttentionMaps([AttentionMap("self", torch.rand(2, 2, 2).softmax(-1), axis, axis)])
    prediction = Prediction({"text": "a b"}, TextOutput("out"), {}, maps)
    for head, title in ((1, "a b - self · head 1"), (None, "a b - self · mean of 2 heads")):
        svg = AttentionFigure.of(prediction, "self", head).render("svg").decode()
        assert svg.count(f">{title}<") == 2, "the title of the file, and above the map"
    long = replace(prediction, inputs={"text": "many words " * 40})
    svg = AttentionFigure.of(long, "self", 1).render("svg").decode()
    assert re.search(r">many words [^<]*… - self · head 1</text>", svg), (
        "a long text is cut, the map and the head are not"
    )


def test_a_cell_of_the_image_can_be_the_query():
    figure = AttentionFigure.of(caption(), style=OverlayStyle(at=(1, 0)))
    assert figure.attention.name == "encoder.1.self", "the last layer whose queries are cells"
    assert figure.terminal(100, colour=False).splitlines()[0].split() == ["image", "1,0"]
    with pytest.raises(UsageError, match=r"the queries of 'decoder.0.cross' are tokens; choose a layer of self-att"):
        AttentionFigure.of(caption(), "decoder.0.cross", style=OverlayStyle(at=(0, 0)))


def test_a_film_is_written_by_its_suffix(tmp_path):
    pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'saccade[images]'")
    AttentionFigure.of(caption()).write(tmp_path / "film.gif")
    assert (tmp_path / "film.gif").read_bytes().startswith(b"GIF89a")
    endings = r"--out must end on .html, .svg, .pdf, .png, .gif, .json, .TextGrid or .srt, but ends on '.bmp'"
    with pytest.raises(UsageError, match=endings):
        AttentionFigure.of(caption()).write(tmp_path / "film.bmp")


@pytest.mark.parametrize("suffix", ["svg", "png", "html", "json"])
def test_a_full_disk_leaves_the_old_file_and_no_empty_one(tmp_path, monkeypatch, suffix):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    axis = TokenAxis(Role.TEXT, ("a", "b"))
    maps = AttentionMaps([AttentionMap("self", torch.rand(2, 2, 2).softmax(-1), axis, axis)])
    figure = AttentionFigure.of(Prediction({"text": "a b"}, TextOutput("out"), {}, maps))
    path = tmp_path / f"a.{suffix}"
    monkeypatch.setattr(os, "fsync", full)
    for before in (None, b"old"):
        if before is not None:
            path.write_bytes(before)
        with pytest.raises(
            ResourceError, match=rf"cannot write .*a\.{suffix}: No space left on device; choose another"
        ):
            figure.write(path)
        assert [entry.read_bytes() for entry in tmp_path.iterdir()] == ([] if before is None else [before])


def test_a_notebook_refuses_a_page_that_is_too_large_and_names_both_numbers(monkeypatch):
    axis = TokenAxis(Role.TEXT, ("a", "b"))
    maps = AttentionMaps([AttentionMap("self", torch.rand(2, 2, 2).softmax(-1), axis, axis)])
    figure = AttentionFigure.of(Prediction({"text": "a b"}, TextOutput("out"), {}, maps))
    monkeypatch.setattr("saccade.look.figure.NOTEBOOK", 7)
    assert "at most 7 weights of attention, but these maps have 8" in figure._repr_html_()
    assert "<iframe" not in figure._repr_html_()


def test_the_page_opens_with_the_map_and_the_head_of_the_figure():
    axis = TokenAxis(Role.TEXT, ("a", "b"))
    maps = [AttentionMap(f"encoder.{n}.self", torch.rand(2, 2, 2).softmax(-1), axis, axis) for n in range(2)]
    prediction = Prediction({"text": "a b"}, TextOutput("out"), {}, AttentionMaps(maps))
    assert '"start":{"map":1,"head":0}' in AttentionFigure.of(prediction, "encoder.1.self", 0).page()
    assert '"start":{"map":0,"head":"mean"}' in AttentionFigure.of(prediction, "encoder.0.self").page()
    assert "<title>a b - Layer 1 \u00b7 self-attention</title>" in AttentionFigure.of(prediction).page()
