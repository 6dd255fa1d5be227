"""Reports of the benchmarks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import graphs
import interleaved
import quantize

import saccade
from saccade.data.formats.graph_search import read_graphs
from saccade.data.settings import GraphSettings


@pytest.mark.parametrize(
    ("ours", "peer", "lower_is_better", "ratio"),
    [(3.0, 2.0, False, 1.5), (3.0, 2.0, True, 0.667), (3.0, 0.0, False, None), (0.0, 2.0, True, None)],
)
def test_a_ratio_above_1_is_better_and_none_divides_by_0(
    capsys: pytest.CaptureFixture[str], ours: float, peer: float, lower_is_better: bool, ratio: float | None
) -> None:
    interleaved.report("f1", ours, peer, lower_is_better=lower_is_better, seed=1)
    result = {"name": "f1", "ours": ours, "peer": peer, "ratio": ratio, "seed": 1, "cpu": interleaved.processor()}
    assert json.loads(capsys.readouterr().out) == result and result["cpu"]


def test_the_cost_of_rounded_weights_is_measured_on_a_text(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {number * 37 % 101}\n" for number in range(300)))
    settings = ["model.dim=32", "model.depth=1", "model.heads=2", "model.max_positions=32", "batch_size=2"]
    loop = ["train.steps=3", "train.evaluate_every=3", "train.device=cpu"]
    run = saccade.train(text, task="language_model", root=tmp_path, overrides=[*settings, *loop], progress=False)
    quantize.compare(str(run.path), text)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [line["dtype"] for line in lines] == ["int8", "int4"]
    for line in lines:
        assert line["cost"] == pytest.approx(line["loss"] / line["float32_loss"] - 1, abs=2e-6)
        assert abs(line["cost"]) < 0.05 and 0.5 < line["agreement"] <= 1


def test_a_peer_that_is_not_installed_is_left_out_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert interleaved.available(["ours", "nowhere"], "nowhere") == ["ours"]
    assert capsys.readouterr().err == (
        "nowhere is not installed and left out; pip install --no-deps --target peers nowhere torchvision, and set "
        "PYTHONPATH=peers\n"
    )
    assert interleaved.available(["ours", "torch"], "torch") == ["ours", "torch"]


def test_the_tables_of_a_random_graph_have_the_nodes_and_edges_that_are_asked_for(tmp_path: Path) -> None:
    graphs.write_tables(tmp_path / "graph", 40, 300, features=3, labels=4)
    (graph,) = read_graphs(tmp_path / "graph", GraphSettings(), "node").graphs
    assert (len(graph), len(graph.source)) == (40, 300) and len(set(graph.node_labels)) == 4
    assert list(graph.node_columns) == ["feature0", "feature1", "feature2"]


@pytest.mark.slow
def test_the_memory_of_training_on_a_graph_is_that_of_the_command() -> None:
    """In a process of its own: the peak of a process counts that of the one that starts it."""
    command = [sys.executable, str(graphs.__file__), "--large", "--nodes", "100", "--edges", "300"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    _, *lines = [json.loads(line) for line in output.splitlines()]
    assert [(line["model"], line["nodes"], line["edges"]) for line in lines] == [
        ("gat", 100, 300),
        ("transformer", 100, 300),
    ]
    assert all(0.1 < line["peak_gb"] < 4 and line["seconds"] > 0 for line in lines)
