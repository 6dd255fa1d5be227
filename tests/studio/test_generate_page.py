"""The Generate page in a real browser: tokens as they come, bars, branches, live settings, the growing matrix."""

from urllib.parse import quote

import pytest

from tests.studio.test_catalogue_pages import catalogue_address  # noqa: F401
from tests.studio.test_pages import until

TOKENS = ".continuation .flow-token"
DONE = "document.body.dataset.generated === '{}'"


def finished(tab, count):
    """Wait until this many continuations have ended; the first ever may have to compile the network."""
    until(tab, DONE.format(count), timeout=240_000)


def generate(tab, prompt="the cat", length=12, done=1):
    until(tab, "document.body.dataset.ready")
    tab.fill("#inputs textarea", prompt)
    tab.fill("#length", str(length))
    tab.press("#inputs textarea", "Control+Enter")
    finished(tab, done)


def texts(tab):
    return [node.text_content() for node in tab.locator(".continuation .flow").all()]


def slide(tab, name, value):
    script = "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }"
    tab.eval_on_selector(f"#sampling [name={name}]", script, value)


def bars(tab):
    return tab.locator(".bar-number").all_text_contents()


def settled(tab, step):
    until(tab, f"document.getElementById('bars').dataset.step === '{step}'")


def test_tokens_come_with_bars_and_rows_of_attention(visit, shoot):
    tab = visit("/generate?model=prose")
    generate(tab)
    assert tab.locator(TOKENS).count() == 12
    until(tab, "+document.querySelector('.matrix').dataset.rows >= 12 + 5")
    settled(tab, 11)
    current = tab.locator(".bar-row[aria-current]")
    assert current.count() == 1 and "sampled" in current.text_content()
    assert tab.text_content("#step-title") == "Next token 12 of A"
    tab.click(f"{TOKENS} >> nth=3")
    settled(tab, 3)
    assert tab.text_content(".bar-row[aria-current] .bar-label").replace("␣", "") == tab.text_content(
        f"{TOKENS} >> nth=3"
    )
    assert "which led to" in tab.text_content("#status")
    settings = tab.text_content(".settings")
    assert "seed 1 · temperature 0.8 · top-k off · top-p 1" in settings and "log-probability -" in settings
    shoot(tab, "generate")


def test_the_same_seed_and_settings_give_the_same_text(visit):
    tab = visit(f"/generate?model=prose&prompt={quote('the cat')}&seed=4&count=2&length=10&run=1")
    finished(tab, 2)
    first, second = texts(tab)
    assert first != second and "seed 4" in tab.text_content(".settings >> nth=0")
    assert "seed 5" in tab.text_content(".settings >> nth=1")
    tab.click("#submit")
    finished(tab, 2)
    assert texts(tab) == [first, second]
    again = visit(tab.url[tab.url.index("/generate") :] + "&run=1")
    finished(again, 2)
    assert texts(again) == [first, second]


def test_sliders_shape_the_shown_distribution_at_once(visit):
    tab = visit("/generate?model=prose")
    generate(tab)
    tab.click(f"{TOKENS} >> nth=2")
    settled(tab, 2)
    before = bars(tab)
    slide(tab, "temperature", 0)
    until(tab, "[...document.querySelectorAll('.bar-number')].slice(1).every((part) => part.textContent === 'cut off')")
    assert bars(tab)[0] == "1.000" and set(bars(tab)[1:]) == {"cut off"}
    assert "this token was chosen with temperature 0.8" in tab.text_content("#kept")
    slide(tab, "temperature", 0.8)
    until(tab, f"document.querySelector('.bar-number').textContent === '{before[0]}'")
    slide(tab, "top_k", 2)
    until(tab, "document.querySelectorAll('.bar-row.cut').length >= 10")
    assert "2 of" in tab.text_content("#kept")


def test_a_click_on_a_bar_continues_with_that_token(visit, shoot):
    tab = visit("/generate?model=prose")
    generate(tab)
    tab.click(f"{TOKENS} >> nth=4")
    settled(tab, 4)
    other = tab.locator(".bar-row:not([aria-current])").first
    label = other.locator(".bar-label").text_content()
    other.click()
    finished(tab, 2)
    a, b = (tab.locator(f".continuation >> nth={i} >> .flow-token") for i in range(2))
    assert a.all_text_contents()[:4] == b.all_text_contents()[:4]
    assert b.nth(4).text_content() == label.removeprefix("␣") and "given" in b.nth(4).get_attribute("class")
    assert b.count() == 5 + 12 and "from A, token 5" in tab.text_content(".continuation >> nth=1 >> h2")
    tab.click(".continuation >> nth=1 >> .flow-token >> nth=4")
    until(tab, "document.querySelector('.bar-row[aria-current] .bar-tag').textContent === 'chosen by you'")
    tab.click("#resample")  # a branch of the branch
    finished(tab, 3)
    c = tab.locator(".continuation >> nth=2 >> .flow-token").all_text_contents()
    assert c[:4] == b.all_text_contents()[:4] and "seed 2" in tab.text_content(".settings >> nth=2")
    shoot(tab, "generate-branches")
    tab.click(".proceed >> nth=0")
    until(tab, "document.querySelectorAll('.continuation')[0].querySelectorAll('.flow-token').length === 24")
    tab.click(".remove >> nth=1")
    assert tab.locator(".continuation").count() == 2


