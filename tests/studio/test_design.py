"""The design of the pages in a real browser: what is above the fold, and how parts look that wait or fail."""

import json
import math
import re

import pytest

from tests.studio.test_look_page import PINNED, minilm_address  # noqa: F401  (a fixture)
from tests.studio.test_pages import look, until

pytestmark = pytest.mark.slow
SENTENCE = "the red cat sat on the mat on a blue dog"
BOX = """name => {
    const {left, top, right, bottom} = document.querySelector(name).getBoundingClientRect();
    return [left, top, right, bottom];
}"""
WEIGHTS = """async ([row, count]) => {
    const {decodeWeights, request} = await import("/static/studio.js");
    const map = document.querySelector(".thumb[data-map]").dataset.map;
    const span = `head=mean&top=${row}&bottom=${row + 1}&left=0&right=${count}&words=1`;
    return [...decodeWeights(await request(`/api/look/${history.state.prediction}/cells?map=${map}&${span}`))];
}"""
TINTS = "all => all.map((token) => +token.style.getPropertyValue('--opacity'))"


def box(tab, selector):
    return tab.evaluate(BOX, selector)


@pytest.mark.parametrize(("width", "height"), [(1280, 860), (1920, 1080)])
def test_heads_matrix_and_search_are_side_by_side_above_the_fold(visit, width, height):
    tab = visit("/look?model=rows")
    tab.set_viewport_size({"width": width, "height": height})
    look(tab, SENTENCE)
    heads, matrix, search = (box(tab, name) for name in (".heads-card", ".matrix", "#search"))
    assert heads[2] < matrix[0] and matrix[2] < search[0], "from left to right"
    assert search[2] > width - 60 and heads[0] < 60, "the whole width is used"
    assert matrix[1] < height / 2 and matrix[3] <= height, "the picture is seen without scrolling"
    form = box(tab, "#form")
    assert form[3] - form[1] < 110, "the form is one line"


def test_cells_grow_with_the_window_and_show_their_weights(visit):
    tab = visit("/look?model=rows")
    look(tab, SENTENCE)
    size = "Number(document.querySelector('.matrix').dataset.layout.split(' ')[2])"
    small = tab.evaluate(size)
    tab.set_viewport_size({"width": 1920, "height": 1080})
    until(tab, f"{size} > {small}")
    assert tab.evaluate(size) <= 64
    rows, columns = map(int, re.findall(r"\d+", tab.text_content("#status")))
    left, top, cell = map(float, tab.get_attribute(".matrix", "data-layout").split())
    matrix = box(tab, ".matrix")
    assert left + columns * cell <= matrix[2] - matrix[0]
    assert top + rows * cell <= matrix[3] - matrix[1] + 4


def test_an_input_grows_while_it_has_the_focus(visit):
    tab = visit("/look?model=rows")
    until(tab, "document.body.dataset.ready")
    height = "document.querySelector('#inputs textarea').offsetHeight"
    tab.fill("#inputs textarea", "a long text\n" * 6)
    tab.focus("#model")
    small = tab.evaluate(height)
    tab.focus("#inputs textarea")
    assert tab.evaluate(height) > 2 * small
    below = "document.querySelector('#empty').getBoundingClientRect().top"
    before = tab.evaluate(below)
    tab.focus("#model")
    assert tab.evaluate(height) == small
    assert tab.evaluate(below) == before, "a button that is pressed stays under the pointer"


def test_a_phone_shows_words_as_a_text_and_a_tapped_one_its_attention(visit, shoot):
    tab = visit("/look?model=rows", has_touch=True)
    tab.set_viewport_size({"width": 390, "height": 844})
    look(tab, SENTENCE)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    words, heads = box(tab, "#tokens"), box(tab, ".heads-card")
    assert words[1] < heads[1], "the words come before the heads"
    left, _, right, _ = box(tab, ".matrix")
    assert tab.evaluate("document.querySelector('.matrix').scrollWidth") > right - left, "the matrix scrolls"
    assert max(tab.eval_on_selector_all("#tokens .token", TINTS)) == 0
    tab.tap("#tokens .token >> nth=2")
    until(tab, PINNED)
    until(tab, "document.querySelector('#tokens .strip').dataset.tinted === '2'")
    tints = tab.eval_on_selector_all("#tokens .token", TINTS)
    weights = tab.evaluate(WEIGHTS, [2, len(tints)])
    assert tints == pytest.approx([weight / max(weights) for weight in weights], abs=1e-3)
    shoot(tab, "look-phone")


