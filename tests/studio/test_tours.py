"""Guided tours in a real browser: every step of every tour spotlights something that is there."""

import pytest

from tests.studio.test_pages import until

pytestmark = pytest.mark.slow
TOPICS = [
    "Scaled dot-product attention",
    "Query, key and value",
    "Multi-head attention",
    "Positional encoding",
    "Masked self-attention",
    "Permutation equivariance",
    "Cross-attention",
    "The residual stream",
    "Layer norm, pre-norm and post-norm",
    "The encoder",
    "The decoder",
    "Kernel smoothing and Gaussian processes",
]
LIGHT = """() => {
    const box = document.querySelector('.tour-light').getBoundingClientRect();
    return document.querySelector('.tour-light').classList.contains('off') ? null : [box.width, box.height];
}"""


def read_tours(tab):
    """Return the tours as the page has them."""
    return tab.evaluate("async () => (await import('/static/tours.js')).tours")


def test_every_topic_has_a_tour_of_six_to_eight_steps(visit):
    tab = visit("/lessons")
    tours = read_tours(tab)
    assert [tour["title"] for tour in tours] == TOPICS
    assert all(6 <= len(tour["steps"]) <= 8 for tour in tours)
    assert tab.locator(".tour-card h3").all_text_contents() == TOPICS


def walk(tab, tour):
    """Go through all steps by the keyboard; return the titles that were shown with something in the light."""
    shown = []
    for number, step in enumerate(tour["steps"], 1):
        tab.wait_for_selector(f".tour[data-step='{number}']", timeout=60_000)  # on the next page, where there is one
        assert f"{number} of {len(tour['steps'])}" in tab.text_content(".tour small")
        assert f"tour={tour['id']}.{number}" in tab.url
        until(tab, f"({LIGHT})() !== null")
        assert min(tab.evaluate(LIGHT)) > 20, step
        shown.append(tab.text_content(".tour h2"))
        tab.keyboard.press("PageDown")
    until(tab, "document.querySelector('.tour') === null && !location.search.includes('tour=')")
    return shown


@pytest.mark.parametrize("title", TOPICS)
def test_each_step_of_a_tour_spotlights_what_is_there(visit, title):
    """On small models, so what is clicked in a step may not be there; what is in the light must be."""
    tab = visit("/lessons")
    tour = next(tour for tour in read_tours(tab) if tour["title"] == title)
    tab.click(f".tour-card:has(h3:text-is('{title}')) button")
    assert walk(tab, tour) == [step["title"] for step in tour["steps"]]


def test_a_link_opens_a_step_and_the_tour_goes_back_and_ends(visit, shoot):
    tab = visit("/lessons?tour=kernel.3")
    until(tab, "document.querySelector('.tour')?.dataset.step === '3'")
    shoot(tab, "tour-kernel")
    assert tab.evaluate("document.activeElement.textContent") == "Next"
    tab.keyboard.press("ArrowLeft")
    until(tab, "document.querySelector('.tour')?.dataset.step === '2'")
    assert "tour=kernel.2" in tab.get_attribute(".tour-link", "href")
    tab.keyboard.press("Escape")
    until(tab, "document.querySelector('.tour') === null")
    assert "tour=" not in tab.url


def test_a_tour_without_its_model_says_which_command_brings_one(client):
    models = client.get("/lessons.json").json()["tours"]
    assert set(models) == {"encoder", "decoder", "translation"}
    assert models["translation"] == "pairs" and models["decoder"] in ("smollm2", "prose", "live")


def test_the_kernel_lesson_draws_its_data(visit):
    tab = visit("/lessons")
    tab.wait_for_selector("#smoothing .data circle")
    assert tab.locator("#smoothing .data circle").count() == 24
    assert tab.locator("#smoothing .key >> text=/^data$/").count() == 1
