"""The pages of the studio in a real browser: every page, by mouse and by keyboard, live and with hostile words."""

import json
import os
import subprocess
import sys
import time
from urllib.parse import quote

import pytest

pytestmark = pytest.mark.slow
EVIL = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"


def until(tab, true, timeout=30_000):
    """Wait for what a page says of itself; asked from outside, since its own rules forbid it to evaluate texts."""
    end = time.monotonic() + timeout / 1000
    while not tab.evaluate(f"document.body !== null && Boolean({true})"):  # null: the next page is on its way
        assert time.monotonic() < end, true
        tab.wait_for_timeout(50)


def look(tab, text):
    until(tab, "document.body.dataset.ready")
    tab.evaluate("delete document.body.dataset.shown")
    tab.fill("#inputs textarea", text)
    tab.press("#inputs textarea", "Control+Enter")
    tab.wait_for_selector(".matrix canvas")
    tab.wait_for_selector(".thumb, .heads .layer")
    until(tab, "document.body.dataset.shown")


def test_runs_are_listed_with_their_curves(visit, shoot):
    tab = visit("/runs")
    assert tab.locator("tbody tr").count() == 4
    assert set(tab.locator("tbody a[href^='/watch']").all_text_contents()) == {"prose", "pairs", "rows", "questions"}
    tab.wait_for_selector("#charts svg path")
    tab.check("[aria-label='Show the curves of pairs']")
    until(tab, "document.querySelectorAll('#charts .key').length > 1")
    shoot(tab, "runs")


def test_attention_of_fixed_examples_is_seen_at_every_evaluation(visit, shoot):
    tab = visit("/watch/pairs")
    tab.wait_for_selector("#heads canvas")
    assert tab.input_value("#steps") == "8" and tab.text_content("#step") == "30"
    tab.focus("#steps")
    tab.keyboard.press("ArrowLeft")
    until(tab, "document.getElementById('step').textContent === '20'")
    assert tab.locator("#samples p").count() == 3
    shoot(tab, "watch")


def test_a_text_is_looked_at_by_keyboard_alone(visit, shoot):
    tab = visit("/look?model=pairs")
    look(tab, "the red cat sat on a mat.")
    assert tab.text_content("#output")
    tab.focus(".matrix")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        tab.keyboard.press(key)
    assert "pinned" in tab.text_content("#status")
    shoot(tab, "look-matrix")
    tab.click("[data-view=lines]")
    tab.wait_for_selector(".lines path", state="attached")
    tab.focus(".lines .hit")
    assert "\u2190" in tab.text_content("#status")
    shoot(tab, "look-lines")
    tab.click("[data-view=query]")
    tab.wait_for_selector(".token.on")
    shoot(tab, "look-query")


def test_a_link_brings_the_same_view_back(visit):
    tab = visit("/look?model=rows")
    look(tab, "the red cat")
    tab.click(".thumb >> nth=1")
    until(tab, "document.getElementById('selection').textContent.includes('head 1')")
    tab.click("[data-view=lines]")
    tab.wait_for_selector(".lines path", state="attached")
    again = visit(tab.url[tab.url.index("/look") :])
    again.wait_for_selector(".lines path", state="attached")
    assert again.text_content("#selection") == tab.text_content("#selection")
    assert again.input_value("#inputs textarea") == "the red cat"


def test_small_weights_of_long_texts_are_brought_out(visit, shoot):
    tab = visit("/look?model=pairs")
    shades = "document.querySelector('.matrix canvas').toDataURL()"
    look(tab, "the red cat")
    assert not tab.is_checked("#sqrt")
    look(tab, "the red cat sat on a mat " * 12)
    until(tab, "document.getElementById('sqrt').checked")
    until(tab, "document.body.dataset.drawn")
    rooted, shown = tab.evaluate(shades), float(tab.evaluate("document.body.dataset.drawn"))
    shoot(tab, "look-square-root")
    tab.uncheck("#sqrt")
    until(tab, f"Number(document.body.dataset.drawn) > {shown}")
    assert tab.evaluate(shades) != rooted
    assert "sqrt=0" in tab.url


def test_explanations_are_given(visit, shoot):
    tab = visit("/look?model=rows")
    look(tab, "the red cat")
    tab.wait_for_selector("#explanation table")
    tab.click("#explanation button")
    until(tab, "document.querySelector('#explanation tbody tr').lastChild.textContent !== ''")
    tab.click(".thumb >> nth=0")
    tab.click("[data-explanation=ablation]")
    tab.click("#explanation button >> nth=0")
    tab.wait_for_selector("#explanation b")
    assert "loses" in tab.text_content("#explanation b")
    assert tab.locator(".thumb.ablated").count() == 1
    shoot(tab, "ablation")
    tab.click("[data-explanation=attribution]")
    tab.wait_for_selector("#explanation .token")
    tab.select_option("#explanation select", "integrated")
    tab.wait_for_selector("#explanation .token")
    tab.click("[data-explanation=lens]")
    tab.wait_for_selector("#explanation tbody tr")
    assert tab.locator("#explanation tbody tr").count() == 2


