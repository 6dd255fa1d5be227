"""The page of a prediction: alone in its file, safe whatever a label holds, and alive in a real browser."""

import re

import pytest
import torch

from saccade.core import AttentionMap, AttentionMaps, GridAxis, Prediction, Role, TextOutput, TokenAxis, TokenScores
from saccade.errors import UsageError
from saccade.look import page as module
from saccade.look import ramps
from saccade.look.figure import AttentionFigure
from saccade.look.page import page

EVIL = "</script><script>window.hacked=1</script>"
SOURCE = TokenAxis(Role.TEXT, (" the", " bla", "ck", " cat", EVIL, " שלום"), (0, 1, 1, 2, 3, 4))
TARGET = TokenAxis(Role.TEXT, (" le", " chat", " no", "ir", "\"<b>'&"), (0, 1, 2, 2, 3))


def maps_of(layers=2, heads=3, queries=TARGET, keys=SOURCE):
    shape = heads, len(queries.labels), len(keys.labels)
    return [AttentionMap(f"decoder.{n}", (3 * torch.randn(shape)).softmax(-1), queries, keys) for n in range(layers)]


def answer(source="", text=""):
    return Prediction({"source": source}, TextOutput(text))


def prediction(**more):
    steps = TokenScores("steps per token", SOURCE, (2.0, 3.0, 4.0, 1.0, 1.0, 6.0))
    return Prediction(
        {"source": f"the black cat {EVIL}"},
        TextOutput("le chat noir"),
        {"log probability": -1.25},
        token_scores=(steps,),
        **more,
    )


def test_the_page_holds_everything_and_names_no_other_file():
    text = page(prediction(alternatives=(answer("", "la chatte <i>"),)), maps_of(), title="A cat <&>")
    assert "<title>A cat &lt;&amp;&gt;</title>" in text
    assert "la chatte &lt;i&gt;" in text
    assert "-1.25" in text
    links = re.sub(r"http://www\.w3\.org/2000/svg", "", text)  # the name of SVG, not an address that is opened
    assert not re.search(r"https?:|//[a-z]|src=|href=|@import|url\(", links)


def test_no_label_can_leave_its_place():
    text = page(prediction(), maps_of(), title=EVIL)
    assert "<script>window" not in text
    assert text.count("<script") == text.count("</script>") == 2


def test_a_page_of_too_many_weights_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MOST", 100)
    with pytest.raises(UsageError, match="at most 100 weights, but these maps have 180; choose fewer layers"):
        page(prediction(), maps_of(), title="big")


@pytest.fixture
def visit(browser, tmp_path):
    """Opens a page, and fails at the end if its script or its rules complained, or anything left it."""
    complaints, requests, contexts = [], [], []

    def opened(text, **options):
        file = tmp_path / f"{len(contexts)}.html"
        file.write_text(text, encoding="utf-8")
        contexts.append(browser.new_context(**options))
        tab = contexts[-1].new_page()
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(file.as_uri())
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert not complaints
    assert [url for url in requests if not url.endswith(".html")] == []
    assert len(requests) == len(contexts)


def strengths(tab):
    return tab.eval_on_selector_all("#body rect[data-weight]", "all => all.map(r => +r.dataset.weight)")


def labels(tab, side):
    return tab.locator(f"#{side} .token span").all_text_contents()


def test_labels_stand_there_and_none_of_them_runs(visit):
    tab = visit(page(prediction(), maps_of(), title="A cat"))
    assert labels(tab, "columns") == ["the", "black", "cat", EVIL, "שלום"]
    assert labels(tab, "rows") == ["le", "chat", "noir", "\"<b>'&"]
    assert tab.evaluate("window.hacked") is None
    assert EVIL in tab.locator(".texts").text_content()
    assert tab.locator("#left text").all_text_contents() == ["le", "chat", "noir", "\"<b>'&"]
    assert tab.locator(".token-scores rect").count() == 6


def test_the_matrix_shows_the_weights_of_the_chosen_layer_and_head(visit):
    maps = maps_of()
    tab = visit(page(prediction(), maps, title="A cat"))
    tab.uncheck("#words")
    for layer, head in ((0, "mean"), (0, 1), (1, 2)):
        tab.select_option("#layer", str(layer))
        tab.check(f"input[name=head][value='{head}']")
        weights = maps[layer].weights.mean(0) if head == "mean" else maps[layer].weights[head]
        assert strengths(tab) == pytest.approx(weights.flatten().tolist(), abs=2e-5)
        chosen = f"head {head}" if head != "mean" else "mean of 3 heads"
        assert tab.locator("#selection").text_content() == f"Layer {layer} \u00b7 {chosen}", "as on the Look page"
        assert tab.locator("#largest").text_content() == f"{weights.max():.2f}"


