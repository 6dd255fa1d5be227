"""Drawings: what a person reads in the terminal, in an SVG, a PNG and in JSON is what the map holds."""

import base64
import builtins
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade import studio
from saccade.core.attention import AttentionMap, AttentionMaps
from saccade.core.axes import GridAxis, Role, TokenAxis
from saccade.core.fields import Image
from saccade.core.outputs import TextOutput
from saccade.core.prediction import Prediction, TokenScores
from saccade.core.serialize import input_to_json, map_to_json
from saccade.errors import UsageError
from saccade.look import draw, ramps
from saccade.look.labels import cells, clusters, truncate, visible
from saccade.look.overlay import OverlayStyle
from saccade.look.panels import panels
from saccade.look.picture import png
from saccade.look.serialize import prediction_to_json

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
XML = "{http://www.w3.org/2000/svg}"


def one_map(rows, columns, weights=None):
    if weights is None:
        weights = torch.rand(len(rows), len(columns)).softmax(-1)
    weights = torch.as_tensor(weights)[None]
    return AttentionMap("cross", weights, TokenAxis(Role.TEXT, tuple(rows)), TokenAxis(Role.TEXT, tuple(columns)))


SMALL = one_map(["le", "chat"], ["the", "cat", "!"], [[0.84, 0.16, 0.0], [0.3, 0.62, 0.08]])


@pytest.mark.parametrize(
    ("text", "width"), [("cat", 3), ("猫", 2), ("ねこ", 4), ("e\u0301te\u0301", 3), ("ｶ", 1), ("ＡＢ", 4), ("שלום", 4)]
)
def test_wide_letters_take_two_cells_and_marks_none(text, width):
    assert cells(text) == width


def test_labels_are_cut_between_letters():
    assert truncate("antidisestablishment", 5) == "anti…"
    assert truncate("日本語", 5) == "日本…"
    assert truncate("日本語", 4) == "日…"
    assert truncate("日本語", 6) == "日本語"
    assert clusters("e\u0301a") == ["e\u0301", "a"]


def test_labels_show_what_could_not_be_seen():
    assert visible(" the") == "␣the"
    assert visible("  ") == "␣␣"
    assert visible("a\n\x1b[31m\x7f") == "a↵^[[31m^?"
    assert visible("\t\r\x00") == "⇥^M^@"
    assert visible("\u202eevil") == "\ufffdevil"
    assert visible("\ud800") == "\ufffd"
    assert visible("\uffff") == "\ufffd"
    assert visible("") == "∅"


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
    shades = [sum(map(int, parts)) for parts in re.findall(r"\x1b\[48;2;(\d+);(\d+);(\d+)m  ", row)]
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


@pytest.mark.parametrize("drawing", [lambda attention: draw.terminal(attention, width=80, colour=False), draw.svg, png])
def test_only_one_map_can_be_drawn(drawing):
    two = AttentionMap("cross", torch.rand(2, 1, 1), TokenAxis(Role.TEXT, ("a",)), TokenAxis(Role.TEXT, ("b",)))
    with pytest.raises(ValueError, match="'cross' must have one head, but has 2"):
        drawing(two)


def test_an_empty_map_is_drawn_too():
    empty = one_map([], ["a"], torch.zeros(0, 1))
    assert draw.terminal(empty, width=80, colour=False) == "(an empty map)"
    assert ElementTree.fromstring(draw.svg(empty)).tag == f"{XML}svg"
    assert png(empty).startswith(b"\x89PNG")


def test_every_cell_of_an_svg_tells_its_weight():
    tree = ElementTree.fromstring(draw.svg(SMALL, "le chat"))
    cells_told = {rect.findtext(f"{XML}title"): rect.get("class") for rect in tree.iter(f"{XML}rect") if len(rect)}
    assert list(cells_told) == [
        *("le <- the: 0.84", "le <- cat: 0.16", "le <- !: 0.00"),
        *("chat <- the: 0.30", "chat <- cat: 0.62", "chat <- !: 0.08"),
    ]
    assert (cells_told["le <- the: 0.84"], cells_told["le <- !: 0.00"]) == ("l63", "l0")
    assert tree.findtext(f"{XML}title") == "le chat"
    assert "2 queries (rows) and 3 keys (columns)" in tree.findtext(f"{XML}desc")
    assert "prefers-color-scheme" in tree.findtext(f"{XML}style")


