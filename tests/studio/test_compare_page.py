"""The Compare page: two inputs, two checkpoints or two models, as JSON and in a real browser."""

import re
import sys
from xml.etree import ElementTree

import pytest
import torch

from saccade import api
from saccade.look.difference_figure import STOPS
from saccade.studio.pages import STATIC
from saccade.studio.sessions import Sessions
from tests.conftest import USER_CACHE
from tests.studio.conftest import MINE, serving
from tests.studio.test_contrast import luminance
from tests.studio.test_pages import until

RED, BLUE = "the red cat sat on the mat", "the red dog sat on the mat"
STATUS = "document.getElementById('status').textContent"
SENTENCE = "The animal didn't cross the street because it was too {}."


def predict(client, model, text, **more):
    body = {"model": model, "inputs": {"text": text}, **more}
    answer = client.post("/api/look", json=body, headers=MINE)
    assert answer.status_code == 200, answer.text
    return answer.json()


def part(client, first, second, name, **parameters):
    answer = client.get(f"/api/compare/{first['id']}/{second['id']}/{name}", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json() if "json" in answer.headers["content-type"] else answer.content


def refusal(client, first, second, name, **parameters):
    answer = client.get(f"/api/compare/{first}/{second}/{name}", params=parameters)
    assert answer.status_code == 400
    return answer.json()["error"]


def weights(client, prediction, name, head, rows, columns):
    parameters = {"map": name, "head": head, "top": 0, "bottom": rows, "left": 0, "right": columns, "words": 1}
    data = client.get(f"/api/look/{prediction['id']}/cells", params=parameters).content
    return torch.frombuffer(bytearray(data), dtype=torch.uint16).float().view(rows, columns) / 65535


def test_the_weights_of_two_inputs_are_those_of_look_side_by_side(client):
    first, second = predict(client, "rows", RED), predict(client, "rows", BLUE)
    described = part(client, first, second, "maps")
    names = [entry["name"] for entry in described["maps"][0]]
    assert described["pairs"] == [[name, name] for name in names] and len(names) == 2
    axes = part(client, first, second, "axes", map=names[1])
    assert ["cat", "dog"] in axes["queries"] and axes["queries"] == axes["keys"]
    count = len(axes["queries"])
    data = part(
        client, first, second, "cells", map=names[1], head=1, other_head=1, top=0, bottom=count, left=0, right=count
    )
    both = torch.frombuffer(bytearray(data), dtype=torch.uint16).float().view(2, count, count) / 65535
    for side, prediction in enumerate((first, second)):
        torch.testing.assert_close(both[side], weights(client, prediction, names[1], 1, count, count))
    changes = part(client, first, second, "changes", count=5)
    top = changes["ranked"][0]
    assert len(changes["ranked"]) == 5 and top["difference"] == pytest.approx(top["after"] - top["before"])
    for layer in changes["layers"]:
        for head, changed in enumerate(layer["changed"]):
            a, b = (weights(client, side, layer["maps"][0], head, count, count) for side in (first, second))
            assert changed == pytest.approx(float((a - b).abs().sum() / 2 / count), abs=1e-3)
            assert abs(top["difference"]) >= float((a - b).abs().max()) - 1e-3, "the largest of all heads"


def test_a_word_that_only_one_has_is_a_gap(client):
    first, second = predict(client, "rows", RED), predict(client, "rows", "the red cat sat on the a mat")
    name = part(client, first, second, "maps")["pairs"][0][0]
    axes = part(client, first, second, "axes", map=name)
    gap = axes["queries"].index([None, "a"])
    count = len(axes["queries"])
    assert [pair[0] for pair in axes["queries"] if pair[0]] == [pair[1] for pair in axes["queries"] if pair[1] != "a"]
    data = part(
        client, first, second, "cells", map=name, head=0, other_head=0, top=0, bottom=count, left=0, right=count
    )
    both = torch.frombuffer(bytearray(data), dtype=torch.uint16).float().view(2, count, count) / 65535
    assert not both[0, gap].any() and not both[0, :, gap].any() and both[1, gap].sum() == pytest.approx(1, abs=1e-3)
    changes = part(client, first, second, "changes")
    assert all(gap not in (change["query"], change["key"]) for change in changes["ranked"])


def test_the_difference_is_a_figure(client):
    first, second = predict(client, "rows", RED), predict(client, "rows", BLUE)
    top = part(client, first, second, "changes")["ranked"][0]
    parameters = {"map": top["maps"][0], "head": top["head"], "other_head": top["head"]}
    drawn = part(client, first, second, "difference.svg", **parameters).decode()
    size = len(part(client, first, second, "axes", map=top["maps"][0])["queries"])
    assert len(ElementTree.fromstring(drawn).findall(".//{*}g/{*}rect")) == size**2 + 33, "cells, and the scale"
    assert f"A {top['before']:.4f}, B {top['after']:.4f}, B - A {top['difference']:+.4f}" in drawn
    assert f"head {top['head']}: {BLUE} minus {RED}" in drawn


def test_two_checkpoints_of_a_run_differ(client, place):
    listed = client.get("/api/models/rows/checkpoints").json()
    assert listed["run"] and listed["steps"][-1] == 30 and len(listed["steps"]) >= 2
    early, late = (predict(client, "rows", RED, checkpoint=str(step)) for step in (listed["steps"][0], 30))
    last = predict(client, "rows", RED, checkpoint="last")
    assert part(client, early, late, "changes")["ranked"][0]["difference"] != 0
    assert part(client, late, last, "changes")["ranked"] == [], "the last step is that of the last checkpoint"
    model = api.load("rows", root=place / "runs", checkpoint=listed["steps"][0])
    assert early["scores"] == pytest.approx(model(RED).scores)
    assert client.get(f"/api/models/{'x'}/checkpoints").json() == {"run": False, "steps": []}


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ("25", r"checkpoint must be best, last, mean or a step that was kept (.*30), but is 25"),
        ("newest", "checkpoint must be best, last, mean or the step of one, but is 'newest'"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_refused(client, checkpoint, message):
    body = {"model": "rows", "inputs": {"text": RED}, "checkpoint": checkpoint}
    answer = client.post("/api/look", json=body, headers=MINE)
    assert answer.status_code == 400
    first, _, last = message.partition("(.*")
    assert answer.json()["error"].startswith(first) and answer.json()["error"].endswith(last)


def test_wrong_parts_of_a_comparison_are_refused(client, bert_folder):
    first = predict(client, "rows", RED)["id"]
    assert "no part 'x' of a comparison; there are: maps, axes, cells, changes, difference.svg" in refusal(
        client, first, first, "x"
    )
    assert "no longer in memory" in refusal(client, first, "gone", "maps")
    assert "no attention 'x'" in refusal(client, first, first, "axes", map="x")
    assert refusal(client, first, first, "changes", count=500) == "count must be at most 200, but is 500"
    name = client.get(f"/api/look/{first}").json()["maps"][0]["name"]
    span = {"map": name, "top": 0, "bottom": 4000, "left": 0, "right": 4000}
    assert "two rectangles must have at most 4,194,304 weights" in refusal(client, first, first, "cells", **span)
    body = {"model": str(bert_folder), "inputs": {"text": RED}, "checkpoint": "last"}
    answer = client.post("/api/look", json=body, headers=MINE)
    assert "is no run, but is 'last'" in answer.json()["error"]


def test_a_page_opens_a_checkpoint_once(place, monkeypatch):
    loads = []
    load = api.load
    monkeypatch.setattr(api, "load", lambda *given, **more: loads.append(more["checkpoint"]) or load(*given, **more))
    sessions = Sessions(place / "runs")
    models = [sessions.model("rows", checkpoint) for checkpoint in ("", "best", "30", "30")]
    with pytest.warns(UserWarning, match="mean of the checkpoints of steps"):
        sessions.model("rows", "mean")
    assert loads == ["best", 30, "mean"]
    assert models[0] is models[1] is not models[2] and models[2] is models[3]


def test_the_page_and_a_figure_have_the_same_colours_and_no_difference_is_white():
    script = (STATIC / "diverging.js").read_text(encoding="utf-8")
    stops = re.search(r"const STOPS = \[(\[.*?\])\];", script, re.DOTALL)[1]
    colours = [tuple(map(int, stop.split(","))) for stop in re.findall(r"\[([\d, ]+)\]", stops)]
    assert tuple(colours) == STOPS
    middle = len(colours) // 2
    assert colours[middle] == (255, 255, 255)
    light = [luminance(colour) for colour in colours]
    assert light[: middle + 1] == sorted(light[: middle + 1]), "the stronger, the darker"
    assert light[middle:] == sorted(light[middle:], reverse=True)
    for first, second in zip(colours[:middle], colours[:middle:-1], strict=True):
        assert first[2] > first[0] and second[0] > second[2], "blue below zero, red above"


def compare(tab, *texts):
    until(tab, "document.body.dataset.ready")
    for side, text in zip("ab", texts, strict=False):
        tab.fill(f"#inputs-{side} textarea", text)
    tab.click("#submit")
    until(tab, "document.body.dataset.shown && document.body.dataset.drawn", timeout=120_000)


def pixel(tab, place, x, y):
    """Return the colour of a matrix at a point of its canvas, in CSS pixels."""
    script = """([id, x, y]) => {
        const pen = document.querySelector(`#${id} canvas`).getContext('2d');
        return [...pen.getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1).data].slice(0, 3);
    }"""
    return tab.evaluate(script, [place, x, y])


def cell(tab, place, row, column):
    """Return the corner of a cell of a matrix, away from its number and the lines of the selection."""
    left, top, size = map(float, tab.get_attribute(f"#{place} .matrix", "data-layout").split())
    return left + column * size + 4, top + row * size + 4


@pytest.mark.slow
def test_two_inputs_are_compared_by_keyboard_alone_and_a_link_restores_the_view(visit, shoot):
    tab = visit("/compare?model=rows")
    until(tab, "document.body.dataset.ready")
    tab.fill("#inputs-a textarea", RED)
    tab.fill("#inputs-b textarea", BLUE)
    tab.press("#inputs-b textarea", "Control+Enter")
    until(tab, "document.body.dataset.drawn")
    assert tab.locator("#changes .search-grid button").count() == 4
    top = tab.locator(".ranking tbody tr >> nth=0")
    values = [text.replace("\u2212", "-") for text in top.locator("td.number").all_text_contents()]
    assert float(values[2]) == pytest.approx(float(values[1]) - float(values[0]), abs=0.011)
    assert "cat / dog" in tab.text_content(".ranking")
    until(tab, f"{STATUS}.includes('pinned')")
    shown = "difference " + values[2].replace("-", "\u2212")
    assert shown[:-1] in tab.text_content("#status"), "the largest is shown first, with more digits"
    assert tab.locator("#predictions tbody tr").count() >= 2, "the scores of both labels"
    tab.focus("#matrix-difference .matrix")
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowRight")
    until(tab, "location.search.includes('column=1')")
    shoot(tab, "compare-inputs")
    with tab.expect_download() as download:
        tab.click("#download")
    assert b"cat / dog" in download.value.path().read_bytes()
    again = visit(tab.url[tab.url.index("/compare") :])
    until(again, "document.body.dataset.drawn")
    until(again, f"{STATUS}.includes('pinned')")
    for place in ("#status", ".ranking", "#predictions"):
        assert again.text_content(place) == tab.text_content(place)
    assert again.input_value("#map") == tab.input_value("#map")


@pytest.mark.slow
def test_look_leads_to_a_comparison_of_its_input(visit):
    tab = visit(f"/look?model=rows&text={RED.replace(' ', '+')}")
    until(tab, "document.body.dataset.shown")
    tab.click("#compare")
    until(tab, "location.pathname === '/compare' && document.body.dataset.ready")
    assert [tab.input_value(f"#inputs-{side} textarea") for side in "ab"] == [RED, RED]
    assert tab.is_hidden("#results"), "the second is to be changed first"
    compare(tab, RED, BLUE)
    assert tab.locator(".ranking tbody tr").count() > 0


@pytest.mark.slow
def test_a_change_opens_its_head_and_back_returns(visit):
    tab = visit("/compare?model=rows")
    compare(tab, RED, BLUE)
    first = tab.text_content("#status")
    buttons = tab.locator(".ranking button")
    current = [i for i in range(buttons.count()) if buttons.nth(i).get_attribute("aria-current") == "true"]
    assert current == [0]
    before = (tab.input_value("#map"), tab.input_value("#head"))
    heads = [(one.get_attribute("data-map"), one.get_attribute("data-head")) for one in buttons.all()]
    other = next(i for i, head in enumerate(heads) if head != before)
    buttons.nth(other).click()
    until(tab, f"document.querySelectorAll('.ranking button')[{other}].getAttribute('aria-current') === 'true'")
    assert (tab.input_value("#map"), tab.input_value("#head")) == heads[other]
    until(tab, f"{STATUS}.includes('pinned')")
    assert tab.text_content("#status") != first
    tab.go_back()
    chosen = "['map', 'head'].map((id) => document.getElementById(id).value).join()"
    until(tab, f"{chosen} === '{','.join(before)}'")
    tab.select_option("#head", "")
    until(tab, "!location.search.includes('head=')")


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_difference_is_white_and_a_gap_is_hatched(visit, shoot, theme):
    tab = visit("/compare?model=rows", color_scheme=theme)
    compare(tab, RED, RED)
    until(tab, "document.body.dataset.drawn")
    assert "No weight differs" in tab.text_content("#changes")
    assert pixel(tab, "matrix-difference", *cell(tab, "matrix-difference", 4, 3)) == [255, 255, 255]
    assert tab.is_hidden("#gaps")
    tab.evaluate("delete document.body.dataset.drawn")
    compare(tab, RED, f"{RED} a a")
    until(tab, "document.getElementById('gaps').hidden === false")
    tab.click("#matrix-difference .matrix", position=dict(zip("xy", cell(tab, "matrix-difference", 9, 1), strict=True)))
    until(tab, f"{STATUS}.includes('A none')")
    shoot(tab, f"compare-gaps-{theme}")


@pytest.mark.slow
def test_two_checkpoints_are_compared_and_the_same_ones_are_refused(visit, shoot):
    tab = visit("/compare?model=rows&mode=checkpoints")
    until(tab, "document.body.dataset.ready")
    assert tab.is_hidden("#inputs-b") and tab.is_hidden("#model-b")
    tab.fill("#inputs-a textarea", RED)
    tab.select_option("#checkpoint-a", "last")
    tab.select_option("#checkpoint-b", "last")
    assert "the same checkpoint" in tab.text_content("#error-b")
    steps = [
        value
        for value in tab.eval_on_selector_all("#checkpoint-a option", "all => all.map((one) => one.value)")
        if value.isdigit()
    ]
    tab.select_option("#checkpoint-a", steps[0])
    assert tab.text_content("#error-b") == ""
    tab.click("#submit")
    until(tab, "document.body.dataset.drawn")
    assert f"checkpoint={steps[0]}" in tab.url and "checkpoint2=last" in tab.url
    assert tab.locator(".ranking tbody tr").count() > 5
    assert [tab.text_content(f"#title-{side}") for side in "ab"] == [f"step {steps[0]}", "last"]
    shoot(tab, "compare-checkpoints")


@pytest.mark.slow
def test_a_model_that_is_no_run_has_one_checkpoint(visit, bert_folder):
    tab = visit(f"/compare?model={bert_folder}&mode=checkpoints")
    until(tab, "document.body.dataset.ready")
    assert "is no run and has one set of weights" in tab.text_content("#error-b")


@pytest.mark.slow
def test_two_models_are_compared_by_their_words(visit, shoot, bert_folder):
    tab = visit("/compare?mode=models&model=rows&model2=prose")
    compare(tab, RED)
    assert tab.is_visible("#others"), "the layers and heads of B have other names"
    assert {"cat", "mat"} <= set(tab.locator(".ranking .words bdi").all_text_contents())
    tab.focus("#matrix-difference .matrix")
    for _ in range(3):  # the first token of a causal model attends to itself alone, in every head
        tab.keyboard.press("ArrowDown")
    before = tab.text_content("#status")
    other = "0" if tab.input_value("#other-head") != "0" else "1"
    tab.select_option("#other-head", other)
    until(tab, f"location.search.includes('other_head={other}')")
    until(tab, f"{STATUS} !== {before!r} && {STATUS}.includes(', B ')")
    assert tab.text_content("#status").split(", B ")[0] == before.split(", B ")[0], "A stays"
    shoot(tab, "compare-models")
    same = visit(f"/compare?mode=models&model=rows&model2={bert_folder}")
    compare(same, RED.replace("red", "[MASK]"))
    assert same.is_hidden("#others"), "the same layers and heads"


@pytest.mark.slow
def test_hostile_words_are_text(visit):
    tab = visit("/compare?model=rows")
    compare(tab, "the <i>cat", "the <b>dog")
    assert tab.get_attribute("#title-a", "title") == tab.text_content("#title-a") == "the <i>cat"
    assert "<b>dog" in tab.text_content("#predictions")
    assert tab.locator("#results i:not(.gap), #results b:has-text('dog')").count() == 0


@pytest.mark.slow
def test_errors_are_beside_the_side_that_caused_them(visit):
    tab = visit("/compare?model=rows")
    until(tab, "document.body.dataset.ready")
    tab.route(
        "**/api/look",
        lambda route: route.fulfill(status=200, json={}) if "bad" not in route.request.post_data else route.abort(),
    )
    tab.fill("#inputs-a textarea", "good")
    tab.fill("#inputs-b textarea", "bad")
    tab.click("#submit")
    until(tab, "document.getElementById('error-b').textContent.includes('does not respond')")
    assert tab.text_content("#error-a") == "" and not tab.is_disabled("#submit")
    visit.complaints.clear()


@pytest.fixture
def catalogue(get_model, tmp_path):
    """Address of a studio with two models of the catalogue, whose tokens differ."""
    for name in ("minilm", "smollm2"):
        get_model(name)
    (tmp_path / "runs").mkdir()
    options = ["minilm", "smollm2", "--no-browser", "--runs", str(tmp_path / "runs")]
    with serving([sys.executable, "-m", "saccade", "studio", *options], USER_CACHE) as found:
        yield found


@pytest.mark.slow
def test_tired_or_wide_with_minilm(catalogue, visit, shoot):
    tab = visit("/compare?model=minilm", studio="catalogue")
    compare(tab, SENTENCE.format("tired"), SENTENCE.format("wide"))
    assert tab.locator("#changes .search-grid button").count() == 72
    assert "tired / wide" in tab.text_content(".ranking")
    assert [tab.text_content(f"#title-{side}") for side in "ab"] == ["\u2026 too tired.", "\u2026 too wide."]
    assert "Cosine of the two vectors: 0." in tab.text_content("#predictions")
    shoot(tab, "compare-minilm-most")
    tab.select_option("#map", index=3)
    tab.select_option("#head", "1")
    until(tab, "location.search.includes('head=1')")
    link = tab.url[tab.url.index("/compare") :]
    for width, height, theme in ((1280, 860, "light"), (1920, 1080, "dark"), (1920, 1080, "light"), (390, 844, "dark")):
        again = visit(link, studio="catalogue", color_scheme=theme)
        again.set_viewport_size({"width": width, "height": height})
        until(again, "document.body.dataset.drawn && document.body.dataset.shown")
        wide = again.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, "nothing sticks out"
        shoot(again, f"compare-minilm-{width}-{theme}")


@pytest.mark.slow
def test_models_of_other_tokens_are_compared_by_words(catalogue, visit, shoot):
    tab = visit("/compare?mode=models&model=minilm&model2=smollm2", studio="catalogue")
    until(tab, "document.body.dataset.ready", timeout=180_000)
    compare(tab, SENTENCE.format("tired"))
    ranked = tab.text_content(".ranking")
    assert "animal" in ranked or "street" in ranked or "it" in ranked
    assert tab.is_visible("#gaps"), "the template around the prompt of smollm2"
    shoot(tab, "compare-other-tokens")
