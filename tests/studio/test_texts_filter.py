"""Two texts in one sequence on the Look page: the queries of one and the keys of one alone."""

import pytest

from tests.studio.conftest import MINE
from tests.studio.test_look_page import click_cell
from tests.studio.test_pages import until

STATUS = "document.getElementById('status').textContent"
SIZE = f"{STATUS}.match(/\\d+/g)?.join(' x ')"


def ask(client, folder, **inputs):
    answer = client.post("/api/look", json={"model": str(folder), "inputs": inputs}, headers=MINE)
    assert answer.status_code == 200, answer.text
    return answer.json()["maps"][0]["queries"]


def test_the_axis_says_where_the_second_text_starts(client, bert_folder):
    axis = ask(client, bert_folder, text="the red cat", second="a dog ran")
    position = axis["second"]
    assert axis["labels"][position - 1] == "[SEP]" and axis["labels"][-1] == "[SEP]"
    assert axis["labels"][:position].count("[SEP]") == 1
    assert "second" not in ask(client, bert_folder, text="the red [MASK]"), "one text"


@pytest.mark.slow
def test_one_text_attends_to_the_other(visit, shoot, bert_folder):
    tab = visit(f"/look?model={bert_folder}&text=the+red+cat&second=a+dog&words=0")
    until(tab, "document.body.dataset.shown")
    labels = tab.locator("#tokens .strip >> nth=0 >> .token span").all_text_contents()
    first = labels.index("[SEP]") + 1
    second = len(labels) - first
    assert tab.locator("#texts option").count() == 5
    sizes = {"aa": (first, first), "ab": (first, second), "ba": (second, first), "bb": (second, second)}
    for choice, (rows, columns) in sizes.items():
        tab.select_option("#texts", choice)
        until(tab, f"{SIZE} === '{rows} x {columns}'")
    tab.select_option("#texts", "")
    click_cell(tab, first + 1, 1)
    until(tab, f"{STATUS}.includes('pinned')")
    whole = tab.text_content("#status")
    tab.keyboard.press("Escape")
    tab.click("#matches .pair button")
    tab.select_option("#texts", "ba")
    click_cell(tab, 1, 1)
    until(tab, f"{STATUS}.includes('pinned')")
    assert tab.text_content("#status") == whole, "the same weight in the part"
    assert f"row={first + 1}&column=1" in tab.url and "texts=ba" in tab.url
    shoot(tab, "look-texts")
    again = visit(tab.url[tab.url.index("/look") :])
    until(again, f"{STATUS}.includes('pinned')")
    assert again.input_value("#texts") == "ba"
    assert again.text_content("#status") == whole
    again.click("[data-view=lines]")
    again.wait_for_selector(".lines path", state="attached")
    shown = again.locator(".lines text").all_text_contents()
    assert len(shown) == second + first


@pytest.mark.slow
def test_of_one_text_there_is_nothing_to_choose(visit):
    tab = visit("/look?model=rows&text=the+red+cat")
    until(tab, "document.body.dataset.shown")
    assert tab.is_hidden("#texts")