def test_the_rollout_of_a_text_is_saved_also_after_another_head(visit):
    tab = visit("/look?model=rows&text=the%20red%20cat&map=rollout&head=1")
    tab.wait_for_selector(".matrix canvas")
    until(tab, "document.body.dataset.shown")
    assert tab.text_content("#selection") == "Attention rollout", "which has one head"
    for kind in ("SVG", "PNG"):
        with tab.expect_download() as saved:
            tab.click(f"#export a >> text={kind}")
        content = saved.value.path().read_bytes()
        assert content.startswith(b"<svg" if kind == "SVG" else b"\x89PNG")
    tab.check("#sqrt")
    until(tab, "document.querySelector('#export a').href.includes('sqrt=1')")
    with tab.expect_download() as saved:
        tab.click("#export a >> text=SVG")
    assert b"square-root colours" in saved.value.path().read_bytes()


def test_every_number_of_a_head_can_be_followed_and_changed(visit, shoot):
    tab = visit(f"/steps?model=prose&prompt={quote('the cat')}&map=decoder.1.self&head=1&query=3")
    tab.wait_for_selector("#steps table")
    weights = [float(text) for text in tab.locator("#steps td b").all_text_contents()]
    assert sum(weights) == pytest.approx(1, abs=0.01)
    before = weights[:]
    tab.fill("#steps td input >> nth=0", "9")
    tab.press("#steps td input >> nth=0", "Enter")
    until(tab, "+document.querySelector('#steps td b').textContent > 0.5")
    assert [float(text) for text in tab.locator("#steps td b").all_text_contents()] != before
    shoot(tab, "steps")


def test_the_lesson_of_112_and_96(visit, shoot):
    tab = visit("/lessons")
    codes = tab.locator("#scores code").all_text_contents
    assert codes() == ["14.00", "12.00", "0.8808", "0.1192", "0.8808", "0.5000"]
    tab.fill("#scores input >> nth=0", "96")
    assert codes()[2:] == ["0.5000", "0.5000", "0.5000", "0.5000"]
    tab.click("#scores button >> nth=1")
    assert codes()[4:] == ["0.0174", "0.0174", "0.0174", "0.9479", "38.9583", "25.0000"]
    assert tab.locator("svg.chart").count() == 3
    outputs = lambda: sorted(tab.locator("#order tbody tr").all_text_contents())  # noqa: E731
    first = outputs()
    tab.click("#order button")
    assert outputs() == first
    tab.check("#order input")
    tab.click("#order button")
    assert outputs() != first
    assert tab.locator("#smoothing canvas").count() == 3
    shoot(tab, "lessons")


def test_who_sees_a_replaced_word_moves_and_nobody_else(visit):
    tab = visit("/lessons")
    tab.select_option("#masking select", "2")

    def moved(number):
        return tab.locator(f"#masking table >> nth={number} >> tbody td:last-child").all_text_contents()

    assert "0" not in moved(0)
    assert moved(1)[:2] == ["0", "0"] and "0" not in moved(1)[2:]
    assert [at for at, value in enumerate(moved(2)) if value != "0"] == [2]
    rows = tab.locator("#masking table >> nth=1 >> tbody tr").all()
    assert all(row.locator("td").all_text_contents()[at + 2 : 6] == ["0"] * (4 - at) for at, row in enumerate(rows))
    for place in ("0", "3"):
        tab.select_option("#append select", place)
        assert tab.locator("#append code").last.text_content() == "0"
    tab.check("#append input")
    assert tab.locator("#append code").last.text_content() == "0"


def test_queries_play_one_after_the_other(visit):
    tab = visit("/look?model=prose")
    look(tab, "the cat sat on the mat")
    tab.click("#play")

    def selected():
        every = tab.locator("#view .strip >> nth=0 >> .token")
        return every.evaluate_all("all => all.findIndex(one => one.matches('.on'))")

    tab.wait_for_selector(".token.on")
    first = selected()
    assert tab.locator("#view .strip >> nth=1 >> .token.on").count() == 1  # the key with the largest weight
    tab.wait_for_timeout(1700)
    assert selected() > first
    tab.click("#play")
    stopped = selected()
    tab.wait_for_timeout(900)
    assert selected() == stopped and tab.text_content("#play") == "Play"


def test_two_models_answer_side_by_side(visit, shoot):
    tab = visit("/try?model=pairs&other=rows")
    until(tab, "document.body.dataset.ready")
    tab.fill("#inputs textarea", "the red cat.")
    tab.click("#submit")
    until(tab, "document.querySelectorAll('#predictions .card').length === 2")
    assert tab.locator("#predictions h2").all_text_contents() == ["pairs", "rows"]
    tab.hover("#predictions .card >> nth=0 >> .strip:last-child .token >> nth=0")
    shoot(tab, "try")


