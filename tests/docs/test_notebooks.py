"""The tutorial notebooks: saved without outputs, and every cell runs offline, within a minute of processor time."""

import ast
import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 180.0  # of one core: three times what they may take where nothing else runs


def code_cells(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Execute a cell and return the value of its last expression, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def render(value: Any) -> str:
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a notebook must not need the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def execute(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Run all cells in order; the names they leave, and what each showed."""
    names: dict[str, Any] = {"__name__": "__main__"}
    started = time.process_time()
    shown = [run_cell(source, names) for source in code_cells(path)]
    assert time.process_time() - started < SECONDS
    assert all(render(value) for value in shown if value is not None)
    return names, shown


def test_there_are_three_notebooks() -> None:
    assert [path.name[0] for path in NOTEBOOKS] == ["1", "2", "3"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_saved_without_outputs(path: Path) -> None:
    page = json.loads(path.read_text())
    assert (page["nbformat"], page["metadata"]["kernelspec"]["name"]) == (4, "python3")
    assert page["cells"][0]["cell_type"] == "markdown" and page["cells"][0]["source"][0].startswith("# ")
    for cell in page["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            assert not any(line.startswith(("%", "!")) for line in cell["source"])


def test_translation_and_attention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: None) -> None:
    monkeypatch.chdir(tmp_path)
    names, _ = execute(NOTEBOOKS[0])
    assert names["run"].metrics["exact"] > 90
    assert names["prediction"].text == "1987-03-03"
    assert [answer.text for answer in names["model"](names["dates"])] == ["2014-08-12", "1975-05-09", "2031-10-05"]
    assert "<iframe" in render(names["prediction"]) and "<svg" in render(names["run"])
    assert Path("attention.svg").read_text().startswith("<svg")


def test_language_model_and_explanations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: None) -> None:
    monkeypatch.chdir(tmp_path)
    names, _ = execute(NOTEBOOKS[1])
    assert names["prediction"].text == "Dan"
    assert len(names["ranking"]) == 8 and names["ranking"][0][0] > 0.5  # some head matters
    assert names["effect"].before[0].top[0][0] == "D"


def test_classification_and_callbacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: None) -> None:
    monkeypatch.chdir(tmp_path)
    names, shown = execute(NOTEBOOKS[2])
    assert names["run"].metrics["accuracy"] >= 99
    assert names["callback"].history[-1][0] < 200  # stopped early
    assert names["prediction"].text == "support"
    assert shown[-2] == ["meeting", "invoice"]
    assert shown[-1]["accuracy"] > 95
