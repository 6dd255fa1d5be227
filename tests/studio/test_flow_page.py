"""Flow and Step by step in a real browser: every stage by pointer and keyboard, unfolded, edited, and by link."""

from urllib.parse import quote

import pytest

from tests.studio.test_catalogue_pages import SENTENCE, catalogue_address
from tests.studio.test_pages import until

__all__ = ["catalogue_address"]  # the fixture
pytestmark = pytest.mark.slow
STAGES = ".flow-picture .stage"
TITLE = "document.querySelector('#stage h2')?.textContent"


def stages(tab):
    tab.wait_for_selector(STAGES)
    return tab.eval_on_selector_all(STAGES, "all => all.map(node => node.dataset.stage)")


def test_the_flow_of_a_translation_is_pointed_at_unfolded_and_linked(visit, shoot):
    tab = visit("/flow?model=pairs&source=the+red+cat&stack=decoder&position=1")
    names = ["decoder.0.self", "decoder.0.cross", "decoder.0.feed"]
    assert stages(tab) == ["embedding", *names, "output"]
    assert "parts sum to the residual stream" in tab.text_content("#checked")
    assert tab.locator(".flow-picture .lens").count() == 2, "after the embedding and after the only layer"
    tab.hover(f"{STAGES}[data-stage='decoder.0.feed']", position={"x": 12, "y": 20})
    until(tab, f"{TITLE} === 'Decoder 0 \u00b7 feed-forward'")
    tab.click(f"{STAGES}[data-stage='decoder.0.cross']", position={"x": 12, "y": 50})
    tab.wait_for_selector("#stage .numbers canvas")
    assert tab.text_content("#stage h2") == "Decoder 0 \u00b7 cross-attention"
    assert "stage=decoder.0.cross" in tab.url and tab.locator("#stage .numbers").count() == 3
    tab.hover(f"{STAGES}[data-stage='embedding']", position={"x": 12, "y": 20})
    assert tab.text_content("#stage h2").endswith("cross-attention"), "the chosen stage stays"
    shoot(tab, "flow")
    again = visit(tab.url[tab.url.index("/flow") :], color_scheme="dark")
    again.wait_for_selector("#stage .numbers canvas")
    assert again.get_attribute(f"{STAGES}[data-stage='decoder.0.cross']", "aria-pressed") == "true"
    shoot(again, "flow-dark")
    again.click("#stage .unfold")
    again.wait_for_selector("#steps table")
    assert again.input_value("#map") == "decoder.0.cross" and again.input_value("#query") == "1"
    again.click("#flow")
    until(again, f"{TITLE}")
    assert again.input_value("#stack") == "decoder" and again.input_value("#position") == "1"


def test_the_width_of_a_ribbon_is_the_norm(visit):
    tab = visit("/flow?model=prose&prompt=the+cat")
    stages(tab)
    widths = tab.eval_on_selector_all(".flow-picture .ribbon.stream", "all => all.map(path => path.getBBox().width)")
    requested = tab.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    address = next(name for name in requested if "/api/look/" in name and "/flow?" in name)
    flow = tab.evaluate("address => fetch(address).then(answer => answer.json())", address)
    norms = [flow["embedding"]["x"], *(max(stage["x"], stage["result"]) for stage in flow["stages"])]
    scale = widths[0] / norms[0]
    assert widths[:-1] == pytest.approx([norm * scale for norm in norms], rel=0.01)
    tab.check("#sqrt")
    until(tab, "document.querySelector('.legend').textContent.includes('square roots')")
    roots = tab.eval_on_selector_all(".flow-picture .ribbon.stream", "all => all.map(path => path.getBBox().width)")
    assert roots[1] / roots[0] == pytest.approx((norms[1] / norms[0]) ** 0.5, rel=0.01) and "sqrt=1" in tab.url


def test_the_flow_is_read_by_keyboard_and_the_token_is_changed(visit):
    tab = visit("/flow?model=rows&text=the+red+cat")
    names = stages(tab)
    assert tab.locator(f"{STAGES}[tabindex='0']").count() == 1
    tab.focus(f"{STAGES}[tabindex='0']")
    tab.keyboard.press("End")
    until(tab, f"{TITLE} === 'Output of the stack'")
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowDown")
    until(tab, f"{TITLE} === 'Layer 0 \u00b7 self-attention'")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#stage .numbers canvas")
    assert f"stage={names[1]}" in tab.url
    tab.click("#tokens .token >> text=/^cat$/")
    until(tab, "document.querySelector('.flow-picture')?.getAttribute('aria-label') === 'Flow of cat'")
    assert "position=3" in tab.url
    tab.select_option("#position", "1")
    until(tab, "document.querySelector('.flow-picture')?.getAttribute('aria-label') === 'Flow of the'")


def test_look_leads_to_the_flow_of_the_selected_token(visit):
    tab = visit("/look?model=rows&text=the+red+cat&row=2&pin=1&words=0")
    until(tab, "document.body.dataset.shown")
    tab.click("#flow")
    stages(tab)
    assert tab.input_value("#position") == "2"


