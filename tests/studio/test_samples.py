"""The Samples page: a grid of images, images between two seeds, and where a clicked cell looks."""

import base64
import sys

import pytest
from starlette.testclient import TestClient

from saccade import api
from saccade.demo.digits import write_digits
from saccade.studio.app import make_app
from saccade.studio.sessions import Sessions
from tests.studio.conftest import HOME, MINE, serving
from tests.studio.test_pages import until
from tests.tasks.battery import Trial

IMAGES = "document.querySelectorAll('#gallery img').length"
MAPS = "document.querySelectorAll('#maps .picture').length"


@pytest.fixture(scope="session")
def digit_runs(tmp_path_factory):
    """A folder with a run that has learned to draw digits for a few steps."""
    folder = tmp_path_factory.mktemp("digits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        data = write_digits(folder / "data", train_rows=60, valid_rows=30).train
        overrides = [*Trial.of("image_generation").settings, "train.device=cpu", "train.steps=6", "size=16"]
        api.train(
            data, task="image_generation", name="digits", root=folder / "runs", overrides=overrides, progress=False
        )
    return folder / "runs"


@pytest.fixture(scope="session")
def digit_address(digit_runs):
    """Address of a studio with that run."""
    command = [sys.executable, "-m", "saccade", "studio", "--no-browser", "--runs", str(digit_runs)]
    with serving(command, digit_runs.parent / "cache") as address:
        yield address


@pytest.fixture
def client(digit_runs):
    result = TestClient(make_app(Sessions(digit_runs), "secret", 8000), base_url=HOME)
    assert result.get("/runs?key=secret").status_code == 200
    return result


def look(client, **options):
    body = {"model": "digits", "inputs": {}, "options": options}
    return client.post("/api/look", json=body, headers=MINE)


def test_the_page_lists_the_runs_that_generate_images(client, place):
    assert client.get("/samples.json").json()["models"] == ["digits"]
    assert "Generated images" in client.get("/samples").text
    others = TestClient(make_app(Sessions(place / "runs"), "secret", 8000), base_url=HOME)
    assert others.get("/samples.json?key=secret").json()["models"] == []


def test_the_images_of_a_request_are_its_output_and_its_alternatives(client):
    several = look(client, seed="3", samples="4", label="7").json()
    images = [several["output"]["png"], *(other["image"]["png"] for other in several["alternatives"])]
    assert len(set(images)) == 4 and all(base64.b64decode(image).startswith(b"\x89PNG") for image in images)
    assert look(client, seed="4", label="7").json()["output"]["png"] == images[1]
    assert several["notes"] == ["label: 7"]
    assert [entry["name"] for entry in several["maps"]] == [
        "generator_attention.attention",
        "discriminator_attention.attention",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": "101"}, "samples must be at most 100 in the studio, but is 101; for more use `saccade predict`"),
        ({"label": "seven"}, "no label 'seven'"),
        ({"seed": "-1"}, "seed must be at least 0"),
    ],
)
def test_options_that_cannot_be_are_refused(client, options, message):
    response = look(client, **options)
    assert response.status_code == 400 and message in response.json()["error"]


@pytest.mark.slow
def test_samples_are_generated_interpolated_and_clicked(visit, shoot):
    tab = visit("/samples?model=digits&count=12", studio="digit_address")
    until(tab, "document.body.dataset.ready")
    assert tab.evaluate(IMAGES) == 12 and tab.evaluate(MAPS) == 2
    assert tab.evaluate("document.querySelectorAll('#strip img').length") == 9
    first = tab.text_content("#status")
    box = tab.locator("#maps .picture").first.bounding_box()
    tab.locator("#maps .picture").first.click(position={"x": box["width"] * 0.1, "y": box["height"] * 0.1})
    until(tab, f"document.getElementById('status').textContent !== {first!r}")
    assert "generator_attention.attention: cell 0,0 looks most at" in tab.text_content("#status")
    assert tab.text_content("#status").count("cell 0,0") == 2, "both maps are of the same size"
    tab.locator("#gallery .sample").nth(4).click()
    until(tab, "document.getElementById('chosen').textContent.includes('seed 5')")
    assert tab.get_attribute("#gallery .sample >> nth=4", "aria-pressed") == "true"
    shoot(tab, "samples")
    ends = tab.eval_on_selector_all("#strip img, #gallery img", "all => all.map(image => image.src)")
    tab.fill("#label", "7")
    tab.click("#submit")
    until(tab, "document.getElementById('chosen').textContent.includes('label: 7')")
    assert tab.eval_on_selector_all("#gallery img", "all => all.map(image => image.src)") != ends[9:]
    tab.locator("#position").fill("50")
    tab.locator("#position").dispatch_event("change")
    until(tab, "document.getElementById('chosen').textContent.includes('50% from seed 1 to seed 2')")
    tab.click("#look")
    tab.wait_for_selector("#output img")
    assert tab.evaluate("document.querySelector('#output img').naturalWidth") == 16
    assert tab.input_value("[name=position]") == "0.5"


@pytest.mark.slow
def test_a_studio_without_generators_says_how_to_train_one(visit):
    tab = visit("/samples")
    until(tab, "!document.getElementById('empty').hidden")
    assert "saccade demo digits" in tab.text_content("#empty")


@pytest.mark.slow
def test_the_page_fits_a_phone(visit, shoot):
    tab = visit("/samples?model=digits&count=8", studio="digit_address")
    tab.set_viewport_size({"width": 360, "height": 740})
    until(tab, "document.body.dataset.ready")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    shoot(tab, "samples-phone")
