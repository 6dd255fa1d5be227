"""Graphs in the studio, in a real browser: a node is clicked and shows what it attends to."""

import json

import pytest

from tests.studio.test_pages import until
from tests.tasks import graph_data

pytestmark = pytest.mark.slow


def look(visit, **options):
    tab = visit("/look?model=communities", studio="graph_address", **options)
    until(tab, "document.body.dataset.ready")
    tab.fill("#input-graph", json.dumps(graph_data.community_input()))
    tab.click("#submit")
    until(tab, "document.body.dataset.shown")
    tab.wait_for_selector("#view .graph-view")
    return tab


def test_a_clicked_node_shows_its_incoming_attention(visit, shoot):
    tab = look(visit)
    assert tab.text_content("[data-view=query]") == "Graph"
    assert tab.locator("#view .node").count() == 5 and tab.locator("#view .edge").count() == 4
    assert tab.get_attribute("#view .graph-view", "data-selected") == "0"
    assert tab.locator("#view .attention").count() == 1, "the first node has one neighbour"
    tab.click("#view .node[data-node='2'] circle >> nth=0", force=True)
    until(tab, "document.querySelector('#view .graph-view').dataset.selected === '2'")
    keys = {path.get_attribute("data-key") for path in tab.locator("#view .attention").all()}
    assert keys == {"1", "3"}
    assert tab.text_content("#status").startswith("a2")
    shoot(tab, "look-graph")
    tab.click("#heads [data-map='encoder.0'][data-head='3']")
    until(tab, "document.getElementById('selection').textContent === 'Layer 0 \u00b7 head 3'")
    tab.focus("#view .graph-view")
    for selected in (3, 4, 0):
        tab.keyboard.press("ArrowRight")
        until(tab, f"document.querySelector('#view .graph-view').dataset.selected === '{selected}'")
    tab.click("[data-view=matrix]")
    tab.wait_for_selector(".matrix canvas")


def test_the_predicted_label_of_a_node_is_the_colour_of_its_rim(visit):
    tab = look(visit)
    tags = [entry.split("/")[1] for entry in tab.text_content("#output").split()]
    rims = [circle.get_attribute("stroke") for circle in tab.locator("#view .node .weight").all()]
    assert tab.locator("#view .key").all_text_contents() == sorted(set(tags))
    assert len(set(zip(tags, rims, strict=True))) == len(set(rims)) == len(set(tags))
    assert tab.text_content("#view .node[data-node='1'] title").startswith(f"a1, {tags[1]}, 0.")
    assert tab.locator("#explanation th").all_text_contents() == ["entropy", "same node", "importance"]
    assert tab.text_content("#hint").startswith("Click a node")


def test_attributions_are_shown_on_the_graph(visit, shoot):
    tab = look(visit)
    tab.click("[data-explanation=attribution]")
    tab.wait_for_selector("#explanation .graph-view")
    tips = [tip.text_content() for tip in tab.locator("#explanation .node title").all()]
    negative = [
        tab.get_attribute(f"#explanation .node[data-node='{i}'] .weight", "fill") == "var(--b)" for i in range(5)
    ]
    assert negative == [tip.split(", ")[-1].startswith(("-", "\u2212")) for tip in tips]
    shoot(tab, "look-graph-attribution")


def test_a_graph_that_cannot_be_read_is_refused_in_the_form(visit):
    tab = visit("/look?model=communities", studio="graph_address")
    until(tab, "document.body.dataset.ready")
    tab.fill("#input-graph", '{"nodes": [{"id": 1, "hint": 1, "word": "up"}], "edges": [{"source": 1, "target": 2}]}')
    tab.click("#submit")
    tab.wait_for_selector("text=an edge of node '2'")
    visit.complaints.clear()  # the refused request
