"""Pages over models of the catalogue in a real browser: one text of minilm, a prompt of smollm2."""

import sys

import pytest

from saccade.errors import ResourceError
from saccade.pretrained.catalogue import get
from tests.conftest import USER_CACHE
from tests.studio.conftest import serving
from tests.studio.test_pages import look, until

pytestmark = pytest.mark.slow
SENTENCE = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="module")
def catalogue_address(tmp_path_factory):
    """Address of a studio with two models of the catalogue; skip without a network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(USER_CACHE))
        try:
            for name in ("minilm", "smollm2"):
                get(name)
        except ResourceError as error:
            pytest.skip(f"the models cannot be downloaded: {error}")
    runs = tmp_path_factory.mktemp("catalogue") / "runs"
    options = ["studio", "minilm", "smollm2", "--no-browser", "--runs", str(runs)]
    with serving([sys.executable, "-m", "saccade", *options], USER_CACHE) as found:
        yield found


def test_one_text_of_minilm_is_explained(visit):
    tab = visit("/look?model=minilm", "catalogue_address")
    look(tab, SENTENCE)
    tab.click(".layer >> nth=3 >> .thumb >> nth=1")
    tab.click("[data-explanation=ablation]")
    tab.click("#explanation button >> nth=0")
    tab.wait_for_selector("#explanation b")
    assert "of component along its own vector" in tab.text_content("#explanation b")
    tab.click("[data-explanation=attribution]")
    tab.wait_for_selector("#explanation .token")
    tab.click("[data-explanation=lens]")
    tab.wait_for_selector("#explanation tbody tr")
    assert tab.locator("#explanation tbody tr").count() == 6
    tab.click("#steps")
    tab.wait_for_selector("#steps table")
    weights = [float(text) for text in tab.locator("#steps td b").all_text_contents()]
    assert sum(weights) == pytest.approx(1, abs=0.01)


def test_smollm2_reads_the_prompt_alone(visit):
    tab = visit("/look?model=smollm2", "catalogue_address")
    until(tab, "document.body.dataset.ready", timeout=180_000)  # the weights are read first
    look(tab, "The capital of France is")
    assert "the prompt alone" in tab.text_content("#output")
    probabilities = [float(text) for text in tab.locator("#scores dd").all_text_contents()]
    assert len(probabilities) == 10 and 0 < sum(probabilities) <= 1
    tab.click("#steps")
    tab.wait_for_selector("#steps table")
    count = tab.locator("#query option").count()
    assert count < 60, "the prompt in its template, nothing generated"
    assert tab.input_value("#query") == "0", "the token that was selected on Look"
    again = visit(f"/steps?model=smollm2&prompt={SENTENCE}", "catalogue_address")
    again.wait_for_selector("#steps table")
    assert again.input_value("#query") == str(again.locator("#query option").count() - 1), "the last of the prompt"
    until(again, "document.querySelector('#message').textContent === ''")
