"""Every page is checked by axe-core, light and dark, on a phone, a laptop and a projector; it must report nothing."""

from pathlib import Path

import axe_playwright_python
import pytest

from tests.studio.test_pages import until

pytestmark = pytest.mark.slow
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
# Without `preload`, which puts the style sheets into the page once more, against its rules.
OPTIONS = '{preload: false, resultTypes: ["violations", "incomplete"]}'
RUN = (
    f"() => axe.run(document, {OPTIONS})"
    + """.then(({violations}) => violations.map(
    ({id, impact, help, nodes}) => `${id} (${impact}): ${help}: `
        + nodes.slice(0, 3).map(({html, failureSummary}) => `${html.slice(0, 160)} ${failureSummary}`).join(" | ")))"""
)
SIZES = {"phone": (390, 844), "laptop": (1280, 860), "projector": (1920, 1080)}
PINNED = "map=encoder.1.self&head=1&row=2&column=3&pin=1"
PAGES = {  # page: what it shows when it is complete
    "/runs": "document.querySelector('#charts svg path')",
    "/watch/pairs": "document.querySelector('#heads canvas')",
    "/look": "document.body.dataset.ready",
    f"/look?model=rows&text=the+red+cat&{PINNED}": "document.querySelector('.ranked')",
    "/look?model=pairs&source=the+red+cat&view=lines": "document.querySelector('.lines path')",
    "/look?model=rows&text=the+red+cat&view=query": "document.querySelector('#view .token.on')",
    "/try?model=pairs&source=the+red+cat": "document.querySelector('#predictions .card')",
    "/steps?model=prose&prompt=the+cat": "document.querySelector('#steps table')",
    "/samples": "!document.getElementById('empty').hidden",
    "/replay": "document.body.dataset.ready",
    "/lessons": "document.querySelector('#norms svg')",
}
EXPLANATIONS = ("heads", "gallery", "ablation", "attribution", "lens")


def violations(tab):
    """What axe-core reports; its script comes over the debugging connection, past the rules of the page."""
    session = tab.context.new_cdp_session(tab)
    session.send("Runtime.evaluate", {"expression": AXE})
    return tab.evaluate(RUN)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", PAGES)
def test_axe_reports_nothing(visit, page, size):
    width, height = SIZES[size]
    for scheme in ("light", "dark"):
        tab = visit(page, color_scheme=scheme, reduced_motion="reduce")
        tab.set_viewport_size({"width": width, "height": height})
        until(tab, PAGES[page])
        tab.wait_for_timeout(400)
        assert violations(tab) == [], (page, size, scheme)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, (page, size, scheme)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_reports_nothing_in_the_explanations(visit, scheme):
    tab = visit("/look?model=rows&text=the+red+cat&head=0", color_scheme=scheme)
    until(tab, "document.body.dataset.shown")
    for name in EXPLANATIONS:
        tab.click(f"[data-explanation={name}]")
        until(tab, "document.querySelector('#explanation table, #explanation .token, #explanation .row')")
        tab.wait_for_timeout(300)
        assert violations(tab) == [], (name, scheme)


def test_axe_finds_what_is_wrong(visit):
    tab = visit("/replay")
    until(tab, "document.body.dataset.ready")
    tab.evaluate("document.getElementById('theme').removeAttribute('aria-label')")
    tab.evaluate("document.getElementById('theme').textContent = ''")
    assert [line.split(" ")[0] for line in violations(tab)] == ["button-name"]