def test_words_and_pieces_can_be_switched(visit):
    tab = visit(page(prediction(), maps_of(), title="A cat"))
    assert len(strengths(tab)) == 4 * 5
    tab.uncheck("#words")
    assert len(strengths(tab)) == 5 * 6
    assert labels(tab, "columns")[:3] == ["␣the", "␣bla", "ck"]


def test_pointing_at_a_word_tells_what_it_looks_at(visit):
    weights = torch.tensor([[[0.75, 0.25, 0.0], [0.1, 0.0, 0.9]]])
    whole = AttentionMap(
        "cross", weights, TokenAxis(Role.TEXT, ("le", "chat")), TokenAxis(Role.TEXT, ("the", "black", "cat"))
    )
    tab = visit(page(answer(), [whole], title="A cat"))
    tab.locator("#rows .token").nth(0).hover()
    assert tab.locator("#status").text_content() == "le ← the 0.75, black 0.25"
    assert tab.locator("#columns small").all_text_contents() == ["0.75", "0.25", ""]
    tab.locator("#columns .token").nth(2).hover()
    assert tab.locator("#status").text_content() == "cat → chat 0.90"
    tab.locator("#body rect").nth(5).hover()
    assert tab.locator("#status").text_content() == "chat ← cat 0.9000"
    assert tab.locator("#top text.on").text_content() == "cat"
    assert tab.locator("#left text.on").text_content() == "chat"


def test_the_keyboard_goes_everywhere(visit):
    tab = visit(page(prediction(), maps_of(), title="A cat"))
    tab.focus("#body")
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "End"):
        tab.keyboard.press(key)
    assert tab.locator("#status").text_content().startswith("noir ← שלום")
    tab.focus("#rows .token.on")
    tab.keyboard.press("ArrowLeft")
    assert tab.evaluate("document.activeElement.firstChild.textContent") == "chat"
    assert tab.locator("#status").text_content().startswith("chat ←")
    tab.focus("input[name=head]:checked")
    before = strengths(tab)
    tab.keyboard.press("ArrowRight")
    assert tab.locator("input[name=head]:checked").get_attribute("value") == "0"
    assert strengths(tab) != before


def test_a_large_map_is_painted(visit):
    many = TokenAxis(Role.TEXT, tuple(f"w{number}" for number in range(120)))
    large = AttentionMap("self", torch.eye(120)[None], many, many)
    tab = visit(page(answer(), [large], title="large"))
    assert tab.locator("#body rect").count() == 0
    row = """() => {
        const canvas = document.querySelector('#body canvas'), cell = canvas.width / 120;
        const { data } = canvas.getContext('2d').getImageData(0, 70.5 * cell, canvas.width, 1);
        const starts = Array.from({ length: 120 }, (_, column) => 4 * Math.floor((column + 0.5) * cell));
        return starts.map((start) => Array.from(data.slice(start, start + 3)));
    }"""
    expected = [ramps.LIGHT[-1] if column == 70 else ramps.LIGHT[0] for column in range(120)]
    assert [tuple(colour) for colour in tab.evaluate(row)] == expected, "the colours of the studio"


def test_what_is_clicked_stays_until_it_is_released(visit):
    tab = visit(page(prediction(), maps_of(), title="A cat"))
    cells = tab.locator("#body rect[data-weight]")
    cells.nth(6).click()
    assert tab.locator("#status").text_content().startswith("chat \u2190 black") and "pinned" in tab.text_content(
        "#status"
    )
    cells.nth(0).hover()
    tab.locator("#rows .token").nth(2).hover()
    assert tab.locator("#status").text_content().startswith("chat \u2190 black")
    tab.check("input[name=head][value='2']")
    assert tab.locator("#status").text_content().startswith("chat \u2190 black"), "also in another head"
    cells.nth(0).click()
    assert tab.locator("#status").text_content().startswith("le \u2190 the") and "pinned" in tab.text_content("#status")
    tab.keyboard.press("Escape")
    assert "pinned" not in tab.text_content("#status")
    cells.nth(1).hover()
    assert tab.locator("#status").text_content().startswith("le \u2190 black")