def test_colours_may_be_of_the_square_root_of_a_weight_and_the_scale_says_so():
    cells_told, texts = {}, {}
    for sqrt in (False, True):
        tree = ElementTree.fromstring(draw.svg(SMALL, "le chat", OverlayStyle(sqrt=sqrt)))
        told = {rect.findtext(f"{XML}title"): rect.get("class") for rect in tree.iter(f"{XML}rect") if len(rect)}
        cells_told[sqrt] = told["le <- cat: 0.16"]
        texts[sqrt] = [text for node in tree.iter(f"{XML}text") for text in node.itertext()]
    assert cells_told == {False: "l12", True: f"l{round(63 * (0.16 / 0.84) ** 0.5)}"}
    assert "0.84" in texts[False] and "0.84 (square-root colours)" in texts[True]


def test_figures_have_the_colours_of_the_studio():
    script = (Path(studio.__file__).parent / "static/studio.js").read_text()
    for name, stops in (("light", ramps.LIGHT), ("dark", ramps.DARK)):
        found = re.search(rf"^  {name}: (\[\[.*\]\]),$", script, re.MULTILINE)
        assert json.loads(found[1]) == [list(colour) for colour in stops]
        assert ramps.colours(stops)[0] == stops[0] and ramps.colours(stops)[-1] == stops[-1]


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
    image = image_module.open(io.BytesIO(png(one_map(list("abcd"), list("efgh"), weights))))
    colours = {colour: count for count, colour in image.getcolors(1 << 20)}
    from saccade.look import picture

    assert 4 * picture.CELL**2 <= colours[ramps.LIGHT[-1]] < 5 * picture.CELL**2, "four cells and the end of the scale"
    assert len(colours.keys() & set(ramps.colours())) > 20, "the scale"
    assert image.getpixel((0, 0)) == picture.PAPER
    style = OverlayStyle(sqrt=True)
    rooted = image_module.open(io.BytesIO(png(one_map(["a"], ["b", "c"], [[0.25, 1.0]]), style=style)))
    half = {colour: count for count, colour in rooted.getcolors(1 << 20)}[ramps.colours()[32]]
    assert half >= picture.CELL**2, "a quarter is half of the square root"


def test_a_png_has_letters_for_words_it_can_write():
    pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'saccade[images]'")
    from saccade.look import fonts

    if not any("CJK" in str(font.path) for font in fonts.system_fonts()):
        pytest.skip("no Noto CJK font on this system")
    assert "CJK" in str(fonts.font_for("猫").path)
    assert fonts.text_mask("猫").tobytes() != fonts.text_mask("犬").tobytes(), "not the box for a missing letter"
    assert fonts.text_mask("cat", 48).height == 2 * fonts.text_mask("cat", 24).height


def test_a_png_without_pillow_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def missing(name, *more):
        if name.startswith("PIL"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UsageError, match=r"pip install 'saccade\[images\]'"):
        png(SMALL)


def test_a_prediction_as_json():
    axis = TokenAxis(Role.SOURCE, (" ca", "t"), (0, 0))
    cross = AttentionMap("cross", torch.tensor([[[0.123456789, 0.876543211]]]), TokenAxis(Role.TARGET, ("chat",)), axis)
    other = Prediction({"source": "cat"}, TextOutput("chatte"))
    best = Prediction(
        {"source": "cat"},
        TextOutput("chat"),
        {"log probability": float("-inf"), "length": 1.0},
        AttentionMaps([cross]),
        token_scores=(TokenScores("steps", axis, (2.0, 3.5)),),
        alignment=SMALL,
        alternatives=(other,),
    )
    value = prediction_to_json(best)
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    pieces = {"kind": "tokens", "role": "source", "labels": [" ca", "t"], "words": [0, 0]}
    assert value == {
        "inputs": {"source": "cat"},
        "output": {"kind": "text", "text": "chat"},
        "scores": {"log probability": None, "length": 1.0},
        "alignment": "0-0 1-1",
        "maps": [
            {
                "name": "cross",
                "heads": 1,
                "queries": {"kind": "tokens", "role": "target", "labels": ["chat"], "words": []},
                "keys": pieces,
                "weights": [[[0.123457, 0.876543]]],
            }
        ],
        "token_scores": [{"name": "steps", "axis": pieces, "values": [2.0, 3.5]}],
        "alternatives": [prediction_to_json(other)],
    }
    assert value["alternatives"][0]["alignment"] is None


