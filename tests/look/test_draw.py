"""Drawings: what a person reads in the terminal, in an SVG, a PNG and in JSON is what the map holds."""

import builtins
import io
import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.core.task import AttentionMap, Axis, Prediction, TokenScores
from saccade.errors import UsageError
from saccade.look import draw
from saccade.look.labels import cells, clusters, cut, shown

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
XML = "{http://www.w3.org/2000/svg}"


def one_map(rows, columns, weights=None):
    if weights is None:
        weights = torch.rand(len(rows), len(columns)).softmax(-1)
    weights = torch.as_tensor(weights)[None]
    return AttentionMap("cross", weights, Axis("words", tuple(rows)), Axis("words", tuple(columns)))


SMALL = one_map(["le", "chat"], ["the", "cat", "!"], [[0.84, 0.16, 0.0], [0.3, 0.62, 0.08]])


@pytest.mark.parametrize(
    ("text", "width"), [("cat", 3), ("猫", 2), ("ねこ", 4), ("e\u0301te\u0301", 3), ("ｶ", 1), ("ＡＢ", 4), ("שלום", 4)]
)
def test_wide_letters_take_two_cells_and_marks_none(text, width):
    assert cells(text) == width


def test_labels_are_cut_between_letters():
    assert cut("antidisestablishment", 5) == "anti…"
    assert cut("日本語", 5) == "日本…"
    assert cut("日本語", 4) == "日…"
    assert cut("日本語", 6) == "日本語"
    assert clusters("e\u0301a") == ["e\u0301", "a"]


def test_labels_show_what_could_not_be_seen():
    assert shown(" the") == "␣the"
    assert shown("  ") == "␣␣"
    assert shown("a\n\x1b[31m\x7f") == "a␊␛[31m␡"
    assert shown("\u202eevil") == "\ufffdevil"
    assert shown("\ud800") == "\ufffd"
    assert shown("\uffff") == "\ufffd"
    assert shown("") == "∅"


def test_the_terminal_shows_a_matrix_in_blocks():
    assert draw.terminal(SMALL, width=60, colour=False).splitlines() == [
        "     t c",
        "     h a",
        "     e t !",
        "  le ██░░",
        "chat ▒▒▓▓░░",
        "",
        "░ 0.04  ▒ 0.21  ▓ 0.42  █ 0.63",
    ]


def test_wide_labels_stand_over_their_columns():
    lines = draw.terminal(one_map(["猫"], ["ね", "cat"], [[0.0, 1.0]]), width=60, colour=False).splitlines()
    assert lines[:4] == ["     c", "     a", "   ねt", "猫   ██"]


def test_colours_grow_lighter_with_the_weight():
    text = draw.terminal(SMALL, width=60, colour=True)
    row = text.splitlines()[3]
    shades = [sum(map(int, found)) for found in re.findall(r"\x1b\[48;2;(\d+);(\d+);(\d+)m  ", row)]
    assert shades[0] > shades[1] > shades[2]
    assert row.endswith("\x1b[0m"), "the colour ends with the row"
    assert ESCAPE.sub("", row) == "  le       "


def test_a_map_too_wide_for_the_terminal_becomes_a_list():
    assert draw.terminal(SMALL, width=9, colour=False).splitlines()[0].startswith(" le <- ")
    wide = one_map(
        ["le", "chat"], ["the", "cat", *"abcdefghijkl"], [[0.9, 0.1] + [0.0] * 12, [0.3, 0.6, 0.1] + [0] * 11]
    )
    assert draw.terminal(wide, width=30, colour=False).splitlines() == [
        "  le <- the 0.90, cat 0.10",
        "chat <- cat 0.60, the 0.30",  # 'a 0.10' has no room and is left out whole
    ]


LABEL = st.text(st.characters(exclude_categories=()), max_size=30)


@given(
    st.lists(LABEL, min_size=1, max_size=4),
    st.lists(LABEL, min_size=1, max_size=12),
    st.integers(12, 60),
    st.booleans(),
)
def test_no_line_is_wider_than_the_terminal(rows, columns, width, colour):
    for line in draw.terminal(one_map(rows, columns), width=width, colour=colour).split("\n"):
        plain = ESCAPE.sub("", line)
        assert cells(plain) <= width
        assert "\x1b" not in plain, "no label can send an escape code of its own"


