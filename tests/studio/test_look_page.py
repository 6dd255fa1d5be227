"""The Look page in a real browser: find a head, keep what is pinned, go back, and see errors where they arise."""

import json
import re
import sys

import pytest

from tests.conftest import USER_CACHE
from tests.studio.conftest import serving
from tests.studio.test_pages import look, until

pytestmark = pytest.mark.slow
SENTENCE = "The animal didn't cross the street because it was too tired."
STATUS = "document.getElementById('status').textContent"
PINNED = f"{STATUS}.includes('pinned')"
SELECTION = "document.getElementById('selection').textContent"
HEADS = "document.querySelectorAll('#matches .search-grid td button').length"
LAST_PIXEL = """() => {
    const canvas = document.getElementById('scale');
    return Array.from(canvas.getContext('2d').getImageData(canvas.width - 1, 0, 1, 1).data);
}"""


@pytest.fixture
def minilm_address(get_model, tmp_path):
    """Address of a studio with minilm from the cache; asked for before `visit`, it outlives the pages of a test."""
    get_model("minilm")
    (tmp_path / "runs").mkdir()
    command = [sys.executable, "-m", "saccade", "studio", "minilm", "--no-browser", "--runs", str(tmp_path / "runs")]
    with serving(command, USER_CACHE) as found:
        yield found


def click_cell(tab, row, column):
    """Click a cell of a matrix that is visible as a whole."""
    left, top, size = map(float, tab.get_attribute(".matrix", "data-layout").split())
    tab.click(".matrix", position={"x": left + (column + 0.5) * size, "y": top + (row + 0.5) * size})


def test_from_a_sentence_to_the_head_that_resolves_it_in_three_clicks(minilm_address, visit, shoot):
    tab = visit("/look", studio="minilm_address")
    until(tab, "document.body.dataset.ready")
    tab.fill("#input-first", SENTENCE)
    tab.click("#submit")  # 1
    until(tab, "document.body.dataset.shown", timeout=120_000)
    words = tab.locator("#tokens .token span").all_text_contents()
    it, animal = words.index("it"), words.index("animal")
    click_cell(tab, it, animal)  # 2
    until(tab, f"{HEADS} === 72")
    assert "it \u2192 animal" in tab.text_content("#matches .pair")
    strongest = tab.text_content(".ranked li >> nth=0")
    assert strongest.strip() == "Layer 3 \u00b7 self-attention \u00b7 head 1 0.68"
    shoot(tab, "find-a-head")
    tab.click(".ranked li >> nth=0 >> button")  # 3
    until(tab, f"{SELECTION} === 'Layer 3 \u00b7 self-attention \u00b7 head 1'")
    until(tab, f"{STATUS}.startsWith('it \u2190 animal 0.67')")  # 0.6768: with four digits
    assert "pinned" in tab.text_content("#status")
    shoot(tab, "it-animal")


def test_the_word_alone_leads_to_what_it_refers_to(minilm_address, visit, shoot):
    tab = visit(f"/look?model=minilm&first={SENTENCE.replace(' ', '+')}", studio="minilm_address", color_scheme="dark")
    until(tab, "document.body.dataset.shown", timeout=120_000)
    tab.click("#tokens .token >> text=/^it$/")
    tab.wait_for_selector("#matches .ranked")
    ranked = [text.strip() for text in tab.locator(".ranked li").all_text_contents()]
    assert "Layer 3 \u00b7 self-attention \u00b7 head 1 animal 0.68" in ranked
    assert tab.locator("#follow td button").count() == 72
    shoot(tab, "follow-dark")


def test_a_pinned_cell_is_weighed_in_every_head_and_stays_pinned(visit):
    tab = visit("/look?model=rows")
    look(tab, "the red cat sat on the mat")
    assert "Click a cell" in tab.text_content("#matches")
    click_cell(tab, 4, 2)
    until(tab, f"{HEADS} === 4")
    assert tab.locator("#tokens .on").count() == tab.locator("#tokens .key-on").count() == 1
    weights = [float(text) for text in tab.locator("#matches td button").all_text_contents()]
    ranked = [float(text) for text in tab.locator(".ranked b").all_text_contents()]
    assert ranked == sorted(weights, reverse=True)
    for layer in range(2):
        for head in range(2):
            tab.click(f"#matches td button[data-map$='encoder.{layer}.self'][data-head='{head}']")
            until(tab, f"{SELECTION} === 'Layer {layer} \u00b7 self-attention \u00b7 head {head}'")
            shown = f"parseFloat({STATUS}.split(' \u2190 ')[1].split(' ')[1])"
            until(tab, f"{PINNED} && Math.abs({shown} - {weights[2 * layer + head]}) <= 0.00501")
    tab.click(".thumb >> nth=0")
    until(tab, f"{SELECTION}.startsWith('Layer 0') && {PINNED}")
    assert "row=4&column=2&pin=1" in tab.url
    again = visit(tab.url[tab.url.index("/look") :])
    until(again, f"{PINNED} && {HEADS} === 4")
    assert again.text_content("#status") == tab.text_content("#status")
    again.uncheck("#words")
    until(again, f"{STATUS}.includes('pinned')")
    before = again.url
    again.click("#matches .pair button")
    until(again, f"{HEADS} === 0")
    assert "pin=1" in before and "pin=1" not in again.url


