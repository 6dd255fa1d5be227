"""Attention snapshots: what is kept of a step, and that a long or deep model does not fill the disk."""

import base64
import json

import numpy as np
import pytest
import torch

from saccade.core import AttentionMap, AttentionMaps, GridAxis, Prediction, Role, TextOutput, TokenAxis
from saccade.errors import ModelFileError
from saccade.runs import snapshots
from saccade.runs.snapshots import pack, write_snapshot


def example(layers=2, tokens=5):
    axis = TokenAxis(Role.TEXT, tuple(f"t{n}" for n in range(tokens)))
    maps = [AttentionMap(f"layer.{n}", torch.rand(3, tokens, tokens).softmax(-1), axis, axis) for n in range(layers)]
    return Prediction({"text": "in"}, TextOutput("out"), {}, AttentionMaps(maps))


def test_weights_are_kept_to_a_byte(tmp_path):
    prediction = example()
    write_snapshot(tmp_path, 7, pack([prediction]))
    snapshot = json.loads((tmp_path / "attention" / "step-00000007.json").read_text())
    assert snapshot["step"] == 7
    (kept,) = snapshot["examples"]
    assert kept["inputs"] == {"text": "in"} and kept["output"] == "out"
    assert [part["name"] for part in kept["maps"]] == ["layer.0", "layer.1"]
    assert kept["maps"][1]["keys"]["labels"] == ["t0", "t1", "t2", "t3", "t4"]
    numbers = np.frombuffer(base64.b64decode(kept["maps"][1]["weights"]), np.uint8).reshape(3, 5, 5) / 255
    assert np.abs(numbers - prediction.attention["layer.1"].weights.numpy()).max() <= 0.5 / 255 + 1e-6


def test_long_texts_and_deep_models_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "WEIGHTS", 3 * 48 * 48 * 2)
    write_snapshot(tmp_path, 1, pack([example(layers=8, tokens=100)]))
    snapshot = json.loads((tmp_path / "attention" / "step-00000001.json").read_text())
    maps = snapshot["examples"][0]["maps"]
    assert [part["name"] for part in maps] == ["layer.0", "layer.4"]
    assert len(maps[0]["queries"]["labels"]) == 48
    assert len(base64.b64decode(maps[0]["weights"])) == 3 * 48 * 48


def over_image(layers=3, rows=4, columns=4, extra=("class",)):
    grid = GridAxis(Role.IMAGE, rows, columns, torch.zeros(3, 8, 8, dtype=torch.uint8), extra)
    count = len(grid)
    maps = [AttentionMap(f"encoder.{n}", torch.rand(2, count, count).softmax(-1), grid, grid) for n in range(layers)]
    return Prediction({"image": torch.zeros(1, 8, 8, dtype=torch.uint8)}, TextOutput("out"), {}, AttentionMaps(maps))


def test_maps_over_an_image_keep_all_cells_fine_weights_and_the_image_once():
    prediction = over_image()
    (kept,) = pack([prediction])
    assert len(kept["images"]) == 1 and {part["keys"]["image"] for part in kept["maps"]} == {0}
    first = kept["maps"][0]
    numbers = np.frombuffer(base64.b64decode(first["weights"]), "<u2").reshape(2, 17, 17) / 65535
    assert first["encoding"] == "uint16"
    assert np.abs(numbers - prediction.attention["encoder.0"].weights.numpy()).max() <= 0.5 / 65535 + 1e-7


def test_a_large_grid_is_kept_by_the_mean_of_its_cells_and_counts_whole(monkeypatch):
    monkeypatch.setattr(snapshots, "WEIGHTS", 2 * 17 * 17)
    (kept,) = pack([over_image()])
    assert [part["name"] for part in kept["maps"]] == ["encoder.0"], "each map fits, three do not"
    monkeypatch.setattr(snapshots, "WEIGHTS", 2 * 17 * 17 - 1)
    prediction = over_image()
    (kept,) = pack([prediction])
    assert [part["name"] for part in kept["maps"]] == ["encoder.0", "encoder.1", "encoder.2"]
    assert kept["maps"][0]["queries"]["labels"] == ["class", "mean of 16 cells"]
    numbers = np.frombuffer(base64.b64decode(kept["maps"][0]["weights"]), "<u2").reshape(2, 2, 17) / 65535
    expected = prediction.attention["encoder.0"].weights[:, 1:].mean(1).numpy()
    assert np.abs(numbers[:, 1] - expected).max() <= 1e-5


def test_without_attention_nothing_is_written(tmp_path):
    write_snapshot(tmp_path, 1, pack([Prediction({"text": "in"}, TextOutput("out"))]))
    write_snapshot(tmp_path, 1, [])
    assert not (tmp_path / "attention").exists()


def test_a_changed_snapshot_is_refused(tmp_path):
    write_snapshot(tmp_path, 7, pack([example(layers=1, tokens=3)]))
    assert snapshots.read_snapshot(tmp_path, 7)["step"] == 7
    path = tmp_path / "attention" / "step-00000007.json"
    path.write_bytes(path.read_bytes().replace(b"7", b"8", 1))
    with pytest.raises(ModelFileError, match=r"step-00000007\.json does not match the hash that it contains"):
        snapshots.read_snapshot(tmp_path, 7)
    write_snapshot(tmp_path, 8, pack([example(layers=1, tokens=3)]))
    path.write_bytes((tmp_path / "attention" / "step-00000008.json").read_bytes())
    with pytest.raises(ModelFileError, match=r"step-00000007\.json must be of step 7, but is of step 8"):
        snapshots.read_snapshot(tmp_path, 7)
