"""`saccade look REF INPUT --against OTHER`: the weights that change most, as text, JSON and SVG."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from saccade.cli import main


def call(*arguments, code=0):
    result = CliRunner().invoke(main, ["look", *map(str, arguments)])
    assert result.exit_code == code, result.output + result.stderr
    return result


@pytest.fixture
def pair(bert_folder):
    return [bert_folder, "the red cat [MASK]", "--against", "the red dog [MASK]"]


def test_the_largest_changes_are_listed_and_drawn(pair, tmp_path):
    figure = tmp_path / "cat-dog.svg"
    listed = json.loads(call(*pair, "--json", "--out", figure).stdout)
    changes = listed["changes"]
    sizes = [abs(change["difference"]) for change in changes]
    assert len(changes) == 20 and sizes == sorted(sizes, reverse=True) and sizes[0] > 0
    assert all(change["after"] - change["before"] == pytest.approx(change["difference"]) for change in changes)
    assert ["cat", "dog"] in [change["query"] for change in changes] + [change["key"] for change in changes]
    top = changes[0]
    drawn = figure.read_text()
    ElementTree.fromstring(drawn)
    name = " -> ".join(one if one == other else f"{one} / {other}" for one, other in (top["query"], top["key"]))
    assert (
        f"{name}: A {top['before']:.4f}, B {top['after']:.4f}, B - A {top['difference']:+.4f}".replace(">", "&gt;")
        in drawn
    ), "the head of the largest change is drawn"
    assert f"{top['map']}, head {top['head']}: B - A of" in drawn
    assert "#053061" in drawn or "#67001f" in drawn, "the strongest colour"
    text = call(*pair).stdout
    rows = re.findall(r"^\s*([+-]\d\.\d{4}) (\d\.\d{4}) (\d\.\d{4})  ", text, re.MULTILINE)
    assert [float(row[0]) for row in rows] == pytest.approx([change["difference"] for change in changes], abs=1e-4)


def test_a_word_that_only_one_has_is_hatched(bert_folder, tmp_path):
    figure = tmp_path / "gap.svg"
    call(bert_folder, "the red cat [MASK]", "--against", "the red red cat [MASK]", "--pieces", "--out", figure)
    assert "only in one of them" in figure.read_text() and "url(#gap)" in figure.read_text()


def test_the_same_text_does_not_change(bert_folder):
    assert "no weight differs" in call(bert_folder, "the [MASK]", "--against", "the [MASK]").stdout


def test_wrong_files_and_layers_are_refused(pair, tmp_path):
    assert "must end on .svg, but is" in call(*pair, "--out", tmp_path / "x.png", code=2).stderr
    assert "no attention 'x'" in call(*pair, "--layer", "x", "--out", tmp_path / "x.svg", code=2).stderr
    missing = Path(tmp_path / "none" / "x.svg")
    assert "cannot write" in call(*pair, "--out", missing, code=5).stderr
