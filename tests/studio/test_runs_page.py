"""The Runs, New training and Watch pages in a real browser: read, sort, filter, annotate, delete, start and play."""

import json
import re
import shutil
import sys

import pytest

from saccade.runs import folder as runs
from tests.studio.conftest import serving
from tests.studio.test_pages import EVIL, until
from tests.studio.test_run_actions import TABLE

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(place, tmp_path, monkeypatch):
    """A copy of the runs, in whose folder a studio is started; one of them has another name."""
    shutil.copytree(place / "runs", tmp_path / "runs")
    for number in range(2, 9):
        shutil.copytree(place / "runs" / "pairs", tmp_path / "runs" / f"pairs-{number}")
    (tmp_path / "pairs.tsv").write_text(TABLE)
    (tmp_path / "broken.tsv").write_text("a\tb\n" * 5 + "only one\n" + "a\tb\n" * 20)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_address(folder):
    """Address of a studio whose runs may be changed."""
    command = [sys.executable, "-m", "saccade", "studio", "--no-browser", "--runs", "runs"]
    with serving(command, folder / "cache") as found:
        yield found


def names(tab):
    """Names in the order of the table, without the run that a test of the live pages trains."""
    return [name for name in tab.locator("tbody tr td:nth-child(2)").all_text_contents() if name != "live"]


def compare_curves(tab):
    """Show the curves of two runs alone."""
    while (shown := tab.locator("[aria-label^='Show the curves of ']:checked")).count():
        shown.first.uncheck()
    for name in ("prose", "pairs"):
        tab.check(f"[aria-label='Show the curves of {name}']")


def test_runs_are_sorted_and_filtered_and_have_metrics_with_units(visit, shoot):
    tab = visit("/runs")
    cells = tab.locator("tbody tr", has_text="pairs").locator("td").all_text_contents()
    assert cells[3] in ("BLEU \u2191", "Exact match \u2191") and re.search("[0-9]", cells[4])
    assert tab.locator("tbody tr", has_text="prose").locator("td").nth(4).text_content().endswith(" nats")
    tab.click("th button:text('Run')")
    assert names(tab) == ["pairs", "prose", "questions", "rows"]
    assert tab.get_attribute("th:has(button:text('Run'))", "aria-sort") == "ascending"
    tab.keyboard.press("Enter")
    assert names(tab) == ["rows", "questions", "prose", "pairs"], "the button keeps the focus"
    tab.fill("#filter", "language prose")
    assert names(tab) == ["prose"] and re.fullmatch("1 of [0-9]+ runs", tab.text_content("#counted"))
    shoot(tab, "runs-filtered")


def test_values_are_read_off_the_curves_of_all_runs(visit, shoot):
    tab = visit("/runs")
    compare_curves(tab)
    until(tab, "document.querySelector('#charts figure')?.querySelectorAll('.key').length === 2")
    chart = tab.locator("#charts figure").first
    assert chart.locator("h3").text_content().startswith("Loss (nats) \u2193")
    box = chart.locator("svg.chart").bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = chart.locator(".tip")
    assert tip.is_visible() and tip.locator("li").count() == 2
    shoot(tab, "runs-hover")
    before = tip.text_content()
    chart.locator("svg.chart").focus()
    tab.keyboard.press("ArrowRight")
    assert tip.text_content() != before and "step" in chart.locator(".spoken").text_content()
    tab.keyboard.press("End")
    step = tip.locator("b").first.text_content()
    assert step == "step 30"
    loss = json.loads(tab.evaluate("fetch('/api/runs/prose').then(r => r.text())"))["steps"][-1]["loss"]
    shown = float(re.search(r"prose ([0-9.]+)", tip.text_content())[1])
    assert shown == pytest.approx(loss, rel=1e-3)


def test_a_legend_has_only_the_runs_with_the_metric(visit):
    tab = visit("/runs")
    compare_curves(tab)
    until(tab, "[...document.querySelectorAll('#charts h3')].some(h => h.textContent.startsWith('Exact match'))")
    for title, name in (("Exact match (%) \u2191", "pairs"), ("Perplexity \u2193", "prose")):
        figure = tab.locator("#charts figure", has=tab.locator("h3", has_text=title))
        until(tab, "document.querySelectorAll('#charts figure:first-child .key').length === 2")
        assert figure.locator(".key").all_text_contents() == [name]