@pytest.mark.parametrize(("encoding", "largest"), [("uint8", 255), ("uint16", 65535)])
def test_packed_weights_are_those_of_the_map(encoding, largest):
    axis = TokenAxis(Role.TEXT, tuple("abcd"), (0, 0, 1, 1))
    attention = AttentionMap("self", torch.rand(2, 4, 4).softmax(-1), axis, axis)
    value = map_to_json(attention, encoding, limit=3)
    packed = torch.frombuffer(bytearray(base64.b64decode(value["weights"])), dtype=getattr(torch, encoding))
    assert (
        value["queries"]
        == value["keys"]
        == {"kind": "tokens", "role": "text", "labels": list("abc"), "words": [0, 0, 1]}
    )
    torch.testing.assert_close(
        packed.float().reshape(2, 3, 3) / largest, attention.weights[:, :3, :3], atol=0.5 / largest + 1e-7, rtol=0
    )
    assert "weights" not in map_to_json(attention, None)


PIXELS = torch.arange(48, dtype=torch.uint8).reshape(3, 4, 4) * 5


def over_image(weights, queries, extra=()):
    weights = torch.as_tensor(weights, dtype=torch.float32)[None]
    return AttentionMap("cross", weights, queries, GridAxis(Role.IMAGE, 2, 2, PIXELS, extra))


GRID = over_image([[0.7, 0.1, 0.0, 0.2], [0.0, 0.1, 0.8, 0.1]], TokenAxis(Role.TARGET, ("dog", "sky")))


BLOCKS = OverlayStyle(smooth=False)


def test_without_colour_the_weights_are_shades_beside_the_image():
    lines = draw.terminal(GRID, width=90, colour=False, style=BLOCKS).splitlines()
    assert lines[0].split() == ["image", "dog", "sky"]
    assert lines[1][28:54] == "█" * 13 + "░" * 13 and lines[13][28:54].rstrip() == " " * 13 + "▒" * 13
    assert lines[1][56:].rstrip() == " " * 13 + "░" * 13 and lines[13][56:] == "█" * 13 + "░" * 13
    assert len(lines) == 1 + 13 + 2 and "█ 0.60" in lines[-1]
    narrow = draw.terminal(GRID, width=30, colour=False, style=BLOCKS).splitlines()
    assert [line for line in narrow if line in ("image", "dog", "sky")] == ["image", "dog", "sky"], (
        "one below the other"
    )


PIXEL = re.compile(r"(?:\x1b\[38;2;(\d+);(\d+);(\d+)m)?(?:\x1b\[48;2;(\d+);(\d+);(\d+)m)?▀")


def half_block_rows(line):
    """The colours of the upper and the lower pixels of a line."""
    upper, lower, colours = [], [], [None, None]
    for match in PIXEL.finditer(line):
        parts = [match.groups()[:3], match.groups()[3:]]
        colours = [tuple(map(int, part)) if part[0] else last for part, last in zip(parts, colours, strict=True)]
        upper.append(colours[0])
        lower.append(colours[1])
    return upper, lower


def test_in_colour_the_image_is_drawn_in_half_blocks_with_the_weights_over_it():
    lines = draw.terminal(GRID, width=100, colour=True, style=BLOCKS).splitlines()
    assert ESCAPE.sub("", lines[0]).split() == ["dog", "sky"]
    assert all(cells(ESCAPE.sub("", line)) <= 100 for line in lines)
    rows = [row for line in lines[1:14] for row in half_block_rows(line)]
    assert [len(row) for row in rows] == [52] * 26, "two panels of 26 pixels"
    without = tuple(PIXELS[:, 2, 0].tolist())
    assert rows[13][26:28] != [without] * 2 and rows[13][0] == without, "dog does not look down, sky does"
    assert rows[0][0][0] > rows[25][0][0] + 50, "the largest weight of dog is red"


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("width", [8, 20, 200])
def test_no_panel_is_wider_than_the_terminal(width, colour):
    wide = GridAxis(Role.IMAGE, 1, 300, torch.zeros(3, 8, 240, dtype=torch.uint8), ("[CLS]",))
    words = TokenAxis(Role.TARGET, ("a", "b" * 300))
    attention = AttentionMap("cross", torch.rand(1, 2, 301).softmax(-1), words, wide)
    for line in draw.terminal(attention, width=width, colour=colour).splitlines():
        assert cells(ESCAPE.sub("", line)) <= width


