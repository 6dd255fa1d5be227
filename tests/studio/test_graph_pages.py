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
    until(tab, "document.getElementById('selection').textContent === 'encoder.0, head 3'")
    tab.focus("#view .graph-view")
    tab.keyboard.press("ArrowRight")
    until(tab, "document.querySelector('#view .graph-view').dataset.selected === '3'")
    tab.click("[data-view=matrix]")
    tab.wait_for_selector(".matrix canvas")


def test_attributions_are_shown_on_the_graph(visit, shoot):
    tab = look(visit)
    tab.click("[data-explanation=attribution]")
    tab.wait_for_selector("#explanation .graph-view")
    shoot(tab, "look-graph-attribution")


def test_a_graph_that_cannot_be_read_is_refused_in_the_form(visit):
    tab = visit("/look?model=communities", studio="graph_address")
    until(tab, "document.body.dataset.ready")
    tab.fill("#input-graph", '{"nodes": [{"id": 1, "hint": 1, "word": "up"}], "edges": [{"source": 1, "target": 2}]}')
    tab.click("#submit")
    tab.wait_for_selector("text=an edge of node '2'")
    visit.complaints.clear()  # the refused request