def test_hostile_words_stay_words(visit):
    tab = visit("/look?model=pairs")
    look(tab, f"cat {EVIL}")
    for view in ("lines", "query"):
        tab.click(f"[data-view={view}]")
        tab.wait_for_selector(".lines path, .token.on", state="attached")
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("#results img").count() == 0
    trial = visit(f"/try?model=pairs&source={quote(EVIL)}")
    trial.wait_for_selector("#predictions .card")
    assert trial.evaluate("window.hacked") is None


def test_outputs_and_numbers_without_a_text_are_shown(visit):
    tab = visit("/lessons")

    def shown(expression):
        return tab.evaluate(f"async () => {{ const studio = await import('/static/studio.js'); return {expression}; }}")

    assert shown("studio.outputText({ text: '' })") == "(no answer)"
    assert shown("[null, -0.25].map((value) => studio.digits(value, 2))") == ["\u2013", "-0.25"]


def test_mistakes_are_told_where_they_happen(visit):
    tab = visit("/look?model=prose")
    until(tab, "document.body.dataset.ready")
    tab.fill("#inputs textarea", "the cat")
    tab.click("summary")
    tab.fill("[name=temperature]", "-1")
    tab.click("#submit")
    tab.wait_for_selector(".error")
    assert "temperature must be" in tab.text_content(".error")
    visit.complaints.clear()  # the browser names every refused request
    missing = visit("/nowhere")
    assert "There is no page /nowhere." in missing.text_content("main")
    visit.complaints.clear()


def test_dark_is_dark_and_stays(visit):
    tab = visit("/lessons", color_scheme="dark")
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    assert tab.evaluate(paper) == "rgb(20, 23, 27)"
    tab.click("#theme")
    assert tab.evaluate(paper) == "rgb(255, 255, 255)"
    tab.reload()
    assert tab.evaluate(paper) == "rgb(255, 255, 255)"


@pytest.mark.parametrize(
    "page", ["/runs", "/watch/pairs", "/look?model=rows&text=the+cat", "/try", "/samples", "/lessons"]
)
def test_pages_fit_a_narrow_window(visit, page):
    tab = visit(page)
    tab.set_viewport_size({"width": 420, "height": 800})
    tab.evaluate("document.querySelector('select')?.add(new Option('/a/model/with/a/long/name'.repeat(9)))")
    tab.wait_for_timeout(300)
    until(tab, "document.documentElement.scrollWidth <= 420")


def test_four_thousand_tokens_scroll(visit, gpt2_folder):
    tab = visit(f"/look?model={quote(str(gpt2_folder), safe='')}")
    until(tab, "document.body.dataset.ready")
    tab.fill("#inputs textarea", "abcdefgh" * 510)
    tab.click("summary")
    tab.fill("[name=max_new_tokens]", "1")
    tab.click("#submit")
    until(tab, "document.body.dataset.shown", timeout=120_000)
    assert tab.locator(".thumb").count() == 48
    tab.select_option("#cell", "12")
    tab.wait_for_selector(".matrix canvas")
    tab.evaluate("document.querySelector('.matrix').scrollTo(30000, 30000)")
    tab.focus(".matrix")
    tab.keyboard.press("ArrowDown")
    until(tab, "!document.getElementById('status').textContent.includes('NaN')")


def test_question_answering_has_two_fields(visit, shoot):
    tab = visit("/look?model=questions")
    until(tab, "document.body.dataset.ready")
    assert tab.locator("#inputs label").all_text_contents() == ["question", "context"]
    tab.fill("#input-question", "the what?")
    tab.fill("#input-context", "a red dog sat on the mat.")
    tab.click("#submit")
    until(tab, "document.body.dataset.shown")
    assert "question=the+what" in tab.url and "context=a+red+dog" in tab.url
    shoot(tab, "look-question")
    again = visit(tab.url[tab.url.index("/look") :])
    until(again, "document.body.dataset.shown")
    assert again.input_value("#input-context") == "a red dog sat on the mat."


def test_a_training_is_followed_to_its_end(visit, place):
    arguments = ["train", str(place / "text.txt"), "--task", "language_model", "--name", "live", "--steps", "300"]
    arguments += [
        "--runs",
        str(place / "runs"),
        "train.evaluate_every=100",
        "model.dim=32",
        "model.depth=1",
        "batch_size=4",
    ]
    environment = {**os.environ, "SACCADE_CACHE": str(place / "cache"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "saccade", *arguments, "model.max_positions=64"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as process:
        try:
            tab = visit("/runs")
            tab.wait_for_selector("a[href='/watch/live']", timeout=60_000)
            tab.click("a[href='/watch/live']")
            tab.wait_for_selector("#state")
            until(tab, "document.getElementById('state').textContent === 'finished'", timeout=120_000)
            until(tab, "document.getElementById('step').textContent === '300'", timeout=30_000)
        finally:
            process.terminate()
    records = [json.loads(line) for line in (place / "runs" / "live" / "metrics.jsonl").read_text().splitlines()]
    assert max(record["step"] for record in records) == 300