def test_a_vector_is_bars_with_its_norm_and_is_copied(minilm_address, visit):  # noqa: F811
    tab = visit("/look?model=minilm&first=the+cat", "minilm_address", permissions=["clipboard-read", "clipboard-write"])
    until(tab, "document.body.dataset.shown", timeout=120_000)
    text = tab.text_content("#output")
    assert text.startswith("Vector of 384 numbers, norm ") and text.endswith("Copy") and len(text) < 60
    tab.click("#output button")
    until(tab, "document.querySelector('#output button').textContent === 'Copied'")
    numbers = json.loads(tab.evaluate("navigator.clipboard.readText()"))
    norm = float(text.split("norm ")[1].removesuffix("Copy"))
    assert len(numbers) == 384 and math.hypot(*numbers) == pytest.approx(norm, rel=1e-3)
    assert "norm" in tab.get_attribute("#output canvas", "aria-label")
    drawn = "document.querySelector('#output canvas').toDataURL()"
    light = tab.evaluate(drawn)
    tab.click("#theme")
    until(tab, f"{drawn} !== {json.dumps(light)}")
    trial = visit("/try?model=minilm&first=the+cat", "minilm_address")
    trial.wait_for_selector("#predictions .vector-strip")


def test_a_truncated_text_is_told_with_both_numbers(visit):
    def cut(route):
        answer = route.fetch()
        notes = ["cut to 477 of 2310 tokens: text 'a'", "anything else"]
        route.fulfill(response=answer, json={**answer.json(), "notes": notes})

    tab = visit("/look?model=rows")
    tab.route("**/api/look", cut)
    look(tab, "the red cat")
    assert tab.text_content("#notices .notice") == "Showing 477 of 2,310 tokens: the model's limit (text 'a')."
    assert tab.text_content("#notices .soft") == "anything else"


def test_a_mistake_is_told_beside_its_option(visit):
    tab = visit("/look?model=prose")
    until(tab, "document.body.dataset.ready")
    tab.fill("#inputs textarea", "the cat")
    tab.click("summary")
    tab.fill("[name=temperature]", "-1")
    tab.click("summary")
    tab.click("#submit")
    tab.wait_for_selector("#options .field-error")
    assert "temperature must be" in tab.text_content("#options .field-error")
    assert tab.get_attribute("[name=temperature]", "aria-describedby") == "error-temperature"
    assert tab.evaluate("document.querySelector('details').open"), "the option can be seen"
    assert tab.text_content("#message") == ""
    tab.fill("[name=temperature]", "")
    tab.click("#submit")
    until(tab, "document.body.dataset.shown")
    assert tab.locator(".field-error, [aria-invalid]").count() == 0
    visit.complaints.clear()


def test_a_long_prediction_has_a_bar_and_can_be_cancelled(visit):
    tab = visit("/look?model=prose")
    until(tab, "document.body.dataset.ready")
    held = []
    tab.route("**/api/look", lambda route: held.append(route))  # so that it is long
    tab.fill("#inputs textarea", "the red cat")
    tab.click("#submit")
    assert tab.is_visible("#progress")
    with tab.expect_response(lambda answer: answer.request.method == "POST" and "/api/progress/" in answer.url):
        tab.click("#cancel", timeout=60_000)
    held[0].continue_()
    tab.wait_for_selector("#form .error")
    assert "cancelled" in tab.text_content("#form .error")
    assert tab.is_enabled("#submit") and tab.text_content("#submit") == "Predict" and not tab.is_visible("#progress")
    visit.complaints.clear()
