"""Sound in the studio, in a real browser: choose a file, and click a letter to see and hear when it was said."""

import json
import sys

import pytest

from saccade import api
from tests.data.audio import sounds
from tests.studio.conftest import SERVE, serving
from tests.studio.test_pages import until
from tests.tasks.battery import CONVOLUTIONAL, Trial

pytestmark = pytest.mark.slow
PLAYED = "document.querySelector('#inputs audio').dataset.played?.split(' ').map(Number)"


@pytest.fixture(scope="module")
def speech_address(tmp_path_factory):
    """Address of a studio with a model of speech."""
    folder = tmp_path_factory.mktemp("speech")
    trial = Trial.of("speech_recognition")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        data = trial.write_data(folder)
        loop = ["train.device=cpu", "train.steps=10", "train.evaluate_every=10"]
        api.train(
            data,
            task=trial.name,
            name="speech",
            root=folder / "runs",
            overrides=[*CONVOLUTIONAL, *loop],
            progress=False,
        )
    with serving([sys.executable, "-c", SERVE, str(folder / "runs"), ""], folder / "cache") as found:
        yield found


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("recording") / "bad.wav"
    path.write_bytes(sounds.encode(sounds.tone("bad" * 3)))
    return path


def test_a_letter_shows_and_plays_when_it_was_said(visit, shoot, recording):
    tab = visit("/look?model=speech", studio="speech_address")
    until(tab, "document.body.dataset.ready")
    tab.set_input_files("#input-audio", recording)
    until(tab, "document.querySelector('#inputs audio.preview').duration > 1")
    tab.evaluate("document.getElementById('options').closest('details').open = true")
    tab.fill("#options [name=target]", "badbad")
    tab.click("#submit")
    until(tab, "document.body.dataset.shown")
    tab.wait_for_selector("#view .sound img")
    assert tab.text_content("[data-view=query]") == "Sound" and tab.text_content("#selection") == "Alignment"
    assert tab.evaluate("document.querySelector('#view .sound img').naturalHeight") == 16, "a row for each mel band"
    letters = tab.locator("#view .strip .token span").all_text_contents()
    assert letters == list("badbad")
    marks = []
    for number in (0, 5):
        tab.click(f"#view .strip .token:nth-child({number + 1})")
        until(tab, f"document.querySelector('#view .token.on') === document.querySelectorAll('#view .token')[{number}]")
        until(tab, f"({PLAYED})?.length === 2 && ({PLAYED})[0] >= {marks[-1] if marks else 0}")
        start, end = tab.evaluate(PLAYED)
        seconds = tab.evaluate("document.querySelector('#inputs audio').duration")
        assert 0 <= start < end <= seconds + 0.1
        # The page draws the letter after it has fetched its weights.
        until(
            tab, f"Math.abs(parseFloat(document.querySelector('#view .said').style.left) - {100 * start / seconds}) < 6"
        )
        marks.append(start)
    assert marks[0] <= marks[1], "letters are said in order"
    until(tab, "document.querySelector('#inputs audio').paused")
    shoot(tab, "look-speech")
    tab.click("[data-view=matrix]")
    until(tab, "document.body.dataset.drawn")
    assert tab.text_content("#status").startswith("d \u2190 "), "the last letter stays selected"


def test_times_and_the_page_are_downloaded(visit, shoot, recording, tmp_path):
    tab = visit("/look?model=speech", studio="speech_address")
    until(tab, "document.body.dataset.ready")
    tab.set_input_files("#input-audio", recording)
    until(tab, "document.querySelector('#inputs audio.preview').duration > 1")
    tab.evaluate("document.getElementById('options').closest('details').open = true")
    tab.fill("#options [name=target]", "baddab")
    tab.click("#submit")
    until(tab, "document.body.dataset.shown")
    files = {}
    for kind in ("TextGrid", "srt", "json", "html"):
        with tab.expect_download() as download:
            tab.click(f"#export a[download='attention.{kind}']")
        assert download.value.suggested_filename == f"attention.{kind}"
        files[kind] = tmp_path / download.value.suggested_filename
        download.value.save_as(files[kind])
    grid, subtitles, times = (files[kind].read_text() for kind in ("TextGrid", "srt", "json"))
    times = json.loads(times)
    assert grid.startswith('File type = "ooTextFile"') and grid.count('text = "baddab"') == 1
    assert [cue.splitlines()[2] for cue in subtitles.strip().split("\n\n")] == ["baddab"]
    assert [word["text"] for word in times["times"]["words"]] == ["baddab"]
    assert [letter["text"] for letter in times["times"]["letters"]] == list("baddab")
    tab.click("[data-map='encoder.encoder.0.self']")
    until(tab, "document.getElementById('selection').textContent.includes('self-attention')")
    assert tab.locator("#export a >> text=SRT").count() == 0, "self-attention of the sound says nothing about letters"
    page = tab.context.new_page()
    page.goto(files["html"].as_uri())
    page.wait_for_selector("#columns .picture img")
    assert page.evaluate("document.querySelector('#columns .picture img').naturalHeight") == 16, (
        "a row for each mel band"
    )
    page.click("#rows .token:nth-child(3)")
    cells = page.locator("#columns .cell").count()
    assert cells == len(times["maps"][-1]["keys"]["labels"])
    assert page.evaluate("document.querySelector('#columns .heat').width") >= cells
    shoot(page, "page-speech")