def test_curves_are_smoothed_with_the_raw_one_faint_and_axes_are_logarithmic(visit, shoot):
    tab = visit("/watch/prose")
    tab.wait_for_selector("#charts svg path")
    assert tab.locator("#charts path.raw").count() == 0
    ticks = lambda: tab.locator("#charts figure").first.locator("text").all_text_contents()  # noqa: E731
    linear = ticks()
    tab.focus("#smoothing")
    tab.keyboard.press("End")
    until(tab, "document.querySelectorAll('#charts path.raw').length > 0")
    tab.check("#logX")
    tab.check("#logY")
    assert ticks() != linear and {"1", "10"} <= set(ticks())
    tab.select_option("#over", "seconds")
    until(tab, "document.querySelector('#charts svg').textContent.includes('minutes')")
    shoot(tab, "watch-curves")
    tab.reload()
    tab.wait_for_selector("#charts path.raw", state="attached")
    assert tab.is_checked("#logX") and tab.input_value("#over") == "seconds"


def test_a_run_is_deleted_after_its_name_was_shown(visit, folder, shoot):
    tab = visit("/runs", studio="own_address")
    tab.click("[aria-label='Delete pairs-2']")
    dialog = tab.locator("dialog")
    assert dialog.locator("b").text_content() == "pairs-2"
    shoot(tab, "runs-delete")
    tab.keyboard.press("Escape")
    assert "pairs-2" in names(tab) and (folder / "runs" / "pairs-2").is_dir()
    tab.click("[aria-label='Delete pairs-2']")
    assert tab.evaluate("document.activeElement.textContent") == "Cancel"
    tab.click("dialog button:text('Delete pairs-2')")
    until(tab, "!document.querySelector('dialog')")
    assert "pairs-2" not in names(tab) and "pairs-3" in names(tab) and not (folder / "runs" / "pairs-2").exists()
    with runs.Run(folder / "runs" / "pairs-3").lock():
        until(tab, "document.querySelector('[aria-label=\"Delete pairs-3\"]').disabled")


def test_notes_are_written_on_both_pages(visit, folder, shoot):
    tab = visit("/runs", studio="own_address")
    tab.click("[aria-label^='Notes of pairs-4']")
    tab.fill("dialog textarea", f"warmup too short {EVIL}")
    tab.click("dialog button:text('Save')")
    until(tab, "document.querySelector('tbody').textContent.includes('warmup too short')")
    assert (folder / "runs" / "pairs-4" / "notes.txt").read_text() == f"warmup too short {EVIL}\n"
    tab.fill("#filter", "warmup")
    assert names(tab) == ["pairs-4"]
    tab.click("tbody a[href='/watch/pairs-4']")
    until(tab, "document.getElementById('notes')?.textContent.includes('warmup too short')")
    assert not tab.evaluate("window.hacked")
    tab.click("#annotate")
    tab.fill("dialog textarea", "")
    tab.click("dialog button:text('Save')")
    until(tab, "document.getElementById('annotate').textContent === 'Add notes'")
    assert not (folder / "runs" / "pairs-4" / "notes.txt").exists()


def test_a_training_is_started_from_the_page_and_watched(visit, folder, shoot):
    tab = visit("/runs", studio="own_address")
    tab.click("text=New training")
    until(tab, "document.body.dataset.ready")
    options = tab.locator("#files option").evaluate_all("all => all.map(one => one.value)")
    assert options == ["broken.tsv", "pairs.tsv"]
    tab.fill("#path", "pairs.tsv")
    until(tab, "!document.getElementById('start').disabled")
    assert "task: translation" in tab.text_content("#found") and "parameters" in tab.text_content("#found")
    assert "translation" in tab.locator("#task option").first.text_content()
    tab.fill("#minutes", "30")
    tab.fill("#name", "mine")
    tab.press("#name", "Tab")
    until(tab, "document.querySelector('#found').textContent.includes('mine')")
    until(tab, "!document.getElementById('start').disabled")
    shoot(tab, "train")
    tab.click("#start")
    tab.wait_for_url("**/watch/mine", timeout=120_000)
    until(tab, "document.querySelector('#charts svg path')", timeout=60_000)
    until(tab, "document.getElementById('state')?.textContent === 'training'")
    tab.goto(tab.url.replace("/watch/mine", "/runs"))
    tab.click("[aria-label='Stop mine']")
    until(tab, "document.querySelector('[aria-label=\"Resume mine\"]')", timeout=60_000)