def test_lines_join_queries_and_keys_as_opaque_as_their_part_of_the_largest(visit):
    weights = torch.tensor([[[0.75, 0.25, 0.0], [0.1, 0.0, 0.9]]])
    queries, keys = TokenAxis(Role.TEXT, ("le", "chat")), TokenAxis(Role.TEXT, ("the", "black", "cat"))
    tab = visit(page(answer(), [AttentionMap("cross", weights, queries, keys)], title="A cat"))
    tab.select_option("#view", "lines")
    assert not tab.is_visible("#matrix") and not tab.is_visible("#ramp")
    tab.locator("#lines g[data-side=end]").nth(1).hover()
    opacities = "all => all.map(line => +line.getAttribute('stroke-opacity'))"
    shown = tab.eval_on_selector_all("#lines line", opacities)
    assert shown == pytest.approx([0.04, 0.04, 0.1 / 0.9, 1], abs=1e-4)
    assert tab.text_content("#status") == "chat \u2190 cat 0.90, the 0.10"
    tab.locator("#lines g[data-side=start]").nth(0).click()
    assert tab.text_content("#status").startswith("the \u2192 le 0.75") and "pinned" in tab.text_content("#status")
    tab.select_option("#view", "matrix")
    assert tab.is_visible("#matrix") and "pinned" in tab.text_content("#status")


def test_the_colours_are_those_of_the_studio_in_light_and_dark(visit):
    weights = torch.tensor([[[1.0, 0.25, 0.0]]])
    queries, keys = TokenAxis(Role.TEXT, ("le",)), TokenAxis(Role.TEXT, ("the", "black", "cat"))
    text = page(answer(), [AttentionMap("cross", weights, queries, keys)], title="A cat")
    fills = "all => all.map(r => getComputedStyle(r).fill.match(/\\d+/g).map(Number))"
    for scheme, stops in (("light", ramps.LIGHT), ("dark", ramps.DARK)):
        tab = visit(text, color_scheme=scheme)
        colours = tab.eval_on_selector_all("#body rect[data-weight]", fills)
        assert [tuple(colour) for colour in colours[::2]] == [stops[-1], stops[0]]
        assert colours[1] == pytest.approx(stops[1], abs=2)
        tab.check("#sqrt")
        colours = tab.eval_on_selector_all("#body rect[data-weight]", fills)
        assert colours[1] == pytest.approx(stops[2], abs=2), "the square root of a quarter is a half"


VSCODE = (
    "default-src 'none'; img-src 'self' https: data: blob:; media-src 'self' https: data:; font-src 'self' https:; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; connect-src https: http:; "
    "child-src https: data:; frame-src 'self'"
)


