"""Vector PDFs: the drawing of the SVG, with every label as text that can be read and copied, or as a fine picture."""

import re
import zlib

import pytest
import torch

from saccade.core import AttentionMap, AttentionMaps, GridAxis, NodeAxis, Prediction, Role, TextOutput, TokenAxis
from saccade.look import draw, fonts, pdf_text, ramps
from saccade.look.figure import AttentionFigure
from saccade.look.pdf import pdf
from saccade.look.pdf_text import needs_shaping, outlines
from saccade.look.truetype import TrueType
from tests.look.image_maps import gradient


def one_map(rows, columns, weights=None):
    weights = torch.rand(len(rows), len(columns)).softmax(-1) if weights is None else torch.tensor(weights)
    return AttentionMap("cross", weights[None], TokenAxis(Role.TEXT, tuple(rows)), TokenAxis(Role.TEXT, tuple(columns)))


def streams(data):
    """Return the uncompressed streams of a PDF."""
    found = re.finditer(rb"<< ([^\n]*)/Length (\d+) >>\nstream\n", data)
    return [zlib.decompress(data[match.end() : match.end() + int(match[2])]) for match in found]


def content(data):
    return next(part for part in (stream.decode("latin-1") for stream in streams(data)) if " cm\n" in part)


def test_every_object_is_where_the_table_says():
    data = pdf(draw.svg(one_map(["le", "chat"], ["the", "cat"]), "A title"))
    assert data.startswith(b"%PDF-1.5") and data.rstrip().endswith(b"%%EOF")
    table = int(re.search(rb"startxref\n(\d+)", data)[1])
    assert data[table:].startswith(b"xref")
    offsets = [int(match) for match in re.findall(rb"(\d{10}) 00000 n", data)]
    assert [data[at:].split(b" ", 1)[0] for at in offsets] == [str(n).encode() for n in range(1, len(offsets) + 1)]
    assert ("\ufeffA title".encode("utf-16-be").hex()).encode() in data


def test_cells_have_the_colours_of_the_studio():
    shown = content(pdf(draw.svg(one_map(["le"], ["the", "cat"], [[1.0, 0.0]]))))
    for colour in (ramps.LIGHT[-1], ramps.LIGHT[0]):
        parts = " ".join(f"{part / 255:.4f}".rstrip("0").rstrip(".") or "0" for part in colour)
        assert re.search(rf"{re.escape(parts)} rg\n[\d. ]+ re f", shown), colour


def test_labels_are_glyphs_of_an_embedded_font_that_can_be_copied():
    if not any(outlines(path) for path in fonts.font_paths()):
        pytest.skip("no TrueType font on this system")
    data = pdf(draw.svg(one_map(["ча\u0448ка", "π→∞"], ["naïve", "␣it"]), "Título"))
    assert b"/FontFile2" in data and b"/Helvetica" not in data
    table = next(stream.decode() for stream in streams(data) if b"beginbfchar" in stream)
    letters = {chr(int(code, 16)) for code in re.findall(r"<[0-9A-F]{4}> <([0-9A-F]{4})>", table)}
    assert set("чашкаπ→∞naïve␣itTítulo") <= letters
    assert len(data) < 150_000, "only the outlines that are used"


def test_a_subset_has_the_outlines_that_are_used_and_no_others():
    path = next((path for path in fonts.font_paths() if outlines(path)), None)
    if path is None:
        pytest.skip("no TrueType font on this system")
    font = TrueType(path)
    glyphs = [font.glyph(letter) for letter in "aé"]
    assert all(glyphs) and font.glyph("\U0010ffff") == 0
    (folder,) = [path.parent]
    small = font.subset(glyphs)
    assert len(small) < path.stat().st_size / 3, folder
    again = TrueType(_written(small))
    assert again._outline(glyphs[0]) == font._outline(glyphs[0]).ljust(len(again._outline(glyphs[0])), b"\0")
    assert again._outline(font.glyph("b")) == b"" and again.advance(glyphs[0]) == font.advance(glyphs[0])
    pillow = pytest.importorskip("PIL.ImageFont")
    assert pillow.truetype(str(path), 1000).getlength("a") == pytest.approx(font.advance(glyphs[0]), abs=1)


def _written(data, name="subset.ttf"):
    """Return a file whose font has a table of characters, as TrueType needs one to be read."""
    import tempfile
    from pathlib import Path

    from saccade.look import truetype

    source = truetype.TrueType(next(path for path in fonts.font_paths() if outlines(path)))
    count = int.from_bytes(data[4:6], "big")
    tables = {}
    for at in range(count):
        record = data[12 + 16 * at : 28 + 16 * at]
        offset, size = int.from_bytes(record[8:12], "big"), int.from_bytes(record[12:16], "big")
        tables[record[:4].decode("latin-1")] = data[offset : offset + size]
    file = Path(tempfile.mkdtemp()) / name
    file.write_bytes(truetype._font_file({**tables, "cmap": source._table("cmap")}))
    return file


@pytest.mark.parametrize("text", ["שלום", "مرحبا", "हिन्दी", "e\u0301", "猫\U000e0100"])
def test_text_that_is_more_than_its_letters_in_a_row_is_a_picture(text):
    pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'saccade[images]'")
    assert needs_shaping(text)
    data = pdf(draw.svg(one_map([text], ["the"])))
    assert data.count(b"/SMask") == 1 and "/T0 Do" in content(data)


def test_without_fonts_ascii_is_in_helvetica(monkeypatch):
    monkeypatch.setattr(pdf_text, "font_paths", tuple)
    data = pdf(draw.svg(one_map(["a (b) \\"], ["the"])))
    assert b"/BaseFont /Helvetica" in data and r"(a \(b\) \\) Tj" in content(data)


def test_figures_over_images_and_graphs_are_drawn_too():
    pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'saccade[images]'")
    words = TokenAxis(Role.TARGET, ("dog", "sky"))
    over_image = AttentionMap("cross", torch.rand(1, 2, 6).softmax(-1), words, GridAxis(Role.IMAGE, 2, 3, gradient()))
    assert content(pdf(draw.svg(over_image))).count(" Do") == 4, "the image and the weights, for each word"
    nodes = NodeAxis(Role.GRAPH, ("a", "b"), ((0, 1),), ((0.0, 0.0), (1.0, 1.0)))
    graph = AttentionMap("layer.0", torch.tensor([[[0.5, 0.5], [0.2, 0.8]]]), nodes, nodes)
    assert " c " in content(pdf(draw.svg(graph, "Graph")))


def test_a_figure_writes_a_pdf(tmp_path):
    maps = AttentionMaps([one_map(["le"], ["the"])])
    AttentionFigure.of(Prediction({"text": "le"}, TextOutput("out"), {}, maps)).write(tmp_path / "map.pdf")
    assert (tmp_path / "map.pdf").read_bytes().startswith(b"%PDF")


def test_a_reader_finds_the_words_and_the_colours():
    reader = pytest.importorskip("pypdfium2", reason="a reader of PDF files; pip install pypdfium2")
    page = reader.PdfDocument(
        pdf(draw.svg(one_map(["le", "chat"], ["the", "cat"], [[1.0, 0.0], [0.0, 1.0]]), "Cat π"))
    )[0]
    text = page.get_textpage().get_text_range()
    assert all(word in text for word in ("le", "chat", "the", "cat", "Cat π", "0", "1"))
    colours = {colour for _, colour in page.render(scale=2).to_pil().convert("RGB").getcolors(1 << 20)}
    assert ramps.LIGHT[-1] in colours and (255, 255, 255) in colours
