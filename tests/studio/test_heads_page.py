"""The Heads page: a survey in the background with progress and Cancel, sorted cards, and examples that open in Look."""

import threading
import time
from urllib.parse import parse_qs, urlparse

import pytest

from saccade.core.cancellation import check_cancelled
from saccade.errors import UsageError
from saccade.studio.jobs import Jobs
from tests.studio.conftest import MINE
from tests.studio.test_pages import until

STATUS = "document.getElementById('status').textContent"


def finished(client, body):
    """Start a survey and return how it ended."""
    answer = client.post("/api/heads", json=body, headers=MINE)
    assert answer.status_code == 200, answer.text
    job, end = answer.json(), time.monotonic() + 60
    while job["state"] == "running":
        assert time.monotonic() < end
        time.sleep(0.05)
        job = client.get(f"/api/heads/{job['job']}").json()
    return job


def test_the_validation_rows_of_every_kind_of_run_are_surveyed(client):
    for name, heads in (("rows", 4), ("pairs", 6), ("prose", 4), ("questions", None)):
        job = finished(client, {"model": name, "source": "validation", "rows": 5, "ablations": 2})
        assert job["state"] == "done", job["error"]
        report = job["report"]
        assert report["rows"] == 5 or name in ("prose", "questions")
        assert heads is None or len(report["heads"]) == heads
        for head in report["heads"]:
            assert sum(head["patterns"].values()) == report["rows"] and head["cost"]["count"] == min(2, report["rows"])


def test_texts_and_files_beside_the_runs_are_rows_too(client):
    page = client.get("/heads.json").json()
    assert {"text.txt", "pairs.tsv", "rows.tsv"} <= set(page["files"]) and "rows" in page["runs"]
    body = {"model": "rows", "rows": 7, "ablations": 0}
    assert finished(client, {**body, "source": "texts", "texts": "a cat\n\na dog"})["report"]["rows"] == 2
    assert finished(client, {**body, "source": "file", "file": "text.txt"})["report"]["rows"] == 7
    refused = finished(client, {**body, "source": "file", "file": "../../secret.txt"})
    assert refused["state"] == "failed" and "file must be one of the list" in refused["error"]
    pairs = finished(client, {"model": "questions", "source": "texts", "texts": "one text alone", "ablations": 0})
    assert pairs["state"] == "failed" and pairs["error"].startswith("texts:1: ")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"source": "nothing"}, "source must be validation, texts, file, but is 'nothing'"),
        ({"source": "texts", "rows": "many"}, "rows must be a whole number"),
        ({"source": "texts", "rows": 5000}, "rows must be 1 to 1,000, but is 5,000"),
        ({"source": "texts", "texts": 3}, "texts must be a text"),
    ],
)
def test_a_wrong_request_is_refused(client, body, message):
    answer = client.post("/api/heads", json={"model": "rows", **body}, headers=MINE)
    assert answer.status_code == 400 and answer.json()["error"] == message


def test_one_job_runs_at_a_time_and_is_cancelled_by_name():
    jobs, begun = Jobs(), threading.Event()

    def work(progress):
        progress(0.25)
        begun.set()
        while True:
            check_cancelled()
            time.sleep(0.01)

    job = jobs.start(work)
    assert begun.wait(10) and jobs.running() == job.id and jobs.get(job.id).fraction == 0.25
    with pytest.raises(UsageError, match=r"another computation is running \(25 %\)"):
        jobs.start(work)
    job.cancel()
    end = time.monotonic() + 10
    while job.state == "running" and time.monotonic() < end:
        time.sleep(0.01)
    assert job.state == "cancelled" and jobs.running() == "" and job.result is None
    failing = jobs.start(lambda progress: 1 / 0)
    while failing.state == "running":
        time.sleep(0.01)
    assert failing.state == "failed" and "error of the program" in failing.error
    with pytest.raises(UsageError, match="no longer in memory"):
        jobs.get("other")