def test_a_grid_of_queries_is_shown_by_its_mean_and_its_class_token():
    axis = GridAxis(Role.IMAGE, 2, 2, PIXELS, ("[CLS]",))
    weights = torch.rand(1, 5, 5).softmax(-1)
    first, second = panels(AttentionMap("self", weights, axis, axis))
    assert (first.label, second.label) == ("[CLS]", "mean of 4 cells")
    torch.testing.assert_close(first.weights, weights[0, 0, 1:].reshape(2, 2))
    torch.testing.assert_close(second.weights, weights[0, 1:, 1:].mean(0).reshape(2, 2))
    assert second.extra == (("[CLS]", pytest.approx(float(weights[0, 1:, 0].mean()))),)


def test_an_svg_of_a_grid_lies_over_its_image():
    tree = ElementTree.fromstring(draw.svg(GRID, "a <dog>", BLOCKS))
    (image,) = tree.iter(f"{XML}image")
    assert image.get("href").startswith("data:image/png;base64,")
    assert [use.get("href") for use in tree.iter(f"{XML}use")] == ["#image"] * 2, "the image is in the file once"
    opacity = {
        rect.findtext(f"{XML}title"): float(rect.get("fill-opacity")) for rect in tree.iter(f"{XML}rect") if len(rect)
    }
    assert opacity["sky <- 1,0: 0.80"] == 0.7 and opacity["dog <- 1,0: 0.00"] == 0
    assert "2 queries over a grid of 2 x 2 cells" in tree.findtext(f"{XML}desc")
    smooth = ElementTree.fromstring(draw.svg(GRID, "a <dog>"))
    assert len(list(smooth.iter(f"{XML}image"))) == 3, "the image and the smooth weights of two words"
    assert {rect.get("fill-opacity") for rect in smooth.iter(f"{XML}rect") if len(rect)} == {"0"}


def test_a_png_of_a_grid_shows_the_image_where_no_weight_is():
    image_module = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'saccade[images]'")
    from saccade.look import picture

    whole = over_image([[1.0, 0.0, 0.0, 0.0]], TokenAxis(Role.TARGET, ("dog",)))
    image = image_module.open(io.BytesIO(png(whole, style=BLOCKS)))
    assert image.getpixel((picture.EDGE + 638, picture.EDGE + 638)) == tuple(PIXELS[:, 3, 3].tolist())
    red, _, blue = image.getpixel((picture.EDGE + 2, picture.EDGE + 2))
    assert red > 150 and blue < 100, "the cell with all the weight is covered"
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).reshape(image.height, image.width, 3)
    inside = pixels[picture.EDGE : picture.EDGE + 640, picture.EDGE : picture.EDGE + 640].float()
    row, column = divmod(int((inside[..., 0] - inside[..., 2]).argmax()), 640)
    assert row < 320 and column < 320


def test_a_png_has_a_panel_for_each_word_and_a_title_above():
    image_module = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'saccade[images]'")
    from saccade.look import picture

    many = over_image(torch.rand(8, 4).softmax(-1), TokenAxis(Role.TARGET, tuple("abcdefgh")))
    image = image_module.open(io.BytesIO(png(many)))
    side = 300 + picture.EDGE
    assert image.size == (picture.EDGE + 6 * side, picture.EDGE + 2 * (side + picture.LINE)), "two lines of six"
    titled = image_module.open(io.BytesIO(png(many, "letters")))
    assert titled.height == image.height + 36 + 4


def test_inputs_become_json_that_their_fields_read_again():
    image = Image("image")
    url = input_to_json(PIXELS)
    assert image.read(url) == base64.b64decode(url.partition(",")[2])
    assert input_to_json(b"\x89PNG123").startswith("data:image/png;base64,")
    assert input_to_json(torch.tensor([1.0, 2.0])) == [1.0, 2.0]
    assert input_to_json("text") == "text"
