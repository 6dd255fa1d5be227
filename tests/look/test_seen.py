"""What a notebook shows: the whole page in a frame that can reach nothing around it."""

import html
import re

import torch

from saccade.core.task import AttentionMap, Axis, Prediction
from saccade.look.figure import AttentionFigure


def test_a_notebook_gets_the_page_in_a_frame_of_its_own():
    axis = Axis("words", ("a", '"><script>alert(1)</script>'))
    read = AttentionMap("self", torch.rand(2, 2, 2).softmax(-1), axis, axis)
    seen = AttentionFigure.of(Prediction('in "quotes" <b>', "out", {}, (read,)))
    shown = seen._repr_html_()
    frame = re.fullmatch(
        r'<iframe title="([^"]*)" sandbox="allow-scripts" style="[^"]*" srcdoc="([^"]*)"></iframe>', shown
    )
    assert frame is not None
    assert html.unescape(frame[1]) == 'in "quotes" <b> - self'
    assert html.unescape(frame[2]) == seen.page()