def test_a_model_without_a_residual_stream_says_so(visit, graph_address):
    tab = visit("/flow?model=communities", studio="graph_address")
    tab.wait_for_selector("#inputs textarea, #inputs input")
    tab.click("#submit")
    tab.wait_for_selector("#message .error")
    assert "no stack of Transformer layers over one residual stream" in tab.text_content("#message .error")
    assert not tab.is_visible("#flow")
    visit.complaints.clear()  # the refused request


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_the_flow_fits_every_screen(visit, shoot, width):
    tab = visit("/flow?model=prose&prompt=the+cat&stage=decoder.1.self")
    tab.set_viewport_size({"width": width, "height": 860})
    tab.reload()
    stages(tab)
    tab.wait_for_selector("#stage .numbers canvas")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shoot(tab, f"flow-{width}")


def numbers_of(tab, name):
    """Read the norm of a vector from its caption."""
    texts = tab.locator(f"#steps figcaption > span:text-matches('^{name} ')").all_text_contents()
    return [text.split("norm ")[1] for text in texts]


def test_keys_values_mask_and_residual_follow_an_edit(visit, shoot):
    tab = visit("/steps?model=rows&text=the+red+cat&map=bert.encoder.1.self&head=1&query=2")
    tab.wait_for_selector("#steps table")
    captions = " | ".join(tab.locator("#steps figcaption > span").all_text_contents())
    for name in ("W_Q", "W_K", "W_V", "Keys K", "Values V", "Values times weights", "Concatenated", "W_O", "Sum"):
        assert f"{name}" in captions, captions
    assert tab.locator("#steps li").count() == 7
    shoot(tab, "steps-encoder")
    assert not tab.is_enabled("#reset")
    before = numbers_of(tab, "Sum")
    tab.uncheck("#steps td input[type=checkbox] >> nth=0")
    until(tab, "document.querySelector('#steps td b').textContent === '0.0000'")
    weights = [float(text) for text in tab.locator("#steps td b").all_text_contents()]
    assert sum(weights) == pytest.approx(1, abs=0.001)
    tab.click("#reset")
    until(tab, "document.querySelector('#steps td b').textContent !== '0.0000'")
    assert numbers_of(tab, "Sum") == before
    weights = [float(text) for text in tab.locator("#steps .scores-of td b").all_text_contents()]
    strongest = max(range(len(weights)), key=lambda at: weights[at])
    value = "canvas[aria-label^='Values V ']"
    tab.focus(value)
    tab.keyboard.press("ArrowDown")
    assert "Values V of the [0] = " in tab.text_content(f"figure:has({value}) output")
    for _ in range(abs(strongest - 1)):
        tab.keyboard.press("ArrowDown" if strongest > 1 else "ArrowUp")
    tab.keyboard.press("Enter")
    tab.keyboard.press("Control+a")
    tab.keyboard.type("10000")
    tab.keyboard.press("Enter")
    until(tab, "!document.getElementById('reset').disabled")
    output = float(numbers_of(tab, "Output of this head")[0].replace(",", ""))
    assert output == pytest.approx(10000 * weights[strongest], rel=0.05), "mostly the weight of the key in one number"
    assert numbers_of(tab, "Sum") != before, "the residual stream follows"


def test_an_edited_query_changes_the_scores_and_an_edited_scale_all_of_them(visit):
    tab = visit("/steps?model=pairs&source=the+red+cat&map=decoder.0.cross&head=0&query=0")
    tab.wait_for_selector("#steps table")
    weights = lambda: tab.locator("#steps td b").all_text_contents()  # noqa: E731
    before = weights()
    tab.fill("[aria-label=scale]", "0")
    tab.press("[aria-label=scale]", "Enter")
    until(tab, "new Set([...document.querySelectorAll('#steps td b')].map(b => b.textContent)).size === 1")
    tab.click("#reset")
    assert weights() == before
    tab.click("#steps canvas[aria-label^='q ']", position={"x": 20, "y": 20})
    tab.keyboard.press("Control+a")
    tab.keyboard.type("30")
    tab.keyboard.press("Enter")
    until(tab, "!document.getElementById('reset').disabled")
    assert weights() != before


@pytest.mark.parametrize(
    ("model", "field", "stack", "layers"),
    [("minilm", "first", "bert.encoder", 6), ("smollm2", "prompt", "decoder", 30)],
)
def test_models_of_the_catalogue(visit, shoot, model, field, stack, layers):
    tab = visit(f"/flow?model={model}&{field}={quote(SENTENCE)}", "catalogue_address")
    tab.wait_for_selector(STAGES, timeout=180_000)
    assert tab.locator(STAGES).count() == 2 + 2 * layers
    assert tab.locator(".flow-picture .lens").count() == (0 if model == "minilm" else layers + 1)
    if model == "minilm":
        tab.click("#tokens .token >> text=/^it$/")
        until(tab, "document.querySelector('.flow-picture')?.getAttribute('aria-label') === 'Flow of it'")
    name = f"{stack}.3.self"
    tab.click(f"{STAGES}[data-stage='{name}']", position={"x": 12, "y": 50})
    tab.wait_for_selector("#stage .numbers canvas")
    assert tab.locator("#stage tbody tr").count() >= 8
    shoot(tab, f"flow-{model}")
    tab.click("#stage .unfold")
    tab.wait_for_selector("#steps table", timeout=60_000)
    assert tab.input_value("#map") == name
    captions = " | ".join(tab.locator("#steps figcaption > span").all_text_contents())
    assert "Keys K" in captions and "Values V" in captions and "W_O" in captions
    tab.wait_for_timeout(300)
    shoot(tab, f"steps-{model}")