@pytest.mark.parametrize("drawing", [lambda read: draw.terminal(read, width=80, colour=False), draw.svg, draw.png])
def test_only_one_map_can_be_drawn(drawing):
    two = AttentionMap("cross", torch.rand(2, 1, 1), Axis("words", ("a",)), Axis("words", ("b",)))
    with pytest.raises(ValueError, match="'cross' must be one map, but has 2 heads"):
        drawing(two)


def test_an_empty_map_is_drawn_too():
    empty = one_map([], ["a"], torch.zeros(0, 1))
    assert draw.terminal(empty, width=80, colour=False) == "(an empty map)"
    assert ElementTree.fromstring(draw.svg(empty)).tag == f"{XML}svg"
    assert draw.png(empty).startswith(b"\x89PNG")


def test_every_cell_of_an_svg_tells_its_weight():
    tree = ElementTree.fromstring(draw.svg(SMALL, "le chat"))
    cells_told = {
        rect.findtext(f"{XML}title"): rect.get("fill-opacity") for rect in tree.iter(f"{XML}rect") if len(rect)
    }
    assert list(cells_told) == [
        *("le <- the: 0.84", "le <- cat: 0.16", "le <- !: 0.00"),
        *("chat <- the: 0.30", "chat <- cat: 0.62", "chat <- !: 0.08"),
    ]
    assert (cells_told["le <- the: 0.84"], cells_told["le <- !: 0.00"]) == ("1", "0")
    assert tree.findtext(f"{XML}title") == "le chat"
    assert "2 rows looking at 3 columns" in tree.findtext(f"{XML}desc")
    assert "prefers-color-scheme" in tree.findtext(f"{XML}style")


def test_labels_of_an_svg_are_text_whatever_they_hold():
    words = ["</text><script>alert(1)</script>", "\"quoted' & <b>", "\x00\x1b\ufffe", "a" * 50]
    tree = ElementTree.fromstring(draw.svg(one_map(words, words), "<&>\x00"))
    assert not list(tree.iter(f"{XML}script"))
    texts = [text for node in tree.iter(f"{XML}text") for text in node.itertext()]
    assert texts.count("\"quoted' & <b>") == 2
    assert "a" * 19 + "…" in texts
    assert "a" * 50 in texts, "a cut label tells itself whole when pointed at"


def test_a_png_is_dark_where_the_weight_is():
    image_module = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'saccade[images]'")
    weights = torch.eye(4)
    image = image_module.open(io.BytesIO(draw.png(one_map(list("abcd"), list("efgh"), weights))))
    colours = {colour: count for count, colour in image.getcolors(1 << 20)}
    from saccade.look import picture

    assert colours[picture.SHADE] == 4 * picture.CELL**2
    assert image.getpixel((0, 0)) == picture.PAPER


def test_a_png_has_letters_for_words_it_can_write():
    pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'saccade[images]'")
    from saccade.look import picture

    if not any("CJK" in str(font.path) for font in picture._fonts()):
        pytest.skip("no Noto CJK font on this system")
    assert "CJK" in str(picture._font("猫").path)
    assert picture._text("猫").tobytes() != picture._text("犬").tobytes(), "not the box for a missing letter"


def test_a_png_without_pillow_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def missing(name, *more):
        if name.startswith("PIL"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UsageError, match=r"pip install 'saccade\[images\]'"):
        draw.png(SMALL)


def test_a_prediction_as_json():
    axis = Axis("words", (" ca", "t"), (0, 0))
    read = AttentionMap("cross", torch.tensor([[[0.123456789, 0.876543211]]]), Axis("words", ("chat",)), axis)
    best = Prediction(
        *("cat", "chat", {"log probability": float("-inf"), "length": 1.0}, (read,)),
        readings=(TokenScores("steps", axis, (2.0, 3.5)),),
        alignment=SMALL,
        others=(Prediction("cat", "chatte"),),
    )
    value = draw.as_json(best)
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    pieces = {"kind": "words", "labels": [" ca", "t"], "words": [0, 0]}
    assert value == {
        "input": "cat",
        "output": "chat",
        "scores": {"log probability": None, "length": 1.0},
        "alignment": "0-0 1-1",
        "maps": [
            {
                "name": "cross",
                "queries": {"kind": "words", "labels": ["chat"], "words": []},
                "keys": pieces,
                "weights": [[[0.123457, 0.876543]]],
            }
        ],
        "readings": [{"name": "steps", "axis": pieces, "values": [2.0, 3.5]}],
        "others": [draw.as_json(Prediction("cat", "chatte"))],
    }
    assert value["others"][0]["alignment"] is None