def test_two_words_are_a_query_and_a_key_and_a_query_alone_is_followed(visit):
    tab = visit("/look?model=rows")
    look(tab, "the red cat sat")
    tab.click("#tokens .token >> text=/^cat$/")
    tab.wait_for_selector("#matches .ranked")
    assert "any other word" in tab.text_content("#matches .pair")
    labels = set(tab.locator(".ranked bdi").all_text_contents())
    assert labels <= {"the", "red", "sat"}, "neither itself nor special tokens"
    assert tab.locator("#follow td button").count() == 4
    tab.uncheck("#words-only")
    assert tab.locator("#follow td button").count() == 4
    tab.click("#tokens .token >> text=/^red$/")
    until(tab, f"{HEADS} === 4")
    assert "cat \u2192 red" in tab.text_content("#matches .pair")
    tab.click("#follow td button >> nth=3")
    until(tab, f"{SELECTION} === 'Layer 1 \u00b7 self-attention \u00b7 head 1'")
    until(tab, f"{STATUS}.startsWith('cat \u2190 ')")


def test_cross_attention_is_searched_in_the_decoder_alone(visit):
    tab = visit("/look?model=pairs")
    look(tab, "the red cat")
    tab.click("[data-map='decoder.0.cross'][data-head='1']")
    until(tab, f"{SELECTION} === 'Decoder 0 \u00b7 cross-attention \u00b7 head 1'")
    tab.click("[data-role=query] .token >> nth=0")
    tab.click("[data-role=key] .token >> nth=1")
    until(tab, f"{HEADS} === 2")
    tab.click("[data-map='encoder.0.self'][data-head='0']")
    until(tab, f"{SELECTION} === 'Encoder 0 \u00b7 self-attention \u00b7 head 0'")
    until(tab, f"{HEADS} === 0")
    assert "pinned" not in tab.text_content("#status")


def test_back_restores_the_view_before(visit):
    tab = visit("/look?model=rows")
    look(tab, "the red cat")
    tab.click(".thumb >> nth=2")
    until(tab, f"{SELECTION} === 'Layer 1 \u00b7 self-attention \u00b7 head 0'")
    tab.click("[data-view=lines]")
    tab.wait_for_selector(".lines")
    tab.evaluate("delete document.body.dataset.shown")
    tab.fill("#inputs textarea", "a blue dog")
    tab.click("#submit")
    until(tab, "document.body.dataset.shown && document.querySelector('.lines').textContent.includes('dog')")
    tab.go_back()
    until(tab, "document.querySelector('.lines')?.textContent.includes('cat')")
    assert tab.input_value("#inputs textarea") == "the red cat"
    tab.go_back()
    tab.wait_for_selector(".matrix")
    assert tab.get_attribute("[data-view=matrix]", "aria-selected") == "true"
    tab.go_back()
    until(tab, f"{SELECTION}.includes('mean of 2 heads')")
    tab.go_back()
    tab.wait_for_selector("#empty")
    assert not tab.is_visible("#results")
    tab.go_forward()
    tab.wait_for_selector(".matrix")
    tab.go_forward()
    until(tab, f"{SELECTION} === 'Layer 1 \u00b7 self-attention \u00b7 head 0'")
    length = tab.evaluate("history.length")
    tab.focus(".matrix")
    tab.keyboard.press("ArrowDown")
    until(tab, "location.search.includes('row=1')")
    assert tab.evaluate("history.length") == length, "moving a cursor is no step to go back to"


@pytest.mark.parametrize("page", ["look", "steps", "flow", "try", "try?model=rows&other=nothing"])
def test_an_unknown_model_in_a_link_is_told_and_none_is_opened(visit, page):
    tab = visit(f"/{page}" + ("" if "?" in page else "?model=nothing&text=cat"))
    tab.wait_for_selector("#message .error")
    assert "There is no model 'nothing' here" in tab.text_content("#message .error")
    assert tab.input_value("#other" if "?" in page else "#model") == ""
    assert tab.locator("#inputs textarea").count() == 0
    if page == "look":
        tab.select_option("#model", "rows")
        tab.wait_for_selector("#inputs textarea")