@pytest.mark.parametrize("policy", ["", VSCODE])
def test_a_notebook_cell_is_alive_in_its_sandbox(visit, policy):
    figure = AttentionFigure.of(Prediction({"text": "a"}, TextOutput("out"), {}, AttentionMaps(maps_of())))
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policy else ""
    tab = visit(f"<!doctype html><html><head>{meta}</head><body>{figure._repr_html_()}</body></html>")
    frame = tab.frame_locator("iframe")
    frame.locator("#body rect[data-weight]").nth(6).hover()
    assert frame.locator("#status").text_content().startswith("chat \u2190 black")
    frame.locator("input[name=head][value='1']").check()
    assert frame.locator("#selection").text_content() == "Layer 1 \u00b7 head 1"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_the_page_fits_a_phone_and_both_schemes(visit, scheme, width):
    long = TokenAxis(Role.TEXT, tuple("long" * (5 * (number % 9) + 1) for number in range(40)))
    text = page(prediction(), maps_of(queries=long), title="Unbroken" * 30)
    tab = visit(text, color_scheme=scheme, viewport={"width": width, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    paper, ink = (
        sum(map(int, re.findall(r"\d+", tab.evaluate(f"getComputedStyle(document.documentElement).{name}"))))
        for name in ("backgroundColor", "color")
    )
    assert (paper > ink) == (scheme == "light")


def test_the_alignment_comes_first_and_pages_without_maps_say_so(visit):
    maps = maps_of()
    aligned = AttentionMap("decoder.1", maps[1].weights[:1], TARGET, SOURCE)
    tab = visit(page(prediction(alignment=aligned), maps, title="A cat"))
    assert tab.locator("#layer option").all_text_contents() == ["word alignment (Layer 1)", "Layer 0", "Layer 1"]
    assert not tab.locator("#heads").is_visible()
    tab = visit(page(answer("in", "out"), [], title="bare"))
    assert "No attention was recorded" in tab.locator("main").text_content()
    assert not tab.locator("#attention").is_visible()


def test_a_grid_is_shown_over_its_image(visit):
    image = torch.zeros(3, 8, 8, dtype=torch.uint8)
    grid = GridAxis(Role.IMAGE, 2, 2, image, ("[CLS]",))
    queries = TokenAxis(Role.TARGET, ("dog", "sky"))
    weights = torch.tensor([[[0.1, 0.6, 0.1, 0.1, 0.1], [0.0, 0.0, 0.1, 0.9, 0.0]]])
    whole = AttentionMap("decoder.0.cross", weights, queries, grid)
    tab = visit(page(answer(), [whole], title="A dog"))
    assert tab.locator("#columns img").count() == 1
    tab.uncheck("#smooth")
    tab.locator("#rows .token").nth(1).hover()
    width, height, opacity = tab.evaluate(HEAT)
    assert (width, height) == (2, 2)
    assert [value / 255 for value in opacity] == pytest.approx([0, 0.1 / 0.9 * 0.7, 0.7, 0], abs=0.005)
    assert tab.locator("#status").text_content() == "sky ← 1,0 0.90, 0,1 0.10"
    tab.locator("#columns .cell").nth(0).hover()
    assert tab.locator("#status").text_content() == "0,0 → dog 0.60"


HEAT = """() => {
    const canvas = document.querySelector('#columns .heat');
    const copy = Object.assign(document.createElement('canvas'), { width: canvas.width, height: canvas.height });
    copy.getContext('2d').drawImage(canvas, 0, 0);
    const { data } = copy.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return [canvas.width, canvas.height, Array.from(data).filter((_, i) => i % 4 === 3)];
}"""


def test_the_heat_map_is_smooth_has_an_opacity_and_is_strongest_in_its_cell(visit):
    weights = torch.zeros(1, 2, 12)
    weights[0, 0, 5], weights[0, 1, 11] = 1, 1
    grid = GridAxis(Role.IMAGE, 3, 4, torch.zeros(3, 30, 80, dtype=torch.uint8))
    whole = AttentionMap("cross", weights, TokenAxis(Role.TARGET, ("dog", "sky")), grid)
    tab = visit(page(answer(), [whole], title="A dog"))
    width, height, opacity = tab.evaluate(HEAT)
    assert (width, height) == (64, 48) and max(opacity) == int(255 * 0.7)
    row, column = divmod(opacity.index(max(opacity)), width)
    assert (row // 16, column // 16) == (1, 1)
    expected = torch.nn.functional.interpolate(weights[:, :1].reshape(1, 1, 3, 4), (48, 64), mode="bicubic")
    assert opacity == pytest.approx((255 * 0.7 * expected.clamp(0, 1)).flatten().tolist(), abs=1), "as in a PNG"
    tab.locator("#opacity").fill("20")
    assert max(tab.evaluate(HEAT)[2]) == int(255 * 0.2)
    box = tab.locator("#columns .picture").bounding_box()
    assert box["width"] / box["height"] == pytest.approx(80 / 30, rel=0.02), (
        "the proportions of the image, not of the grid"
    )


def test_a_film_plays_over_the_words_and_leaves_a_path(visit):
    weights = torch.zeros(1, 3, 12)
    for word, cell in enumerate((0, 5, 11)):
        weights[0, word, cell] = 1
    grid = GridAxis(Role.IMAGE, 3, 4, torch.zeros(3, 30, 40, dtype=torch.uint8))
    whole = AttentionMap("cross", weights, TokenAxis(Role.TARGET, ("a", "red", "dog")), grid)
    tab = visit(page(answer(), [whole], title="A dog"))
    tab.click("#play")
    tab.wait_for_selector("#rows .token.on >> text=dog")
    points = tab.locator("#columns polyline").get_attribute("points")
    numbers = [[float(part) for part in point.split()] for point in points.split(",")]
    assert numbers == [pytest.approx(point, abs=1e-3) for point in ([0.125, 1 / 6], [0.375, 0.5], [0.875, 5 / 6])]
    tab.wait_for_selector("#play >> text=Play")
    assert tab.evaluate("document.querySelector('#columns .gaze').style.left").startswith("87.5")


def test_an_image_is_in_the_file_once_for_all_layers():
    image = torch.randint(0, 255, (3, 16, 16), dtype=torch.uint8)
    grid = GridAxis(Role.IMAGE, 2, 2, image, ("class",))
    maps = [AttentionMap(f"encoder.{n}", torch.rand(2, 5, 5).softmax(-1), grid, grid) for n in range(3)]
    assert page(answer(), maps, title="layers").count("data:image/png") == 1
