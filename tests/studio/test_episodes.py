"""Episodes in the studio, in a real browser: a walk and a reach are replayed step by step with their attention."""

import json
import sys

import pytest

from saccade import api
from tests.studio.conftest import LOOP, serving
from tests.studio.test_pages import until
from tests.tasks import world_data
from tests.tasks.battery import Trial

pytestmark = pytest.mark.slow
MAP = json.dumps({**world_data.MAP, "goal": [2, 3]})


@pytest.fixture(scope="session")
def episode_address(tmp_path_factory):
    """Address of a studio with a walker and an arm."""
    folder = tmp_path_factory.mktemp("episodes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        for name, task in (("walker", "instruction_following"), ("arm", "image_policy")):
            trial = Trial.of(task)
            data = trial.write_data(folder / name)
            overrides = [*trial.settings, *LOOP]
            api.train(data, task=task, name=name, root=folder / "runs", overrides=overrides, progress=False)
    command = [sys.executable, "-m", "saccade", "studio", "--runs", str(folder / "runs"), "--no-browser"]
    with serving(command, folder / "cache") as found:
        yield found


def shown(visit, model, fields):
    tab = visit(f"/look?model={model}", studio="episode_address")
    until(tab, "document.body.dataset.ready")
    for name, value in fields.items():
        tab.fill(f"#input-{name}", value)
    tab.click("#submit")
    until(tab, "document.body.dataset.shown")
    return tab


def test_a_walk_is_replayed_with_the_words_it_looked_at(visit, shoot):
    tab = shown(visit, "walker", {"map": MAP, "instruction": "go to the red lamp and stop"})
    assert tab.text_content("#selection") == "Alignment"
    assert tab.text_content("[data-view=query]") == "Replay"
    tab.wait_for_selector("#view .picture.frame img")
    source = "document.querySelector('#view .picture.frame img').src"
    actions = tab.text_content("#output").split()
    steps = tab.locator("#view .replay .token span").all_text_contents()
    assert steps == actions and len(actions) > 1
    words = tab.locator("#view section >> nth=0 >> .token span").all_text_contents()
    assert {"red", "lamp", "stop"} <= set(words)
    before = tab.evaluate(source)
    tab.click("#next")
    until(tab, "document.querySelectorAll('#view .replay .token')[1].classList.contains('on')")
    assert "row=1" in tab.url
    if actions[0] != "stop":
        assert tab.evaluate(source) != before, "the walker has moved or turned"
    tab.click("#previous")
    until(tab, f"{source} === {json.dumps(before)}")
    tab.click("#play")
    until(
        tab,
        "document.querySelectorAll('#view .replay .token')[2]?.classList.contains('on') ?? true",
    )
    tab.click("#play")
    assert tab.get_attribute("#export a >> text=GIF", "href").startswith("/api/look/")
    shoot(tab, "replay-words")


def test_the_surroundings_of_a_walker_are_shown_as_it_saw_them(visit, shoot):
    tab = shown(visit, "walker", {"map": MAP, "instruction": "go to the red lamp and stop"})
    tab.click("[data-map='view2'][data-head='0']")
    tab.wait_for_selector("#view .picture .heat")
    source = "document.querySelector('#view .picture img').src"
    first = tab.evaluate(source)
    tab.click("#next")
    until(tab, f"{source} !== {json.dumps(first)}")
    assert tab.locator("#view .picture").count() == 1, "the frame lies under the heat map and is not shown twice"
    shoot(tab, "replay-view")


def test_a_reach_is_replayed_over_its_frames(visit, shoot):
    tab = shown(visit, "arm", {"scene": json.dumps(world_data.scene_json())})
    tab.wait_for_selector("#view .picture .heat")
    source = "document.querySelector('#view .picture img').src"
    first = tab.evaluate(source)
    tab.click("#next")
    until(tab, f"{source} !== {json.dumps(first)}")
    shoot(tab, "replay-arm")


def test_a_map_that_breaks_a_rule_is_told_in_the_form(visit):
    tab = visit("/look?model=walker", studio="episode_address")
    until(tab, "document.body.dataset.ready")
    tab.fill("#input-map", json.dumps({**world_data.MAP, "start": [0, 0, "east"]}))
    tab.fill("#input-instruction", "stop")
    tab.click("#submit")
    until(tab, "document.getElementById('form').textContent.includes('is in a wall (row 0, column 0)')")
    tab.fill("#input-map", "/etc/hostname")
    tab.click("#submit")
    until(tab, "document.getElementById('form').textContent.includes('map must be a JSON object')")
    visit.complaints.clear()  # the browser names every refused request


def test_the_watch_page_shows_walks_as_they_form(visit, shoot):
    tab = visit("/watch/walker", studio="episode_address")
    tab.wait_for_selector("#heads figure")
    assert tab.locator("#charts h3").all_text_contents()[-1] == "actions per second"
    assert tab.locator("#layer option").all_text_contents() == ["words", "view1", "view2"]
    shoot(tab, "watch-walker")