def refuse(tab, part):
    """Let the studio refuse a part of a prediction."""
    body = json.dumps({"error": "heads of this layer cannot be removed"})
    tab.route(
        f"**/api/look/*/{part}*", lambda route: route.fulfill(status=400, body=body, content_type="application/json")
    )


def test_a_refused_head_is_not_greyed_and_its_error_is_beside_the_button(visit):
    tab = visit("/look?model=rows")
    look(tab, "the red cat")
    tab.click(".thumb >> nth=0")
    tab.click("[data-explanation=ablation]")
    tab.wait_for_selector("#explanation button >> text=head 0")
    refuse(tab, "effect")
    tab.click("#explanation button >> text=head 0")
    tab.wait_for_selector("#explanation .error")
    assert "cannot be removed" in tab.text_content("#explanation .error")
    assert tab.locator(".thumb.ablated").count() == 0
    assert tab.is_enabled("#explanation button >> text=head 0") and not tab.is_enabled(
        "#explanation button >> text=Clear"
    )
    tab.unroute("**/api/look/*/effect*")
    tab.click("#explanation button >> text=head 0")
    tab.wait_for_selector(".thumb.ablated")
    assert tab.locator("#explanation .error").count() == 0
    visit.complaints.clear()  # the browser names every refused request


def test_a_failed_job_gives_its_button_back_with_the_error_beside_it(visit):
    tab = visit("/look?model=rows")
    look(tab, "the red cat")
    tab.wait_for_selector("#explanation table")
    refuse(tab, "importance")
    tab.click("#explanation button")
    tab.wait_for_selector("#explanation button + .error")
    assert tab.text_content("#explanation button") == "Compute head importance"
    assert tab.is_enabled("#explanation button")
    refuse(tab, "attribution")
    tab.click("[data-explanation=attribution]")
    tab.wait_for_selector("#explanation .error")
    assert tab.locator("#explanation select").count() == 1, "another method can be chosen"
    assert tab.locator("#message .error").count() == 0
    visit.complaints.clear()


def test_the_sentence_under_lines_is_that_of_the_head(visit):
    tab = visit("/look?model=rows")
    look(tab, "the cat sat on the mat")
    tab.click("[data-view=lines]")
    tab.wait_for_selector(".lines .hit")
    tab.click(".lines .hit >> nth=6")
    until(tab, PINNED)
    first = tab.text_content("#status")
    tab.click(".thumb >> nth=1")
    until(tab, f"{SELECTION}.endsWith('head 1')")
    until(tab, f"{STATUS} !== {json.dumps(first)}")
    assert tab.text_content("#status").split(" \u2190 ")[0] == first.split(" \u2190 ")[0]
    assert tab.locator(".lines .hit.on").count() == 1


def test_the_scale_has_the_colours_and_the_largest_weight_of_the_view(visit):
    tab = visit("/look?model=rows")
    look(tab, "the red cat sat")
    tab.click("[data-view=query]")
    tab.wait_for_selector("#view .token small >> text=0.")
    numbers = [float(text or 0) for text in tab.locator("#view .strip >> nth=1 >> small").all_text_contents()]
    assert float(tab.text_content("#largest")) == pytest.approx(max(numbers), abs=0.005)
    index = numbers.index(max(numbers))
    tint = tab.evaluate(
        "i => { const style = getComputedStyle(document.querySelectorAll('#view .strip')[1].children[i], '::before');"
        " return [...style.backgroundColor.match(/\\d+/g).map(Number), 255 * style.opacity]; }",
        index,
    )
    assert tab.evaluate(LAST_PIXEL) == pytest.approx(tint, abs=3)
    tab.click("[data-view=lines]")
    tab.wait_for_selector(".lines path", state="attached")
    assert tab.text_content("#largest") == "1"
    assert tab.evaluate(LAST_PIXEL)[:3] == pytest.approx([26, 86, 196], abs=2)
    tab.click("[data-view=matrix]")
    until(tab, "Number(document.getElementById('largest').textContent) < 1")
    assert tab.evaluate(LAST_PIXEL)[:3] == [10, 32, 92]


def test_contributions_are_printed_with_their_digits(visit):
    tab = visit("/look?model=rows")
    look(tab, "the red cat")
    tab.click("[data-explanation=attribution]")
    tab.wait_for_selector("#explanation .token small")
    numbers = tab.locator("#explanation .token small").all_text_contents()
    strength = "all => all.map(t => +t.style.getPropertyValue('--opacity'))"
    for number, tint in zip(numbers, tab.eval_on_selector_all("#explanation .token", strength), strict=True):
        assert tint == 0 or float(number) != 0, "no 0.00 beside a colour"
        assert not number.endswith("0") or "." not in number