def test_layer_head_and_the_first_column(visit, shoot):
    tab = visit("/generate?model=prose")
    generate(tab)
    tab.select_option("#layer", "decoder.0.self")
    tab.select_option("#head", "1")
    until(tab, "+document.querySelector('.matrix').dataset.rows >= 12 + 5")
    tab.focus(".matrix")
    for key in ("Home", "ArrowRight"):
        tab.keyboard.press(key)
    shown = tab.text_content("#status")
    assert "drawn as" not in shown and "key" in shown
    tab.check("#sink")
    assert "is hidden" in tab.text_content("#sink-note")
    tab.focus(".matrix")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowLeft")
    real = tab.text_content("#status")
    assert "drawn as" in real and real.startswith(shown), "the weight itself stays as it is"
    assert "head=1" in tab.url and "sink=1" in tab.url
    shoot(tab, "generate-sink")


def test_stop_ends_it(visit, gpt2_folder):
    tab = visit(f"/generate?model={quote(str(gpt2_folder), safe='')}")
    generate(tab, "the quick brown fox", 2)  # the first tokens of a model take longer
    slide(tab, "temperature", 0)  # a greedy text repeats itself, and does not end
    tab.fill("#length", "3500")
    tab.click("#submit")
    until(tab, f"document.querySelectorAll('{TOKENS}').length >= 20")
    slide(tab, "top_k", 2)
    until(tab, "document.querySelector('.settings').textContent.includes('temperature 0 · top-k 2')")
    tab.click("#stop")
    finished(tab, 1)
    assert not tab.is_visible("#stop") and 20 <= tab.locator(TOKENS).count() < 3500
    assert tab.text_content(".state").endswith("tokens: stopped")


def test_look_opens_a_continuation(visit):
    tab = visit("/generate?model=prose")
    generate(tab)
    text = tab.text_content(".flow")
    tab.click(".look")
    until(tab, "document.body.dataset.shown")
    assert tab.input_value("#inputs textarea").strip() == text.replace("␣", " ").strip()
    assert "the prompt alone" in tab.text_content("#output")


def test_look_leads_to_generating(visit):
    tab = visit("/look?model=prose")
    until(tab, "document.body.dataset.ready")
    tab.fill("#inputs textarea", "the dog")
    tab.click("#generate")
    finished(tab, 1)
    assert tab.text_content(".prompt") == "the dog" and tab.locator(TOKENS).count() > 10


def test_a_translation_is_branched(visit):
    tab = visit(f"/generate?model=pairs&source={quote('the cat sat')}&run=1")
    finished(tab, 1)
    assert not tab.is_visible("#sampling") and not tab.is_visible("#seed")
    tab.click(f"{TOKENS} >> nth=0")
    settled(tab, 0)
    tab.click(".bar-row:not([aria-current]) >> nth=0")
    finished(tab, 2)
    assert tab.locator(".continuation >> nth=1 >> .flow-token.given").count() == 1
    until(tab, "+document.querySelector('.matrix').dataset.rows >= 1")


def test_a_model_without_generation_says_so(visit, bert_folder):
    tab = visit(f"/generate?model={quote(str(bert_folder), safe='')}")
    until(tab, "document.querySelector('#message .error')")
    assert "does not generate token by token" in tab.text_content("#message")
    tab.select_option("#model", "prose")
    until(tab, "!document.querySelector('#message .error')")
    assert tab.is_enabled("#submit")


@pytest.mark.parametrize("width", [390, 1280, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_the_screen(visit, shoot, width, scheme):
    tab = visit(f"/generate?model=prose&prompt={quote('the red cat sat')}&count=2&length=24&run=1", color_scheme=scheme)
    tab.set_viewport_size({"width": width, "height": 860})
    finished(tab, 2)
    until(tab, "+document.querySelector('.matrix').dataset.rows >= 24")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shoot(tab, f"generate-{width}-{scheme}")


@pytest.mark.slow
def test_smollm2_is_watched(visit, shoot):
    tab = visit("/generate?model=smollm2&temperature=0", "catalogue_address")
    until(tab, "document.body.dataset.ready", timeout=180_000)
    generate(tab, "The animal didn't cross the street because it was too", 20)
    assert 5 <= tab.locator(TOKENS).count() <= 20, tab.text_content(".state") + tab.text_content("#message")
    until(tab, "+document.querySelector('.matrix').dataset.rows > 14")
    shoot(tab, "generate-smollm2")
    tab.select_option("#layer", "decoder.12.self")
    tab.check("#sink")
    until(tab, "+document.querySelector('.matrix').dataset.rows > 14")
    tab.click(f"{TOKENS} >> nth=2")
    settled(tab, 2)
    tab.click(".bar-row:not([aria-current]) >> nth=0")
    finished(tab, 2)
    shoot(tab, "generate-smollm2-branch")
