"""Figures: the page in a notebook, in a sandboxed frame; which map is chosen."""

import errno
import html
import os
import re

import pytest
import torch

from saccade.core import AttentionMap, AttentionMaps, Prediction, Role, TextOutput, TokenAxis
from saccade.errors import ResourceError, UsageError
from saccade.look.figure import AttentionFigure


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