def test_the_page_is_walked_over_with_few_tab_stops(visit):
    tab = visit("/look?model=rows")
    look(tab, "the cat sat on the mat")
    assert tab.locator("h1").count() == 1
    assert tab.locator("#heads [tabindex='0']").count() == tab.locator("#tokens [tabindex='0']").count() == 1
    tab.focus("#heads [tabindex='0']")
    for key, label in (("End", "rollout"), ("ArrowUp", "head 1"), ("ArrowLeft", "head 0")):
        tab.keyboard.press(key)
        assert label in tab.evaluate("document.activeElement.getAttribute('aria-label')"), key
    tab.keyboard.press("Enter")
    until(tab, f"{SELECTION} === 'Layer 1 \u00b7 self-attention \u00b7 head 0'")
    stops = []
    for _ in range(14):
        tab.keyboard.press("Tab")
        stops.append(tab.evaluate("document.activeElement.className || document.activeElement.id"))
    assert "matrix" in stops, stops
    tab.focus("[data-view=matrix]")
    tab.keyboard.press("ArrowRight")
    tab.wait_for_selector(".lines .hit")
    assert tab.evaluate("document.activeElement.dataset.view") == "lines"
    assert tab.get_attribute("#view", "aria-labelledby") == "view-lines"
    tab.focus(".lines .hit[tabindex='0']")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate("[...document.querySelectorAll('.lines .hit')].indexOf(document.activeElement)") == 2
    tab.focus("[data-view=lines]")
    tab.keyboard.press("End")
    tab.wait_for_selector("#view .token")
    tab.focus("#view .token[tabindex='0']")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#view .token.on >> nth=0")
    until(tab, f"{PINNED} && location.search.includes('row=3')")  # after the row in Lines
    until(tab, "document.activeElement.matches('#view .token.on')")


def test_every_page_has_one_heading_and_no_grid_without_rows(visit):
    pages = (
        "/runs",
        "/watch/pairs",
        "/look?model=rows&text=the+cat",
        "/steps",
        "/flow",
        "/try",
        "/samples",
        "/lessons",
    )
    for page in pages:
        tab = visit(page)
        tab.wait_for_timeout(300)
        assert tab.locator("h1").count() == 1 and tab.text_content("h1"), page
        assert tab.locator("[role=grid]").count() == 0, page


def test_layers_have_the_same_titles_on_every_page(visit):
    tab = visit("/look?model=pairs&source=the+red+cat")
    until(tab, "document.body.dataset.shown")
    titles = tab.locator("#heads .layer > span").all_text_contents()
    assert titles[0] == "Alignment" and "Decoder 0 \u00b7 cross-attention" in titles
    steps = visit("/steps?model=pairs&source=the+red+cat")
    steps.wait_for_selector("#steps table")
    assert set(steps.locator("#map option").all_text_contents()) <= set(titles)
    watch = visit("/watch/pairs")
    watch.wait_for_selector("#heads canvas")
    assert set(watch.locator("#layer option").all_text_contents()) <= set(titles)


def test_the_gallery_sorts_every_head_of_the_prediction(visit, shoot):
    tab = visit("/look?model=rows")
    look(tab, "the red cat sat")
    tab.click("[data-explanation=gallery]")
    tab.wait_for_selector(".head-card")
    assert tab.locator(".head-card").count() == 4 and tab.locator(".head-cards [tabindex='0']").count() == 1
    assert "cost" not in tab.locator("#gallery-sort option").all_text_contents()

    def values(pattern):
        texts = tab.locator(".head-card small").all_text_contents()
        return [float(re.search(pattern + r" (-?[\d.e-]+)", text)[1]) for text in texts]

    tab.select_option("#gallery-sort", "entropy")
    assert values("entropy") == sorted(values("entropy"))
    tab.select_option("#gallery-sort", "distance")
    assert values("distance") == sorted(values("distance"), reverse=True)
    tab.click("#explanation > button")
    tab.wait_for_selector("#gallery-sort option[value=cost]", state="attached")
    tab.select_option("#gallery-sort", "cost")
    assert len(values("cost")) == 4
    assert values("cost") == sorted(values("cost"), reverse=True)
    shoot(tab, "head-gallery")
    tab.click(".head-card >> nth=2")
    chosen = tab.get_attribute(".head-card >> nth=2", "data-head")
    until(tab, f"{SELECTION}.endsWith('head {chosen}')")
