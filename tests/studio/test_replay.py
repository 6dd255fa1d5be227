"""The Replay page in a real browser: an episode of a policy in its environment, step by step."""

import sys

import pytest

from saccade import api
from tests.studio.conftest import LOOP, serving
from tests.studio.test_pages import until
from tests.tasks.battery import Trial

pytestmark = pytest.mark.slow
pytest.importorskip("gymnasium", reason="an episode needs an environment")


@pytest.fixture(scope="session")
def replay_address(tmp_path_factory):
    """Address of a studio with a Transformer policy and a multilayer perceptron, both of CartPole."""
    folder = tmp_path_factory.mktemp("replays")
    trial = Trial.of("behaviour_cloning")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        data = trial.write_data(folder)
        for name, settings in (("history", []), ("state", ["model.architecture=mlp"])):
            overrides = [*trial.settings, *settings, *LOOP]
            api.train(
                data, task="behaviour_cloning", name=name, root=folder / "runs", overrides=overrides, progress=False
            )
    command = [sys.executable, "-m", "saccade", "studio", "--runs", str(folder / "runs"), "--no-browser"]
    with serving(command, folder / "cache") as found:
        yield found


def replayed(visit, address):
    tab = visit(address, studio="replay_address")
    until(tab, "document.body.dataset.ready")
    return tab


def test_an_episode_is_replayed_with_its_state_actions_and_attention(visit, shoot):
    tab = replayed(visit, "/replay?model=history&seed=3&step=5")
    summary = tab.text_content("#summary")
    assert summary.startswith("CartPole-v1, seed 3: ") and ("terminated" in summary or "time limit" in summary)
    assert tab.text_content("#number").startswith("step 5 of ")
    assert tab.locator("#maps section").count() == 2, "one strip for each head"
    labels = tab.locator("#maps section >> nth=0 >> .token span").all_text_contents()
    assert labels == ["t-3", "t-2", "t-1", "t"]
    weights = [
        float(text) for text in tab.locator("#maps section >> nth=0 >> .token small").all_text_contents() if text
    ]
    assert sum(weights) == pytest.approx(1, abs=0.03)
    titles = tab.locator("#charts h3").all_text_contents()
    assert titles[:4] == ["cart position", "cart velocity", "pole angle", "pole angular velocity"]
    assert titles[4:] == ["action", "largest probability", "reward"]
    assert tab.locator("#charts .now").count() == len(titles)
    pole = "document.querySelector('#scene .pole').getAttribute('x2')"
    before = tab.evaluate(pole)
    tab.click("#next")
    assert tab.text_content("#number").startswith("step 6 of ")
    until(tab, "location.search.includes('step=6')")
    assert tab.evaluate(pole) != before, "the pole has moved"
    tab.click("#previous")
    assert tab.evaluate(pole) == before
    shoot(tab, "replay-cartpole")


def test_play_moves_on_and_the_slider_goes_anywhere(visit):
    tab = replayed(visit, "/replay?model=history&seed=3")
    tab.click("#play")
    until(tab, "Number(document.body.dataset.step) > 3")
    assert tab.get_attribute("#play", "aria-pressed") == "true"
    tab.click("#play")
    last = int(tab.get_attribute("#step", "max"))
    tab.evaluate(
        "(last) => { const s = document.getElementById('step'); s.value = last; s.dispatchEvent(new Event('input')) }",
        last,
    )
    assert tab.text_content("#number") == f"step {last + 1} of {last + 1}"
    pairs = tab.locator("#decision dt").all_text_contents(), tab.locator("#decision dd").all_text_contents()
    assert float(dict(zip(*pairs, strict=True))["return so far"]) == last + 1


def test_a_policy_without_history_has_no_attention_and_another_seed_another_episode(visit):
    tab = replayed(visit, "/replay?model=state&seed=1")
    assert not tab.is_visible("#attention")
    first = tab.text_content("#decision")
    tab.fill("#seed", "2")
    tab.click("#submit")
    until(tab, "document.body.dataset.shown === '2'")
    assert tab.text_content("#summary").startswith("CartPole-v1, seed 2: ")
    assert tab.text_content("#decision") != first


def test_the_page_of_a_run_leads_to_its_replay(visit):
    tab = visit("/watch/state", studio="replay_address")
    tab.click("#replay")
    tab.wait_for_url("**/replay?model=state")
    until(tab, "document.body.dataset.ready")
    assert tab.input_value("#model") == "state"