@pytest.mark.slow
def test_from_the_gallery_to_an_example_that_opens_in_look(visit, shoot):
    tab = visit("/heads?model=rows")
    until(tab, "document.body.dataset.ready")
    tab.fill("#rows", "12")
    tab.fill("#ablations", "3")
    tab.click("#submit")
    until(tab, "document.body.dataset.surveyed === '4'", timeout=60_000)
    assert "4 heads over 12 rows" in tab.text_content("#summary") and "rows per second" in tab.text_content("#summary")
    assert tab.locator(".head-card").count() == 4 and not tab.is_visible("#progress")
    tab.select_option("#sort", "entropy")
    shown = [
        float(text.split("entropy ")[1].split(",")[0].split("cost")[0])
        for text in tab.locator(".head-card small").all_text_contents()
    ]
    assert shown == sorted(shown)
    shoot(tab, "heads")
    assert "source=validation" in tab.url and "rows=12" in tab.url and "sort=entropy" in tab.url
    tab.click(".head-card >> nth=2")
    title = tab.text_content("#detail h2")
    best = tab.locator(".examples a").first
    weight = best.text_content().split()[-1]
    address = parse_qs(urlparse(best.get_attribute("href")).query)
    best.click()
    until(tab, "document.body.dataset.shown", timeout=60_000)
    until(tab, f"{STATUS}.includes('pinned')")
    assert tab.text_content("#selection") == title
    assert abs(float(tab.text_content("#status").replace("pinned", "").split()[-1]) - float(weight)) <= 0.0051
    assert address["pin"] == ["1"] and address["words"] == ["0"]


@pytest.mark.slow
def test_a_link_shows_the_survey_again_and_one_head_is_ablated_in_every_row(visit):
    tab = visit("/heads?model=rows&source=validation&rows=9&ablations=2&sort=cost")
    until(tab, "document.body.dataset.surveyed === '4'", timeout=60_000)
    costs = [float(text.split("cost ")[1].split()[0]) for text in tab.locator(".head-card small").all_text_contents()]
    assert costs == sorted(costs, reverse=True)
    assert "(2 rows)" in tab.text_content("#detail .values")
    title = tab.text_content("#detail h2")
    tab.click("text=Ablate this head in every row")
    until(tab, "document.body.dataset.surveyed === '1'", timeout=60_000)
    assert "(9 rows)" in tab.text_content("#detail .values") and tab.text_content("#detail h2") == title
    assert "map=" in tab.url


@pytest.mark.slow
def test_errors_stand_beside_the_form_and_a_survey_can_be_cancelled(visit, shoot):
    tab = visit("/heads?model=rows")
    until(tab, "document.body.dataset.ready")
    tab.select_option("#source", "texts")
    tab.click("#submit")
    tab.wait_for_selector("#form #message .error")
    assert "rows must be at least one" in tab.text_content("#message")
    tab.select_option("#source", "validation")
    tab.route(
        "**/api/heads/*",
        lambda route: route.fulfill(json={"job": "x", "state": "running", "fraction": 0.4, "error": ""}),
    )
    tab.click("#submit")
    until(tab, "document.getElementById('done').textContent === '40 %'")
    assert tab.is_visible("#cancel") and tab.is_disabled("#submit")
    shoot(tab, "heads-progress")
    tab.unroute("**/api/heads/*")
    tab.route(
        "**/api/heads/*",
        lambda route: route.fulfill(json={"job": "x", "state": "cancelled", "fraction": 0.4, "error": ""}),
    )
    tab.wait_for_selector("#message .error >> text=Cancelled")
    assert tab.is_enabled("#submit") and not tab.is_visible("#progress")


@pytest.mark.slow
def test_the_gallery_of_look_leads_to_the_page(visit):
    tab = visit("/look?model=rows&text=the+red+cat")
    until(tab, "document.body.dataset.shown", timeout=60_000)
    tab.click("[data-explanation=gallery]")
    tab.click("text=The same over a data set")
    until(tab, "document.body.dataset.ready")
    assert tab.input_value("#model") == "rows" and tab.text_content("h1") == "Heads over a data set"


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark"), (1920, "light")])
def test_the_page_fits(visit, shoot, width, scheme):
    tab = visit("/heads?model=rows&source=validation&rows=9&ablations=2", color_scheme=scheme)
    tab.set_viewport_size({"width": width, "height": 860})
    until(tab, "document.body.dataset.surveyed === '4'", timeout=60_000)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    shoot(tab, f"heads-{width}-{scheme}")