def test_mistakes_are_shown_beside_their_controls(visit, shoot):
    tab = visit("/train", studio="own_address")
    visit.complaints.clear()
    until(tab, "document.body.dataset.ready")
    tab.fill("#path", "broken.tsv")
    tab.select_option("#task", "translation")
    until(tab, "document.querySelector('#error-data').textContent.includes('broken.tsv:6')")
    assert tab.get_attribute("#path", "aria-invalid") == "true"
    assert tab.is_disabled("#start")
    shoot(tab, "train-broken")
    tab.fill("#path", "pairs.tsv")
    tab.fill("#minutes", "-1")
    tab.press("#minutes", "Tab")
    until(tab, "document.querySelector('#error-minutes .error')")
    tab.fill("#minutes", "1")
    tab.press("#minutes", "Tab")
    until(tab, "!document.getElementById('start').disabled")
    assert not tab.locator(".error").count()
    tab.fill("#name", "rows")
    tab.press("#name", "Tab")
    until(tab, "document.querySelector('#error-name .error')")
    assert "a run 'rows' exists" in tab.text_content("#error-name")
    complaints = [text for text in visit.complaints if "400" not in text]
    visit.complaints[:] = complaints


def test_a_file_is_uploaded(visit, tmp_path):
    tab = visit("/train", studio="own_address")
    until(tab, "document.body.dataset.ready")
    (tmp_path / "mine.tsv").write_text(TABLE)
    tab.set_input_files("#file", tmp_path / "mine.tsv")
    until(tab, "document.querySelector('#found').textContent.includes('mine-1')")
    assert tab.text_content("#uploaded") == "mine.tsv" and not tab.is_disabled("#start")


def test_attention_plays_through_log_spaced_steps(visit, shoot):
    tab = visit("/watch/pairs")
    tab.wait_for_selector("#heads canvas.labelled")
    assert tab.get_attribute("#steps", "max") == "8", "steps 0, 1, 2, 4, 8, 10, 16, 20 and 30"
    seen = []
    tab.click("#play")
    while tab.get_attribute("#play", "aria-pressed") == "true":
        step = tab.text_content("#step")
        if step not in seen:
            seen.append(step)
        tab.wait_for_timeout(50)
    assert seen == ["0", "1", "2", "4", "8", "10", "16", "20", "30"]
    tab.focus("#steps")
    tab.keyboard.press("Home")
    until(tab, "document.getElementById('step').textContent === '0'")
    shoot(tab, "watch-step-0")


def test_weights_are_read_with_labels_and_a_scale_with_numbers(visit, shoot):
    tab = visit("/watch/rows")
    tab.wait_for_selector("#heads canvas.labelled")
    tab.select_option("#head", "1")
    until(tab, "document.querySelectorAll('#heads canvas').length === 1")
    tab.focus("#heads canvas")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        tab.keyboard.press(key)
    reading = tab.text_content("#reading")
    snapshot = json.loads(tab.evaluate("fetch('/api/runs/rows/attention/30').then(r => r.text())"))["examples"][0]
    labels = snapshot["maps"][-1]["queries"]["labels"]
    assert reading.startswith(f"step 30: {labels[1]} \u2190 {labels[1]}") and "head 1" in reading
    tab.focus("#steps")
    tab.keyboard.press("Home")
    until(tab, "document.getElementById('reading').textContent.startsWith('step 0: ')")
    tab.keyboard.press("End")
    until(tab, "document.getElementById('reading').textContent.startsWith('step 30: ')")
    assert tab.text_content("#legend").startswith("01the same at all steps")
    tab.select_option("#scale", "largest")
    until(tab, "document.getElementById('legend').textContent.includes('largest weight of this layer')")
    shoot(tab, "watch-head")
    with tab.expect_download() as saved:
        tab.click("#gif")
    data = saved.value.path().read_bytes()
    assert data.startswith(b"GIF89a") and b"step 0\nstep 1\nstep 2\nstep 4" in data


@pytest.mark.parametrize("page", ["/runs", "/train", "/watch/pairs"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_pages_fit_every_width_in_both_schemes(visit, shoot, page, scheme, width):
    tab = visit(page, color_scheme=scheme)
    tab.set_viewport_size({"width": width, "height": 900})
    tab.wait_for_selector("#charts svg path, #form", state="attached")
    tab.wait_for_timeout(300)
    until(tab, f"document.documentElement.scrollWidth <= {width}")
    shoot(tab, f"{page.strip('/').replace('/', '-')}-{width}-{scheme}")
